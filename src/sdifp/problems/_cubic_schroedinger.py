"""-Laplacian(psi) + psi^3 + V psi = lambda psi on a torus, with a known solution."""

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array

from .._domain import Box, check_dimension
from ..invariants import Density
from ..operators import Functional
from ._problem import Problem

EIGENVALUE = -3.0


def cubic_schroedinger(dimension: int = 5) -> Problem:
    """The cubic Schrödinger operator of Han, Lu and Zhou (2020) on the torus
    [0, 2 pi]^d, `-Laplacian(psi) + psi^3 + V psi = lambda psi`, with the mean square 1.

    The potential
    `V = -3 + sum_k (sin(x_k)^2 / d^2 - cos(x_k) / d) - exp(2 mean(cos x_k)) / c^2` is
    such that `psi = exp(mean(cos x_k)) / c` has the eigenvalue -3. It is positive, and
    thus the minimiser of the energy, the mean of
    `|grad psi|^2 + V psi^2 + psi^4 / 2`; the eigenvalue is the mean of the same density
    with `psi^4`, and is measured. The mean of `psi^(2 k)` is
    `I_0(2 k / d)^d / I_0(2 / d)^(k d)`, with the Bessel function I_0.

    **Arguments:**

    - `dimension`: d.
    """
    d = check_dimension(dimension)
    norm = float(scipy.special.iv(0, 2.0 / d)) ** (0.5 * d)
    fourth = float(scipy.special.iv(0, 4.0 / d)) ** d / norm**4

    def psi(x: Array) -> Array:
        return jnp.exp(jnp.mean(jnp.cos(x))) / norm

    def potential(x: Array) -> Array:
        slope = jnp.sum(jnp.sin(x) ** 2) / d**2
        return EIGENVALUE + slope - jnp.mean(jnp.cos(x)) - psi(x) ** 2

    def density(x: Array, u: Array, grad: Array, quartic: float) -> Array:
        return grad @ grad + potential(x) * u**2 + quartic * u**4

    return Problem(
        domain=Box.cube(d, 0.0, 2.0 * np.pi, periodic=True, normalised=True),
        equation=Functional(lambda x, u, grad: density(x, u, grad, 0.5)),
        invariants=[Density(lambda x, u, grad: density(x, u, grad, 1.0), "eigenvalue")],
        reference=(psi, lambda x: -psi(x)),
        name=f"cubic-schroedinger-{d}d",
        squared_norm=1.0,
        minimum=EIGENVALUE - 0.5 * fourth,
        description=(
            f"The ground state of a cubic Schrödinger operator, "
            f"-Laplacian(u) + u^3 + V u = lambda u on the torus [0, 2 pi]"
            f"{f'^{d}' if d > 1 else ''}, with the mean of u^2 prescribed; V is such "
            f"that the eigenvalue lambda is -3."
        ),
    )
