"""Several processes that train one run together: what they tell each other.

Each one computes the same; the first one alone writes. Without `jax.distributed` there
is one process, and nothing is sent.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

Result = TypeVar("Result")


class RunError(RuntimeError):
    """A run cannot go on. What was computed is kept."""


def is_first() -> bool:
    """Whether this is the process that writes."""
    return jax.process_index() == 0


def told(value: Any) -> list[Any]:
    """What each process has to say, as JSON can, in their order."""
    if jax.process_count() == 1:
        return [value]
    data = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = _all(np.asarray([data.size]))[:, 0]
    padded = np.pad(data, (0, int(lengths.max()) - data.size))
    rows = zip(_all(padded), lengths, strict=True)
    return [json.loads(row[:length].tobytes()) for row, length in rows]


def agreed(numbers: Sequence[int]) -> np.ndarray:
    """A few whole numbers of each process, one row for each."""
    if jax.process_count() == 1:
        return np.asarray(numbers)[None]
    return _all(np.asarray(numbers))


def by_first(work: Callable[[], Result]) -> Result | None:
    """Have the first process do something; where it fails, all of them do. Returns None
    on the others."""
    if jax.process_count() == 1:
        return work()
    out, error = None, None
    if is_first():
        try:
            out = work()
        except Exception as found:
            error = found
    kind, text = told((type(error).__name__, str(error)) if error else ("", ""))[0]
    if error is not None:
        raise error
    if kind:
        raise (ValueError if kind == "ValueError" else RunError)(f"process 0: {text}")
    return out


def check_alike(work: Callable[[], dict[str, Any]]) -> None:
    """Raise `ValueError` on every process unless what it makes is the same on all:
    names and values of settings. An error on one of them is told by all."""
    settings, error = {}, None
    try:
        settings = work()
    except Exception as found:
        error = found
    rows = told({"error": None if error is None else str(error), "is": settings})
    if error is not None:
        raise error
    for number, row in enumerate(rows):
        if row["error"] is not None:
            raise ValueError(f"process {number}: {row['error']}")
    differences = [
        f"{name} is {rows[0]['is'].get(name)!r} on process 0 and "
        f"{row['is'].get(name)!r} on process {number}"
        for number, row in enumerate(rows)
        for name in {**rows[0]["is"], **row["is"]}
        if row["is"].get(name) != rows[0]["is"].get(name)
    ]
    if differences:
        raise ValueError(f"the processes do not agree: {'; '.join(differences)}")


def _all(row: np.ndarray) -> np.ndarray:
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(row))
