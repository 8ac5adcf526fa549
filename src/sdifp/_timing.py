"""How times are taken: after a warm-up, blocking, the contenders in turns."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import jax

Name = TypeVar("Name")


def samples(
    runs: int, contenders: Mapping[Name, Callable[[], object]], settle: bool = False
) -> dict[Name, list[float]]:
    """Seconds of each of `runs` calls of each contender, in turns, after one call of
    each that is not timed; with `settle` each timed call follows one that is not, so
    that no contender pays for the memory of another."""
    times: dict[Name, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        jax.block_until_ready(run())
    for _ in range(runs):
        for name, run in contenders.items():
            if settle:
                jax.block_until_ready(run())
            start = time.perf_counter()
            jax.block_until_ready(run())
            times[name].append(time.perf_counter() - start)
    return times


def interleaved(
    runs: int, contenders: Mapping[Name, Callable[[], object]], settle: bool = False
) -> dict[Name, float]:
    """Seconds of one call of each contender: the median of the best third of its
    `samples`."""
    keep = max(1, runs // 3)
    found = samples(runs, contenders, settle)
    return {name: statistics.median(sorted(v)[:keep]) for name, v in found.items()}
