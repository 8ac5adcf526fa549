"""Moments on all nodes in some training steps only, interpolated in time."""

import dataclasses
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
from jaxtyping import Array, ArrayLike

from ..quadrature import QuadratureRule
from ._gradient import (
    CHUNK,
    Exact,
    GradientMode,
    Summand,
    choose_nodes,
)
from ._table import MomentTable, moments_over

if TYPE_CHECKING:
    from ._field import ConservedField


class Lagged(GradientMode):
    """Moments on all nodes every `every` training steps only, at a few times, and
    interpolated in time; in the steps between, their change since then is estimated
    from `k` nodes, and so is the gradient. **The integrals hold approximately while it
    trains**; the trained field is exact. Worth it where the quadrature is most of a
    step: the study `lagged` has what it saves and what it costs.

    The moments are unbiased; scale and shift, which are not linear in them, have a bias
    of second order in their noise. Outside training it is `Subsampled(k)`.

    **Arguments:**

    - `every`: for how many steps the moments on all nodes are kept.
    - `k`: how many nodes their change and the gradient are estimated from.
    - `times`: at how many times of a window they are computed.
    - `stratified`, `chunk`: as for `Subsampled`.
    """

    every: int = eqx.field(static=True)
    k: int = eqx.field(static=True, default=32)
    times: int = eqx.field(static=True, default=12)
    stratified: bool = eqx.field(static=True, default=True)
    chunk: int = eqx.field(static=True, default=CHUNK)
    key: Array | None = None
    table: MomentTable | None = None

    def moments(
        self,
        live: Summand,
        frozen: Summand,
        rule: QuadratureRule,
        t: Array | None,
    ) -> Any:
        if self.key is None:
            return live.whole(rule, self.chunk)
        if self.table is None or t is None:
            whole = frozen.whole(rule, self.chunk)
        else:
            whole = self.table.at(t)
        some = choose_nodes(self.key, rule, self.k, self.stratified)
        return live.changed(whole, frozen, rule, some)

    def keep(self, table: MomentTable) -> "Lagged":
        """The same with moments to go on with."""
        return dataclasses.replace(self, table=table)

    def tabulate(
        self, u: "ConservedField", start: ArrayLike, length: ArrayLike
    ) -> MomentTable:
        """The moments of a field at Chebyshev times of an interval."""
        exact = u.with_gradient(Exact(self.chunk))
        found = moments_over(exact, start, length, self.times)
        table = MomentTable.through(found, start, length)
        own = eqx.filter(u.net, eqx.is_inexact_array)
        return jax.lax.stop_gradient(dataclasses.replace(table, parameters=own))
