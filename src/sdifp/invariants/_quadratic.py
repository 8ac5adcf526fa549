"""The integral of a quadratic form of a field."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from ._arguments import value_of
from ._invariant import At, WeightedInvariant, total


@dataclasses.dataclass(frozen=True)
class Quadratic(WeightedInvariant):
    """The integral of `u^T R u` over the domain, for a symmetric and positive definite
    weight R: a weighted norm, an energy of several components.

    **Arguments:**

    - `weight`: R, a function of one point x: a matrix with a row for each component, or
        one number that multiplies the identity.
    - `target`: the integral: a number, or a differentiable function of t. None for a
        form that is measured and not prescribed.
    - `components`: the components that R has rows for; by default all.
    - `name`: under which it appears in tables, files and messages.
    """

    name: str = "quadratic"

    kind: ClassVar[str] = "quadratic"
    most_arguments: ClassVar[int] = 1
    arguments_in_words: ClassVar[str] = "x alone"
    density_in_words: ClassVar[str] = "u^T R u"

    def weight_at(self, x: Any, t: Any, count: int) -> Any:
        del t
        n = len(self.among(count))
        return value_of(
            f"weight of {self.name}",
            self.weight,
            {"x": x},
            [(), (n, n)],
            f"one real number or a real matrix of shape ({n}, {n})",
        )

    def density(self, at: At) -> Any:
        count = at.u.shape[-1]
        weight, u = self.weight_at(at.x, at.t, count), at.u
        own = list(enumerate(self.among(count)))
        if np.ndim(weight) == 0:
            return weight * total([u[..., k] ** 2 for _, k in own])
        terms = [weight[i, j] * u[..., k] * u[..., m] for i, k in own for j, m in own]
        return total(terms)

    def unit(self, target: Any, squared_norm: Any, volume: float, xp: Any) -> Any:
        del squared_norm, volume
        return xp.abs(target)
