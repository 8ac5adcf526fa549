"""-Laplacian(u) = f on a box with Neumann walls and the mean 0."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box, check_dimension
from ..operators import Residual, laplacian
from ._conditions import Neumann
from ._data import cube_in_words
from ._problem import Problem


def neumann_poisson(dimension: int = 2) -> Problem:
    """The Poisson equation, `-Laplacian(u) = f`, with homogeneous Neumann conditions on
    [0, 1]^d.

    The source f is such that `u = sin(s)` with `s = sum_k cos(pi x_k) / sqrt(d)`. Both
    have the integral 0, by symmetry about the centre. The equation determines u up to a
    constant, which the integral fixes.

    **Arguments:**

    - `dimension`: d.
    """
    d = check_dimension(dimension)
    root = np.sqrt(d)

    def phase(x: Array) -> Array:
        return jnp.sum(jnp.cos(np.pi * x)) / root

    def source(x: Array) -> Array:
        s = phase(x)
        # |grad s|^2, and Laplacian(s) = -pi^2 s.
        slope = np.pi**2 * jnp.sum(jnp.sin(np.pi * x) ** 2) / d
        return slope * jnp.sin(s) + np.pi**2 * s * jnp.cos(s)

    return Problem(
        domain=Box.cube(d, 0.0, 1.0),
        equation=Residual(-1.0 * laplacian(), source=source),
        conditions=[Neumann()],
        reference=lambda x: jnp.sin(phase(x)),
        name=f"neumann-poisson-{d}d",
        mass=0.0,
        description=(
            f"The Poisson equation, -Laplacian(u) = f on {cube_in_words(0, 1, d)} with "
            f"du/dn = 0 on the walls. It determines u up to a constant, which the "
            f"integral of u fixes."
        ),
    )
