"""Directions and weights: which derivatives are summed. Depends on JAX alone."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from ._jet import add


class Directions(eqx.Module):
    """The sum `sum_p sum_r weights[p][r] D^p f(x)[v_r, ..., v_r]` over directions v_r,
    and over all coordinates `sum_jk metric[j, k] d^2 f / dx_j dx_k`.

    **Arguments:**

    - `weights`: for each order p, one number for each direction or one for all.
    - `rows`: the directions, shape (R, d); by default all d coordinates.
    - `index`: where given, shape (R, entries), the directions have few entries: `rows`,
        of the same shape, at the places `index`, which differ within a direction
        unless the entries are zero.
    - `metric`: a symmetric matrix of shape (d, d), where `rows` is left out.

    Examples:
        >>> from sdifp.taylor import Directions
        >>> laplacian = Directions({2: 1.0})
        >>> sum_of_third_derivatives_minus_slopes = Directions({3: 1.0, 1: -1.0})
    """

    weights: dict[int, Array]
    rows: Array | None
    index: Array | None
    metric: Array | None

    def __init__(
        self,
        weights: Mapping[int, ArrayLike] | None = None,
        rows: Array | None = None,
        index: Array | None = None,
        metric: Array | None = None,
    ):
        self.weights = {p: jnp.asarray(w) for p, w in (weights or {}).items()}
        self.rows, self.index, self.metric = rows, index, metric
        if min(self.weights, default=1) < 1 or not (weights or metric is not None):
            raise ValueError(f"weights must name orders from 1, got {weights}")
        if metric is not None and rows is not None:
            raise ValueError("metric is over all coordinates, so leave out rows")

    @property
    def order(self) -> int:
        """The highest one."""
        return max(self.weights, default=2)

    @property
    def is_second_order(self) -> bool:
        """Whether it is a second-order operator over all coordinates."""
        return self.rows is None and (
            self.metric is not None or set(self.weights) == {2}
        )

    def vectors(self, x: Array) -> Array:
        """The directions, written out."""
        if self.rows is None:
            return jnp.eye(x.shape[0], dtype=x.dtype)
        if self.index is None:
            return self.rows
        count = jnp.arange(self.rows.shape[0])[:, None]
        zero = jnp.zeros((self.rows.shape[0], x.shape[0]), x.dtype)
        return zero.at[count, self.index].add(self.rows)

    def merged(self, other: "Directions") -> "Directions | None":
        """Both together, if they share their directions."""
        if self.rows is not other.rows or self.index is not other.index:
            return None
        weights: dict[int, Any] = dict(self.weights)
        for order, weight in other.weights.items():
            weights[order] = add(weights.get(order), weight)
        metric = add(self.metric, other.metric)
        return Directions(weights, self.rows, self.index, metric)

    def scaled(self, factor: Array) -> "Directions":
        """All weights times a number."""
        weights = {p: factor * w for p, w in self.weights.items()}
        metric = None if self.metric is None else factor * self.metric
        return Directions(weights, self.rows, self.index, metric)

    def split(self) -> "list[Directions]":
        """The metric, with the weights of order 2 in it, apart from other orders."""
        if self.metric is None:
            return [self]
        metric, diagonal = self.metric, self.weights.get(2)
        if diagonal is not None:
            metric = metric + jnp.diag(jnp.broadcast_to(diagonal, metric.shape[:1]))
        rest = {p: w for p, w in self.weights.items() if p != 2}
        return [Directions(metric=metric), *([Directions(rest)] if rest else [])]
