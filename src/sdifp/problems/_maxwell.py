"""E_t = c curl B, B_t = -c curl E in vacuum, on a torus."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box, check_dimension
from ..invariants import Mass, SquaredNorm
from ..operators import Residual, time_derivative
from ._conditions import Initial
from ._plane_waves import PlaneWaves, plane_waves
from ._problem import Problem


def maxwell(
    dimension: int = 1, *, speed: float = 1.0, duration: float = 1.0
) -> Problem:
    """Maxwell's equations in vacuum, on the torus [0, 2 pi]^d, in units in which E and
    B have the same unit (Jackson, *Classical Electrodynamics*, 3rd ed., section 7.1).

    In one dimension, of E along the second axis and B along the third,
    `E_t = -c B_x`, `B_t = -c E_x`; in two, of the transverse magnetic fields,
    `E_t = c (dBy/dx - dBx/dy)`, `Bx_t = -c dE/dy`, `By_t = c dE/dx`, with
    `div B = 0` as a residual of its own. The solution is a sum of three plane waves,
    `a cos(k . x - c |k| t + p)`. The integral of `E^2 + |B|^2`, twice the energy, and
    those of all components are constant.

    **Arguments:**

    - `dimension`: d, 1 or 2.
    - `speed`: c.
    - `duration`: the last time.
    """
    d = check_dimension(dimension)
    waves = plane_waves(d, speed)
    components = ("E", "B") if d == 1 else ("E", "Bx", "By")
    reference = _solution(waves)
    # E and B have the mean square a^2 / 2 each.
    square = (2.0 * np.pi) ** d * np.sum(waves.amplitudes**2)

    def in_one(u: Array, grad: Array, x: Array, t: Array) -> Array:
        return speed * grad[::-1, 0]

    def in_two(u: Array, grad: Array, x: Array, t: Array) -> Array:
        (e_x, e_y), (bx_x, bx_y), (by_x, by_y) = grad
        rates = [bx_y - by_x, e_y, -e_x]
        return speed * jnp.stack([*rates, (bx_x + by_y)])

    formula = (
        "E_t = -c B_x, B_t = -c E_x on [0, 2 pi]"
        if d == 1
        else "E_t = c (dBy/dx - dBx/dy), Bx_t = -c dE/dy, By_t = c dE/dx, "
        "div B = 0 on [0, 2 pi]^2"
    )
    return Problem(
        domain=Box.cube(d, 0.0, 2.0 * np.pi, periodic=True),
        equation=(
            Residual(time_derivative(), in_one)
            if d == 1
            # The divergence has no time derivative.
            else Residual(jnp.eye(4, 3) @ time_derivative(), in_two)
        ),
        conditions=[Initial(lambda x: reference(x, jnp.zeros((), x.dtype)))],
        interval=(0.0, duration),
        invariants=[
            *[Mass(0.0, component=k) for k in range(len(components))],
            SquaredNorm(float(square)),
        ],
        reference=reference,
        name=f"maxwell-{d}d",
        components=components,
        description=(
            f"Maxwell's equations in vacuum, {formula}, periodic, with c = {speed:g}."
        ),
    )


def _solution(waves: PlaneWaves) -> Callable[[Array, Array], Array]:
    """The sum of the waves: B is perpendicular to k and to E, and as large as E."""
    directions = waves.directions
    if directions.shape[1] == 1:
        rows = [np.ones(len(directions)), directions[:, 0]]
    else:
        rows = [np.ones(len(directions)), directions[:, 1], -directions[:, 0]]
    polarisations = np.stack(rows) * waves.amplitudes

    def reference(x: Array, t: Array) -> Array:
        return jnp.asarray(polarisations, x.dtype) @ jnp.cos(waves.angles(x, t))

    return reference
