"""Integrals of a field that stand in its own equation, on a quadrature rule."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..invariants import Integral
from ..quadrature import QuadratureRule
from ._gradient import Additive, Exact, GradientMode
from ._slice import FieldSlice


class Jets(NamedTuple):
    """The values of a function at some points, and its gradients."""

    u: Float[Array, " n"]
    grad: Float[Array, "n d"]


def jets_at(function: Callable[[Array], Array], points: Float[Array, "n d"]) -> Jets:
    """The values and gradients of a function at some points."""
    value = function.value if isinstance(function, FieldSlice) else function
    return Jets(*jax.vmap(jax.value_and_grad(value))(points))


def densities_at(
    integrals: Sequence[Integral],
    x: Float[Array, "b d"],
    t: Array | None,
    nodes: Float[Array, "m d"],
    jets: Jets,
) -> list[Array]:
    """What is integrated of each: at each node, or at each point and node."""
    out = []
    for one in integrals:
        at = lambda x, y, u, grad, one=one: jnp.asarray(
            one.density(x, y, t, u, grad), jets.u.dtype
        )
        over_nodes = jax.vmap(at, (None, 0, 0, 0))
        if one.is_kernel:
            over_nodes = jax.vmap(over_nodes, (0, None, None, None))
        out.append(over_nodes(x if one.is_kernel else None, nodes, *jets))
    return out


class _Sums(NamedTuple):
    """One sum for each integral, or one for each point of a kernel."""

    sums: tuple[Array, ...]

    @property
    def pivot(self) -> tuple[()]:
        """None is needed."""
        return ()

    def with_sums(self, sums: tuple[Array, ...]) -> "_Sums":
        """The same with other sums."""
        return _Sums(sums)


class _OnNodes(Additive):
    """The sums of a function at one time."""

    function: Any
    x: Float[Array, "b d"]
    time: Array | None
    integrals: tuple[Integral, ...] = eqx.field(static=True)

    def part(self, nodes: Array, weights: Array) -> _Sums:
        jets = self._jets(nodes)
        found = densities_at(self.integrals, self.x, self.time, nodes, jets)
        return _Sums(tuple(values @ weights.astype(values.dtype) for values in found))

    def _jets(self, nodes: Array) -> Jets:
        if any(one.needs_gradient for one in self.integrals):
            return jets_at(self.function, nodes)
        function = self.function
        value = function.value if isinstance(function, FieldSlice) else function
        return Jets(jax.vmap(value)(nodes), jnp.zeros_like(nodes))

    def about(self, pivot: Any, nodes: Array, weights: Array) -> _Sums:
        del pivot
        return self.part(nodes, weights)

    @staticmethod
    def merge(first: _Sums, second: _Sums) -> _Sums:
        return _Sums(tuple(map(jnp.add, first.sums, second.sums)))


def integrals_at(
    integrals: Sequence[Integral],
    now: Any,
    rule: QuadratureRule,
    mode: GradientMode | None,
    x: Float[Array, "b d"],
    t: Array | None,
) -> dict[str, Array]:
    """The integrals over the domain of a field at one time, by name: one number each,
    or one for each point of a kernel. They are differentiated with respect to the
    parameters as the gradient mode says, and have no derivatives in t.

    **Arguments:**

    - `now`: the field at that time.
    - `x`: the points of kernels.
    """
    if not integrals:
        return {}
    # Those that interpolate moments leave the nodes to another mode.
    mode = getattr(mode, "gradient", mode) or Exact()
    if hasattr(mode, "table"):
        mode = Exact()
    live = _OnNodes(now, x, t, tuple(integrals))
    frozen = jax.lax.stop_gradient(eqx.filter(live, eqx.is_inexact_array))
    rest = eqx.filter(live, eqx.is_inexact_array, inverse=True)
    found = mode.moments(live, eqx.combine(frozen, rest), rule, t)
    volume = rule.domain.volume
    names = [one.name for one in integrals]
    return {n: volume * s for n, s in zip(names, found.sums, strict=True)}
