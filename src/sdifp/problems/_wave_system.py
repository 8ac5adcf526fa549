"""u_t = v, v_t = c^2 Laplacian(u) on a torus."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box, check_dimension
from ..invariants import Mass, QuadraticForm
from ..operators import Residual, laplacian, time_derivative
from ._conditions import Initial
from ._plane_waves import plane_waves
from ._problem import Problem

# The means of u, at the beginning, and of v.
_MEAN, _DRIFT = 0.5, 0.2


def wave_system(
    dimension: int = 1, *, speed: float = 1.0, duration: float = 1.0
) -> Problem:
    """The wave equation as a system of first order in time, `u_t = v`,
    `v_t = c^2 Laplacian(u)`, on the torus [0, 2 pi]^d, in one dimension or two.

    The solution is a sum of three plane waves `a cos(k . x - c |k| t + p)` and of
    `1/2 + t/5`. The mechanical energy, the integral of
    `1/2 (v^2 + c^2 |grad u|^2)`, is constant, and so is the integral of v; that of u
    grows linearly in t. The energy of `u_tt = c^2 Laplacian(u)` itself cannot be
    prescribed, for it contains the time derivative of u; that of the system can (Evans,
    *Partial Differential Equations*, 2nd ed., section 2.4.3).

    **Arguments:**

    - `dimension`: d, 1 or 2.
    - `speed`: c.
    - `duration`: the last time.
    """
    d = check_dimension(dimension)
    waves = plane_waves(d, speed)
    volume = (2.0 * np.pi) ** d
    # Of v and of c grad u the same for each wave.
    energy = _DRIFT**2 + np.sum((waves.amplitudes * waves.frequencies) ** 2)

    def reference(x: Array, t: Array) -> Array:
        angles = waves.angles(x, t)
        amplitudes, frequencies = (
            jnp.asarray(a, x.dtype) for a in (waves.amplitudes, waves.frequencies)
        )
        u = _MEAN + _DRIFT * t + amplitudes @ jnp.cos(angles)
        return jnp.stack([u, _DRIFT + (amplitudes * frequencies) @ jnp.sin(angles)])

    second = "u_xx" if d == 1 else "Laplacian(u)"
    box = "[0, 2 pi]" if d == 1 else "[0, 2 pi]^2"
    return Problem(
        domain=Box.cube(d, 0.0, 2.0 * np.pi, periodic=True),
        equation=Residual(
            time_derivative() - jnp.array([[0.0, 0.0], [speed**2, 0.0]]) @ laplacian(),
            lambda u, grad, x, t: jnp.stack([-u[1], jnp.zeros_like(u[1])]),
        ),
        conditions=[Initial(lambda x: reference(x, jnp.zeros((), x.dtype)))],
        interval=(0.0, duration),
        invariants=[
            Mass(lambda t: volume * (_MEAN + _DRIFT * t), component=0),
            Mass(volume * _DRIFT, component=1),
            QuadraticForm(
                lambda u, grad: 0.5 * (u[1] ** 2 + speed**2 * jnp.sum(grad[0] ** 2)),
                float(0.5 * volume * energy),
                name="energy",
            ),
        ],
        reference=reference,
        name=f"wave-system-{d}d",
        components=("u", "v"),
        description=(
            f"The wave equation as a system of first order in time, u_t = v, "
            f"v_t = c^2 {second} on {box}, periodic, with c = {speed:g}."
        ),
    )
