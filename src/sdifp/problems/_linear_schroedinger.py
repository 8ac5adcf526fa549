"""-Laplacian(psi) + sum_k c_k cos(x_k) psi = lambda psi on a torus."""

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array

from .._domain import Box
from ..invariants import Density
from ..operators import Functional
from ._problem import Problem

_COEFFICIENTS = 0.2 * np.array(
    [
        *(0.814723686393179, 0.905791937075619, 0.126986816293506, 0.913375856139019),
        *(0.632359246225410, 0.097540404999410, 0.278498218867048, 0.546881519204984),
        *(0.957506835434298, 0.964888535199277),
    ]
)
# Of the cosine series on each axis: the next coefficients are below 1e-20.
_TERMS = 12


def linear_schroedinger(dimension: int = 5) -> Problem:
    """The linear Schrödinger operator of Han, Lu and Zhou (2020) on the torus
    [0, 2 pi]^d, `-Laplacian(psi) + sum_k c_k cos(x_k) psi = lambda psi`.

    The ground state minimises the mean of `|grad psi|^2 + sum_k c_k cos(x_k) psi^2`
    among the functions with the mean square 1, and the minimum is the eigenvalue. The
    operator is separable: psi is a product of Mathieu functions, and lambda the sum of
    their eigenvalues, -0.054018930536 for d = 5 and -0.098087448866 for d = 10.

    **Arguments:**

    - `dimension`: d, 5 or 10, the first of the coefficients c that they give.
    """
    if dimension not in (5, 10):
        raise ValueError(f"dimension must be 5 or 10, got {dimension!r}")
    c = _COEFFICIENTS[:dimension]
    values, series = (np.stack(a) for a in zip(*map(ground_state, c), strict=True))
    eigenvalue = float(np.sum(values))

    def psi(x: Array) -> Array:
        angles = x[:, None] * jnp.arange(_TERMS, dtype=x.dtype)[None, :]
        return jnp.prod(jnp.sum(jnp.asarray(series, x.dtype) * jnp.cos(angles), 1))

    def density(x: Array, u: Array, grad: Array) -> Array:
        return grad @ grad + jnp.cos(x) @ jnp.asarray(c, x.dtype) * u**2

    return Problem(
        domain=Box.cube(dimension, 0.0, 2.0 * np.pi, periodic=True, normalised=True),
        equation=Functional(density),
        invariants=[Density(density, "eigenvalue")],
        reference=(psi, lambda x: -psi(x)),
        name=f"linear-schroedinger-{dimension}d",
        squared_norm=1.0,
        minimum=eigenvalue,
        description=(
            f"The ground state of a linear Schrödinger operator, "
            f"-Laplacian(u) + sum_k c_k cos(x_k) u = lambda u on the torus "
            f"[0, 2 pi]^{dimension}, with the mean of u^2 prescribed; lambda is the "
            f"eigenvalue."
        ),
    )


def ground_state(c: float) -> tuple[float, np.ndarray]:
    """The smallest eigenvalue of `-u'' + c cos(x) u` on the circle, and the cosine
    series of its eigenfunction, which is positive and has the mean square 1."""
    # In the orthonormal functions 1, sqrt(2) cos(x), sqrt(2) cos(2 x), ...
    beside = np.full(_TERMS - 1, 0.5 * c)
    beside[0] *= np.sqrt(2.0)
    diagonal = np.arange(_TERMS, dtype=float) ** 2
    values, vectors = scipy.linalg.eigh_tridiagonal(
        diagonal, beside, select="i", select_range=(0, 0)
    )
    series = vectors[:, 0] * np.sign(vectors[0, 0])
    series[1:] *= np.sqrt(2.0)
    return float(values[0]), series
