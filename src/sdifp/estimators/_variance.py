"""What the noise of the doubly stochastic estimate is made of."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from .._checks import check_count
from ..field import Exact, as_field
from ..operators import Coordinates, Residual, batch_of
from ._estimators import Estimator, Full, Independent

# The noise needs the gradient of each term at each point: above so many of them, or so
# many numbers in those of one term, it is not predicted.
_MOST_GRADIENTS = 2**15
_MOST_NUMBERS = 2**26


class Variance(eqx.Module):
    """The variance of the doubly stochastic estimate `r_J grad r_I`, for any |I| and
    |J|, relative to the squared norm of the gradient.

    With `s(n) = N (N - n) / (n (N - 1))` for n of N terms without replacement it is
    `s(|I|) derivative + s(|J|) residual + s(|I|) s(|J|) both`; at one point that is
    `r^2 Var d + |grad r|^2 Var r + Var r Var d`. All points of a batch share I and J.
    """

    terms: int = eqx.field(static=True)
    derivative: float = eqx.field(static=True)
    "from the noise of the derivative alone"
    residual: float = eqx.field(static=True)
    "from the noise of the residual alone"
    both: float = eqx.field(static=True)

    def noise(self, i: int, j: int) -> float:
        """The root mean square distance of one estimate from the mean."""
        s, r = spread(i, self.terms), spread(j, self.terms)
        return math.sqrt(s * self.derivative + r * self.residual + s * r * self.both)

    def best_split(self, budget: int) -> tuple[int, int]:
        """|I| and |J| with the least noise among those with |I| + |J| = `budget`."""
        budget = check_count("budget", budget, 2)
        most = min(self.terms, budget - 1)
        return min(
            ((i, min(budget - i, self.terms)) for i in range(1, most + 1)),
            key=lambda split: self.noise(*split),
        )


def spread(n: int, terms: int) -> float:
    """The variance of a sum estimated by `n` of its terms without replacement, over
    the sum of squares of the centred terms."""
    return terms * (terms - n) / (n * (terms - 1)) if terms > 1 else 0.0


def variance_of(
    residual: Residual,
    u: Any,
    x: ArrayLike,
    t: ArrayLike | None,
    terms: int,
    size: float,
) -> Variance | None:
    """The variance for a residual of so many terms of one kind, whose gradient has the
    norm `size`; None where it would take too long.

    With `a_k` the terms, centred over k, and `K = sum_k a_k a_k^T` over the points, its
    parts are `sum_k |r . grad a_k|^2`, `tr(D^T K D)` with D the gradients of r at the
    points, and `sum_k tr(D_k^T K D_k)` with D_k those of a_k.
    """
    batch, _ = batch_of(u, x, t)
    values = len(batch.points)
    params, static = eqx.partition(
        as_field(u).with_gradient(Exact()), eqx.is_inexact_array
    )
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    if values * terms > _MOST_GRADIENTS or values * flat.size > _MOST_NUMBERS:
        return None

    def whole(flat: Array) -> Array:
        field = as_field(eqx.combine(unravel(flat), static))
        found = residual.evaluations(field, batch, [residual.operator])[0].values()
        return residual.scaled(found)

    def term(flat: Array, k: Array) -> Array:
        field = eqx.combine(unravel(flat), static)
        return residual.scaled(residual.operator.only(k)(field)(x, t)).reshape(-1)

    @jax.jit
    def parts(flat: Array) -> tuple[Array, Array, Array]:
        r, slopes = whole(flat).reshape(-1), jax.jacrev(whole)(flat)
        slopes = slopes.reshape(r.size, -1)
        numbers = jnp.arange(terms)
        a = jax.lax.map(lambda k: term(flat, k), numbers)
        a = a - jnp.mean(a, 0, keepdims=True)
        kernel = a.T @ a

        def one(total: Array, k: Array) -> tuple[Array, tuple[Array, Array]]:
            own = jax.jacrev(term)(flat, k)
            return total + own, (jnp.sum((r @ own) ** 2), jnp.vdot(own, kernel @ own))

        total, (first, both) = jax.lax.scan(one, jnp.zeros_like(slopes), numbers)
        # Centred: the square of the sum, over the number of terms, is taken off.
        derivative = jnp.sum(first) - jnp.sum((r @ total) ** 2) / terms
        product = jnp.sum(both) - jnp.vdot(total, kernel @ total) / terms
        return derivative, jnp.vdot(slopes, kernel @ slopes), product

    found = (float(p) / (values * size) ** 2 for p in parts(flat))
    return Variance(terms, *(max(0.0, p) for p in found))


def terms_of(estimator: Estimator) -> tuple[int, int] | None:
    """|I| and |J| of independent samples of terms; None of anything else."""
    if not isinstance(estimator, Independent):
        return None
    if not isinstance(estimator.directions, Coordinates):
        return None
    return estimator.i, estimator.j or estimator.i


def noise_of(estimator: Estimator, variance: Variance | None) -> float | None:
    """The noise of an estimator by the formula, where there is one."""
    if variance is None:
        return None
    if isinstance(estimator, Full):
        return 0.0
    counts = terms_of(estimator)
    return None if counts is None else variance.noise(*counts)
