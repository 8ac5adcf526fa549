"""a_t = D a_xx + R and b_t = E b_xx - R on a circle: one species becomes another."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_positive
from .._domain import Box
from ..invariants import Mass
from ..operators import Residual, laplacian, time_derivative
from ._circle import CircleSolution, solve
from ._conditions import Initial
from ._problem import Problem

_PERIOD = 2.0 * np.pi
_ACTIVE, _INACTIVE, _BASE = 0.6, 1.8, 0.067


def reaction_diffusion_pair(
    *, slow: float = 0.05, fast: float = 1.0, duration: float = 4.0
) -> Problem:
    """Two species that diffuse at different rates and turn into each other,
    `a_t = D a_xx + R` and `b_t = E b_xx - R` with
    `R = (0.067 + a^2 / (1 + a^2)) b - a`, on [0, 2 pi], periodic.

    The wave-pinning model of cell polarity (Mori, Jilkine and Edelstein-Keshet, 2008):
    a is the active form of a protein, on the membrane, and b the inactive one. The data
    are `a0 = 0.6 + 0.3 cos(x) + 0.2 sin(2 x)` and `b0 = 1.8 - 0.2 cos(x)`. The integral
    of `a + b` is constant; those of a and b are not, and that of a is measured. The
    reference is spectral.

    **Arguments:**

    - `slow`: D, the diffusion of a.
    - `fast`: E, the diffusion of b.
    - `duration`: the last time.
    """
    given = {"slow": slow, "fast": fast, "duration": duration}
    for name, value in given.items():
        check_positive(name, value)

    def exchange(u: Array, grad: Array, x: Array, t: Array) -> Array:
        rate = _rate(u[0], u[1])
        return jnp.stack([-rate, rate])

    return Problem(
        domain=Box([0.0], [_PERIOD], periodic=True),
        equation=Residual(
            time_derivative() - jnp.diag(jnp.array([slow, fast])) @ laplacian(),
            exchange,
        ),
        conditions=[Initial(lambda x: jnp.stack(_start(x[0], jnp)))],
        interval=(0.0, float(duration)),
        invariants=[Mass((_ACTIVE + _INACTIVE) * _PERIOD), Mass(None, component=0)],
        reference=_solution(*(float(value) for value in given.values())),
        name="reaction-diffusion-pair-1d",
        components=("a", "b"),
        description=(
            f"Two species that turn into each other, a_t = D a_xx + R and "
            f"b_t = E b_xx - R with R = ({_BASE:g} + a^2 / (1 + a^2)) b - a, "
            f"D = {slow:g} and E = {fast:g}, on [0, 2 pi], periodic."
        ),
    )


def _start(x: Any, xp: Any) -> tuple[Any, Any]:
    a = _ACTIVE + 0.3 * xp.cos(x) + 0.2 * xp.sin(2.0 * x)
    return a, _INACTIVE - 0.2 * xp.cos(x)


def _rate(a: Any, b: Any) -> Any:
    """R, by which a grows and b shrinks."""
    square = a**2
    return (_BASE + square / (1.0 + square)) * b - a


@functools.cache
def _solution(slow: float, fast: float, duration: float) -> CircleSolution:
    def nonlinear(modes: np.ndarray, k: np.ndarray) -> np.ndarray:
        a, b = np.moveaxis(np.fft.irfft(modes), 1, 0)
        rate = np.fft.rfft(_rate(a, b))
        return np.stack([rate, -rate], 1)

    return solve(
        lambda x: np.stack(_start(x, np)),
        lambda k: -np.stack([slow * k**2, fast * k**2]),
        nonlinear,
        lower=0.0,
        period=_PERIOD,
        duration=duration,
    )
