"""The moments of a network as functions of time, from a few quadratures."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ._gradient import CHUNK

if TYPE_CHECKING:
    from ._field import ConservedField


class MomentTable(eqx.Module):
    """The moments of a network as functions of time: Chebyshev polynomials through
    those at `n` times of an interval."""

    coefficients: Any
    "of the polynomials, on the first axis"
    start: Float[Array, ""]
    length: Float[Array, ""]
    parameters: Any = None
    "of the network that has them, where it is an earlier one"

    @staticmethod
    def through(moments: Any, start: ArrayLike, length: ArrayLike) -> "MomentTable":
        """The table of moments at the `chebyshev_times` of an interval, these on the
        first axis."""
        n = len(jax.tree.leaves(moments)[0])
        angles = np.pi * (np.arange(n) + 0.5) / n
        matrix = 2.0 / n * np.cos(np.outer(np.arange(n), angles))
        matrix[0] /= 2.0
        to_coefficients = lambda v: jnp.tensordot(jnp.asarray(matrix, v.dtype), v, 1)
        return MomentTable(
            jax.tree.map(to_coefficients, moments),
            jnp.asarray(start, float),
            jnp.asarray(length, float),
        )

    def at(self, t: ArrayLike) -> Any:
        """The moments at any time of the interval, smooth in it."""
        s = 2.0 * (t - self.start) / self.length - 1.0
        n = len(jax.tree.leaves(self.coefficients)[0])
        # As sums and products, which can be differentiated to any order everywhere.
        values = [jnp.ones_like(s), s]
        for _ in range(n - 2):
            values.append(2.0 * s * values[-1] - values[-2])
        polynomials = jnp.stack(values[:n])
        found = jax.tree.map(
            lambda c: jnp.tensordot(polynomials.astype(c.dtype), c, 1),
            self.coefficients,
        )
        # No derivative flows through a pivot.
        return found.about(jax.lax.stop_gradient(found.pivot))


def moments_over(
    u: "ConservedField", start: ArrayLike, length: ArrayLike, n: int
) -> Any:
    """The moments of a field at the `n` Chebyshev times of an interval, which are on
    the first axis, differentiable as its gradient mode says."""
    times, at = chebyshev_times(start, length, n), lambda t: u.at(t).moments
    # All at once where that is one small batch, else without its memory.
    small = n * u.rule.size <= CHUNK
    found = jax.vmap(at)(times) if small else jax.lax.map(at, times)
    return found


def chebyshev_times(start: ArrayLike, length: ArrayLike, n: int) -> Float[Array, " n"]:
    """Chebyshev times of an interval, the latest first."""
    unit = 0.5 * (1.0 + np.cos(np.pi * (np.arange(n) + 0.5) / n))
    return jnp.asarray(start + length * unit, float)


def times_between(start: ArrayLike, length: ArrayLike, n: int) -> Float[Array, " m"]:
    """The times half way between those, in angle, and both ends."""
    unit = 0.5 * (1.0 + np.cos(np.pi * np.arange(n + 1) / n))
    return jnp.asarray(start + length * unit, float)
