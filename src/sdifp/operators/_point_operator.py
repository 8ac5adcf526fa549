"""A linear operator at one point: which directional derivatives, with which weights."""

from collections.abc import Mapping

import equinox as eqx
from jaxtyping import Array

from ..taylor import Directions, add

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
                merged = old.merged(new)
                if merged is not None:
                    directions[k] = merged
                    break
            else:
                directions.append(new)
        sums = {f: add(getattr(self, f), getattr(other, f)) for f in _PARTS}
        return PointOperator(tuple(directions), **sums)

    def __mul__(self, factor: Array) -> "PointOperator":
        parts = {f: getattr(self, f) for f in _PARTS}
        scaled = {f: None if a is None else factor * a for f, a in parts.items()}
        return PointOperator(tuple(d.scaled(factor) for d in self.directions), **scaled)


def directional(
    weights: Mapping[int, Array],
    rows: Array | None = None,
    index: Array | None = None,
    metric: Array | None = None,
) -> PointOperator:
    """The operator that is one set of `Directions`."""
    return PointOperator((Directions(weights, rows, index, metric),))
