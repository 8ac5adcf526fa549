"""Which directional derivatives are summed, and ways to evaluate the sum at one point.

All give the same number; they differ in time and memory. Knows jets.
"""

import abc
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from ._interpreter import Interpreter, flat_jaxpr
from ._jet import Collapse, Jet, add, or_zero, weighted_sum
from ._layer import identity_jet, layer_width, through_layer

Function = Callable[..., Array]


class Directions(eqx.Module):
    """The sum `sum_p sum_r weights[p][r] D^p f(x)[v_r, ..., v_r]` over directions v_r,
    and over all coordinates `sum_jk metric[j, k] d^2 f / dx_j dx_k`.

    **Arguments:**

    - `weights`: for each order p, one number for each direction or one for all.
    - `rows`: the directions, shape (R, d); by default all d coordinates.
    - `index`: where given, shape (R, entries), the directions have few entries: `rows`,
        of the same shape, at the places `index`, which differ within a direction
        unless the entries are zero.
    - `metric`: a symmetric matrix of shape (d, d), where `rows` is left out.

    Examples:
        >>> from sdifp.taylor import Directions
        >>> laplacian = Directions({2: 1.0})
        >>> sum_of_third_derivatives_minus_slopes = Directions({3: 1.0, 1: -1.0})
    """

    weights: dict[int, Array]
    rows: Array | None
    index: Array | None
    metric: Array | None

    def __init__(
        self,
        weights: Mapping[int, ArrayLike] | None = None,
        rows: Array | None = None,
        index: Array | None = None,
        metric: Array | None = None,
    ):
        self.weights = {p: jnp.asarray(w) for p, w in (weights or {}).items()}
        self.rows, self.index, self.metric = rows, index, metric
        if min(self.weights, default=1) < 1 or not (weights or metric is not None):
            raise ValueError(f"weights must name orders from 1, got {weights}")
        if metric is not None and rows is not None:
            raise ValueError("metric is over all coordinates, so leave out rows")

    @property
    def order(self) -> int:
        """The highest one."""
        return max(self.weights, default=2)

    @property
    def is_second_order(self) -> bool:
        """Whether it is a second-order operator over all coordinates."""
        return self.rows is None and (
            self.metric is not None or set(self.weights) == {2}
        )

    def vectors(self, x: Array) -> Array:
        """The directions, written out."""
        if self.rows is None:
            return jnp.eye(x.shape[0], dtype=x.dtype)
        if self.index is None:
            return self.rows
        count = jnp.arange(self.rows.shape[0])[:, None]
        zero = jnp.zeros((self.rows.shape[0], x.shape[0]), x.dtype)
        return zero.at[count, self.index].add(self.rows)

    def merged(self, other: "Directions") -> "Directions | None":
        """Both together, if they share their directions."""
        if self.rows is not other.rows or self.index is not other.index:
            return None
        weights: dict[int, Any] = dict(self.weights)
        for order, weight in other.weights.items():
            weights[order] = add(weights.get(order), weight)
        metric = add(self.metric, other.metric)
        return Directions(weights, self.rows, self.index, metric)

    def scaled(self, factor: Array) -> "Directions":
        """All weights times a number."""
        own = (self.weights, self.metric)
        weights, metric = jax.tree.map(lambda w: factor * w, own)
        return Directions(weights, self.rows, self.index, metric)

    def split(self) -> "list[Directions]":
        """The metric, with the weights of order 2 in it, apart from other orders."""
        if self.metric is None:
            return [self]
        metric, diagonal = self.metric, self.weights.get(2)
        if diagonal is not None:
            metric = metric + jnp.diag(jnp.broadcast_to(diagonal, metric.shape[:1]))
        rest = {p: w for p, w in self.weights.items() if p != 2}
        return [Directions(metric=metric), *([Directions(rest)] if rest else [])]


class Step(eqx.Module):
    """How one set of directions was evaluated."""

    path: str = eqx.field(static=True)
    order: int = eqx.field(static=True)
    directions: int = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    "of the matrices for one point, about"
    fallbacks: tuple[str, ...] = eqx.field(static=True, default=())
    "the primitives that had no rule"


class Derivatives(NamedTuple):
    """What a pass through a function gives."""

    total: Array
    "the weighted sum of derivatives"
    value: Array | None
    "of the function, where the pass has it"
    gradient: Array | None
    "with respect to the point, on the last axis, where the pass has it"
    steps: tuple[Step, ...]
    "how it was done"


class Task(NamedTuple):
    """What a path evaluates: the derivatives of a function along one set of directions,
    and its first derivative along `first`, which costs nothing where it can be
    collapsed into the former."""

    function: Function
    at: tuple[Array, ...]
    directions: Directions
    first: tuple[Array | None, ...]
    token: Array | None

    @property
    def x(self) -> Array:
        return self.at[0]

    def in_space(self, x: Array) -> Array:
        """The function of the point alone."""
        return self.function(x, *self.at[1:])


class Path(eqx.Module):
    """A way to evaluate directional derivatives."""

    @abc.abstractmethod
    def evaluate(self, task: Task) -> Derivatives:
        """The derivatives along one set of directions."""


def _slope(
    function: Function, at: tuple[Array, ...], along: Sequence[Array | None]
) -> tuple[Array, Array]:
    """The value, and the derivative along one direction."""
    full = tuple(map(or_zero, along, at))
    try:
        return jax.jvp(function, at, full)
    except Exception:
        # Taylor mode gets as far, and names what cannot be differentiated.
        jets = [Jet(a, (), v) for a, v in zip(at, full, strict=True)]
        out = Interpreter(flat_jaxpr(function, *at), Collapse(1, 1)).run(jets)
        return out.primal, or_zero(out.top, out.primal)


class ByDirections(Path):
    """Collapsed Taylor mode: lower coefficients for each direction, the highest one
    summed over them."""

    def evaluate(self, task: Task) -> Derivatives:
        jets, collapse = _start(task)
        closed = flat_jaxpr(task.function, *task.at)
        interpreter = Interpreter(closed, collapse, task.token)
        end, order = interpreter.run(jets), collapse.order
        out = jnp.zeros((), task.x.dtype)
        if end.top is not None:
            out = math.factorial(order) * end.top
        for p, weights in task.directions.weights.items():
            row = end.lower[p - 1] if p < order else None
            if row is not None:
                out = out + math.factorial(p) * weighted_sum(weights, row)
        count = collapse.directions
        fallbacks = tuple(sorted(interpreter.fallbacks))
        rows = count * max(1, order - 1)
        step = Step("collapsed Taylor mode", order, count, rows, fallbacks)
        gradient = None
        if task.directions.rows is None and order > 1:
            gradient = or_zero(end.lower[0], end.primal, task.x.shape)
            gradient = jnp.moveaxis(gradient, 0, -1)
        return Derivatives(out, end.primal, gradient, (step,))


def _start(task: Task) -> tuple[tuple[Jet, ...], Collapse]:
    """The jet of the point, whose coefficients of order one are the directions, and of
    the other arguments, which only have a top."""
    x, directions, order = task.x, task.directions, task.directions.order
    rows, index, weights = directions.rows, directions.index, directions.weights
    tops = [None if v is None else v / math.factorial(order) for v in task.first]
    others = tuple(
        Jet(a, (None,) * (order - 1), top)
        for a, top in zip(task.at[1:], tops[1:], strict=True)
    )
    count = x.shape[0] if rows is None else rows.shape[0]
    collapse = Collapse(order, count, weights.get(order), directions.metric)
    if order == 1:
        jet = _slope_jet(x, directions, tops[0])
    elif rows is None:
        jet = identity_jet(x, tops[0], order)
    else:
        jet = Jet(x, (rows, *(None,) * (order - 2)), tops[0], index)
    return (jet, *others), collapse


def _slope_jet(x: Array, directions: Directions, top: Array | None) -> Jet:
    """The jet of the point where nothing but first derivatives is summed."""
    weights, rows = directions.weights[1], directions.rows
    if rows is None:
        return Jet(x, (), add(top, jnp.broadcast_to(weights, x.shape).astype(x.dtype)))
    scaled = rows * (weights if weights.ndim == 0 else weights[:, None])
    if directions.index is None:
        return Jet(x, (), add(top, jnp.sum(scaled, 0)))
    return Jet(x, (), top, directions.index, scaled)


class ThroughLayer(Path):
    """Second-order operators over all coordinates through the entries of the first
    linear layer, as many directions as it is wide."""

    def evaluate(self, task: Task) -> Derivatives:
        if not task.directions.is_second_order:
            raise ValueError(
                "ThroughLayer() needs a second-order operator over all coordinates; "
                "leave out path to have one chosen"
            )
        jets, collapse = _start(task)
        closed = flat_jaxpr(task.function, *task.at)
        found = through_layer(closed, jets, collapse, task.token)
        value, gradient, top, fallbacks = found
        width, varies = layer_width(closed, task.at)
        # Slopes of the layer at each point take memory too, in rows of a usual width.
        rows = width + (task.x.shape[0] * width // 256 if varies else 0)
        names = tuple(sorted(fallbacks))
        step = Step("through the first layer", 2, width, rows, names)
        gradient = jnp.moveaxis(gradient, 0, -1)
        return Derivatives(2.0 * top, value, gradient, (step,))


class Automatic(Path):
    """The cheaper of `ThroughLayer`, where it applies, and `ByDirections`."""

    def evaluate(self, task: Task) -> Derivatives:
        path: Path = ByDirections()
        d = task.x.shape[0]
        if task.directions.is_second_order and d > 2:
            width, _ = layer_width(flat_jaxpr(task.function, *task.at), task.at)
            # The metric doubles the cost of a direction.
            if 2 * width <= d:
                path = ThroughLayer()
        return path.evaluate(task)


class Nested(Path):
    """Nested `jax.jvp`, one direction after another under `vmap`. For comparison."""

    def evaluate(self, task: Task) -> Derivatives:
        def along(g: Function, v: Array) -> Function:
            return lambda x: jax.jvp(g, (x,), (v,))[1]

        def powers(v: Array) -> dict[int, Array]:
            power = lambda p: functools.reduce(along, [v] * p, task.in_space)(task.x)
            return {p: power(p) for p in task.directions.weights}

        out = _one_by_one(task, "nested jvp", powers)
        metric = task.directions.metric
        if metric is None:
            return out
        rows = task.directions.vectors(task.x)
        pair = lambda v, w: along(along(task.in_space, v), w)(task.x)
        mixed = jnp.sum(jax.vmap(pair)(rows, metric @ rows), 0)
        return out._replace(total=out.total + mixed)


class VmappedJet(Path):
    """`jax.experimental.jet`, one direction after another under `vmap`: the way of
    STDE. For comparison."""

    def evaluate(self, task: Task) -> Derivatives:
        from jax.experimental.jet import jet

        if task.directions.metric is not None:
            raise ValueError("VmappedJet() cannot evaluate mixed derivatives")
        x, zeros = task.x, (jnp.zeros_like(task.x),) * (task.directions.order - 1)

        def powers(v: Array) -> dict[int, Array]:
            # jet has derivatives, not Taylor coefficients.
            series = jet(task.in_space, (x,), ((v, *zeros),))[1]
            return {p: series[p - 1] for p in task.directions.weights}

        return _one_by_one(task, "vmapped jet", powers)


def _one_by_one(
    task: Task, name: str, powers: Callable[[Array], dict[int, Array]]
) -> Derivatives:
    """The derivatives from those along each direction, by order."""
    directions = task.directions
    rows, order = directions.vectors(task.x), directions.order
    found = jax.vmap(powers)(rows)
    value, out = None, jnp.zeros((), task.x.dtype)
    if any(v is not None for v in task.first):
        value, out = _slope(task.function, task.at, task.first)
    for p, weights in directions.weights.items():
        out = out + weighted_sum(weights, found[p])
    step = Step(name, order, len(rows), order * len(rows))
    return Derivatives(out, value, None, (step,))


def derivatives(
    function: Function,
    at: Array | tuple[Array, ...],
    directions: Directions | Sequence[Directions],
    *,
    first: Sequence[Array | None] = (),
    path: Path = Automatic(),
    token: Array | None = None,
) -> Derivatives:
    """A weighted sum of directional derivatives of a function at one point, for the
    price of little more than its lower orders.

    Use it inside `jax.vmap`, `jax.jit`, `jax.grad` as any function.

    **Arguments:**

    - `function`: of a vector x of shape (d,), and of other arguments, that returns one
        array.
    - `at`: x, or x and the other arguments as a tuple. Only x moves along the
        directions.
    - `directions`: what is summed; several are added up.
    - `first`: for each argument a tangent or None: the derivative along these is added.
        Beside other directions it costs nothing.
    - `path`: how it is done; by default in the cheapest way.
    - `token`: under one `jax.vmap` over points, any value that differs among them, such
        as x. Matrix products are then done for all points and directions at once, which
        is faster; under further transformations of single points leave it out.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from sdifp import taylor
        >>> f = lambda x: jnp.sin(x[0]) * x[1] ** 3
        >>> x = jnp.array([0.5, 2.0])
        >>> laplacian = taylor.derivatives(f, x, taylor.Directions({2: 1.0}))
        >>> print(f"{laplacian.total:.4f} {jnp.trace(jax.hessian(f)(x)):.4f}")
        1.9177 1.9177
    """
    at = at if isinstance(at, tuple) else (at,)
    sets = (directions,) if isinstance(directions, Directions) else directions
    none = (None,) * len(at)
    left = tuple(first) or none
    total, value, gradient = jnp.zeros((), at[0].dtype), None, None
    steps: list[Step] = []
    for one in [part for given in sets for part in given.split()]:
        found = path.evaluate(Task(function, at, one, left, token))
        total, left = total + found.total, none
        value = found.value if value is None else value
        gradient = found.gradient if gradient is None else gradient
        steps.extend(found.steps)
    if any(v is not None for v in left):
        value, slope = _slope(function, at, left)
        total = total + slope
        steps.append(Step("jvp", 1, 1, 1))
    return Derivatives(total, value, gradient, tuple(steps))
