"""u_t = Laplacian(u) + f, with a known solution in any dimension."""

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array

from .._domain import Box, check_dimension
from ..operators import Residual, laplacian, time_derivative
from ._conditions import Initial
from ._data import cube_in_words
from ._problem import Problem


def manufactured(dimension: int = 100, *, duration: float = 1.0) -> Problem:
    """A manufactured problem in any dimension, `u_t = Laplacian(u) + f` on the torus
    [0, 2]^d.

    The source f is such that `u = sin(s + t)` with `s = sum_k cos(pi x_k) / sqrt(d)`.
    Both integrals move: `E[exp(i a s)] = J_0(a / sqrt(d))^d`.

    **Arguments:**

    - `dimension`: d.
    - `duration`: the last time.
    """
    d = check_dimension(dimension)
    root = np.sqrt(d)

    def phase(x: Array) -> Array:
        return jnp.sum(jnp.cos(np.pi * x)) / root

    def reference(x: Array, t: Array) -> Array:
        return jnp.sin(phase(x) + t)

    def source(x: Array, t: Array) -> Array:
        s = phase(x)
        # |grad s|^2, and Laplacian(s) = -pi^2 s.
        slope = np.pi**2 * jnp.sum(jnp.sin(np.pi * x) ** 2) / d
        laplacian_of_u = -slope * jnp.sin(s + t) - np.pi**2 * s * jnp.cos(s + t)
        return jnp.cos(s + t) - laplacian_of_u

    one, two = (float(scipy.special.jv(0, k / root)) ** d for k in (1.0, 2.0))
    return Problem(
        domain=Box.cube(d, 0.0, 2.0, periodic=True, normalised=True),
        equation=Residual(
            time_derivative() - laplacian(),
            source=source,
        ),
        conditions=[Initial(lambda x: reference(x, jnp.zeros((), x.dtype)))],
        interval=(0.0, duration),
        mass=lambda t: one * jnp.sin(t),
        squared_norm=lambda t: 0.5 * (1.0 - two * jnp.cos(2.0 * t)),
        reference=reference,
        name=f"manufactured-{d}d",
        description=(
            f"A manufactured problem, u_t = Laplacian(u) + f on "
            f"{cube_in_words(0, 2, d)}, periodic. The source f is such that "
            f"u = sin(s + t) with s = sum_k cos(pi x_k) / sqrt({d})."
        ),
    )
