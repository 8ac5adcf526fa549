"""min int eps^2/2 u'^2 + 1/4 (1 - u^2)^2 on [0, 1] with a given integral of u."""

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._domain import Box
from ..invariants import Density
from ..operators import Functional
from ._problem import Problem

# Of Newton's iteration: the most steps, and a residual that is rounding.
_STEPS, _SMALL = 50, 1e-12


def droplet(*, eps: float = 0.06, volume: float = 0.3) -> Problem:
    """The minimiser of the Cahn-Hilliard (or van der Waals) energy, the integral of
    `eps^2/2 u'^2 + (1 - u^2)^2 / 4`, on [0, 1] with the integral of u prescribed.

    It solves `-eps^2 u'' + u^3 - u = lambda` with its natural boundary conditions
    u' = 0, and has a single layer between a phase near -1 and one near 1 (Carr, Gurtin
    and Slemrod, 1984); its reflection about the middle is another. The multiplier
    lambda, the integral of `u^3 - u`, is measured. The reference is spectral.

    **Arguments:**

    - `eps`: the width of the layer is about `3 eps`.
    - `volume`: the integral of u, between -1 and 1. Where it is too close to these, or
        eps too large, a constant has the least energy: such values are refused.
    """
    state = layer(float(eps), float(volume))

    def density(u: Array, grad: Array) -> Array:
        return 0.5 * eps**2 * grad[0] ** 2 + 0.25 * (1.0 - u**2) ** 2

    return Problem(
        domain=Box([0.0], [1.0]),
        equation=Functional(density),
        invariants=[Density(lambda u: u**3 - u, "multiplier")],
        reference=(state, lambda x: state(1.0 - x)),
        name="droplet-1d",
        mass=float(volume),
        minimum=state.energy,
        description=(
            f"The minimiser of the Cahn-Hilliard energy, the integral of "
            f"eps^2/2 u'^2 + (1 - u^2)^2 / 4 on [0, 1], with eps = {eps:g} and the "
            f"integral of u prescribed. It solves -eps^2 u'' + u^3 - u = lambda with "
            f"u' = 0 on the walls; lambda is the multiplier."
        ),
    )


class Layer(eqx.Module):
    """A cosine series on [0, 1]."""

    coefficients: Float[np.ndarray, " modes"]
    energy: float = eqx.field(static=True)
    multiplier: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, "1"]) -> Float[Array, ""]:
        """The value at one point."""
        values = jnp.asarray(self.coefficients, x.dtype)
        return jnp.cos(np.pi * jnp.arange(values.size, dtype=x.dtype) * x[0]) @ values


@functools.cache
def layer(eps: float, volume: float, count: int = 1) -> Layer:
    """The critical point with some layers at equal distances, of which the first
    rises: the minimiser if there is one. By Newton's iteration for cosine series.

    **Arguments:**

    - `eps`, `volume`: as for `droplet`.
    - `count`: the number of layers.
    """
    if not 0.01 <= eps < np.inf:
        raise ValueError(f"eps must be a number from 0.01 on, got {eps}")
    if not -1.0 < volume < 1.0:
        raise ValueError(f"volume must be between -1 and 1, got {volume}")
    # The poles of tanh(x / (sqrt(2) eps)) are at the distance pi eps / sqrt(2), so that
    # the coefficients decay as exp(-7 eps k).
    n = 2 * int(np.ceil(6.0 / eps))
    k, x = np.arange(n), (np.arange(n) + 0.5) / n
    cosines = np.cos(np.pi * np.outer(x, k))
    # From values to coefficients, and the second derivative of the values.
    fit = 2.0 / n * cosines.T
    fit[0] /= 2.0
    bend = cosines @ ((-((np.pi * k) ** 2))[:, None] * fit)

    # Fold [0, 1] to one layer on a part of it.
    folded = np.abs((count * x + 1.0) % 2.0 - 1.0) / count
    start = (0.5 * (1.0 - volume)) / count
    u = np.tanh((folded - start) / (np.sqrt(2.0) * eps))
    multiplier = 0.0
    for _ in range(_STEPS):
        residual = -(eps**2) * bend @ u + u**3 - u - multiplier
        missing = volume - np.mean(u)
        if max(np.abs(residual).max(), abs(missing)) < _SMALL:
            break
        jacobian = -(eps**2) * bend + np.diag(3.0 * u**2 - 1.0)
        bordered = np.block(
            [[jacobian, np.full((n, 1), -1.0)], [np.full((1, n), 1.0 / n), 0.0]]
        )
        step = np.linalg.solve(bordered, np.append(-residual, missing))
        u, multiplier = u + step[:-1], multiplier + step[-1]
    coefficients = fit @ u
    # The sum of u'^2 by Parseval: its sine series has no constant.
    slope = 0.5 * np.sum((np.pi * k * coefficients) ** 2)
    energy = 0.5 * eps**2 * slope + 0.25 * np.mean((1.0 - u**2) ** 2)
    jumps = np.sum(np.diff(np.sign(u - volume)) != 0)
    flat = 0.25 * (1.0 - volume**2) ** 2
    if np.abs(residual).max() > 1e-9 or jumps != count or not energy < 0.999 * flat:
        raise ValueError(
            f"eps and volume must leave room for {count} layers of less energy than "
            f"the constant, got {eps} and {volume}"
        )
    return Layer(coefficients, float(energy), float(multiplier))
