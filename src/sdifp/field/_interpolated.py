"""Moments at a few times of each training step, interpolated in time."""

import dataclasses
from typing import TYPE_CHECKING, Any

import equinox as eqx
from jaxtyping import Array, ArrayLike

from ..quadrature import QuadratureRule
from ._gradient import Exact, GradientMode, Summand
from ._table import MomentTable, moments_over

if TYPE_CHECKING:
    from ._field import ConservedField


class Interpolated(GradientMode):
    """Moments at `times` Chebyshev times of a window in each training step, whatever
    the number of times in a batch, and interpolated in between with all their
    derivatives. For batches in which every point has a time of its own: each time would
    cost a quadrature otherwise. **While it trains, the integrals hold up to the error
    of the interpolation**, which is reported and falls spectrally with `times`; the
    trained field is exact at every time. Outside training it is `gradient`. Times
    outside of the window are not covered.

    **Arguments:**

    - `times`: at how many times of a window the moments are computed.
    - `gradient`: how the moments at these times are differentiated.
    """

    times: int = eqx.field(static=True, default=12)
    gradient: GradientMode = Exact()
    table: MomentTable | None = None

    def __check_init__(self) -> None:
        known = isinstance(self.gradient, GradientMode)
        if not known or hasattr(self.gradient, "table"):
            raise ValueError(
                f"gradient must be a mode that does not interpolate in time itself: "
                f"Exact, Subsampled, Detached or MiniBatch, got {self.gradient!r}"
            )

    def moments(
        self,
        live: Summand,
        frozen: Summand,
        rule: QuadratureRule,
        t: Array | None,
    ) -> Any:
        if self.table is None or t is None:
            return self.gradient.moments(live, frozen, rule, t)
        return self.table.at(t)

    def keep(self, table: MomentTable) -> "Interpolated":
        """The same with moments to interpolate."""
        return dataclasses.replace(self, table=table)

    def tabulate(
        self, u: "ConservedField", start: ArrayLike, length: ArrayLike
    ) -> MomentTable:
        """The moments of a field at Chebyshev times of an interval."""
        own = u.with_gradient(self.gradient)
        found = moments_over(own, start, length, self.times)
        return MomentTable.through(found, start, length)
