"""Checkpoints are whole, or they are not there."""

import errno
import os

import numpy as np
import pytest

from sdifp._folder import write_whole
from sdifp.runs._checkpoint import (
    checkpoint_files,
    digest_of,
    latest_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    write_checkpoint,
)

ARRAYS = {
    "state/net/0/weight": np.linspace(0.0, 1.0, 6).reshape(2, 3),
    "state/step": np.asarray(7),
    "known": np.array([np.nan, -0.0, 1e-300], np.float32),
}
INFO = {"config": {"steps": 3}, "versions": {}}


def quiet(text):
    raise AssertionError(text)


def test_what_is_read_is_what_was_written(tmp_path):
    file = write_checkpoint(tmp_path, 7, ARRAYS, INFO)
    arrays, info = read_checkpoint(file)
    assert info == INFO
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].tobytes() == array.tobytes()
    assert [f.name for f in tmp_path.iterdir()] == [file.name]


def test_arrays_that_need_pickle_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="Object arrays"):
        write_checkpoint(tmp_path, 1, {"a": np.array([{}], object)}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("cut", [True, False])
def test_damaged_ones_are_passed_over(tmp_path, place, cut):
    for step in (3, 20, 100):
        write_checkpoint(tmp_path, step, ARRAYS | {"s": np.asarray(step)}, INFO)
    newest = checkpoint_files(tmp_path)[-1]
    data = bytearray(newest.read_bytes())
    at = int(place * len(data))
    if cut:
        del data[at:]
    else:
        data[at] ^= 1
    newest.write_bytes(data)
    said = []
    found = latest_checkpoint(tmp_path, said.append)
    assert found.arrays["s"] == 20
    assert found.damaged == [newest]
    assert len(said) == 1
    assert newest.name in said[0]
    assert "is damaged" in said[0]


def test_no_good_checkpoint_is_an_error(tmp_path):
    words = r"checkpoints are gone; .* begin again in a new folder with `sdifp train --"
    with pytest.raises(ValueError, match=words):
        latest_checkpoint(tmp_path, quiet)
    write_checkpoint(tmp_path, 3, ARRAYS, INFO).write_bytes(b"")
    with pytest.raises(ValueError, match="all of its checkpoints are damaged"):
        latest_checkpoint(tmp_path, lambda text: None)


def test_the_last_few_are_kept_and_what_was_half_written_goes(tmp_path):
    for step in (2, 1000000000, 30, 4):
        write_checkpoint(tmp_path, step, ARRAYS, {})
    (tmp_path / ".step-000000005-00.npz.partial").write_bytes(b"half")
    prune_checkpoints(tmp_path, 2)
    steps = [int(f.name.split("-")[1]) for f in checkpoint_files(tmp_path)]
    assert steps == [30, 1000000000]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch, call):
    file = tmp_path / "a"
    write_whole(file, b"old")

    def fail(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(type(file), "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"
    assert [f.name for f in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("data", [b"", b"PK", b"\x93NUMPY"])
def test_a_file_with_its_digest_that_is_no_checkpoint(tmp_path, data):
    file = tmp_path / f"step-000000003-{digest_of(data)[:16]}.npz"
    file.write_bytes(data)
    with pytest.raises(ValueError, match="is not a checkpoint"):
        read_checkpoint(file)
    for info in ({}, {"config": {}}):
        with pytest.raises(ValueError, match="does not say of which run it is"):
            read_checkpoint(write_checkpoint(tmp_path, 4, ARRAYS, info))
