"""The integral of a field."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from ._invariant import At, ComponentInvariant, total


@dataclasses.dataclass(frozen=True)
class Mass(ComponentInvariant):
    """The integral of u over the domain: of one component, or the total of all."""

    kind: ClassVar[str] = "mass"
    density_in_words: ClassVar[str] = "u"
    is_linear: ClassVar[bool] = True

    def density(self, at: At) -> Any:
        return total([at.u[..., k] for k in self.among(at.u.shape[-1])])

    def weight_at(self, x: Any, t: Any, count: int) -> Any:
        del x, t
        return np.ones(len(self.among(count)))

    def unit(self, target: Any, squared_norm: Any, volume: float, xp: Any) -> Any:
        # A mass of zero has no relative error: the size of the field stands in.
        return xp.maximum(xp.abs(target), xp.sqrt(volume * squared_norm))
