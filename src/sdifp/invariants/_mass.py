"""The integral of a field."""

import dataclasses
from typing import Any, ClassVar

from ._invariant import Invariant


@dataclasses.dataclass(frozen=True)
class Mass(Invariant):
    """The integral of u over the domain."""

    kind: ClassVar[str] = "mass"
    density_in_words: ClassVar[str] = "u"

    def density(self, u: Any, mean: Any) -> Any:
        del mean
        return u

    def unit(self, target: Any, squared_norm: Any, volume: float, xp: Any) -> Any:
        # A mass of zero has no relative error: the size of the field stands in.
        return xp.maximum(xp.abs(target), xp.sqrt(volume * squared_norm))
