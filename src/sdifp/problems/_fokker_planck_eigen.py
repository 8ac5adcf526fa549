"""-Laplacian(psi) - div(psi grad V) = 0 on a torus, with V = sin(sum_k c_k cos x_k)."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array

from .._domain import Box
from ..operators import Residual
from ..operators import fokker_planck as fokker_planck_operator
from ._problem import Problem

_COEFFICIENTS = {
    5: (1.0, 0.8, 0.6, 0.4, 0.2),
    10: (0.1, 0.3, 0.2, 0.5, 0.2, 0.1, 0.3, 0.4, 0.2, 0.2),
}
# The Bessel function I_k(1) is below 1e-17 from here on.
_TERMS = 16


def fokker_planck_eigen(dimension: int = 5) -> Problem:
    """The Fokker-Planck operator of Han, Lu and Zhou (2020) on the torus [0, 2 pi]^d,
    `-Laplacian(psi) - div(psi grad V) = lambda psi`, with
    `V = sin(sum_k c_k cos x_k)`.

    The smallest eigenvalue is 0, and its eigenfunction the stationary density,
    `exp(-V) / Z`, which is found here as such: it is positive, and its mean is 1 (the
    box is normalised; with the integral 1 it would be of the order of `(2 pi)^-d`).

    **Arguments:**

    - `dimension`: d, 5 or 10, of which they give the coefficients c.
    """
    if dimension not in _COEFFICIENTS:
        raise ValueError(f"dimension must be 5 or 10, got {dimension!r}")
    c = np.array(_COEFFICIENTS[dimension])
    mean = mean_of_exponential(c)

    def potential(x: Array) -> Array:
        return jnp.sin(jnp.cos(x) @ jnp.asarray(c, x.dtype))

    drift = lambda x: -jax.grad(potential)(x)
    return Problem(
        domain=Box.cube(dimension, 0.0, 2.0 * np.pi, periodic=True, normalised=True),
        equation=Residual(fokker_planck_operator(drift, 1.0)),
        reference=lambda x: jnp.exp(-potential(x)) / mean,
        name=f"fokker-planck-eigen-{dimension}d",
        mass=1.0,
        positive=True,
        description=(
            f"The stationary Fokker-Planck equation -Laplacian(u) - div(u grad V) = 0 "
            f"on the torus [0, 2 pi]^{dimension}, with V = sin(sum_k c_k cos(x_k)); u "
            f"is a density of mean 1, the eigenfunction of the eigenvalue 0."
        ),
    )


def mean_of_exponential(c: np.ndarray) -> float:
    """The mean of `exp(-sin s)` with `s = sum_k c_k cos x_k` over the torus.

    From `exp(-sin s) = sum_n i^n I_n(1) exp(i n s)` and the mean of `exp(i n s)`, which
    is the product of the Bessel functions `J_0(n c_k)`. Odd terms cancel.
    """
    n = np.arange(0, _TERMS, 2)
    sizes = np.where(n > 0, 2.0, 1.0) * (-1.0) ** (n // 2) * scipy.special.iv(n, 1.0)
    return float(sizes @ scipy.special.j0(np.outer(n, c)).prod(1))
