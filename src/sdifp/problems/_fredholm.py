"""-u'' + gamma int exp(x y) u(y) dy = f on [0, 1] with u = 0 on the walls."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box
from ..operators import Residual, laplacian
from ._conditions import Dirichlet
from ._problem import Problem


def fredholm(*, strength: float = 10.0) -> Problem:
    """A Fredholm integro-differential equation,
    `-u'' + gamma int exp(x y) u(y) dy = f` on [0, 1], with u = 0 on the walls.

    The source f is such that `u = sin(pi x) + sin(2 pi x) / 2`, from
    `int exp(x y) sin(k pi y) dy = k pi (1 - (-1)^k exp(x)) / (x^2 + k^2 pi^2)`. The
    kernel is symmetric and positive definite, so that the solution is unique. Its
    integral, 2/pi, is prescribed.

    **Arguments:**

    - `strength`: gamma, at least 0.
    """
    if not 0.0 <= strength < np.inf:
        raise ValueError(f"strength must be a number from 0 on, got {strength}")
    waves = [(np.pi, 1.0), (2.0 * np.pi, 0.5)]

    def reference(x: Array) -> Array:
        first, second = (a * jnp.sin(k * x[0]) for k, a in waves)
        return first + second

    def source(x: Array) -> Array:
        # exp(x y) at the end, with the sign that the cosine of the wave has there.
        end = lambda k: jnp.exp(x[0]) * np.cos(k)
        local = sum(a * k**2 * jnp.sin(k * x[0]) for k, a in waves)
        memory = sum(a * k * (1.0 - end(k)) / (x[0] ** 2 + k**2) for k, a in waves)
        return local + strength * memory

    return Problem(
        domain=Box([0.0], [1.0]),
        equation=Residual(
            -1.0 * laplacian(),
            lambda u, grad, x, memory: strength * memory,
            source,
            integrals={"memory": lambda x, y, u: jnp.exp(x[0] * y[0]) * u},
        ),
        conditions=[Dirichlet(lambda x: 4.0 * x[0] * (1.0 - x[0]))],
        reference=reference,
        name="fredholm-1d",
        mass=2.0 / np.pi,
        description=(
            f"A Fredholm integro-differential equation, "
            f"-u'' + gamma int exp(x y) u(y) dy = f on [0, 1], with "
            f"gamma = {strength:g} and u = 0 on the walls."
        ),
    )
