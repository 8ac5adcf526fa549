"""How far invariants are from their targets, or from where they began."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._invariant import Array, Invariant, Measured, relative, relative_error
from ._squared_norm import SquaredNorm


def relative_errors(
    invariants: Sequence[Invariant],
    found: Sequence[Measured],
    targets: Sequence[Array],
    volume: float,
    xp: Any = np,
) -> list[Array]:
    """The relative errors of the invariants of one field. They are relative to the
    squared norm that is prescribed of all components, where there is one, in place of
    the one that the field has.

    **Arguments:**

    - `volume`: of the domain; 1 where the integrals are means.
    - `xp`: the module of array functions, NumPy or `jax.numpy`.
    """
    norms = [
        target
        for one, target in zip(invariants, targets, strict=True)
        if isinstance(one, SquaredNorm) and one.only is None
    ]
    size = lambda m: m.weight * (norms[0] if norms else m.size)
    return [
        relative_error(one, m.value, target, size(m), volume, xp)
        for one, m, target in zip(invariants, found, targets, strict=True)
    ]


class Drift(NamedTuple):
    """How an invariant that is measured, and not prescribed, changes over some times,
    the first of which is on the first axis."""

    value: Array
    change: Array
    "since the first time"
    relative: Array
    "the same relative to the integral of the density's absolute value at that time"


def drift(found: Measured, xp: Any = np) -> Drift:
    """The drift of an invariant from its integrals at some times."""
    change = found.value - found.value[:1]
    return Drift(found.value, change, relative(change, found.size[:1], xp))
