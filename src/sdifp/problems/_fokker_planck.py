"""p_t = div(theta x p) + D Laplacian(p), of an Ornstein-Uhlenbeck process."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box, check_dimension
from ..operators import Residual, time_derivative
from ..operators import fokker_planck as fokker_planck_operator
from ._conditions import Dirichlet, Initial
from ._data import cube_in_words
from ._problem import Problem

_WALL = 5.0
_START, _WIDTH = 1.0, 0.5


def fokker_planck(
    dimension: int = 1,
    *,
    pull: float = 1.0,
    diffusion: float = 0.4,
    duration: float = 1.0,
) -> Problem:
    """The Fokker-Planck equation, `p_t = div(theta x p) + D Laplacian(p)` on [-5, 5]^d.

    The density of `dX = -theta X dt + sqrt(2 D) dW`, from a Gaussian about (1, ..., 1)
    with standard deviation 0.5. The solution stays a Gaussian; it is below 1e-13 of its
    peak at the walls, where the network is made to vanish. The integral is a
    probability, 1; that of the square is not prescribed.

    **Arguments:**

    - `dimension`: d, up to 3: a Gaussian in a box has no mass to speak of beyond.
    - `pull`: theta.
    - `diffusion`: D.
    - `duration`: the last time.
    """
    d = check_dimension(dimension)
    if d > 3:
        raise ValueError(f"dimension must be at most 3, got {d}")

    def reference(x: Array, t: Array) -> Array:
        centre = _START * jnp.exp(-pull * t)
        limit = diffusion / pull
        variance = limit + (_WIDTH**2 - limit) * jnp.exp(-2.0 * pull * t)
        exponent = -0.5 * jnp.sum((x - centre) ** 2) / variance
        return jnp.exp(exponent) / (2.0 * np.pi * variance) ** (0.5 * d)

    terms = "(theta x u)_x + D u_xx"
    if d > 1:
        terms = "div(theta x u) + D Laplacian(u)"
    return Problem(
        domain=Box.cube(d, -_WALL, _WALL),
        equation=Residual(
            time_derivative()
            - fokker_planck_operator(lambda x, t: -pull * x, diffusion),
        ),
        conditions=[
            Initial(lambda x: reference(x, jnp.zeros((), x.dtype))),
            Dirichlet(lambda x: jnp.prod(1.0 - (x / _WALL) ** 2)),
        ],
        interval=(0.0, duration),
        mass=1.0,
        reference=reference,
        name=f"fokker-planck-{d}d",
        description=(
            f"The Fokker-Planck equation of an Ornstein-Uhlenbeck process, "
            f"u_t = {terms} on {cube_in_words(-_WALL, _WALL, d)}, with "
            f"theta = {pull:g}, D = {diffusion:g} and u = 0 on the walls."
        ),
    )
