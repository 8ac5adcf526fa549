"""The integral of the square of a field."""

import dataclasses
from typing import Any, ClassVar

from ._invariant import Invariant


@dataclasses.dataclass(frozen=True)
class SquaredNorm(Invariant):
    """The integral of u^2 over the domain. (Not the energy of most equations: it is the
    momentum of the Korteweg-de Vries equation.)"""

    kind: ClassVar[str] = "squared_norm"
    density_in_words: ClassVar[str] = "u^2"

    def density(self, u: Any, mean: Any) -> Any:
        del mean
        return u**2

    def unit(self, target: Any, squared_norm: Any, volume: float, xp: Any) -> Any:
        del squared_norm, volume
        return xp.abs(target)
