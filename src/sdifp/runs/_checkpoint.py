"""Checkpoints: one file each, written whole or not at all, with a digest in its name.

A file is an `.npz` archive of plain arrays. It is written under another name, flushed
to the disk and renamed, so that a process that dies leaves the one before."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._folder import CHECKPOINT, checkpoint_files, write_whole

# The entry that holds what is not an array, as JSON, and what is in it.
_INFO = "info"
_OF_INFO = {"config", "versions"}


def write_checkpoint(
    folder: Path, step: int, arrays: Mapping[str, np.ndarray], info: dict[str, Any]
) -> Path:
    """Write a checkpoint; returns its file."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(info).encode(), np.uint8)
    np.savez(buffer, allow_pickle=False, **{_INFO: text, **arrays})
    data = buffer.getvalue()
    file = folder / f"step-{step:09d}-{_digest(data)}.npz"
    write_whole(file, data)
    return file


def read_checkpoint(file: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and info of a checkpoint. Raises `ValueError` if it is damaged."""
    name = CHECKPOINT.fullmatch(file.name)
    data = file.read_bytes()
    if name is None or _digest(data) != name[2]:
        raise ValueError(f"checkpoint {file} is damaged: its digest is not in its name")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {k: archive[k] for k in archive.files}
        info = json.loads(arrays.pop(_INFO).tobytes())
        if not isinstance(info, dict) or not info.keys() >= _OF_INFO:
            raise ValueError("it does not say of which run it is")
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is not a checkpoint: {error}") from None
    return arrays, info


class Found(NamedTuple):
    """The newest checkpoint that is not damaged, and those after it that are."""

    file: Path
    arrays: dict[str, np.ndarray]
    info: dict[str, Any]
    damaged: list[Path]


def latest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Found:
    """The newest checkpoint that is not damaged. Raises `ValueError` if there is none:
    a run begins with one."""
    files = checkpoint_files(folder)
    damaged: list[Path] = []
    for file in reversed(files):
        try:
            return Found(file, *read_checkpoint(file), damaged)
        except (ValueError, OSError) as error:
            before = "" if file is files[0] else "; falling back to the one before"
            warn(f"{error}{before}")
            damaged.append(file)
    what = "all of its checkpoints are damaged" if files else "its checkpoints are gone"
    raise ValueError(
        f"{folder.parent} cannot be resumed: {what}; restore them from a copy, or "
        f"begin again in a new folder with `sdifp train --config "
        f"{folder.parent / 'config.toml'} --out ...`"
    )


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the last few, and what was left half written. For the process that
    trains: another one may be writing."""
    for file in [*checkpoint_files(folder)[:-keep], *folder.glob(".*.partial")]:
        file.unlink(missing_ok=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
