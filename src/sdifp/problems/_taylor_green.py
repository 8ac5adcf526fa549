"""u_t + (u . grad) u + grad p = nu Laplacian(u), div u = 0 on a torus."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box
from ..invariants import Mass, Quadratic
from ..operators import Residual, laplacian, time_derivative
from ._conditions import Initial
from ._problem import Problem


def taylor_green(*, viscosity: float = 0.1, duration: float = 1.0) -> Problem:
    """The Taylor-Green vortex: the incompressible Navier-Stokes equations,
    `u_t + u u_x + v u_y + p_x = nu Laplacian(u)`,
    `v_t + u v_x + v v_y + p_y = nu Laplacian(v)`, `u_x + v_y = 0`, on the torus
    [0, 2 pi]^2.

    The solution is `u = cos(x) sin(y) F`, `v = -sin(x) cos(y) F`,
    `p = -1/4 (cos(2 x) + cos(2 y)) F^2` with `F = exp(-2 nu t)` (Taylor and Green,
    1937, https://doi.org/10.1098/rspa.1937.0036). The kinetic energy, the integral of
    `1/2 (u^2 + v^2)`, is `pi^2 F^2`, and the momentum is zero. The equations determine
    the pressure up to a function of t; its integral, which is zero, determines that.

    **Arguments:**

    - `viscosity`: nu.
    - `duration`: the last time.
    """
    if not 0.0 <= viscosity < float("inf"):
        raise ValueError(f"viscosity must be finite and not negative, got {viscosity}")

    def reference(x: Array, t: Array) -> Array:
        decay = jnp.exp(-2.0 * viscosity * t)
        (cos_x, cos_y), (sin_x, sin_y) = jnp.cos(x), jnp.sin(x)
        pressure = -0.25 * jnp.sum(jnp.cos(2.0 * x)) * decay**2
        return jnp.stack([cos_x * sin_y * decay, -sin_x * cos_y * decay, pressure])

    def local(u: Array, grad: Array, x: Array, t: Array) -> Array:
        velocity, slopes, pressure = u[:2], grad[:2], grad[2]
        return jnp.append(slopes @ velocity + pressure, jnp.trace(slopes))

    # Neither the pressure nor the divergence has a time derivative.
    momentum = jnp.diag(jnp.array([1.0, 1.0, 0.0]))
    return Problem(
        domain=Box.cube(2, 0.0, 2.0 * np.pi, periodic=True),
        equation=Residual(
            momentum @ (time_derivative() - viscosity * laplacian()), local
        ),
        conditions=[Initial(lambda x: reference(x, jnp.zeros((), x.dtype)))],
        interval=(0.0, duration),
        invariants=[
            *[Mass(0.0, component=k) for k in range(3)],
            Quadratic(
                lambda x: 0.5,
                lambda t: np.pi**2 * jnp.exp(-4.0 * viscosity * t),
                components=(0, 1),
                name="kinetic_energy",
            ),
        ],
        reference=reference,
        name="taylor-green-2d",
        components=("u", "v", "p"),
        description=(
            f"The Taylor-Green vortex: the incompressible Navier-Stokes equations, "
            f"u_t + u u_x + v u_y + p_x = nu Laplacian(u), "
            f"v_t + u v_x + v v_y + p_y = nu Laplacian(v), u_x + v_y = 0 on "
            f"[0, 2 pi]^2, periodic, with nu = {viscosity:g}."
        ),
    )
