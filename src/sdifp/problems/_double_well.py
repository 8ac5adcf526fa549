"""0 = (V' p)' + D p'' with V = (x^2 - 1)^2."""

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
# Gauss-Legendre nodes: enough for diffusions that are not much smaller than 0.01.
_NODES = 400


def double_well(*, diffusion: float = 0.5) -> Problem:
    """The stationary Fokker-Planck equation of a double well,
    `(V' p)' + D p'' = 0` with `V = (x^2 - 1)^2`, on [-2, 2].

    The density to which `dX = -V'(X) dt + sqrt(2 D) dW` tends is `exp(-V / D) / Z`: its
    flux `V' p + D p'` vanishes everywhere. Nothing is prescribed on the walls. There
    are solutions with a constant flux, but they differ by less than 3e-6 of the maximum
    from this one as long as they are positive, for the default diffusion.

    **Arguments:**

    - `diffusion`: D, at least 0.01.
    """
    if not 0.01 <= diffusion < np.inf:
        raise ValueError(f"diffusion must be a number from 0.01 on, got {diffusion}")
    nodes, weights = gauss_legendre(_NODES, -_WALL, _WALL)
    total = float(weights @ np.exp(-((nodes**2 - 1.0) ** 2) / diffusion))

    def potential(x: Array) -> Array:
        return (x[0] ** 2 - 1.0) ** 2

    return Problem(
        domain=Box([-_WALL], [_WALL]),
        equation=Residual(
            fokker_planck_operator(lambda x: -4.0 * x * (x**2 - 1.0), diffusion)
        ),
        conditions=[Free()],
        reference=lambda x: jnp.exp(-potential(x) / diffusion) / total,
        name="double-well-1d",
        mass=1.0,
        positive=True,
        description=(
            f"The stationary Fokker-Planck equation of a double well, "
            f"(V' u)' + D u'' = 0 with V = (x^2 - 1)^2 on "
            f"{cube_in_words(-_WALL, _WALL, 1)}, with D = {diffusion:g}; u is a "
            f"density of integral 1."
        ),
    )
