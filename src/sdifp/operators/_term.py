"""What a term of an operator is: at a point, directional derivatives with weights.

Also the coordinates or pairs that samples draw. Knows nothing of how operators are
evaluated.
"""

import abc
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..taylor import Directions, add

Time = Array | None

_PARTS = ("zero", "first", "rate", "acceleration")


class PointOperator(eqx.Module):
    """`A[u] = sum over directions + zero u + first . grad u + rate u_t + acceleration
    u_tt` at a point; None is zero."""

    directions: tuple[Directions, ...] = ()
    zero: Array | None = None
    first: Array | None = None
    rate: Array | None = None
    acceleration: Array | None = None

    def __add__(self, other: "PointOperator") -> "PointOperator":
        directions = list(self.directions)
        for new in other.directions:
            for k, old in enumerate(directions):
                if (merged := old.merged(new)) is not None:
                    directions[k] = merged
                    break
            else:
                directions.append(new)
        sums = [add(getattr(self, f), getattr(other, f)) for f in _PARTS]
        return PointOperator(tuple(directions), *sums)

    def __mul__(self, factor: Array) -> "PointOperator":
        parts = [getattr(self, f) for f in _PARTS]
        scaled = jax.tree.map(lambda a: factor * a, parts)
        return PointOperator(tuple(d.scaled(factor) for d in self.directions), *scaled)


def directional(
    weights: Mapping[int, Array],
    rows: Array | None = None,
    index: Array | None = None,
    metric: Array | None = None,
) -> PointOperator:
    """The operator that is one set of `Directions`."""
    return PointOperator((Directions(weights, rows, index, metric),))


class Term(eqx.Module):
    """A family of terms of a linear operator, such as all of its second derivatives."""

    @abc.abstractmethod
    def group(self, x: Array, t: Time) -> Any:
        """Families of the same group are sampled together: term k of the operator is
        the sum of their terms k. None if the family is never sampled."""

    @abc.abstractmethod
    def exact(self, x: Array, t: Time) -> PointOperator:
        """The whole family."""

    @abc.abstractmethod
    def sampled(self, x: Array, t: Time, drawn: Any, scale: float) -> PointOperator:
        """The terms that were drawn, `Axes` or `Pairs`, times `scale`."""

    @abc.abstractmethod
    def along(self, x: Array, t: Time, rows: Array, gaussian: bool) -> PointOperator:
        """An unbiased estimate from directions with mean zero and covariance one."""


class WholeTerm(Term):
    """A term that is never sampled."""

    def group(self, x: Array, t: Time) -> Any:
        return None

    def sampled(self, x: Array, t: Time, drawn: Any, scale: float) -> PointOperator:
        return self.exact(x, t)

    def along(self, x: Array, t: Time, rows: Array, gaussian: bool) -> PointOperator:
        return self.exact(x, t)


class ScaledTerm(Term):
    """A family of terms times a number."""

    term: Term
    factor: Array

    def group(self, x: Array, t: Time) -> Any:
        return self.term.group(x, t)

    def exact(self, x: Array, t: Time) -> PointOperator:
        return self.term.exact(x, t) * self.factor.astype(x.dtype)

    def sampled(self, x: Array, t: Time, drawn: Any, scale: float) -> PointOperator:
        return self.term.sampled(x, t, drawn, scale) * self.factor.astype(x.dtype)

    def along(self, x: Array, t: Time, rows: Array, gaussian: bool) -> PointOperator:
        return self.term.along(x, t, rows, gaussian) * self.factor.astype(x.dtype)


class Axes(eqx.Module):
    """Some coordinates, as directions."""

    index: Array
    rows: Array
    places: Array

    @staticmethod
    def of(k: Array, dtype: Any) -> "Axes":
        """The coordinates k, an array of shape (n,)."""
        return Axes(k, jnp.ones((k.shape[0], 1), dtype), k[:, None])

    def weighted(self, weights: dict[int, Array]) -> PointOperator:
        """`sum_p sum_k weights[p][k] d^p u / dx_k^p`."""
        return directional(weights, self.rows, self.places)


class Pairs(eqx.Module):
    """Some pairs of coordinates, and the directions e_j + e_k, e_j - e_k."""

    j: Array
    k: Array
    rows: Array
    places: Array

    @staticmethod
    def of(j: Array, k: Array, dtype: Any) -> "Pairs":
        """The pairs (j, k), arrays of shape (n,)."""
        # Entries at one place are added, so that e_j + e_j is one entry of 2.
        same = (j == k).astype(dtype)
        plus = jnp.stack([1.0 + same, 1.0 - same], 1)
        minus = jnp.stack([1.0 - same, same - 1.0], 1)
        places = jnp.stack([j, k], 1)
        rows = jnp.concatenate([plus, minus])
        return Pairs(j, k, rows, jnp.concatenate([places, places]))

    def mixed(self, second: Array, first: Array | None = None) -> PointOperator:
        """`sum second d^2 u / dx_j dx_k`, by polarisation, and derivatives along the
        directions with the weights `first`."""
        weights = {2: jnp.concatenate([second, -second]) / 4.0}
        if first is not None:
            weights[1] = first
        return directional(weights, self.rows, self.places)
