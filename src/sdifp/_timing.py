"""How times are taken: warmed up, in turns, best third."""

import statistics
import time
from collections.abc import Callable, Mapping

import jax


def interleaved(
    runs: int, contenders: Mapping[str, Callable[[], object]], settle: bool = False
) -> dict[str, float]:
    """Seconds of one call of each contender: the median of the best third of runs in
    turns; with `settle` each after one that is not timed, so that none pays for the
    memory of another."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        jax.block_until_ready(run())
    for _ in range(runs):
        for name, run in contenders.items():
            if settle:
                jax.block_until_ready(run())
            start = time.perf_counter()
            jax.block_until_ready(run())
            times[name].append(time.perf_counter() - start)
    keep = max(1, runs // 3)
    return {k: statistics.median(sorted(v)[:keep]) for k, v in times.items()}
