"""u_t = kappa Laplacian(u) on a box with u = 0 on the walls."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box, check_dimension
from ..operators import Residual, laplacian, time_derivative
from ._conditions import Dirichlet, Initial
from ._data import cube_in_words
from ._problem import Problem


def heat_dirichlet(
    dimension: int = 1, *, diffusion: float = 0.1, duration: float = 1.0
) -> Problem:
    """The heat equation with homogeneous Dirichlet conditions,
    `u_t = kappa Laplacian(u)` on [0, 1]^d with u = 0 on the walls.

    From `u0 = prod_k (sin(pi x_k) + sin(3 pi x_k) / 2)`; each mode decays at its own
    rate, and the mass with them. The shift multiplies `prod_k 4 x_k (1 - x_k)`, so that
    the corrected field vanishes on the walls too.

    The squared norm is known but not prescribed: with a profile the scale is a root of
    a quadratic, and this solution passes through a time at which the root is double,
    where a network next to the solution may not be able to have both integrals.

    **Arguments:**

    - `dimension`: d, up to 3.
    - `diffusion`: kappa.
    - `duration`: the last time.
    """
    d = check_dimension(dimension)
    if d > 3:
        raise ValueError(f"dimension must be at most 3, got {d}")

    def sizes(t: Array) -> tuple[Array, Array]:
        rate = diffusion * np.pi**2 * t
        return jnp.exp(-rate), 0.5 * jnp.exp(-9.0 * rate)

    def reference(x: Array, t: Array) -> Array:
        first, third = sizes(t)
        return jnp.prod(first * jnp.sin(np.pi * x) + third * jnp.sin(3.0 * np.pi * x))

    def mass(t: Array) -> Array:
        first, third = sizes(t)
        return ((2.0 / np.pi) * (first + third / 3.0)) ** d

    second = "u_xx" if d == 1 else "Laplacian(u)"
    return Problem(
        domain=Box.cube(d, 0.0, 1.0),
        equation=Residual(time_derivative() - diffusion * laplacian()),
        conditions=[
            Initial(lambda x: reference(x, jnp.zeros((), x.dtype))),
            Dirichlet(lambda x: jnp.prod(4.0 * x * (1.0 - x))),
        ],
        interval=(0.0, duration),
        mass=mass,
        reference=reference,
        name=f"heat-dirichlet-{d}d",
        description=(
            f"The heat equation with homogeneous Dirichlet conditions, "
            f"u_t = kappa {second} on {cube_in_words(0, 1, d)}, with "
            f"kappa = {diffusion:g} and u = 0 on the walls."
        ),
    )
