"""Ways to evaluate the symbol of an operator on a function at one point.

All give the same number; they differ in time and memory. Knows symbols and jets.
"""

import abc
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._jet import Collapse, Jet, add
from ._layer import identity_jet, layer_width, through_layer
from ._symbol import Bundle, Symbol
from ._taylor import Interpreter, flat_jaxpr

Function = Callable[..., Array]
"""Of a point, or of a point and a time where it is differentiated by the time too."""

Arguments = tuple[Array, ...]
Tangent = tuple[Array | None, ...]


class Step(eqx.Module):
    """How one bundle of directions was evaluated; for `plan`."""

    path: str = eqx.field(static=True)
    order: int = eqx.field(static=True)
    directions: int = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    "of the matrices for one point, about"
    fallbacks: tuple[str, ...] = eqx.field(static=True, default=())


class Found(NamedTuple):
    """What a pass through a function gives."""

    terms: Array
    "the terms of an operator, but those of order zero and u_tt"
    value: Array | None
    "of the function, where the pass has it"
    gradient: Array | None
    "by the point, where the pass has it"
    steps: tuple[Step, ...]


class Path(eqx.Module):
    """A way to evaluate an operator on a function."""

    def derivatives(
        self,
        function: Function,
        x: Array,
        t: Array | None,
        symbol: Symbol,
        token: Array | None,
    ) -> Found:
        """The terms of an operator on a function of (x, t) at a point.

        **Arguments:**

        - `token`: under `vmap` over points, a value that differs among them.
        """
        at: Arguments = (x,)
        first: Tangent = (symbol.first,)
        inner: Function = lambda x: function(x, t)
        if symbol.rate is not None and t is not None:
            at, inner = (x, t), function
            first = (symbol.first, symbol.rate.astype(t.dtype))
        terms, value, gradient = jnp.zeros((), x.dtype), None, None
        steps: list[Step] = []
        for bundle in _split(symbol.bundles):
            found = self.bundle(inner, at, bundle, first, token)
            terms, first = terms + found.terms, (None,) * len(at)
            value = found.value if value is None else value
            gradient = found.gradient if gradient is None else gradient
            steps.extend(found.steps)
        if any(v is not None for v in first):
            value, slope = _slope(inner, at, first)
            terms = terms + slope
            steps.append(Step("jvp", 1, 1, 1))
        return Found(terms, value, gradient, tuple(steps))

    @abc.abstractmethod
    def bundle(
        self,
        function: Function,
        at: Arguments,
        bundle: Bundle,
        first: Tangent,
        token: Array | None,
    ) -> Found:
        """One bundle, and the first derivative along `first`, which costs nothing
        beside it where it can be collapsed into it."""


def _slope(function: Function, at: Arguments, along: Tangent) -> tuple[Array, Array]:
    """The value, and the derivative along one direction."""
    full = [
        jnp.zeros_like(a) if v is None else v for a, v in zip(at, along, strict=True)
    ]
    try:
        return jax.jvp(function, at, tuple(full))
    except Exception:
        # Taylor mode gets as far, and names what cannot be differentiated.
        jets = [Jet(a, (), v) for a, v in zip(at, full, strict=True)]
        out = Interpreter(flat_jaxpr(function, *at), Collapse(1, 1)).run(jets)
        return out.primal, jnp.zeros_like(out.primal) if out.top is None else out.top


def _split(bundles: tuple[Bundle, ...]) -> list[Bundle]:
    """Bundles with a metric apart from those with orders above 2."""
    out = []
    for b in bundles:
        if b.metric is None:
            out.append(b)
            continue
        diagonal = b.weights.get(2)
        metric = b.metric
        if diagonal is not None:
            metric = metric + jnp.diag(jnp.broadcast_to(diagonal, metric.shape[:1]))
        out.append(Bundle({}, metric=metric))
        rest = {p: w for p, w in b.weights.items() if p != 2}
        if rest:
            out.append(Bundle(rest))
    return out


class ByDirections(Path):
    """Collapsed Taylor mode: lower coefficients for each direction, the highest one
    summed over them."""

    def bundle(
        self,
        function: Function,
        at: Arguments,
        bundle: Bundle,
        first: Tangent,
        token: Array | None,
    ) -> Found:
        jets, collapse = _start(at, bundle, first)
        interpreter = Interpreter(flat_jaxpr(function, *at), collapse, token)
        end = interpreter.run(jets)
        x, order = at[0], collapse.order
        out = jnp.zeros((), x.dtype)
        if end.top is not None:
            out = math.factorial(order) * end.top
        for p, weights in bundle.weights.items():
            row = end.lower[p - 1] if p < order else None
            if row is not None:
                out = out + math.factorial(p) * jnp.sum(weights * row)
        path, count = "collapsed Taylor mode", collapse.directions
        fallbacks = tuple(sorted(interpreter.fallbacks))
        step = Step(path, order, count, count * max(1, order - 1), fallbacks)
        gradient = None
        if bundle.rows is None and order > 1:
            gradient = jnp.zeros_like(x) if end.lower[0] is None else end.lower[0]
        return Found(out, end.primal, gradient, (step,))


def _start(
    at: Arguments, bundle: Bundle, first: Tangent
) -> tuple[tuple[Jet, ...], Collapse]:
    """The jet of the point, whose coefficients of order one are the directions, and of
    the time, which only has a top."""
    order = max(bundle.weights, default=2)
    tops = [None if v is None else v / math.factorial(order) for v in first]
    time = tuple(
        Jet(a, (None,) * (order - 1), top)
        for a, top in zip(at[1:], tops[1:], strict=True)
    )
    jet, collapse = _start_in_space(at[0], bundle, tops[0], order)
    return (jet, *time), collapse


def _start_in_space(
    x: Array, bundle: Bundle, top: Array | None, order: int
) -> tuple[Jet, Collapse]:
    weights = bundle.weights.get(order)
    if bundle.rows is None:
        collapse = Collapse(order, x.shape[0], weights, bundle.metric)
        return identity_jet(x, top, order), collapse
    rows, index = bundle.rows, bundle.index
    collapse = Collapse(order, rows.shape[0], weights)
    if order > 1:
        lower = (rows, *(None,) * (order - 2))
        return Jet(x, lower, top, index), collapse
    assert weights is not None
    scaled = rows * (weights if weights.ndim == 0 else weights[:, None])
    if index is None:
        return Jet(x, (), add(top, jnp.sum(scaled, 0))), collapse
    return Jet(x, (), top, index, scaled), collapse


class ThroughLayer(Path):
    """Second-order operators over all coordinates through the entries of the first
    linear layer, as many directions as it is wide."""

    def bundle(
        self,
        function: Function,
        at: Arguments,
        bundle: Bundle,
        first: Tangent,
        token: Array | None,
    ) -> Found:
        if not _is_second_order(bundle):
            raise ValueError(
                "ThroughLayer() needs a second-order operator over all coordinates; "
                "leave out path to have one chosen"
            )
        jets, collapse = _start(at, bundle, first)
        closed = flat_jaxpr(function, *at)
        value, gradient, top, fallbacks = through_layer(closed, jets, collapse, token)
        width, varies = layer_width(closed, at)
        # Slopes of the layer at each point take memory too, in rows of a usual width.
        rows = width + (at[0].shape[0] * width // 256 if varies else 0)
        names = tuple(sorted(fallbacks))
        step = Step("through the first layer", 2, width, rows, names)
        return Found(2.0 * top, value, gradient, (step,))


def _is_second_order(bundle: Bundle) -> bool:
    return bundle.rows is None and (
        bundle.metric is not None or set(bundle.weights) == {2}
    )


class Automatic(Path):
    """The cheaper of `ThroughLayer`, where it applies, and `ByDirections`."""

    def bundle(
        self,
        function: Function,
        at: Arguments,
        bundle: Bundle,
        first: Tangent,
        token: Array | None,
    ) -> Found:
        path: Path = ByDirections()
        # The metric doubles the cost of a direction.
        d = at[0].shape[0]
        if _is_second_order(bundle) and d > 2:
            width, _ = layer_width(flat_jaxpr(function, *at), at)
            if 2 * width <= d:
                path = ThroughLayer()
        return path.bundle(function, at, bundle, first, token)


class Nested(Path):
    """Nested `jax.jvp`, one direction after another under `vmap`. For comparison."""

    def bundle(
        self,
        function: Function,
        at: Arguments,
        bundle: Bundle,
        first: Tangent,
        token: Array | None,
    ) -> Found:
        x, *time = at
        rows = bundle.vectors(x)
        space: Function = lambda x: function(x, *time)

        def along(g: Function, v: Array) -> Function:
            return lambda x: jax.jvp(g, (x,), (v,))[1]

        value, out = None, jnp.zeros((), x.dtype)
        if any(v is not None for v in first):
            value, out = _slope(function, at, first)
        for p, weights in bundle.weights.items():
            power = lambda v, p=p: functools.reduce(along, [v] * p, space)(x)
            out = out + jnp.sum(weights * jax.vmap(power)(rows))
        if bundle.metric is not None:
            pair = lambda v, w: along(along(space, v), w)(x)
            out = out + jnp.sum(jax.vmap(pair)(rows, bundle.metric @ rows))
        order = max(bundle.weights, default=2)
        step = Step("nested jvp", order, len(rows), order * len(rows))
        return Found(out, value, None, (step,))


class VmappedJet(Path):
    """`jax.experimental.jet`, one direction after another under `vmap`: the way of
    STDE. For comparison."""

    def bundle(
        self,
        function: Function,
        at: Arguments,
        bundle: Bundle,
        first: Tangent,
        token: Array | None,
    ) -> Found:
        from jax.experimental.jet import jet

        if bundle.metric is not None:
            raise ValueError("VmappedJet() cannot evaluate mixed derivatives")
        order = max(bundle.weights)
        x, *time = at
        zeros = (jnp.zeros_like(x),) * (order - 1)
        rows = bundle.vectors(x)
        space: Function = lambda x: function(x, *time)
        # jet has derivatives, not Taylor coefficients.
        series = jax.vmap(lambda v: tuple(jet(space, (x,), ((v, *zeros),))[1]))(rows)
        value, out = None, jnp.zeros((), x.dtype)
        if any(v is not None for v in first):
            value, out = _slope(function, at, first)
        for p, weights in bundle.weights.items():
            out = out + jnp.sum(weights * series[p - 1])
        step = Step("vmapped jet", order, len(rows), order * len(rows))
        return Found(out, value, None, (step,))
