"""The integral of the square of a field."""

import dataclasses
from typing import Any, ClassVar

from ._invariant import At, ComponentInvariant, total


@dataclasses.dataclass(frozen=True)
class SquaredNorm(ComponentInvariant):
    """The integral of u^2 over the domain: of one component, or of all together. (Not
    the energy of most equations: it is the momentum of the Korteweg-de Vries equation,
    and of a complex wave function, which has two components, the mass.)"""

    kind: ClassVar[str] = "squared_norm"
    density_in_words: ClassVar[str] = "u^2"

    def density(self, at: At) -> Any:
        return total([at.u[..., k] ** 2 for k in self.among(at.u.shape[-1])])

    def weight_at(self, x: Any, t: Any, count: int) -> None:
        del x, t, count

    def unit(self, target: Any, squared_norm: Any, volume: float, xp: Any) -> Any:
        del squared_norm, volume
        return xp.abs(target)
