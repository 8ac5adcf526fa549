"""Polynomials of series whose coefficients were computed with NumPy."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def chebyshev(s: Float[Array, "..."], count: int) -> Float[Array, "..."]:
    """The first Chebyshev polynomials along the first axis, by their recurrence: smooth
    at both ends, unlike cos(k acos s)."""

    def step(last: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        return (last[1], 2.0 * s * last[1] - last[0]), last[0]

    return jax.lax.scan(step, (jnp.ones_like(s), s), None, count)[1]
