"""Files of frozen fields: what is read is what was written, or one sentence says why
not. Files may come from anyone."""

import io
import re
import subprocess
import sys
import traceback
import warnings
import zipfile
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pages import code_under

import sdifp

BOX = sdifp.Box([0.0], [2.0], periodic=True)
RULE = sdifp.quadrature.trapezoid(BOX, 16)


class Net(eqx.Module):
    weight: jax.Array
    steps: jax.Array
    out: int = eqx.field(static=True, default=0)

    def __call__(self, x, t):
        value = (
            jnp.exp(jnp.sin(jnp.pi * x[0] + self.weight[0]) * (1.0 + t))
            + self.weight[1]
        )
        return jnp.stack([value] * self.out) if self.out else value * self.steps[0]


def net(first=0.3, **options):
    return Net(jnp.array([first, 0.1]), jnp.array([1, 2]), **options)


FROZEN = sdifp.conserve(net(), RULE, lambda t: 1.0 + 0.2 * t, 3.0).freeze((0.0, 1.0))
BLANK = net(0.0)


@pytest.fixture
def file(tmp_path):
    FROZEN.save(tmp_path / "field.npz")
    return tmp_path / "field.npz"


def entries(file):
    with np.load(file, allow_pickle=False) as data:
        return dict(data)


def load(file, net=BLANK):
    """The field, or the sentence that is said instead."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return sdifp.field.FrozenField.load(file, net)
        except ValueError as error:
            text = "".join(traceback.format_exception(error))
    # One sentence, and no other error above it.
    assert text.count("Traceback") == 1
    return text.split("ValueError: ")[-1].removesuffix("\n")


def sign(arrays):
    """Entries with the checksum that belongs to them, as someone hostile makes it."""
    from sdifp._core._frozen import _digest

    return {**arrays, "checksum": np.array(_digest(arrays))}


def test_what_is_read_is_what_was_written(file):
    assert bool(eqx.tree_equal(load(file), FROZEN))


def test_any_flipped_bit_is_noticed_or_harmless(file):
    good, random = file.read_bytes(), np.random.default_rng(0)
    said = 0
    for place in random.integers(0, 8 * len(good), 400):
        data = bytearray(good)
        data[place // 8] ^= 1 << (place % 8)
        file.write_bytes(data)
        found = load(file)
        if isinstance(found, str):
            said += 1
            assert "is not a frozen field" in found or "has format" in found
        else:
            assert bool(eqx.tree_equal(found, FROZEN))
    assert said > 200


def test_the_checksum_notices_what_the_archive_does_not(file):
    arrays = entries(file)
    arrays["scales"] = arrays["scales"] + np.eye(len(arrays["scales"]))[3] * 1e-15
    np.savez(file, **arrays)
    assert "checksum does not match" in load(file)


def test_a_file_that_was_cut_off(file):
    good = file.read_bytes()
    for length in [*range(0, len(good), 997), len(good) - 1]:
        file.write_bytes(good[:length])
        assert "is not a frozen field" in load(file)


def without(name):
    return lambda arrays: {k: v for k, v in arrays.items() if k != name}


def changed(name, change):
    return lambda arrays: {**arrays, name: np.asarray(change(arrays[name]))}


def with_nan(a):
    return np.where(np.arange(a.size) == 2, np.nan, a)


HOSTILE = {
    **{
        f"no {name}": (without(name), "is not a frozen field")
        for name in ("times", "weights", "scales", "shifts", "accuracy", "dimension")
    },
    "no profile": (without("has_profile"), "has no has_profile"),
    "no version": (without("version"), "has no version"),
    "other version": (changed("version", lambda v: v + 1), "has format 3"),
    "first version": (changed("version", lambda v: v - 1), "has format 1"),
    "version of text": (changed("version", str), "its version is"),
    "times fall": (changed("times", lambda a: a[::-1]), "times must increase"),
    "times twice": (changed("times", lambda a: 0 * a), "times must increase"),
    "too few times": (changed("times", lambda a: a[:-1]), "weights must be one for"),
    "one time": (
        lambda a: {**a, **{k: a[k][:1] for k in ("times", "weights")}},
        "two of them at least",
    ),
    "too few rows": (
        lambda a: {**a, **{k: a[k][1:] for k in ("scales", "shifts")}},
        "tables with 33 rows",
    ),
    "no rows": (changed("scales", lambda a: a[:0]), "tables with 33 rows"),
    "flat times": (changed("times", lambda a: a.reshape(1, -1)), "times must increase"),
    "nan times": (changed("times", with_nan), "its times must be finite"),
    "nan scales": (changed("scales", with_nan), "its scales must be finite"),
    "nan weights": (changed("weights", with_nan), "its weights must be finite"),
    "zero weights": (changed("weights", np.zeros_like), "and not zero"),
    "scales of text": (changed("scales", lambda a: a.astype(str)), "floating-point"),
    "complex shifts": (changed("shifts", lambda a: a + 0j), "floating-point"),
    "integer shifts": (changed("shifts", lambda a: a.astype(int)), "floating-point"),
    "other shifts": (changed("shifts", lambda a: a[:3]), "tables with 33 rows"),
    "nan accuracy": (changed("accuracy", lambda a: np.nan), "its accuracy is nan"),
    "dimension": (changed("dimension", lambda a: -1), "its dimension -1"),
    "dimensions": (changed("dimension", lambda a: [1, 2]), "its dimension is"),
    "no leaf": (without("leaf_0001"), "only net has leaf_0001"),
    "more leaves": (
        lambda a: {**a, "leaf_0002": np.ones(2)},
        "has 3, and only .* has leaf_0002",
    ),
    "another leaf": (changed("leaf_0000", lambda a: a[:1]), r"shape \(2,\) in net and"),
    "leaf of text": (
        changed("leaf_0000", lambda a: a.astype(str)),
        "leaf_0000 is <U.* float64 in net",
    ),
    "leaf of bytes": (
        changed("leaf_0000", lambda a: a.view("V8")),
        r"leaf_0000 is \|V8",
    ),
    "real leaf": (
        changed("leaf_0001", lambda a: a.astype(float)),
        "leaf_0001 is float64.*int64 in net",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_wrong_arrays_with_the_right_checksum(name, file):
    change, sentence = HOSTILE[name]
    arrays = entries(file)
    np.savez(file, **sign(change(without("checksum")(arrays))))
    found = load(file)
    assert isinstance(found, str)
    assert re.search(sentence, found)


@pytest.mark.parametrize("checksum", [np.array(1), np.array("0" * 64), np.ones(2)])
def test_no_checksum_is_no_checksum(file, checksum):
    arrays = entries(file)
    np.savez(file, **{**arrays, "checksum": checksum})
    assert "checksum" in load(file)
    np.savez(file, **without("checksum")(arrays))
    assert "it has no checksum" in load(file)


def member(head, data=b""):
    """An array as a file, with any header."""
    head = head.encode().ljust(118 - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + data


def header(shape, dtype="<f8"):
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("executed"),)


HEADERS = {
    "huge": member(header("(1000000000000,)")),
    "huge and deep": member(header("(1000000, 1000000, 1000000)"), b"0" * 64),
    "beyond 64 bits": member(header("(10000000000000000000000,)")),
    "empty and huge": member(header("(0, 10000000000000000000000)")),
    "negative": member(header("(-8, -1)"), b"0" * 64),
    "too long": member(header("(2,)"), b"0" * 64),
    "nonsense": member("__import__('pathlib').Path('executed').touch()"),
    "nested": member("(" * 110),
    "no dtype": member(header("(2,)", "<q17"), b"0" * 16),
    "wide": member(header("(2,)", "<V1000000000000"), b"0" * 16),
    "objects": member(header("(1,)", "|O"), b"0" * 8),
    "cut off": member(header("(2,)"))[:40],
    "empty": b"",
    "text": b"no array",
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_lie(name, file, monkeypatch):
    monkeypatch.chdir(file.parent)
    with zipfile.ZipFile(file) as archive:
        members = {m.filename: archive.read(m) for m in archive.infolist()}
    members["scales.npy"] = HEADERS[name]
    with zipfile.ZipFile(file, "w") as archive:
        for key, data in members.items():
            archive.writestr(key, data)
    assert "is not a frozen field" in load(file)
    assert not Path("executed").exists()


def test_pickles_are_not_read(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    arrays = entries(file)
    np.savez(file, allow_pickle=True, **{**arrays, "scales": np.array([Bomb()])})
    assert "Object arrays cannot be loaded" in load(file)
    assert not Path("executed").exists()


def test_archives_that_grow(file):
    arrays = entries(file)
    np.savez_compressed(file, **{**arrays, "leaf_0000": np.zeros(10**7)})
    assert file.stat().st_size < 10**5
    assert "its entries are compressed" in load(file)
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(2):
            archive.writestr("scales.npy", member(header("(0,)")))
    assert "two entries of one name" in load(file)


def test_entries_that_overlap(file):
    # Each entry of the directory is moved to the data of the first one.
    buffer, size = io.BytesIO(), 10**5
    with zipfile.ZipFile(buffer, "w") as archive:
        for k in range(9):
            archive.writestr(f"leaf_{k:04d}.npy", bytes(size if k == 0 else 1))
        for info in archive.filelist[1:]:
            info.header_offset = archive.filelist[0].header_offset
            info.file_size = info.compress_size = size
    file.write_bytes(buffer.getvalue())
    assert "is not a frozen field" in load(file)


def test_files_that_cannot_be_read(tmp_path):
    assert "No such file" in load(tmp_path / "none.npz")
    assert "is not a frozen field" in load(tmp_path)


def test_networks_that_do_not_fit(file):
    sentence = r"net must give shape \(\) .* and a time, .* got \(2,\)"
    assert re.search(sentence, load(file, net(out=2)))
    arrays = [BLANK.weight, BLANK.steps]
    without_time = jax.tree_util.Partial(lambda w, s, x: x[0], *arrays)
    assert "net must take a point of shape (1,) and a time" in load(file, without_time)


def test_double_precision_is_read_in_single(file):
    want = float(FROZEN(jnp.array([0.4]), 0.3))
    with jax.enable_x64(False):
        again = sdifp.field.FrozenField.load(file, net(0.0))
        assert again.net.weight.dtype == jnp.float32
        assert float(again(jnp.array([0.4]), 0.3)) == pytest.approx(want, rel=1e-5)


def test_a_write_that_fails_leaves_the_old_file(file, monkeypatch):
    good = file.read_bytes()

    def fail(*arguments, **options):
        raise OSError("No space left")

    monkeypatch.setattr(Path, "replace", fail)
    for write in (FROZEN.save, FROZEN.export):
        with pytest.raises(OSError, match="No space"):
            write(file)
        assert file.read_bytes() == good
        assert [f.name for f in file.parent.iterdir()] == ["field.npz"]


def numpy_alone(folder, field, values, times, profile=1.0):
    """Values that the code of the page gives, without JAX or sdifp."""
    field.save(folder / "field.npz")
    np.savez(folder / "raw.npz", values=values, profile=profile)
    code = (
        f"{code_under('frozen.md', 'NumPy')}\n"
        "import sys\n"
        "raw = np.load('raw.npz')\n"
        f"values = [correct(raw['values'], t, raw['profile']) for t in {times}]\n"
        "np.save('out.npy', np.stack(values))\n"
        "assert not {'jax', 'sdifp'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return np.load(folder / "out.npy")


def test_the_numpy_code_of_the_page(tmp_path):
    xs = BOX.sample(jax.random.key(0), 7)
    raw = jax.vmap(lambda x: net()(x, 0.3))(xs)
    on_node = float(FROZEN.times[5])
    got = numpy_alone(tmp_path, FROZEN, raw, [0.3, 0.0, on_node, 1.0])
    for row, t in zip(got, (0.3, 0.0, on_node, 1.0), strict=True):
        scale, shift = FROZEN.coefficients(t)
        np.testing.assert_allclose(row, scale * raw + shift, rtol=1e-13)
    with pytest.raises(AssertionError, match=r"t must be from 0.0 to 1.0, got 1.5"):
        numpy_alone(tmp_path, FROZEN, raw, [1.5])


def test_the_numpy_code_of_the_page_for_components_and_a_profile(tmp_path):
    box = sdifp.Box([0.0], [1.0])
    bump = lambda x: x[0] * (1.0 - x[0])
    still = lambda x: jnp.stack([bump(x) * jnp.exp(x[0]), bump(x) * (2.0 + x[0])])
    rule = sdifp.quadrature.gauss_legendre(box, 12)
    frozen = sdifp.conserve(still, rule, [0.5, 0.1], [0.4, 0.2], profile=bump).freeze()
    xs = box.sample(jax.random.key(0), 7)
    column = jax.vmap(bump)(xs)[:, None]
    got = numpy_alone(tmp_path, frozen, jax.vmap(still)(xs), [None], column)
    np.testing.assert_allclose(got[0], jax.vmap(frozen)(xs), rtol=1e-13)
