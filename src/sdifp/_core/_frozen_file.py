"""The file of a frozen field: an `.npz` archive of plain arrays. NumPy alone.

A file may come from anywhere, so all of it is checked: entries are neither compressed
nor pickled, no array is larger than the file, a checksum covers every one of them, and
the tables must be tables.
"""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._files import write_whole

# A reader refuses what it does not know.
_VERSION = 2

_CHECKSUM = "checksum"


class FrozenTables(NamedTuple):
    """Scale and shift at some times, and what else is known of a frozen field."""

    times: np.ndarray | None
    "the nodes in time; None for a network without time"
    weights: np.ndarray | None
    "barycentric weights of the nodes"
    scales: np.ndarray
    "shape (times,), or (times, components)"
    shifts: np.ndarray
    accuracy: float
    dimension: int
    has_profile: bool


def save_frozen(
    file: str | Path, tables: FrozenTables, arrays: Mapping[str, np.ndarray]
) -> None:
    """Write tables and the arrays of a network, whole or not at all."""
    known = {k: v for k, v in tables._asdict().items() if v is not None}
    entries = {
        **arrays,
        **{k: np.asarray(v) for k, v in known.items()},
        "version": np.array(_VERSION),
    }
    entries[_CHECKSUM] = np.array(_digest(entries))
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **entries)
    write_whole(Path(file), buffer.getvalue())


def load_frozen(
    file: str | Path, has_profile: bool
) -> tuple[FrozenTables, dict[str, np.ndarray]]:
    """The tables, and the other arrays. Raises `ValueError` if the file is damaged or
    not a frozen field, or if it was frozen with a profile and none is given, or the
    other way round."""
    try:
        entries = _entries(Path(file).read_bytes())
        version = int(_scalar(entries, "version", "i"))
    # Whatever goes wrong in reading bytes that may be anything.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{file} is not a frozen field: {reason}") from None
    if version != _VERSION:
        raise ValueError(
            f"{file} has format {version}, and this version of sdifp reads "
            f"{_VERSION}; freeze the field again and save it"
        )
    try:
        if str(_scalar(entries, _CHECKSUM, "U")) != _digest(entries):
            raise ValueError("it is damaged: its checksum does not match")
        tables = _tables(entries)
    except ValueError as error:
        raise ValueError(f"{file} is not a frozen field: {error}") from None
    if tables.has_profile != has_profile:
        what = "was frozen with" if tables.has_profile else "was frozen without"
        need = "give it as profile" if tables.has_profile else "leave out profile"
        raise ValueError(f"{file} {what} a profile: {need}")
    own = {*FrozenTables._fields, "version", _CHECKSUM}
    return tables, {k: v for k, v in entries.items() if k not in own}


def fit_arrays(
    file: str | Path,
    saved: Mapping[str, np.ndarray],
    wanted: Mapping[str, tuple[tuple[int, ...], np.dtype | None, int]],
) -> None:
    """Raise `ValueError` unless the arrays of a file are those that a network has.

    **Arguments:**

    - `wanted`: shape, dtype and bytes of an entry of each; no dtype where NumPy does
        not have it, whose entries are stored as plain bytes.
    """
    extra, missing = sorted(set(saved) - set(wanted)), sorted(set(wanted) - set(saved))
    if extra or missing:
        where = f"{file} has" if extra else "net has"
        raise ValueError(
            f"net must have the structure of the saved network: it has {len(wanted)} "
            f"arrays, {file} has {len(saved)}, and only {where} "
            f"{(extra or missing)[0]}"
        )
    for name, (shape, dtype, size) in wanted.items():
        array = saved[name]
        if array.shape != shape:
            raise ValueError(
                f"net must have the structure of the saved network: {name} has shape "
                f"{shape} in net and {array.shape} in {file}"
            )
        plain = array.dtype.kind == "V" and array.dtype.itemsize == size
        if not (plain if dtype is None else array.dtype.kind == dtype.kind):
            raise ValueError(
                f"net must have arrays of the saved kind: {name} is {array.dtype} in "
                f"{file}, and {'another format' if dtype is None else dtype} in net"
            )


def _entries(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of an archive; never more bytes than it has."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = archive.infolist()
        if any(m.compress_type != zipfile.ZIP_STORED for m in found):
            raise ValueError("its entries are compressed")
        if sum(m.file_size for m in found) > len(data):
            raise ValueError("its entries overlap")
        members = {m.filename.removesuffix(".npy"): archive.read(m) for m in found}
    if len(members) < len(found):
        raise ValueError("it has two entries of one name")
    return {
        name: np.lib.format.read_array(io.BytesIO(raw), allow_pickle=False)
        for name, raw in members.items()
    }


def _digest(entries: Mapping[str, np.ndarray]) -> str:
    """Of names, types, shapes and contents."""
    digest = hashlib.sha256()
    for name in sorted(set(entries) - {_CHECKSUM}):
        array = entries[name]
        # Formats that NumPy lacks (bfloat16) come back as plain bytes.
        plain = array.dtype.kind == "V"
        dtype = f"V{array.dtype.itemsize}" if plain else array.dtype.str
        digest.update(f"{name} {dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _scalar(entries: Mapping[str, np.ndarray], name: str, kind: str) -> Any:
    if name not in entries:
        raise ValueError(f"it has no {name}")
    value = entries[name]
    if value.shape != () or value.dtype.kind != kind:
        raise ValueError(f"its {name} is {value.dtype} of shape {value.shape}")
    return value[()]


def _tables(entries: Mapping[str, np.ndarray]) -> FrozenTables:
    times, weights, scales, shifts = found = [
        entries.get(name) for name in FrozenTables._fields[:4]
    ]
    for name, table in zip(FrozenTables._fields, found, strict=False):
        if table is None:
            continue
        if table.dtype.kind != "f" or not np.isfinite(table).all():
            raise ValueError(f"its {name} must be finite floating-point numbers")
    if scales is None or shifts is None or (times is None) != (weights is None):
        raise ValueError("it has no scales, no shifts, or times without weights")
    if times is not None and weights is not None:
        if times.ndim != 1 or times.size < 2 or not np.all(np.diff(times) > 0.0):
            raise ValueError("its times must increase, two of them at least")
        if weights.shape != times.shape or not np.all(weights):
            raise ValueError("its weights must be one for each time, and not zero")
    rows = 1 if times is None else times.size
    one_shape = scales.shape == shifts.shape and scales.ndim in (1, 2) and scales.size
    if not one_shape or len(scales) != rows:
        raise ValueError(
            f"its scales and shifts must be tables of one shape with {rows} rows, and "
            f"have shapes {scales.shape} and {shifts.shape}"
        )
    accuracy = float(_scalar(entries, "accuracy", "f"))
    dimension = int(_scalar(entries, "dimension", "i"))
    if not 0.0 <= accuracy < np.inf or dimension < 1:
        raise ValueError(f"its accuracy is {accuracy} and its dimension {dimension}")
    has_profile = bool(_scalar(entries, "has_profile", "b"))
    return FrozenTables(
        times, weights, scales, shifts, accuracy, dimension, has_profile
    )
