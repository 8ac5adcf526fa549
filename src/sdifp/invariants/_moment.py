"""The integral of a field against a weight."""

import dataclasses
from typing import Any, ClassVar

from ._arguments import needed_arguments, parameters, value_of
from ._invariant import At, WeightedInvariant, entries, total


@dataclasses.dataclass(frozen=True)
class Moment(WeightedInvariant):
    """The integral of `psi . u` over the domain, for a weight psi: a centre of mass, an
    angular momentum, a Fourier coefficient, the total of some components.

    **Arguments:**

    - `weight`: psi, a function of one point x, or of x and t: one number for each
        component; one number where there is one component.
    - `target`: the integral: a number, or a differentiable function of t. None for a
        moment that is measured and not prescribed.
    - `components`: the components that psi has entries for; by default all.
    - `name`: under which it appears in tables, files and messages.
    - `vanishes_on_walls`: whether psi itself is zero on Dirichlet walls, as functions
        that u is to be orthogonal to are. A `Problem` then needs no profile for what
        the correction adds, which is the nearest field.
    """

    name: str = "moment"
    vanishes_on_walls: bool = False

    kind: ClassVar[str] = "moment"
    most_arguments: ClassVar[int] = 2
    arguments_in_words: ClassVar[str] = "x, or of x and t"
    density_in_words: ClassVar[str] = "psi . u"
    is_linear: ClassVar[bool] = True
    has_weight: ClassVar[bool] = True

    @property
    def weight_has_time(self) -> bool:
        """Whether the weight depends on t."""
        own = needed_arguments(self.weight)
        return len(own) > 1 or "t" in (p.name for p in parameters(self.weight)[1:])

    def weight_at(self, x: Any, t: Any, count: int) -> Any:
        own = self.among(count)
        if self.weight_has_time and t is None:
            raise ValueError(
                f"weight of {self.name} must be a function of x alone for a field "
                f"without time"
            )
        return value_of(
            f"weight of {self.name}",
            self.weight,
            {"x": x, "t": t} if self.weight_has_time else {"x": x},
            [(len(own),), *([()] if len(own) == 1 else [])],
            f"one real number for each of its {len(own)} "
            f"component{'s' * (len(own) > 1)}",
        )

    def density(self, at: At) -> Any:
        count = at.u.shape[-1]
        psi = entries(self.weight_at(at.x, at.t, count))
        pairs = zip(psi, self.among(count), strict=True)
        return total([a * at.u[..., k] for a, k in pairs])

    def unit(self, target: Any, squared_norm: Any, volume: float, xp: Any) -> Any:
        del volume
        # The inequality of Cauchy and Schwarz: no moment of this field is larger.
        return xp.maximum(xp.abs(target), xp.sqrt(squared_norm))
