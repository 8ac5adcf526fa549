"""Linear moments and one quadratic form of a group of components: the functions that
they are made of, and their sums over a rule.

The mathematics is in `_core/_group.py`. The test functions are made orthonormal on the
rule in the graph, for a rule may be resampled and weights may depend on t; that takes
no evaluation of the network.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._core import (
    Group,
    GroupMoments,
    Orthonormalised,
    forward_substitution,
    orthonormalised,
    solve_positive,
)
from ..correction import accumulator
from ..invariants import entries
from ..quadrature import QuadratureRule, streamed
from ._consistent import minus_combination
from ._gradient import Additive
from ._protocol import Profile, evaluate

# How far the equations for a pivot are from the exact ones, relative, as a power of the
# unit of rounding, and the same for normal equations: a pivot is any point near the
# moments, and this makes it one where a part of a rule cannot tell two directions
# apart. Less than the share of a node with a millionth of the weight.
_RIDGE_POWER, _SQUARED_POWER = 0.75, 0.6

# Parts of a rule that a device sums at the least: a part by itself is compiled into a
# program with other bits (measured).
_LEAST = 2


class GroupFunctions(eqx.Module):
    """The weights of the invariants of a group. It holds no arrays."""

    group: Group = eqx.field(static=True)
    count: int = eqx.field(static=True)
    "of the components of the field"
    profile: Profile | None = eqx.field(static=True)

    @property
    def is_oblique(self) -> bool:
        """Whether directions are given, and not those of the nearest point."""
        return bool(self.group.linear) and (self.profile is not None or self.is_jet)

    @property
    def is_jet(self) -> bool:
        """Whether the quadratic form is one of the gradient, too."""
        form = self.group.quadratic
        return form is not None and form.needs_gradient

    def tests(self, x: Array, t: Array | None) -> Float[Array, "p c"]:
        """The functions psi_k at a point."""
        rows = []
        for one in self.group.linear:
            own = one.among(self.count)
            known = dict(
                zip(own, entries(one.weight_at(x, t, self.count)), strict=True)
            )
            rows.append([known.get(k, 0.0) for k in self.group.components])
        dtype = accumulator()
        if not rows:
            return jnp.zeros((0, len(self.group.components)), dtype)
        row = lambda r: jnp.stack([jnp.asarray(a, dtype) for a in r])
        return jnp.stack([row(r) for r in rows])

    def metric(self, x: Array) -> Array | None:
        """R at a point: a matrix, one number, or None for the identity."""
        form = self.group.quadratic
        if form is None or self.is_jet:
            return None
        found = form.weight_at(x, None, self.count)
        if found is None:
            return None
        own, out = form.among(self.count), jnp.asarray(found, accumulator())
        order = np.argsort(np.asarray(own))
        return out if out.ndim == 0 else out[np.ix_(order, order)]

    def directions(self, x: Array, t: Array | None) -> Float[Array, "p c"]:
        """What may be added to the field, where that is given."""
        phi = 1.0 if self.profile is None else self.profile(x)
        return phi * self.tests(x, t)

    def given(self, x: Array, t: Array | None) -> Float[Array, "p c"]:
        """What the directions are combinations of, one for each of the psi_k."""
        if self.is_oblique:
            return self.directions(x, t)
        return raised(self.metric(x), self.tests(x, t))


def raised(metric: Array | None, psi: Array) -> Array:
    """`R^-1 psi`, components on the second axis and nodes, if any, on the last."""
    if metric is None:
        return psi
    if metric.ndim < 2:
        return psi / _beside(metric, psi)
    # An axis for the functions.
    rows = [list(row) for row in metric[:, :, None]]
    return jnp.stack(solve_positive(rows, list(jnp.moveaxis(psi, 1, 0))), 1)


def _lowered(metric: Array | None, v: Array) -> Array:
    """`R v`, components on the first axis."""
    if metric is None:
        return v
    if metric.ndim < 2:
        return _beside(metric, v) * v
    return jnp.einsum("ij...,j...->i...", metric, v)


def _beside(numbers: Array, v: Array) -> Array:
    """One number for each node, or one, with the axes of an array before."""
    return jnp.expand_dims(numbers, tuple(range(v.ndim - numbers.ndim)))


class Basis(eqx.Module):
    """Test functions and directions of a group on a rule, as combinations of the given
    functions."""

    change: Orthonormalised | None
    "from the psi_k to test functions; None without any"
    mixes: tuple[Array, ...] = ()
    "where directions are given, two matrices for these, after the same change"

    def tests(self, psi: Array) -> Array:
        """The test functions, from the psi_k on the first axis."""
        if self.change is None:
            return psi
        rows: list[Array] = []
        for k, norm in enumerate(self.change.norms):
            # Functions that are nearly dependent leave a small difference.
            left = minus_combination(psi[k] / norm, self.change.first[k, :k], rows)
            rows.append(left / self.change.first[k, k])
        return forward_substitution(self.change.second, jnp.stack(rows))

    def mixed(self, chi: Array) -> Array:
        """The directions, from those given, one for each of the psi_k."""
        chi = self.tests(chi)
        for mix in self.mixes:
            chi = jnp.einsum("l...,lk->k...", chi, mix)
        return chi

    def multiples(self, shift: Float[Array, " p"]) -> Float[Array, " p"]:
        """A combination of the directions as one of those given."""
        eye = jnp.eye(len(shift), dtype=shift.dtype)
        return shift @ self.mixed(eye)

    def at(
        self, functions: GroupFunctions, x: Array, t: Array | None
    ) -> Float[Array, "p c"]:
        """The directions at a point."""
        if functions.is_oblique:
            return self.mixed(functions.directions(x, t))
        return raised(functions.metric(x), self.tests(functions.tests(x, t)))


class _OnNodes(NamedTuple):
    """Test functions, directions and the metric on some nodes."""

    tests: Float[Array, "p c m"]
    directions: Float[Array, "p n m"]
    "followed by their derivatives in x, where the quadratic form has them"
    lowered: Callable[[Array], Array]


def _on_nodes(
    functions: GroupFunctions, basis: Basis, nodes: Array, t: Array | None
) -> _OnNodes:
    over = lambda f: jax.vmap(f, out_axes=-1)(nodes)
    tests = basis.tests(over(lambda x: functions.tests(x, t)))
    if functions.is_jet:
        jets = over(lambda x: jet(lambda x: functions.directions(x, t), x, 1))
        lowered = lambda v: _half_gradient(functions, nodes, v)
        return _OnNodes(tests, basis.mixed(jets), lowered)
    metric = None
    if functions.metric(nodes[0]) is not None:
        metric = over(functions.metric)
    if functions.is_oblique:
        directions = basis.mixed(over(lambda x: functions.directions(x, t)))
    else:
        directions = raised(metric, tests)
    return _OnNodes(tests, directions, lambda v: _lowered(metric, v))


def jet(function: Callable[[Array], Array], x: Array, axis: int) -> Array:
    """The values of a function at a point, followed by their derivatives in x along the
    axis of the components."""
    value = function(x)
    slope = (jax.jacfwd if x.size <= value.size else jax.jacrev)(function)(x)
    # Of no functions, too, where a size cannot be found from the others.
    flat = slope.reshape(*slope.shape[:axis], slope.shape[axis] * x.size)
    return jnp.concatenate([value, flat], axis)


def _half_gradient(functions: GroupFunctions, nodes: Array, v: Array) -> Array:
    """`R v` of a quadratic form of values and gradients."""
    d = nodes.shape[-1]
    form: Any = functions.group.quadratic
    # The components of a group are in ascending order, those of a form as given.
    given = form.among(functions.count)
    order = np.asarray([functions.group.components.index(k) for k in given])

    def density(v: Array, x: Array) -> Array:
        c = v.size // (1 + d)
        return form.form_at(v[:c][order], v[c:].reshape(c, d)[order], x)

    return 0.5 * jax.vmap(jax.grad(density), (-1, 0), -1)(v, nodes)


class _Gram(eqx.Module):
    """The Gram matrix of test functions, or of these and directions."""

    basis: Basis
    time: Array | None
    functions: GroupFunctions = eqx.field(static=True)

    def __call__(self, nodes: Array, weights: Array) -> Array:
        over = lambda f: jax.vmap(f, out_axes=-1)(nodes)
        tests = self.basis.tests(over(lambda x: self.functions.tests(x, self.time)))
        if self.basis.mixes:
            chi = over(lambda x: self.functions.directions(x, self.time))
            other = self.basis.mixed(chi)
        else:
            metric = None
            if self.functions.metric(nodes[0]) is not None:
                metric = over(self.functions.metric)
            other = raised(metric, tests)
        return _inner(tests[:, None], other[None], weights.astype(tests.dtype))


def gram_on(
    functions: GroupFunctions,
    basis: Basis,
    rule: QuadratureRule,
    t: Array | None,
    chunk: int,
) -> Float[Array, "p p"]:
    """`Q[d_k . e_l]` on a rule."""
    return streamed(rule, _Gram(basis, t, functions), jnp.add, chunk, _LEAST)


def basis_on(
    functions: GroupFunctions, rule: QuadratureRule, t: Array | None, chunk: int
) -> Basis:
    """The orthonormal test functions of a group on a rule, and the directions."""
    p = len(functions.group.linear)
    if p == 0:
        return Basis(None)
    gram = lambda basis: gram_on(functions, basis, rule, t, chunk)
    change = orthonormalised(gram(Basis(None)), lambda c: gram(Basis(c)))
    basis = Basis(change)
    if not functions.is_oblique:
        return basis
    eye = jnp.eye(p, dtype=accumulator())
    # Twice: the second time mends the rounding of the first.
    first = jnp.linalg.inv(gram(Basis(change, (eye,))))
    second = jnp.linalg.inv(gram(Basis(change, (first,))))
    return Basis(change, (first, second))


class Groups(NamedTuple):
    """The sums of all groups of a field."""

    parts: tuple[GroupMoments, ...]

    @property
    def pivot(self) -> tuple[Array, ...]:
        """Of each."""
        return tuple(part.pivot for part in self.parts)

    @property
    def sums(self) -> tuple[tuple[Array, ...], ...]:
        """Those that depend on the network."""
        return tuple(part.sums for part in self.parts)

    def with_sums(self, sums: tuple[tuple[Array, ...], ...]) -> "Groups":
        """The same with other such sums."""
        both = zip(self.parts, sums, strict=True)
        return Groups(tuple(part.with_sums(own) for part, own in both))

    def about(self, pivot: tuple[Array, ...]) -> "Groups":
        """The same about other pivots."""
        both = zip(self.parts, pivot, strict=True)
        return Groups(tuple(part.about(own) for part, own in both))


class GroupSums(Additive):
    """The sums of the groups of a network at one time."""

    net: Callable[..., Array]
    time: Array | None
    bases: tuple[Basis, ...]
    functions: tuple[GroupFunctions, ...] = eqx.field(static=True)

    least: ClassVar[int] = _LEAST

    def _values(self, nodes: Array) -> Array:
        """The network on nodes, components on the first axis, and its derivatives in x
        where a quadratic form has them."""

        def values(nodes: Array) -> Array:
            raw = lambda x: jnp.atleast_1d(evaluate(self.net, x, self.time))
            return jax.vmap(raw)(nodes)

        if any(one.is_jet for one in self.functions):
            found = _jets(values, nodes)
        else:
            found = values(nodes).T[:, None]
        return found.astype(accumulator())

    def _each(self, nodes: Array, weights: Array, pivots: Any) -> Groups:
        values = self._values(nodes)
        w = weights.astype(values.dtype)
        return Groups(
            tuple(
                _sums(functions, basis, self.time, values, nodes, w, pivot)
                for functions, basis, pivot in zip(
                    self.functions, self.bases, pivots, strict=True
                )
            )
        )

    def part(self, nodes: Array, weights: Array) -> Groups:
        return self._each(nodes, weights, [None] * len(self.functions))

    def about(self, pivot: Any, nodes: Array, weights: Array) -> Groups:
        return self._each(nodes, weights, pivot)

    @staticmethod
    def merge(first: Groups, second: Groups) -> Groups:
        return Groups(tuple(map(_merged, first.parts, second.parts)))


def _jets(function: Callable[[Array], Array], nodes: Array) -> Float[Array, "n k m"]:
    """The values of a function that treats each node by itself, one row of components
    for each of them, followed by their derivatives in x.

    All nodes at once, one product of matrices for each layer: derivatives node by node
    are several times slower. Backward where that takes fewer passes.
    """
    d = nodes.shape[-1]
    n = jax.eval_shape(function, nodes).shape[-1]
    unit = lambda like, k: jnp.zeros_like(like).at[:, k].set(1.0)
    if d <= n:
        values, push = jax.linearize(function, nodes)
        slopes = jnp.stack([push(unit(nodes, k)).T for k in range(d)], 1)
    else:
        values, pull = jax.vjp(function, nodes)
        slopes = jnp.stack([pull(unit(values, k))[0].T for k in range(n)])
    return jnp.concatenate([values.T[:, None], slopes], 1)


def _sums(
    functions: GroupFunctions,
    basis: Basis,
    t: Array | None,
    values: Float[Array, "n k m"],
    nodes: Array,
    w: Array,
    pivot: Array | None,
) -> GroupMoments:
    own = values[np.asarray(functions.group.components)]
    c = own.shape[0]
    f = own[:, 0]
    if functions.is_jet:
        f = jnp.concatenate([f, own[:, 1:].reshape(-1, own.shape[-1])])
    here = _on_nodes(functions, basis, nodes, t)
    tests, directions = here.tests, here.directions
    tested = lambda g: _inner(tests, g[None, :c], w)
    coupling = _inner(tests[:, None], directions[None, :, :c], w)
    if pivot is None:
        pivot = _pivot(coupling, tested(f), functions.is_oblique)
    centred = minus_combination(f, pivot, directions)
    lowered = here.lowered(centred)
    square = _inner(centred, lowered, w)
    out = GroupMoments(pivot, tested(centred), square, coupling=coupling)
    if not functions.is_oblique:
        return out
    each = jax.vmap(here.lowered)(directions)
    return out._replace(
        cross=_inner(directions, lowered[None], w),
        overlaps=_inner(directions[:, None], each[None], w),
    )


def _inner(a: Array, b: Array, w: Float[Array, " m"]) -> Array:
    """Sums over components and nodes, the last two axes."""
    products = a * b
    return jnp.sum(_beside(w, products) * products, (-2, -1))


def _merged(a: GroupMoments, b: GroupMoments) -> GroupMoments:
    ours, theirs = a.coupling, b.coupling
    assert ours is not None
    assert theirs is not None
    lacking = a.residual + b.residual + theirs @ (b.pivot - a.pivot)
    step = _pivot(ours + theirs, lacking, a.overlaps is not None)
    pivot = jax.lax.stop_gradient(a.pivot) + step
    return a.merged(b, pivot)


def _pivot(
    coupling: Float[Array, "p p"], moments: Float[Array, " p"], is_oblique: bool
) -> Array:
    """Coefficients of directions that have about these moments; constant in all
    derivatives."""
    p = moments.shape[-1]
    if p == 0:
        return moments
    matrix, right = map(jax.lax.stop_gradient, (coupling, moments))
    power = _RIDGE_POWER
    if is_oblique:
        # Not symmetric: by least squares.
        matrix, right, power = matrix.T @ matrix, matrix.T @ right, _SQUARED_POWER
    limits = jnp.finfo(matrix.dtype)
    ridge = limits.eps**power * jnp.trace(matrix) + limits.tiny
    # Written out, for few rows: no call of a library inside the sums.
    rows = [list(row) for row in matrix + ridge * jnp.eye(p)]
    return jax.lax.stop_gradient(jnp.stack(solve_positive(rows, list(right))))
