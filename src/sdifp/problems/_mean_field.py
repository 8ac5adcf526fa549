"""0 = D p'' + (p (V' + kappa (x - m)))' with m = int x p: a mean-field equation."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array

from .._domain import Box
from ..operators import Residual
from ..operators import fokker_planck as fokker_planck_operator
from ._conditions import Free
from ._data import cube_in_words
from ._problem import Problem
from ._spectral import gauss_legendre

_WALL = 2.5
# Gauss-Legendre nodes: enough for the least diffusion.
_NODES = 400
_TILT = 0.3


def mean_field(*, diffusion: float = 0.5, attraction: float = 1.0) -> Problem:
    """The stationary McKean-Vlasov equation,
    `D p'' + (p (V' + kappa (x - m)))' = 0` with the mean `m = int x p`, on [-2.5, 2.5],
    with the tilted double well `V = x^4 / 4 - x^2 / 2 - 0.3 x`.

    The law of many particles in the potential V, each of which is drawn to the centre
    of them all. The solution is
    `p(x; m) = exp(-(V + kappa (x - m)^2 / 2) / D) / Z(m)`, where m is the root of
    `int x p(x; m) = m`: unique where the tilt is strong enough against the attraction.
    Nothing is prescribed on the walls. There are solutions with a constant flux, but at
    the same centre they differ by less than 4e-6 of the maximum from this one as long
    as they are positive, for the default arguments.

    **Arguments:**

    - `diffusion`: D, at least 0.02.
    - `attraction`: kappa. Values with several solutions are refused.
    """
    if not 0.02 <= diffusion < np.inf:
        raise ValueError(f"diffusion must be a number from 0.02 on, got {diffusion}")
    centre, total = solve(float(diffusion), float(attraction))
    slope = lambda x: x**3 - x - _TILT

    def reference(x: Array) -> Array:
        return jnp.exp(-_potential(x[0], centre, attraction) / diffusion) / total

    return Problem(
        domain=Box([-_WALL], [_WALL]),
        # The mean is subtracted from x in the drift, by which p is carried.
        equation=Residual(
            fokker_planck_operator(lambda x: -slope(x) - attraction * x, diffusion),
            lambda u, grad, x, centre: -attraction * centre * grad[0],
            integrals={"centre": lambda x, u: x[0] * u},
        ),
        conditions=[Free()],
        reference=reference,
        name="mean-field-1d",
        mass=1.0,
        positive=True,
        description=(
            f"The stationary McKean-Vlasov equation, "
            f"D u'' + (u (V' + kappa (x - m)))' = 0 with the mean m = int x u dx and "
            f"V = x^4/4 - x^2/2 - {_TILT:g} x, on {cube_in_words(-_WALL, _WALL, 1)}, "
            f"with D = {diffusion:g} and kappa = {attraction:g}; u is a density of "
            f"integral 1."
        ),
    )


def _potential(x: Any, centre: float, attraction: float) -> Any:
    return x**4 / 4.0 - x**2 / 2.0 - _TILT * x + 0.5 * attraction * (x - centre) ** 2


def mean_of(centre: float, diffusion: float, attraction: float) -> tuple[float, float]:
    """The mean of `p(x; m)`, and Z."""
    x, weights = gauss_legendre(_NODES, -_WALL, _WALL)
    values = weights * np.exp(-_potential(x, centre, attraction) / diffusion)
    total = np.sum(values)
    return float(values @ x / total), float(total)


@functools.cache
def solve(diffusion: float, attraction: float) -> tuple[float, float]:
    """The centre m, and Z."""
    excess = lambda m: mean_of(m, diffusion, attraction)[0] - m
    # The means are between the walls, and so are the roots.
    grid = np.linspace(-_WALL, _WALL, 501)
    signs = np.sign([excess(m) for m in grid])
    (places,) = np.nonzero(signs[:-1] > signs[1:])
    if places.size != 1:
        raise ValueError(
            f"attraction must leave one solution, got {attraction}, with {places.size}"
        )
    low, high = grid[places[0]], grid[places[0] + 1]
    centre = scipy.optimize.brentq(excess, low, high, xtol=1e-15, rtol=1e-14)
    return centre, mean_of(centre, diffusion, attraction)[1]
