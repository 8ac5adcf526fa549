"""Taylor coefficients of one value, and their arithmetic. Depends on JAX alone."""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

Rows = Array | None
"""Coefficients with a leading axis of directions; None is zero."""


def add(*terms: Array | None) -> Array | None:
    """The sum, where None is zero."""
    given = [a for a in terms if a is not None]
    return functools.reduce(operator.add, given) if given else None


def or_zero(a: Rows, like: Array, leading: tuple[int, ...] = ()) -> Array:
    """Coefficients of a value, written out where they are zero."""
    return jnp.zeros((*leading, *like.shape), like.dtype) if a is None else a


def weighted_sum(weights: Array, rows: Array) -> Array:
    """The sum over directions, with one weight for each or one for all."""
    if weights.ndim == 0:
        return weights * jnp.sum(rows, 0)
    return jnp.sum(weights.reshape(-1, *[1] * (rows.ndim - 1)) * rows, 0)


class Collapse(eqx.Module):
    """Over which directions the coefficients of highest order are summed, and how.

    `sum_r weights_r D^p f[v_r, ..., v_r]`, or for order 2 with a symmetric metric
    `sum_rs metric_rs D^2 f[v_r, v_s]`.
    """

    order: int = eqx.field(static=True)
    directions: int = eqx.field(static=True)
    weights: Array | None = None
    "one for each direction, or one for all"
    metric: Array | None = None

    def total(self, rows: Array) -> Array:
        """The weighted sum over directions."""
        assert self.weights is not None
        return weighted_sum(self.weights, rows)

    def pair(self, a: Array, b: Array) -> Array:
        """`sum_r w_r a_r b_r`, or `sum_rs G_rs a_r b_s`."""
        if self.metric is None:
            return self.total(a * b)
        return jnp.sum(a * jnp.tensordot(self.metric, b, 1), 0)

    def own(self, entries: Array) -> Array:
        """Sparse entries of each direction times its weight with itself."""
        weights = self.weights if self.metric is None else jnp.diagonal(self.metric)
        assert weights is not None
        return entries * (weights if weights.ndim == 0 else weights[:, None])


class Jet(eqx.Module):
    """The coefficients of a value of shape S.

    Dense: `lower[k]` is that of order k + 1, shape (R, *S), None for zero; `top` is the
    collapsed one, shape S. Sparse, for vectors: direction r has the entries
    `lower[k][r, e]` at the places `index[r, e]`, all different unless they are zero,
    and `loose` are entries of the top, not yet summed over directions, beside `top`.
    With a metric, the entries of different directions are at different places.
    """

    primal: Array
    lower: tuple[Rows, ...]
    top: Array | None
    index: Array | None = None
    loose: Array | None = None


def constant(value: Any, order: int) -> Jet:
    """A value that no direction changes."""
    return Jet(jnp.asarray(value), (None,) * (order - 1), None)


def only_top(jet: Jet) -> bool:
    """Whether no direction but the first derivative in the top changes the value."""
    return jet.index is None and all(r is None for r in jet.lower)


def densify(jet: Jet, directions: int) -> Jet:
    """The same coefficients as full arrays."""
    if jet.index is None:
        return jet
    index, (size,) = jet.index, jet.primal.shape
    row = jnp.arange(directions)[:, None]

    def rows(entries: Array) -> Array:
        return jnp.zeros((directions, size), entries.dtype).at[row, index].add(entries)

    # None, which is zero, is no leaf of a tree and stays.
    lower = jax.tree.map(rows, jet.lower)
    loose = jax.tree.map(jnp.zeros_like(jet.primal).at[index].add, jet.loose)
    return Jet(jet.primal, lower, add(jet.top, loose))


@functools.cache
def _partitions(order: int) -> list[tuple[int, ...]]:
    """The partitions of an integer, each as its parts in falling order."""

    def parts(left: int, largest: int) -> list[tuple[int, ...]]:
        if left == 0:
            return [()]
        return [
            (k, *rest)
            for k in range(min(left, largest), 0, -1)
            for rest in parts(left - k, k)
        ]

    return parts(order, order)


def _chain(order: int, lower: Sequence[Rows]) -> dict[int, Array]:
    """Faa di Bruno's formula: for each m the sum of `prod_j x_j^m_j / m_j!` over the
    partitions of the order into m parts, which the m-th derivative multiplies."""
    out: dict[int, Array] = {}
    for parts in _partitions(order):
        known = (lower[k - 1] if k <= len(lower) else None for k in parts)
        factors = [f for f in known if f is not None]
        if len(factors) < len(parts):
            continue
        count = math.prod(math.factorial(parts.count(k)) for k in set(parts))
        product = functools.reduce(jnp.multiply, factors)
        term = product if count == 1 else product / count
        m = len(parts)
        out[m] = out[m] + term if m in out else term
    return out


def _derivatives(
    function: Callable[[Array], Array], x: Array, count: int
) -> list[Array]:
    """An elementwise function and its first derivatives, by nested `jax.jvp`."""
    out, one = [function(x)], jnp.ones_like(x)
    for _ in range(count):
        function = functools.partial(lambda f, x: jax.jvp(f, (x,), (one,))[1], function)
        out.append(function(x))
    return out


def compose(
    function: Callable[[Array, Callable[[Any], Any]], Array],
    jet: Jet,
    collapse: Collapse,
    *,
    linear: bool = False,
) -> Jet:
    """The jet of an elementwise function of a value. Its derivatives are taken at the
    value alone, where the axis of directions does not multiply their cost.

    **Arguments:**

    - `function`: of the value, and of a function that its constants go through.
    - `linear`: whether it is affine in the value.
    """
    order, index = collapse.order, jet.index
    count = 1 if linear else order
    whole = lambda x: function(x, lambda c: c)
    if index is None:
        slope = _derivatives(whole, jet.primal, count)
        rows = [slope[0], *(s[None] for s in slope[1:])]
    else:
        # At the places of the entries alone; the value there is not needed.
        part = lambda x: function(x, lambda c: _gather(c, index))
        slope = rows = _derivatives(part, jet.primal[index], count)
    lower: list[Rows] = []
    for k in range(1, order):
        terms = _chain(k, jet.lower).items()
        lower.append(add(*(rows[m] * term for m, term in terms if m <= count)))
    inner = {} if linear else _chain(order, jet.lower)
    if index is not None:
        loose = None if jet.loose is None else slope[1] * jet.loose
        own = [slope[m] * collapse.own(term) for m, term in inner.items()]
        loose, top = add(loose, *own), jet.top
        if top is not None:
            top = _derivatives(whole, jet.primal, 1)[1] * top
        return _cast(Jet(whole(jet.primal), tuple(lower), top, index, loose))
    top = None if jet.top is None else slope[1] * jet.top
    for m, term in inner.items():
        if order == 2:
            first = jet.lower[0]
            assert first is not None
            total = 0.5 * collapse.pair(first, first)
        else:
            total = collapse.total(term)
        top = add(top, slope[m] * total)
    return _cast(Jet(slope[0], tuple(lower), top))


def _gather(constant: Any, index: Array) -> Any:
    if jnp.size(constant) == 1:
        return jnp.reshape(constant, ())
    return jnp.asarray(constant)[index]


def _cast(jet: Jet) -> Jet:
    """The coefficients in the dtype of the value, which a cast may have changed."""
    parts = jax.tree.map(
        lambda a: a.astype(jet.primal.dtype), (jet.lower, jet.top, jet.loose)
    )
    return Jet(jet.primal, parts[0], parts[1], jet.index, parts[2])


def multiply(
    a: Jet, b: Jet, collapse: Collapse, product: Callable[[Array, Array], Array]
) -> Jet:
    """The jet of a bilinear product of two dense jets, by Cauchy's formula."""
    order = collapse.order
    left: list[Rows] = [a.primal, *a.lower]
    right: list[Rows] = [b.primal, *b.lower]

    def rows(i: int, j: int) -> Rows:
        x, y = left[i], right[j]
        if x is None or y is None:
            return None
        return jax.vmap(product, (0 if i else None, 0 if j else None))(x, y)

    lower = tuple(add(*(rows(i, k - i) for i in range(k + 1))) for k in range(1, order))
    top = add(
        None if a.top is None else product(a.top, b.primal),
        None if b.top is None else product(a.primal, b.top),
    )
    if collapse.metric is not None:
        x, y = a.lower[0], b.lower[0]
        if x is not None and y is not None:
            dual = jnp.tensordot(collapse.metric, y, 1)
            top = add(top, jnp.sum(jax.vmap(product)(x, dual), 0))
    else:
        inner = add(*(rows(i, order - i) for i in range(1, order)))
        if inner is not None:
            top = add(top, collapse.total(inner))
    return Jet(product(a.primal, b.primal), lower, top)


def nested(
    function: Callable[..., tuple[Array, ...]], jets: Sequence[Jet], collapse: Collapse
) -> tuple[list[tuple[Rows, ...]], tuple[Array | None, ...]]:
    """Coefficients of the outputs of any function of dense jets, by nested `jax.jvp`
    along the curves: those of lower order, then the collapsed ones."""
    order, primals = collapse.order, tuple(j.primal for j in jets)
    rows = [
        [or_zero(j.lower[k], j.primal, (collapse.directions,)) for j in jets]
        for k in range(order - 1)
    ]

    def along(rows: list[list[Array]]) -> list[tuple[Array, ...]]:
        """Coefficients of orders 1 to p on one curve, that of order p without the
        input's own."""

        def curve(s: Array) -> tuple[Array, ...]:
            point = []
            for j, x in enumerate(primals):
                tail = jnp.zeros_like(x)
                for row in reversed(rows):
                    # Each argument has a precision of its own.
                    tail = s.astype(tail.real.dtype) * (row[j] + tail)
                point.append(x + tail)
            return function(*point)

        out: list[tuple[Array, ...]] = []
        # The parameter of the curve is real, also where values are complex.
        zero = jnp.zeros((), jnp.finfo(jnp.result_type(*primals)).dtype)
        for k in range(1, order + 1):
            curve = functools.partial(
                lambda g, s: jax.jvp(g, (s,), (jnp.ones_like(s),))[1], curve
            )
            out.append(tuple(v / math.factorial(k) for v in curve(zero)))
        return out

    lower: list[tuple[Rows, ...]] = []
    top: tuple[Array | None, ...] = ()
    if any(r is not None for j in jets for r in j.lower):
        *lower, last = list[Any](jax.vmap(along)(rows))
        if collapse.metric is None:
            top = tuple(map(collapse.total, last))
        else:
            first = tuple(rows[0])
            dual = tuple(jnp.tensordot(collapse.metric, r, 1) for r in first)

            def second(v: tuple[Array, ...], w: tuple[Array, ...]) -> Any:
                slope = lambda *x: jax.jvp(function, x, v)[1]
                return jax.jvp(slope, primals, w)[1]

            top = tuple(0.5 * jnp.sum(r, 0) for r in jax.vmap(second)(first, dual))
    if any(j.top is not None for j in jets):
        tops = tuple(or_zero(j.top, j.primal) for j in jets)
        own = jax.jvp(function, primals, tops)[1]
        top = tuple(map(add, top, own)) if top else own
    count = len(jax.eval_shape(function, *primals))
    return lower or [(None,) * count] * (order - 1), top or (None,) * count
