"""0 = div((grad V - omega J grad V) p) + D Laplacian(p) on a torus."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box
from ..operators import Residual
from ..operators import fokker_planck as fokker_planck_operator
from ._problem import Problem

# Equidistant points on each axis: the sum is exact to rounding.
_POINTS = 128


def torus_density(*, diffusion: float = 0.5, rotation: float = 0.0) -> Problem:
    """The stationary Fokker-Planck equation on the torus [0, 2 pi]^2 with the potential
    `V = cos(x) + cos(y) + cos(x - y) / 2`.

    The drift is `-grad V + omega J grad V` with `J (a, b) = (-b, a)`. Its second part
    moves the density along its level lines, so the density is `exp(-V / D) / Z` for
    any omega; it is the only one, for the torus has no walls.

    **Arguments:**

    - `diffusion`: D, at least 0.05.
    - `rotation`: omega.
    """
    if not 0.05 <= diffusion < np.inf:
        raise ValueError(f"diffusion must be a number from 0.05 on, got {diffusion}")
    total = partition(diffusion)

    def potential(x: Array) -> Array:
        return jnp.sum(jnp.cos(x)) + 0.5 * jnp.cos(x[0] - x[1])

    def drift(x: Array) -> Array:
        a, b = jax.grad(potential)(x)
        return jnp.stack([-a - rotation * b, -b + rotation * a])

    return Problem(
        domain=Box.cube(2, 0.0, 2.0 * np.pi, periodic=True),
        equation=Residual(fokker_planck_operator(drift, diffusion)),
        reference=lambda x: jnp.exp(-potential(x) / diffusion) / total,
        name="torus-density-2d",
        mass=1.0,
        positive=True,
        description=(
            f"The stationary Fokker-Planck equation "
            f"div(u (grad V - omega J grad V)) + D Laplacian(u) = 0 with "
            f"V = cos(x1) + cos(x2) + cos(x1 - x2)/2 and J (a, b) = (-b, a) on the "
            f"torus [0, 2 pi]^2, with D = {diffusion:g} and omega = {rotation:g}; u is "
            f"a density of integral 1."
        ),
    )


def partition(diffusion: float) -> float:
    """Z, the integral of `exp(-V / D)` over the torus."""
    x = 2.0 * np.pi * np.arange(_POINTS) / _POINTS
    potential = np.add.outer(np.cos(x), np.cos(x)) + 0.5 * np.cos(
        np.subtract.outer(x, x)
    )
    return float((2.0 * np.pi) ** 2 * np.mean(np.exp(-potential / diffusion)))
