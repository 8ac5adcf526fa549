"""Initial data on a circle or a torus, and their integrals in closed form."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

# Images on each side: the next one adds exp(-(3.5 period / width)^2) at the most.
_IMAGES = 3


def cube_in_words(lower: float, upper: float, dimension: int) -> str:
    """`[0, 2]` in one dimension, `[0, 2]^3` in three, for descriptions."""
    power = "" if dimension == 1 else f"^{dimension}"
    return f"[{lower:g}, {upper:g}]{power}"


def wrapped_gaussian(
    x: Array, centre: ArrayLike, width: ArrayLike, period: float
) -> Array:
    """`sum_m exp(-(x - centre - m period)^2 / width^2)`, smooth on the circle."""
    # The nearest image first, so that few others are needed wherever the centre is.
    near = jnp.mod(x - centre + 0.5 * period, period) - 0.5 * period
    images = period * jnp.arange(-_IMAGES, _IMAGES + 1, dtype=near.dtype)
    return jnp.sum(jnp.exp(-(((near - images) / width) ** 2)))


def mass_of_gaussian(width: ArrayLike) -> Array:
    """The integral of `wrapped_gaussian` over one period: `width sqrt(pi)`."""
    return jnp.asarray(width * np.sqrt(np.pi), float)


def squared_norm_of_gaussian(width: ArrayLike, period: float) -> Array:
    """The integral of its square, the overlaps of the images included."""
    width = jnp.asarray(width, float)
    apart = period * jnp.arange(-_IMAGES, _IMAGES + 1, dtype=width.dtype)
    overlap = jnp.sum(jnp.exp(-0.5 * (apart / width) ** 2))
    return width * np.sqrt(np.pi / 2.0) * overlap


def exponential(x: Array) -> Array:
    """`exp(sum_k cos(pi (x_k - 1)) / sqrt(d))` on a torus of period 2: its variance
    stays of order one in any dimension."""
    return jnp.exp(1.0 / np.sqrt(x.size) * jnp.sum(jnp.cos(jnp.pi * (x - 1.0))))
