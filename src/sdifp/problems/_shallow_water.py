"""h_t + q_x = 0 and q_t + (q^2 / h + h^2 / 2)_x = 0 on a circle."""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_positive
from .._domain import Box
from ..invariants import Density, Mass
from ..operators import Residual, time_derivative
from ._circle import CircleSolution, solve
from ._conditions import Initial
from ._data import wrapped_gaussian
from ._problem import Problem

_LOWER, _PERIOD = -5.0, 10.0


def shallow_water(*, height: float = 0.2, duration: float = 3.0) -> Problem:
    """The shallow water equations, `h_t + q_x = 0` and
    `q_t + (q^2 / h + h^2 / 2)_x = 0` on [-5, 5], periodic.

    The field is (h, q): the depth and the discharge `q = h v`, with the gravity 1. The
    data are a hump at rest, `h0 = 1 + H exp(-x^2)`, which splits into two waves. The
    integrals of h and q, mass and momentum, are constant. So is the energy, the
    integral of `q^2 / (2 h) + h^2 / 2`, which is measured. The reference is spectral.

    **Arguments:**

    - `height`: H. Waves that are about to break before the last time are refused.
    - `duration`: the last time.
    """
    check_positive("height", height)
    check_positive("duration", duration)

    def initial(x: Array) -> Array:
        hump = height * wrapped_gaussian(x[0], 0.0, 1.0, _PERIOD)
        return jnp.stack([1.0 + hump, 0.0 * hump])

    def flux(u: Array, grad: Array, x: Array, t: Array) -> Array:
        h, q = u
        h_x, q_x = grad[:, 0]
        v = q / h
        return jnp.stack([q_x, 2.0 * v * q_x + (h - v**2) * h_x])

    energy = lambda u: 0.5 * u[1] ** 2 / u[0] + 0.5 * u[0] ** 2
    return Problem(
        domain=Box([_LOWER], [_LOWER + _PERIOD], periodic=True),
        equation=Residual(time_derivative(), flux),
        conditions=[Initial(initial)],
        interval=(0.0, float(duration)),
        invariants=[
            Mass(_PERIOD + height * float(np.sqrt(np.pi)), component=0),
            Mass(0.0, component=1),
            Density(energy, "energy"),
        ],
        reference=_solution(float(height), float(duration)),
        name="shallow-water-1d",
        components=("h", "q"),
        description=(
            "The shallow water equations, h_t + q_x = 0 and "
            "q_t + (q^2 / h + h^2 / 2)_x = 0 with the depth h and the discharge q on "
            "[-5, 5], periodic."
        ),
    )


@functools.cache
def _solution(height: float, duration: float) -> CircleSolution:
    def start(x: np.ndarray) -> np.ndarray:
        images = (x[:, None] - _PERIOD * np.arange(-3, 4)) ** 2
        hump = height * np.exp(-images).sum(1)
        return np.stack([1.0 + hump, 0.0 * hump])

    def nonlinear(modes: np.ndarray, k: np.ndarray) -> np.ndarray:
        h, q = np.moveaxis(np.fft.irfft(modes), 1, 0)
        return -1j * k * np.fft.rfft(np.stack([q, q**2 / h + 0.5 * h**2], 1))

    return solve(
        start,
        lambda k: np.zeros((2, k.size)),
        nonlinear,
        lower=_LOWER,
        period=_PERIOD,
        duration=duration,
    )
