"""Differences that come out the same in every program. Depends on JAX alone.

A compiler may turn `a - b * c` into one operation that does not round the product, in
one program and not in another. Where the difference is small beside its parts, the two
disagree in all its digits but a few: what a sum over a rule knows of a function would
then not hold for the function that is evaluated at a point.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def minus_product(left: Array, a: Array, b: Array) -> Array:
    """`left - a * b`, with the same bits whether products are rounded or not: all but
    the last, which is tiny, are exact."""
    high_a, high_b = _half(a), _half(b)
    low_a, low_b = a - high_a, b - high_b
    return ((left - high_a * high_b) - high_a * low_b) - low_a * high_b - low_a * low_b


def minus_combination(
    left: Array, coefficients: Float[Array, " p"], directions: Array | Sequence[Array]
) -> Array:
    """`left - sum_k c_k e_k`, likewise."""
    for c, e in zip(coefficients, directions, strict=True):
        left = minus_product(left, c, e)
    return left


def _half(a: Array) -> Array:
    """A number to half of its digits. No derivative flows through it, so that of the
    other half is the whole one."""
    limits = jnp.finfo(a.dtype)
    digits = (limits.nmant - 1) // 2
    return jax.lax.reduce_precision(jax.lax.stop_gradient(a), limits.nexp, digits)
