"""Several processes that train one run together: what they tell each other.

Each one computes the same; the first one alone writes. Without `jax.distributed` there
is one process, and nothing is sent.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from ._build import where

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
    lengths = agreed([data.size])[:, 0]
    padded = np.pad(data, (0, int(lengths.max()) - data.size))
    rows = zip(_all(padded), lengths, strict=True)
    return [json.loads(row[:length].tobytes()) for row, length in rows]


def agreed(numbers: Sequence[int]) -> np.ndarray:
    """A few whole numbers of each process, one row for each."""
    # Of one type whatever the precision, in which processes may differ.
    row = np.asarray(numbers, np.int32)
    return row[None] if jax.process_count() == 1 else _all(row)


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
    wrong_input = isinstance(error, ValueError | TypeError)
    text, wrong_input = told((None if error is None else str(error), wrong_input))[0]
    if error is not None:
        raise error
    if text is not None:
        raise (ValueError if wrong_input else RunError)(f"process 0: {text}")
    return out


def check_devices() -> None:
    """Raise `ValueError` unless every process has as many devices: else they cannot
    tell each other anything."""
    counts = [0] * jax.process_count()
    for device in jax.devices():
        counts[device.process_index] += 1
    if len(set(counts)) > 1:
        which = ", ".join(f"{n} on process {k}" for k, n in enumerate(counts))
        raise ValueError(
            f"every process must have as many devices as the others, got {which}"
        )


def check_alike(work: Callable[[], dict[str, Any]]) -> None:
    """Raise `ValueError` on every process unless what it makes is the same on all:
    names and values of settings. An error on one of them is told by all."""
    settings, error, words = {}, None, None
    try:
        settings = work()
    # SystemExit: of `sys.exit` in a file of the user's.
    except (Exception, SystemExit) as found:
        error, words, place = found, str(found), where(found)
        if place is not None and place not in words:
            words = place
    rows = told({"error": words, "is": settings})
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
