"""Chebyshev polynomials, and integrals of functions that are known."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float


def chebyshev(s: Float[Array, "..."], count: int) -> Float[Array, "..."]:
    """The first Chebyshev polynomials along the first axis, by their recurrence: smooth
    at both ends, unlike cos(k acos s)."""

    def step(last: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        return (last[1], 2.0 * s * last[1] - last[0]), last[0]

    return jax.lax.scan(step, (jnp.ones_like(s), s), None, count)[1]


@functools.cache
def gauss_legendre(
    count: int, lower: float = -1.0, upper: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """The nodes and weights of the rule of Gauss and Legendre on an interval."""
    nodes, weights = scipy.special.roots_legendre(count)
    half = 0.5 * (upper - lower)
    return lower + half * (nodes + 1.0), half * weights
