"""u_t = eps^2 u_xx + u - u^3 on a circle."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_positive
from .._domain import Box
from ..invariants import Density, Mass
from ..operators import Residual, laplacian, reaction, time_derivative
from ._circle import CircleSolution, solve
from ._conditions import Initial
from ._problem import Problem

_LOWER, _PERIOD = -1.0, 2.0


def allen_cahn(*, eps: float = 0.1, duration: float = 4.0) -> Problem:
    """The Allen-Cahn equation, `u_t = eps^2 u_xx + u - u^3` on [-1, 1], periodic.

    The data are `u0 = 0.2 + 0.3 cos(pi x) + 0.3 sin(2 pi x)`, which separate into
    phases near -1 and 1. Nothing is conserved: the integral of u, and the free energy,
    that of `eps^2/2 u_x^2 + (1 - u^2)^2 / 4`, which decays, are measured. The
    reference is spectral.

    **Arguments:**

    - `eps`: the width of a layer between the phases is about `3 eps`.
    - `duration`: the last time.
    """
    check_positive("eps", eps)
    check_positive("duration", duration)

    def free_energy(u: Array, grad: Array) -> Array:
        return 0.5 * eps**2 * grad[0] ** 2 + 0.25 * (1.0 - u**2) ** 2

    return Problem(
        domain=Box([_LOWER], [_LOWER + _PERIOD], periodic=True),
        equation=Residual(
            time_derivative() - eps**2 * laplacian() - reaction(1.0),
            lambda u, grad, x, t: u**3,
        ),
        conditions=[Initial(lambda x: _start(x[0], jnp))],
        interval=(0.0, float(duration)),
        invariants=[Mass(None), Density(free_energy, "free energy")],
        reference=_solution(float(eps), float(duration)),
        name="allen-cahn-1d",
        description=(
            f"The Allen-Cahn equation, u_t = eps^2 u_xx + u - u^3 on [-1, 1], "
            f"periodic, with eps = {eps:g}."
        ),
    )


def _start(x: Any, xp: Any) -> Any:
    return 0.2 + 0.3 * xp.cos(np.pi * x) + 0.3 * xp.sin(2.0 * np.pi * x)


@functools.cache
def _solution(eps: float, duration: float) -> CircleSolution:
    def nonlinear(modes: np.ndarray, k: np.ndarray) -> np.ndarray:
        return -np.fft.rfft(np.fft.irfft(modes) ** 3)

    return solve(
        lambda x: _start(x, np)[None],
        lambda k: (1.0 - eps**2 * k**2)[None],
        nonlinear,
        lower=_LOWER,
        period=_PERIOD,
        duration=duration,
    )
