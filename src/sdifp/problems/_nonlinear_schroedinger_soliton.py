"""i h_t + 1/2 h_xx + |h|^2 h = 0 on a circle: a moving soliton."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_positive
from .._domain import Box
from ..invariants import Density
from ._conditions import Initial
from ._nonlinear_schroedinger import COMPONENTS, description, equation, hamiltonian
from ._problem import Problem

# Half the period times the amplitude: there the soliton is 1e-10 of its maximum.
_DECAYS = 24.0


def nonlinear_schroedinger_soliton(
    *, amplitude: float = 2.0, speed: float = 1.0, duration: float = 1.0
) -> Problem:
    """The moving soliton of the cubic nonlinear Schrödinger equation,
    `i h_t + 1/2 h_xx + |h|^2 h = 0` on [-24/A, 24/A], periodic:
    `h = A sech(A y) exp(i (c y + (A^2 + c^2) t / 2))` with `y = x - c t`.

    The field is (re, im) with `h = re + i im`. At the farthest point of the circle the
    modulus is 1e-10 of its maximum. The squared norm is constant. So are the
    Hamiltonian, the integral of `1/2 |h_x|^2 - 1/2 |h|^4`, and the momentum, that of
    `re im_x - im re_x`, which are measured.

    **Arguments:**

    - `amplitude`: A.
    - `speed`: c.
    - `duration`: the last time.
    """
    check_positive("amplitude", amplitude)
    check_positive("duration", duration)
    if not np.isfinite(speed):
        raise ValueError(f"speed must be finite, got {speed}")
    half = _DECAYS / amplitude

    def reference(x: Array, t: Array) -> Array:
        y = jnp.mod(x[0] - speed * t + half, 2.0 * half) - half
        phase = speed * y + 0.5 * (amplitude**2 + speed**2) * t
        both = jnp.stack([jnp.cos(phase), jnp.sin(phase)])
        return amplitude / jnp.cosh(amplitude * y) * both

    momentum = lambda u, grad: u[0] * grad[1, 0] - u[1] * grad[0, 0]
    return Problem(
        domain=Box([-half], [half], periodic=True),
        equation=equation(),
        conditions=[Initial(lambda x: reference(x, jnp.zeros((), x.dtype)))],
        interval=(0.0, float(duration)),
        squared_norm=2.0 * amplitude,
        invariants=[hamiltonian(), Density(momentum, "momentum")],
        reference=reference,
        name="nonlinear-schroedinger-soliton-1d",
        components=COMPONENTS,
        description=(
            f"{description(-half, half)} A soliton of amplitude {amplitude:g} moves "
            f"with the speed {speed:g}."
        ),
    )
