"""u_tt = c^2 Laplacian(u) on a torus."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box, check_dimension
from .._operators import Residual, laplacian, time_derivative
from ._gaussian import energy_of_gaussian, mass_of_gaussian, wrapped_gaussian
from ._problem import Problem
from ._recipes import recipe_for


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
    square = float(energy_of_gaussian(1.0, period)) / period
    mass, energy = root * mean, d * mean**2 + (square - mean**2)
    volume = period if d == 1 else 1.0
    recipe = recipe_for(d)
    return Problem(
        box=Box.cube(d, -3.0, 5.0, periodic=True),
        duration=duration,
        residual=Residual(
            time_derivative(2) - speed**2 * laplacian(),
        ),
        initial=lambda x: reference(x, jnp.zeros((), x.dtype)),
        velocity=velocity,
        mass=float(mass * volume),
        energy=float(energy * volume),
        reference=reference,
        normalised=d > 1,
        fast=recipe,
        accurate=recipe.but(steps=250 if d == 1 else 3 * recipe.steps),
        name=f"wave-{d}d",
    )
