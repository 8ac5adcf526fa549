"""The integral of the square of a field about its mean."""

import dataclasses
from typing import Any, ClassVar

from ._invariant import Invariant


@dataclasses.dataclass(frozen=True)
class Variance(Invariant):
    """The integral of `(u - m)^2`, where m is the mean of u: `squared_norm - mass^2 /
    volume`. It needs `Mass` beside it, takes the place of `SquaredNorm`, and keeps the
    digits of a variation that is small beside the mean."""

    kind: ClassVar[str] = "variance"
    density_in_words: ClassVar[str] = "(u - m)^2"
    is_central: ClassVar[bool] = True

    def density(self, u: Any, mean: Any) -> Any:
        return (u - mean) ** 2

    def unit(self, target: Any, squared_norm: Any, volume: float, xp: Any) -> Any:
        del volume
        # Rounding of the values moves it in proportion to both roots.
        size = xp.abs(target)
        unit = xp.maximum(size, xp.sqrt(size * squared_norm))
        return xp.where(unit > 0.0, unit, squared_norm)
