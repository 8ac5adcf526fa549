"""The integral of the squared gradient of a field."""

import dataclasses
from typing import Any, ClassVar

from ._invariant import At, ComponentInvariant


@dataclasses.dataclass(frozen=True)
class DirichletEnergy(ComponentInvariant):
    """The integral of `|grad u|^2` over the domain: of one component, or of all
    together. It needs the gradient of the network on the nodes, and its correction is
    not the nearest field: see `QuadraticForm`."""

    kind: ClassVar[str] = "dirichlet_energy"
    density_in_words: ClassVar[str] = "|grad u|^2"
    needs_gradient = True

    def weight_at(self, x: Any, t: Any, count: int) -> None:
        del x, t, count

    def form_at(self, u: Any, gradient: Any, x: Any) -> Any:
        """The form of its own components at a point."""
        del u, x
        return (gradient * gradient).sum()

    def density(self, at: At) -> Any:
        rows = [at.gradient[k] for k in self.among(at.u.shape[-1])]
        return sum((row * row).sum() for row in rows)

    def unit(self, target: Any, squared_norm: Any, volume: float, xp: Any) -> Any:
        del squared_norm, volume
        return xp.abs(target)
