"""Integrals of a field that stand in its own equation, on a quadrature rule."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..invariants import Integral
from ..quadrature import QuadratureRule
from ._gradient import CHUNK, Additive, Exact, GradientMode
from ._slice import FieldSlice

# Pairs of a point and a node that a kernel is evaluated at together.
_PAIRS = 2**22


class Jets(NamedTuple):
    """The values of a function at some points, and its gradients, with an axis for the
    components where there are several."""

    u: Float[Array, "m ..."]
    grad: Float[Array, "m ... d"]

    @property
    def rows(self) -> Float[Array, "m k"]:
        """Both, as one row for each point."""
        m = len(self.u)
        return jnp.concatenate([self.u.reshape(m, -1), self.grad.reshape(m, -1)], 1)

    @staticmethod
    def of_rows(rows: Float[Array, "m k"], shape: tuple[int, ...]) -> "Jets":
        """From such rows, of a function whose values have a shape."""
        m, count = len(rows), math.prod(shape)
        grad = rows[:, count:].reshape(m, *shape, -1)
        return Jets(rows[:, :count].reshape(m, *shape), grad)


def value_and_gradient(function: Callable[[Array], Array], x: Array) -> Any:
    """The value of a function at a point, and its gradient: of several components one
    in each row."""
    if jax.eval_shape(function, x).shape == ():
        return jax.value_and_grad(function)(x)

    def twice(x: Array) -> tuple[Array, Array]:
        value = function(x)
        return value, value

    gradient, value = jax.jacfwd(twice, has_aux=True)(x)
    return value, gradient


def jets_at(function: Callable[[Array], Array], points: Float[Array, "n d"]) -> Jets:
    """The values and gradients of a function at some points. They are found some at a
    time, and again in reverse mode, so that memory does not grow with the network."""
    value = function.value if isinstance(function, FieldSlice) else function
    one = functools.partial(value_and_gradient, value)
    if len(points) <= CHUNK:
        return Jets(*jax.vmap(one)(points))
    return Jets(*jax.lax.map(jax.checkpoint(one), points, batch_size=CHUNK))


def sum_at(
    one: Integral,
    x: Float[Array, " d"] | None,
    t: Array | None,
    nodes: Float[Array, "m d"],
    weights: Float[Array, " m"],
    jets: Jets,
) -> Float[Array, ""]:
    """The weighted sum over nodes of what is integrated; `x` is the point of a
    kernel."""

    def at(y: Array, u: Array, grad: Array) -> Array:
        return jnp.asarray(one.density(x, y, t, u, grad), u.dtype)

    values = jax.vmap(at)(nodes, *jets)
    return values @ weights.astype(values.dtype)


def sums_at(
    integrals: Sequence[Integral],
    x: Float[Array, "b d"],
    t: Array | None,
    nodes: Float[Array, "m d"],
    weights: Float[Array, " m"],
    jets: Jets,
) -> tuple[Array, ...]:
    """The weighted sum of each: one number, or one for each point of a kernel, which is
    evaluated at some points at a time."""
    block = max(1, _PAIRS // len(nodes))

    def of(one: Integral) -> Array:
        at = lambda x: sum_at(one, x, t, nodes, weights, jets)
        if not one.is_kernel:
            return at(None)
        if len(x) <= block:
            return jax.vmap(at)(x)
        return jax.lax.map(jax.checkpoint(at), x, batch_size=block)

    return tuple(map(of, integrals))


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
        at = (self.x, self.time, nodes, weights, jets)
        return _Sums(sums_at(self.integrals, *at))

    def _jets(self, nodes: Array) -> Jets:
        if any(one.needs_gradient for one in self.integrals):
            return jets_at(self.function, nodes)
        function = self.function
        value = function.value if isinstance(function, FieldSlice) else function
        u = jax.vmap(value)(nodes)
        return Jets(u, jnp.zeros((*u.shape, nodes.shape[1]), nodes.dtype))

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
    key = getattr(mode, "key", None)
    if key is not None:
        # The coefficients in the field have their gradient from nodes of their own: of
        # a product, which an integral has, the same ones would not be unbiased.
        mode = mode.resample(jax.random.fold_in(key, 1))
    live = _OnNodes(now, x, t, tuple(integrals))
    frozen = jax.lax.stop_gradient(eqx.filter(live, eqx.is_inexact_array))
    rest = eqx.filter(live, eqx.is_inexact_array, inverse=True)
    found = mode.moments(live, eqx.combine(frozen, rest), rule, t)
    volume = rule.domain.volume
    names = [one.name for one in integrals]
    return {n: volume * s for n, s in zip(names, found.sums, strict=True)}
