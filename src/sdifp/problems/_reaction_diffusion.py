"""u_t = kappa Laplacian(u) + lambda u on a box with Neumann walls."""

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array

from .._domain import Box, check_dimension
from ..operators import Residual, laplacian, reaction, time_derivative
from ._conditions import Initial, Neumann
from ._data import (
    cube_in_words,
    exponential,
    mass_of_gaussian,
    squared_norm_of_gaussian,
    wrapped_gaussian,
)
from ._problem import Problem

# Terms of the cosine series of exp(a cos) with a <= 1: the next is below 1e-17.
_TERMS = 14


def reaction_diffusion(
    dimension: int = 1,
    *,
    diffusion: float = 0.01,
    rate: float = 0.5,
    duration: float = 1.0,
) -> Problem:
    """Reaction-diffusion, `u_t = kappa Laplacian(u) + lambda u`, with Neumann walls.

    In one dimension on [-1, 3], from `u0 = exp(-(x - 1)^2 / 0.5^2)`, made even across
    the walls; in more on [0, 2]^d, from `u0 = exp(sum_k cos(pi (x_k - 1)) / sqrt(d))`,
    whose cosine series the heat flow damps term by term. The integral of u grows as
    `exp(lambda t)`; that of u^2 is known from the solution.

    **Arguments:**

    - `dimension`: d.
    - `diffusion`: kappa.
    - `rate`: lambda.
    - `duration`: the last time.
    """
    d = check_dimension(dimension)
    if d == 1:
        box = Box([-1.0], [3.0])

        initial = lambda x: wrapped_gaussian(x[0], 1.0, 0.5, 4.0)
        mass = lambda t: jnp.exp(rate * t) * mass_of_gaussian(0.5)

        def size_and_width(t: Array) -> tuple[Array, Array]:
            width = jnp.sqrt(0.25 + 4.0 * diffusion * t)
            return jnp.exp(rate * t) * 0.5 / width, width

        # The data are even about the middle, so images in the walls are translations.
        def reference(x: Array, t: Array) -> Array:
            size, width = size_and_width(t)
            return size * wrapped_gaussian(x[0], 1.0, width, 4.0)

        def squared_norm(t: Array) -> Array:
            size, width = size_and_width(t)
            return size**2 * squared_norm_of_gaussian(width, 4.0)

    else:
        box = Box.cube(d, 0.0, 2.0, normalised=True)
        # The reference at time 0, without the series: one narrow layer of features.
        initial = exponential
        mass = lambda t: jnp.exp(rate * t) * float(first) ** d
        a, n = 1.0 / np.sqrt(d), np.arange(1, _TERMS)
        first, others = scipy.special.iv(0, a), 2.0 * scipy.special.iv(n, a)

        def damping(t: Array) -> Array:
            return jnp.exp(-diffusion * np.pi**2 * jnp.asarray(n**2, float) * t)

        def reference(x: Array, t: Array) -> Array:
            modes = jnp.asarray(others, x.dtype) * damping(t).astype(x.dtype)
            angles = jnp.pi * (x - 1.0)[:, None] * jnp.asarray(n, x.dtype)[None, :]
            factors = float(first) + jnp.cos(angles) @ modes
            # Every factor is positive, and their product is of order one.
            return jnp.exp(rate * t + jnp.sum(jnp.log(factors)))

        def squared_norm(t: Array) -> Array:
            square = float(first) ** 2 + 0.5 * jnp.sum(
                (jnp.asarray(others, float) * damping(t)) ** 2
            )
            return jnp.exp(2.0 * rate * t + d * jnp.log(square))

    second, bounds = ("u_xx", (-1, 3)) if d == 1 else ("Laplacian(u)", (0, 2))
    return Problem(
        domain=box,
        equation=Residual(time_derivative() - diffusion * laplacian() - reaction(rate)),
        conditions=[Initial(initial), Neumann()],
        interval=(0.0, duration),
        mass=mass,
        squared_norm=squared_norm,
        reference=reference,
        name=f"reaction-diffusion-{d}d",
        description=(
            f"A reaction-diffusion equation, u_t = kappa {second} + lambda u on "
            f"{cube_in_words(*bounds, d)}, with kappa = {diffusion:g}, "
            f"lambda = {rate:g} and du/dn = 0 on the walls."
        ),
    )
