"""Ways to evaluate the symbol of an operator on a function at one point.

All give the same number; they differ in time and memory. Knows symbols and jets.
"""

import abc
import functools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._jet import Collapse, Jet, add
from ._layer import identity_jet, layer_width, through_layer
from ._symbol import Bundle, Symbol
from ._taylor import Interpreter, flat_jaxpr

Function = Callable[[Array], Array]


class Step(eqx.Module):
    """How one bundle of directions was evaluated; for `plan`."""

    path: str = eqx.field(static=True)
    order: int = eqx.field(static=True)
    directions: int = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    "of the matrices for one point, about"
    fallbacks: tuple[str, ...] = eqx.field(static=True, default=())


class Path(eqx.Module):
    """A way to evaluate an operator on a function."""

    def derivatives(
        self, function: Function, x: Array, symbol: Symbol, token: Array | None
    ) -> tuple[Array, tuple[Step, ...]]:
        """The terms of order one and higher at a point, and how they were found.

        **Arguments:**

        - `token`: under `vmap` over points, a value that differs among them.
        """
        first, out = symbol.first, jnp.zeros((), x.dtype)
        steps: list[Step] = []
        for bundle in _split(symbol.bundles):
            value, step = self.bundle(function, x, bundle, first, token)
            out, first = out + value, None
            steps.append(step)
        if first is not None:
            out = out + _slope(function, x, first)
            steps.append(Step("jvp", 1, 1, 1))
        return out, tuple(steps)

    @abc.abstractmethod
    def bundle(
        self,
        function: Function,
        x: Array,
        bundle: Bundle,
        first: Array | None,
        token: Array | None,
    ) -> tuple[Array, Step]:
        """One bundle, and the first derivative along `first`, which costs nothing
        beside it where it can be collapsed into it."""


def _slope(function: Function, x: Array, v: Array) -> Array:
    """The derivative along one direction."""
    try:
        return jax.jvp(function, (x,), (v,))[1]
    except Exception:
        # Taylor mode gets as far, and names what cannot be differentiated.
        run = Interpreter(flat_jaxpr(function, x), Collapse(1, 1)).run(Jet(x, (), v))
        return jnp.zeros((), x.dtype) if run.top is None else run.top


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
        x: Array,
        bundle: Bundle,
        first: Array | None,
        token: Array | None,
    ) -> tuple[Array, Step]:
        jet, collapse = _start(x, bundle, first)
        interpreter = Interpreter(flat_jaxpr(function, x), collapse, token)
        end = interpreter.run(jet)
        order = collapse.order
        out = jnp.zeros((), x.dtype)
        if end.top is not None:
            out = math.factorial(order) * end.top
        for p, weights in bundle.weights.items():
            row = end.lower[p - 1] if p < order else None
            if row is not None:
                out = out + math.factorial(p) * jnp.sum(weights * row)
        path, count = "collapsed Taylor mode", collapse.directions
        fallbacks = tuple(sorted(interpreter.fallbacks))
        return out, Step(path, order, count, count * max(1, order - 1), fallbacks)


def _start(x: Array, bundle: Bundle, first: Array | None) -> tuple[Jet, Collapse]:
    """The jet of the point, whose coefficients of order one are the directions."""
    order = max(bundle.weights, default=2)
    top = None if first is None else first / math.factorial(order)
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
        x: Array,
        bundle: Bundle,
        first: Array | None,
        token: Array | None,
    ) -> tuple[Array, Step]:
        if not _is_second_order(bundle):
            raise ValueError(
                "ThroughLayer() needs a second-order operator over all coordinates; "
                "leave out path to have one chosen"
            )
        jet, collapse = _start(x, bundle, first)
        closed = flat_jaxpr(function, x)
        top, fallbacks = through_layer(closed, jet, collapse, token)
        width, varies = layer_width(closed, x)
        # Slopes of the layer at each point take memory too, in rows of a usual width.
        rows = width + (x.shape[0] * width // 256 if varies else 0)
        names = tuple(sorted(fallbacks))
        step = Step("through the first layer", 2, width, rows, names)
        return 2.0 * top, step


def _is_second_order(bundle: Bundle) -> bool:
    return bundle.rows is None and (
        bundle.metric is not None or set(bundle.weights) == {2}
    )


class Automatic(Path):
    """The cheaper of `ThroughLayer`, where it applies, and `ByDirections`."""

    def bundle(
        self,
        function: Function,
        x: Array,
        bundle: Bundle,
        first: Array | None,
        token: Array | None,
    ) -> tuple[Array, Step]:
        path: Path = ByDirections()
        # The metric doubles the cost of a direction.
        if _is_second_order(bundle) and x.shape[0] > 2:
            width, _ = layer_width(flat_jaxpr(function, x), x)
            if 2 * width <= x.shape[0]:
                path = ThroughLayer()
        return path.bundle(function, x, bundle, first, token)


class Nested(Path):
    """Nested `jax.jvp`, one direction after another under `vmap`. For comparison."""

    def bundle(
        self,
        function: Function,
        x: Array,
        bundle: Bundle,
        first: Array | None,
        token: Array | None,
    ) -> tuple[Array, Step]:
        rows = bundle.vectors(x)

        def along(g: Function, v: Array) -> Function:
            return lambda x: jax.jvp(g, (x,), (v,))[1]

        out = jnp.zeros((), x.dtype)
        if first is not None:
            out = along(function, first)(x)
        for p, weights in bundle.weights.items():
            power = lambda v, p=p: functools.reduce(along, [v] * p, function)(x)
            out = out + jnp.sum(weights * jax.vmap(power)(rows))
        if bundle.metric is not None:
            pair = lambda v, w: along(along(function, v), w)(x)
            out = out + jnp.sum(jax.vmap(pair)(rows, bundle.metric @ rows))
        order = max(bundle.weights, default=2)
        return out, Step("nested jvp", order, len(rows), order * len(rows))


class VmappedJet(Path):
    """`jax.experimental.jet`, one direction after another under `vmap`: the way of
    STDE. For comparison."""

    def bundle(
        self,
        function: Function,
        x: Array,
        bundle: Bundle,
        first: Array | None,
        token: Array | None,
    ) -> tuple[Array, Step]:
        from jax.experimental.jet import jet

        if bundle.metric is not None:
            raise ValueError("VmappedJet() cannot evaluate mixed derivatives")
        order = max(bundle.weights)
        zeros = (jnp.zeros_like(x),) * (order - 1)
        rows = bundle.vectors(x)
        # jet has derivatives, not Taylor coefficients.
        series = jax.vmap(lambda v: tuple(jet(function, (x,), ((v, *zeros),))[1]))(rows)
        out = jnp.zeros((), x.dtype)
        for p, weights in bundle.weights.items():
            out = out + jnp.sum(weights * series[p - 1])
        if first is not None:
            out = out + jax.jvp(function, (x,), (first,))[1]
        return out, Step("vmapped jet", order, len(rows), order * len(rows))
