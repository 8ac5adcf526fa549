"""Moments on all nodes in some training steps only, interpolated in time."""

import dataclasses
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..correction import Moments
from ..quadrature import QuadratureRule
from ._gradient import (
    CHUNK,
    Evaluate,
    Exact,
    GradientMode,
    sampled_change,
    streamed_moments,
)

if TYPE_CHECKING:
    from ._field import ConservedField


class MomentTable(eqx.Module):
    """The moments of a network as functions of time: Chebyshev polynomials through
    those at `n` times of an interval."""

    parameters: Any
    "of the network that has them"

    coefficients: Moments
    "of the polynomials, on the first axis"
    start: Float[Array, ""]
    length: Float[Array, ""]

    def at(self, t: ArrayLike) -> Moments:
        """The moments at any time of the interval, smooth in it."""
        s = 2.0 * (t - self.start) / self.length - 1.0
        n = len(self.coefficients.pivot)
        # As sums and products, which can be differentiated to any order everywhere.
        values = [jnp.ones_like(s), s]
        for _ in range(n - 2):
            values.append(2.0 * s * values[-1] - values[-2])
        polynomials = jnp.stack(values[:n])
        return jax.tree.map(
            lambda c: jnp.tensordot(polynomials.astype(c.dtype), c, 1),
            self.coefficients,
        )


class Lagged(GradientMode):
    """Moments on all nodes every `every` training steps only, at a few times, and
    interpolated in time; in the steps between, their change since then is estimated
    from `k` nodes, and so is the gradient. **The integrals hold approximately while it
    trains**; the trained field is exact. Worth it where the quadrature is most of a
    step: the study `lagged` has what it saves and what it costs.

    The moments are unbiased; scale and shift, which are not linear in them, have a bias
    of second order in their noise. Outside training it is `Subsampled(k)`.

    **Arguments:**

    - `every`: for how many steps the moments on all nodes are kept.
    - `k`: how many nodes their change and the gradient are estimated from.
    - `times`: at how many times of a window they are computed.
    - `stratified`, `chunk`: as for `Subsampled`.
    """

    every: int = eqx.field(static=True)
    k: int = eqx.field(static=True, default=32)
    times: int = eqx.field(static=True, default=12)
    stratified: bool = eqx.field(static=True, default=True)
    chunk: int = eqx.field(static=True, default=CHUNK)
    key: Array | None = None
    table: MomentTable | None = None

    def moments(
        self,
        evaluate: Evaluate,
        frozen: Evaluate,
        rule: QuadratureRule,
        t: Array | None,
    ) -> Moments:
        if self.key is None:
            return streamed_moments(evaluate, rule, self.chunk)
        if self.table is None or t is None:
            whole = streamed_moments(frozen, rule, self.chunk)
        else:
            whole = self.table.at(t)
        given = (self.key, self.k, self.stratified)
        return sampled_change(whole, evaluate, frozen, rule, *given)

    def keep(self, table: MomentTable) -> "Lagged":
        """The same with moments to go on with."""
        return dataclasses.replace(self, table=table)

    def tabulate(
        self, u: "ConservedField", start: ArrayLike, length: ArrayLike
    ) -> MomentTable:
        """The moments of a field at Chebyshev times of an interval."""
        n = self.times
        angles = np.pi * (np.arange(n) + 0.5) / n
        matrix = 2.0 / n * np.cos(np.outer(np.arange(n), angles))
        matrix[0] /= 2.0
        times = start + 0.5 * length * (1.0 + jnp.asarray(np.cos(angles), float))
        exact = u.with_gradient(Exact(self.chunk))
        found = jax.lax.map(lambda t: exact.at(t).moments, times)
        to_coefficients = lambda v: jnp.tensordot(jnp.asarray(matrix, v.dtype), v, 1)
        return MomentTable(
            jax.lax.stop_gradient(eqx.filter(u.net, eqx.is_inexact_array)),
            jax.tree.map(to_coefficients, jax.lax.stop_gradient(found)),
            jnp.asarray(start, float),
            jnp.asarray(length, float),
        )
