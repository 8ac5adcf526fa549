"""u_tt = c^2 Laplacian(u) on a torus."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box, check_dimension
from ..operators import Residual, laplacian, time_derivative
from ._conditions import Initial
from ._data import (
    cube_in_words,
    mass_of_gaussian,
    squared_norm_of_gaussian,
    wrapped_gaussian,
)
from ._problem import Problem


def wave(dimension: int = 1, *, speed: float = 1.0, duration: float = 2.0) -> Problem:
    """The wave equation, `u_tt = c^2 Laplacian(u)`, on the torus [-3, 5]^d.

    From `u0 = d^(-1/2) sum_k g(x_k)`, `g(x) = exp(-(x - 1)^2)` wrapped, with the
    initial velocity of waves that go one way, `u_t = -c d^(-1/2) sum_k g'(x_k)`. The
    solution is `d^(-1/2) sum_k g(x_k - c t)`. Both integrals are constant for one-way
    waves; for others that of u^2 is not.

    **Arguments:**

    - `dimension`: d.
    - `speed`: c.
    - `duration`: the last time.
    """
    d = check_dimension(dimension)
    period, root = 8.0, np.sqrt(d)

    def shape(x: Array) -> Array:
        return wrapped_gaussian(x, 1.0, 1.0, period)

    def reference(x: Array, t: Array) -> Array:
        return jnp.sum(jax.vmap(shape)(x - speed * t)) / root

    def velocity(x: Array) -> Array:
        return -speed * jnp.sum(jax.vmap(jax.grad(shape))(x)) / root

    # Of a sum of independent terms, each d^(-1/2) g.
    mean = float(mass_of_gaussian(1.0)) / period
    square = float(squared_norm_of_gaussian(1.0, period)) / period
    mass, square_of_all = root * mean, d * mean**2 + (square - mean**2)
    volume = period if d == 1 else 1.0
    second = "u_xx" if d == 1 else "Laplacian(u)"
    return Problem(
        domain=Box.cube(d, -3.0, 5.0, periodic=True, normalised=d > 1),
        equation=Residual(time_derivative(2) - speed**2 * laplacian()),
        conditions=[Initial(lambda x: reference(x, jnp.zeros((), x.dtype)), velocity)],
        interval=(0.0, duration),
        mass=float(mass * volume),
        squared_norm=float(square_of_all * volume),
        reference=reference,
        name=f"wave-{d}d",
        description=(
            f"The wave equation, u_tt = c^2 {second} on {cube_in_words(-3, 5, d)}, "
            f"periodic, with c = {speed:g}."
        ),
    )
