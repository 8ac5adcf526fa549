"""Frozen fields: the numbers of a correction as tables in time, and their file. NumPy
alone.

A table is refined until it is accurate. Its file is an `.npz` archive of plain arrays.
A file may come from anywhere, so all of it is checked: entries are neither compressed
nor pickled, no array is larger than the file, a checksum covers every one of them, and
the tables must be tables.
"""

import hashlib
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._files import write_whole

# A reader refuses what it does not know.
_VERSION = 2

_CHECKSUM = "checksum"

# The Chebyshev grids that are tried until the tolerance is met; a field that needs more
# is not smooth in time.
_COUNTS = (32, 64, 128, 256, 512)


class FrozenTables(NamedTuple):
    """The numbers of a correction at some times, and what else is known of a frozen
    field."""

    times: np.ndarray | None
    "the nodes in time; None for a network without time"
    weights: np.ndarray | None
    "barycentric weights of the nodes"
    accuracy: float
    dimension: int
    has_profile: bool
    tables: Mapping[str, np.ndarray]
    "by name, times on the first axis: of the paper's map `scales` and `shifts`"


def save_frozen(
    file: str | Path, tables: FrozenTables, arrays: Mapping[str, np.ndarray]
) -> None:
    """Write tables and the arrays of a network, whole or not at all."""
    single = zip(FrozenTables._fields[:-1], tables[:-1], strict=True)
    known = {k: np.asarray(v) for k, v in single if v is not None}
    entries = {
        **arrays,
        **known,
        **tables.tables,
        "version": np.array(_VERSION),
    }
    entries[_CHECKSUM] = np.array(_digest(entries))
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **entries)
    write_whole(Path(file), buffer.getvalue())


def load_frozen(
    file: str | Path, names: Sequence[str], has_profile: bool
) -> tuple[FrozenTables, dict[str, np.ndarray]]:
    """The tables of these names, and the other arrays. Raises `ValueError` if the file
    is damaged or not a frozen field, or if it was frozen with a profile and none is
    given, or the other way round."""
    try:
        entries = _entries(Path(file).read_bytes())
        version = int(_scalar(entries, "version", "i"))
        if version == _VERSION:
            if str(_scalar(entries, _CHECKSUM, "U")) != _digest(entries):
                raise ValueError("it is damaged: its checksum does not match")
            tables = _tables(entries, names)
    # Whatever goes wrong in reading bytes that may be anything.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{file} is not a frozen field: {reason}") from None
    if version != _VERSION:
        raise ValueError(
            f"{file} has format {version}, and this version of sdifp reads "
            f"{_VERSION}; freeze the field again and save it"
        )
    if tables.has_profile != has_profile:
        what = "was frozen with" if tables.has_profile else "was frozen without"
        need = "give it as profile" if tables.has_profile else "leave out profile"
        raise ValueError(f"{file} {what} a profile: {need}")
    own = {*FrozenTables._fields, *names, "version", _CHECKSUM}
    return tables, {k: v for k, v in entries.items() if k not in own}


def fit_arrays(
    file: str | Path,
    saved: Mapping[str, np.ndarray],
    wanted: Mapping[str, Any],
) -> None:
    """Raise `ValueError` unless the arrays of a file are those that a network has, by
    name. Formats that NumPy lacks (bfloat16) are stored as plain bytes."""
    extra, missing = sorted(set(saved) - set(wanted)), sorted(set(wanted) - set(saved))
    if extra or missing:
        where = f"{file} has" if extra else "net has"
        raise ValueError(
            f"net must have the structure of the saved network: it has {len(wanted)} "
            f"arrays, {file} has {len(saved)}, and only {where} "
            f"{(extra or missing)[0]}"
        )
    for name, own in wanted.items():
        array, dtype = saved[name], np.dtype(own.dtype)
        if array.shape != own.shape:
            raise ValueError(
                f"net must have the structure of the saved network: {name} has shape "
                f"{own.shape} in net and {array.shape} in {file}"
            )
        same_size = dtype.kind != "V" or array.dtype.itemsize == dtype.itemsize
        if array.dtype.kind != dtype.kind or not same_size:
            raise ValueError(
                f"net must have arrays of the saved kind: {name} is {array.dtype} in "
                f"{file}, and {dtype} in net"
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


def _tables(entries: Mapping[str, np.ndarray], names: Sequence[str]) -> FrozenTables:
    found = {n: entries[n] for n in ("times", "weights", *names) if n in entries}
    for name, table in found.items():
        if table.dtype.kind != "f" or not np.isfinite(table).all():
            raise ValueError(f"its {name} must be finite floating-point numbers")
    times, weights = found.pop("times", None), found.pop("weights", None)
    if len(found) < len(names) or (times is None) != (weights is None):
        raise ValueError(
            f"it has no {' or no '.join(names)}, as of a field with other invariants, "
            f"or times without weights"
        )
    if times is not None and weights is not None:
        if times.ndim != 1 or times.size < 2 or not np.all(np.diff(times) > 0.0):
            raise ValueError("its times must increase, two of them at least")
        if weights.shape != times.shape or not np.all(weights):
            raise ValueError("its weights must be one for each time, and not zero")
    rows, shapes = 1 if times is None else times.size, [t.shape for t in found.values()]
    if any(not shape or shape[0] != rows for shape in shapes):
        raise ValueError(
            f"its {' and '.join(names)} must be tables with {rows} rows, and have "
            f"shapes {' and '.join(map(str, shapes))}"
        )
    accuracy = float(_scalar(entries, "accuracy", "f"))
    dimension = int(_scalar(entries, "dimension", "i"))
    if not 0.0 <= accuracy < np.inf or dimension < 1:
        raise ValueError(f"its accuracy is {accuracy} and its dimension {dimension}")
    has_profile = bool(_scalar(entries, "has_profile", "b"))
    return FrozenTables(times, weights, accuracy, dimension, has_profile, found)


def tabulate(
    sample: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    times: Any,
    tolerance: float | None,
    eps: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """The nodes in time, their barycentric weights, the numbers of the correction at
    the nodes, and the largest error that was measured between them.

    **Arguments:**

    - `sample`: the numbers at some times, these on the first axis, and what an error in
        each is relative to.
    - `times`: first and last, or a whole grid.
    - `tolerance`: the relative error allowed; by default 1e-9, or rounding.
    - `eps`: the unit of rounding.
    """
    if tolerance is None:
        tolerance = max(1e-9, 64 * eps)
    if not tolerance >= 8 * eps:
        raise ValueError(
            f"tolerance must be at least {8 * eps:.1g}, which is rounding, got "
            f"{tolerance}"
        )
    given = np.ravel(np.asarray(times, float))
    if given.size < 2 or not np.all(np.diff(given) > 0) or not np.isfinite(given).all():
        raise ValueError(
            f"times must be finite and increasing, first and last or a whole grid, got "
            f"{given.tolist()}"
        )

    def measured(grid: np.ndarray, weights: np.ndarray, table: np.ndarray) -> float:
        """The largest relative error half way between the nodes."""
        middle = 0.5 * (grid[1:] + grid[:-1])
        truth, units = sample(middle)
        found = np.stack([_barycentric(t, grid, weights, table) for t in middle])
        unit = np.maximum(units.max(axis=0), np.finfo(float).tiny)
        return float(np.max(np.abs(found - truth).max(axis=0) / unit))

    if given.size > 2:
        grids = iter([(given, floater_hormann(given))])
    else:
        grids = (chebyshev(given[0], given[1], n) for n in _COUNTS)
    for grid, weights in grids:
        table = sample(grid)[0]
        accuracy = measured(grid, weights, table)
        if accuracy <= tolerance:
            return grid, weights, table, accuracy
    raise ValueError(
        f"tolerance = {tolerance:g} was not reached with {grid.size} times: the "
        f"correction is interpolated to {accuracy:.1e}; give more times, a shorter "
        f"range or a larger tolerance"
    )


def chebyshev(first: float, last: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Chebyshev points of the second kind, and their barycentric weights."""
    angle = np.linspace(np.pi, 0.0, n + 1)
    nodes = 0.5 * (first + last) + 0.5 * (last - first) * np.cos(angle)
    nodes[0], nodes[-1] = first, last
    weights = np.where(np.arange(n + 1) % 2, -1.0, 1.0)
    weights[[0, -1]] *= 0.5
    return nodes, weights


def floater_hormann(nodes: np.ndarray, degree: int = 4) -> np.ndarray:
    """Barycentric weights of the rational interpolant without poles on any grid
    (Floater and Hormann, 2007)."""
    n, d = len(nodes) - 1, min(degree, len(nodes) - 1)
    weights = np.zeros(n + 1)
    # Differences relative to the mean step, so that no product overflows.
    x = nodes / ((nodes[-1] - nodes[0]) / n)
    for k in range(n + 1):
        for i in range(max(0, k - d), min(n - d, k) + 1):
            others = [j for j in range(i, i + d + 1) if j != k]
            weights[k] += (-1.0) ** i / np.prod(x[k] - x[others])
    return weights


def _barycentric(
    t: float, nodes: np.ndarray, weights: np.ndarray, table: np.ndarray
) -> np.ndarray:
    terms = weights / (t - nodes)
    return np.asarray(np.tensordot(terms, table, axes=1) / terms.sum())
