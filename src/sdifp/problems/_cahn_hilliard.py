"""u_t = (u^3 - u - eps^2 u_xx)_xx on a circle, as a system for u and mu."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_positive
from .._domain import Box
from ..invariants import Density, Mass
from ..operators import Residual, laplacian, time_derivative
from ._circle import CircleSolution, solve
from ._conditions import Initial
from ._problem import Problem

_PERIOD = 2.0 * np.pi
_MEAN = 0.1


def cahn_hilliard(*, eps: float = 0.25, duration: float = 1.0) -> Problem:
    """The Cahn-Hilliard equation, `u_t = mu_xx` with the chemical potential
    `mu = u^3 - u - eps^2 u_xx`, on [0, 2 pi], periodic.

    The field is (u, mu): with two equations of second order instead of one of fourth.
    The data are `u0 = 0.1 + 0.1 cos(x) + 0.2 cos(2 x - 1) + 0.1 sin(3 x)`, which
    separate into phases near -1 and 1. The integral of u is constant. The free energy,
    the integral of `eps^2/2 u_x^2 + (1 - u^2)^2 / 4`, decays and is measured. The
    reference is spectral.

    **Arguments:**

    - `eps`: the width of a layer between the phases is about `3 eps`.
    - `duration`: the last time.
    """
    check_positive("eps", eps)
    check_positive("duration", duration)
    solution = _solution(float(eps), float(duration))

    def initial(x: Array) -> Array:
        u, bend = _start(x[0], jnp)
        return jnp.stack([u, u**3 - u - eps**2 * bend])

    def free_energy(u: Array, grad: Array) -> Array:
        return 0.5 * eps**2 * grad[0, 0] ** 2 + 0.25 * (1.0 - u[0] ** 2) ** 2

    return Problem(
        domain=Box([0.0], [_PERIOD], periodic=True),
        # u_t - mu_xx and mu - u^3 + u + eps^2 u_xx.
        equation=Residual(
            jnp.array([[1.0, 0.0], [0.0, 0.0]]) @ time_derivative()
            + jnp.array([[0.0, -1.0], [eps**2, 0.0]]) @ laplacian(),
            lambda u, grad, x, t: jnp.stack([0.0 * u[0], u[1] + u[0] - u[0] ** 3]),
        ),
        conditions=[Initial(initial)],
        interval=(0.0, float(duration)),
        invariants=[
            Mass(_MEAN * _PERIOD, component=0),
            Density(free_energy, "free energy"),
        ],
        reference=solution,
        name="cahn-hilliard-1d",
        components=("u", "mu"),
        description=(
            f"The Cahn-Hilliard equation, u_t = mu_xx with the chemical potential "
            f"mu = u^3 - u - eps^2 u_xx and eps = {eps:g} on [0, 2 pi], periodic."
        ),
    )


def _start(x: Any, xp: Any) -> tuple[Any, Any]:
    """The data, and their second derivative."""
    parts = (0.1 * xp.cos(x), 0.2 * xp.cos(2.0 * x - 1.0), 0.1 * xp.sin(3.0 * x))
    return _MEAN + sum(parts), -sum(k**2 * p for k, p in enumerate(parts, 1))


@functools.cache
def _solution(eps: float, duration: float) -> CircleSolution:
    # u^3 - u is split into u / 2 and the rest, whose slope is least where |u| < 1.
    part = 0.5

    def nonlinear(modes: np.ndarray, k: np.ndarray) -> np.ndarray:
        u = np.fft.irfft(modes)
        return -(k**2) * np.fft.rfft(u**3 - (1.0 + part) * u)

    def potential(modes: np.ndarray, k: np.ndarray) -> np.ndarray:
        u = np.fft.irfft(modes)
        mu = np.fft.rfft(u**3 - u) + eps**2 * k**2 * modes
        return np.concatenate([modes, mu], 1)

    return solve(
        lambda x: _start(x, np)[0][None],
        lambda k: -(part * k**2 + eps**2 * k**4)[None],
        nonlinear,
        shown=potential,
        lower=0.0,
        period=_PERIOD,
        duration=duration,
    )
