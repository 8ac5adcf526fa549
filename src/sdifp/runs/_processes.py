"""Several processes that train one run together.

Every process computes the same numbers; only the primary process, which has the number
0, writes. Without `jax.distributed` there is one process and nothing is sent.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

Result = TypeVar("Result")

# Messages are padded to a multiple of this size: each size is compiled once.
_BLOCK = 1024


class RunError(RuntimeError):
    """A run cannot go on. What was computed is kept."""


def is_primary() -> bool:
    """Whether this is the process that writes."""
    return jax.process_index() == 0


def on_primary(work: Callable[[], Result]) -> Result | None:
    """Call `work` on the primary process only; returns None on the others."""
    return work() if is_primary() else None


def allgather_json(value: Any) -> list[Any]:
    """The values of all processes, which JSON can represent, by process number."""
    if jax.process_count() == 1:
        return [value]
    from jax.experimental.multihost_utils import process_allgather

    data = np.frombuffer(json.dumps(value).encode(), np.uint8)
    # int32 at any precision: the processes may differ in it.
    lengths = np.asarray(process_allgather(np.asarray([data.size], np.int32)))[:, 0]
    size = -(-int(lengths.max()) // _BLOCK) * _BLOCK
    rows = np.asarray(process_allgather(np.pad(data, (0, size - data.size))))
    return [json.loads(r[:n].tobytes()) for r, n in zip(rows, lengths, strict=True)]


def check_same_on_all(settings: dict[str, Any]) -> None:
    """Raise `ValueError` on every process unless the settings, which JSON can
    represent, are the same on all of them."""
    if jax.device_count() != jax.process_count() * jax.local_device_count():
        raise ValueError(
            f"all processes must have the same number of devices, got "
            f"{jax.local_device_count()} of {jax.device_count()} on process "
            f"{jax.process_index()} of {jax.process_count()}"
        )
    first, *others = allgather_json(settings)
    differences = [
        f"{name} is {first.get(name)!r} on process 0 and {other.get(name)!r} on "
        f"process {number}"
        for number, other in enumerate(others, 1)
        for name in first | other
        if first.get(name) != other.get(name)
    ]
    if differences:
        raise ValueError(f"the processes differ: {'; '.join(differences)}")
