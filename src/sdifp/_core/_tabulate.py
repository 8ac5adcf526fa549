"""Scale and shift as a table in time, refined until it is accurate. NumPy alone."""

from collections.abc import Callable
from typing import Any

import numpy as np

# The Chebyshev grids that are tried until the tolerance is met; a field that needs more
# is not smooth in time.
_COUNTS = (32, 64, 128, 256, 512)


def tabulate(
    sample: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    times: Any,
    tolerance: float | None,
    eps: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """The nodes in time, their barycentric weights, scale and shift at the nodes, and
    the largest error that was measured between them.

    **Arguments:**

    - `sample`: scale and shift at some times, shape (times, 2, ...), and the size of
        the raw network there.
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
        truth, size = sample(middle)
        found = np.stack([_barycentric(t, grid, weights, table) for t in middle])
        scale, shift = np.abs(truth[:, 0]), np.abs(truth[:, 1])
        units = [scale, np.maximum(shift, scale * size)]
        unit = np.maximum(np.stack(units, axis=1).max(axis=0), np.finfo(float).tiny)
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
        f"tolerance = {tolerance:g} was not reached with {grid.size} times: scale "
        f"and shift are interpolated to {accuracy:.1e}; give more times, a shorter "
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
