"""0 = div((grad V - omega J x) p) + D Laplacian(p) with V = (|x|^2 - 1)^2 in the
plane."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box
from ..operators import Residual
from ..operators import fokker_planck as fokker_planck_operator
from ._conditions import Free
from ._data import cube_in_words
from ._problem import Problem
from ._spectral import gauss_legendre

_WALL = 2.0
# Gauss-Legendre nodes on each axis.
_NODES = 400


def ring(*, diffusion: float = 0.4, rotation: float = 1.0) -> Problem:
    """The stationary Fokker-Planck equation of a potential with a ring of minima,
    `V = (|x|^2 - 1)^2`, and a drift that rotates, on [-2, 2]^2.

    The drift is `-grad V + omega J x` with `J x = (-x_2, x_1)`, which is no gradient:
    probability flows along the ring. The density is `exp(-V / D) / Z` all the same, for
    the rotation moves it along its level lines. At the walls it is below 2e-10 of its
    maximum for the default diffusion, and nothing is prescribed there.

    **Arguments:**

    - `diffusion`: D, at least 0.01 and at most 0.5, for the density must vanish at the
        walls.
    - `rotation`: omega.
    """
    if not 0.01 <= diffusion <= 0.5:
        raise ValueError(f"diffusion must be from 0.01 to 0.5, got {diffusion}")
    total = partition(diffusion)

    def drift(x: Array) -> Array:
        return -4.0 * (x @ x - 1.0) * x + rotation * jnp.stack([-x[1], x[0]])

    return Problem(
        domain=Box.cube(2, -_WALL, _WALL),
        equation=Residual(fokker_planck_operator(drift, diffusion)),
        conditions=[Free()],
        reference=lambda x: jnp.exp(-((x @ x - 1.0) ** 2) / diffusion) / total,
        name="ring-2d",
        mass=1.0,
        positive=True,
        description=(
            f"The stationary Fokker-Planck equation "
            f"div(u (grad V - omega J x)) + D Laplacian(u) = 0 with "
            f"V = (|x|^2 - 1)^2 and J x = (-x2, x1) on "
            f"{cube_in_words(-_WALL, _WALL, 2)}, with D = {diffusion:g} and "
            f"omega = {rotation:g}; u is a density of integral 1."
        ),
    )


def partition(diffusion: float) -> float:
    """Z, the integral of `exp(-V / D)` over the box, by a product rule: the integrand
    is entire."""
    nodes, weights = gauss_legendre(_NODES, -_WALL, _WALL)
    square = np.add.outer(nodes**2, nodes**2)
    return float(weights @ np.exp(-((square - 1.0) ** 2) / diffusion) @ weights)
