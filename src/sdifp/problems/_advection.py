"""u_t + c sum_k u_{x_k} = 0 on a torus."""

import numpy as np
import scipy.special

from .._domain import Box, check_dimension
from ..operators import Residual, time_derivative
from ..operators import advection as advection_operator
from ._conditions import Initial
from ._data import (
    cube_in_words,
    exponential,
    mass_of_gaussian,
    squared_norm_of_gaussian,
    wrapped_gaussian,
)
from ._problem import Problem


def advection(
    dimension: int = 1, *, speed: float = 1.0, duration: float = 1.0
) -> Problem:
    """Advection, `u_t + c sum_k du/dx_k = 0`, on the torus [0, 2]^d.

    In one dimension `u0 = exp(-(x - 1)^2 / 0.25^2)`, wrapped; in more
    `u0 = exp(sum_k cos(pi (x_k - 1)) / sqrt(d))`. The solution is `u0(x - c t)`; both
    integrals are constant.

    **Arguments:**

    - `dimension`: d.
    - `speed`: c, along every axis.
    - `duration`: the last time.
    """
    d = check_dimension(dimension)
    if d == 1:
        initial = lambda x: wrapped_gaussian(x[0], 1.0, 0.25, 2.0)
        mass = float(mass_of_gaussian(0.25))
        squared_norm = float(squared_norm_of_gaussian(0.25, 2.0))
    else:
        initial = exponential
        # E[exp(b cos)] is the Bessel function I_0(b).
        mass, squared_norm = (
            float(scipy.special.iv(0, k / np.sqrt(d))) ** d for k in (1.0, 2.0)
        )

    slope = "u_x" if d == 1 else "sum_k du/dx_k"
    return Problem(
        domain=Box.cube(d, 0.0, 2.0, periodic=True, normalised=d > 1),
        equation=Residual(time_derivative() + advection_operator(np.full(d, speed))),
        conditions=[Initial(initial)],
        interval=(0.0, duration),
        mass=mass,
        squared_norm=squared_norm,
        reference=lambda x, t: initial(x - speed * t),
        name=f"advection-{d}d",
        description=(
            f"The advection equation, u_t + c {slope} = 0 on {cube_in_words(0, 2, d)}, "
            f"periodic, with c = {speed:g}."
        ),
    )
