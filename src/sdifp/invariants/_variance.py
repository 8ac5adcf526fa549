"""The integral of the square of a field about its mean."""

import dataclasses
from typing import Any, ClassVar

from ._invariant import At, ComponentInvariant


@dataclasses.dataclass(frozen=True)
class Variance(ComponentInvariant):
    """The integral of `(u - m)^2`, where m is the mean of u: `squared_norm - mass^2 /
    volume`. It needs `Mass` beside it, takes the place of `SquaredNorm`, and keeps the
    digits of a variation that is small beside the mean."""

    kind: ClassVar[str] = "variance"
    density_in_words: ClassVar[str] = "(u - m)^2"
    is_central: ClassVar[bool] = True

    def density(self, at: At) -> Any:
        return (at.u[..., self.index] - at.means[self.index]) ** 2

    def weight_at(self, x: Any, t: Any, count: int) -> None:
        del x, t, count

    def unit(self, target: Any, squared_norm: Any, volume: float, xp: Any) -> Any:
        del volume
        # Rounding of the values moves it in proportion to both roots.
        size = xp.abs(target)
        unit = xp.maximum(size, xp.sqrt(size * squared_norm))
        return xp.where(unit > 0.0, unit, squared_norm)
