"""An operator applied to a field: at one point or many."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._checks import check_count
from .._mesh import device_local
from ..correction import Correction
from ..field import as_field, at_time
from ..taylor import Derivatives, Path, Step, add, derivatives
from ._batch import (
    Batch,
    Function,
    batch_of,
    output_shape,
    over_batch,
    over_points,
    raw_of,
)
from ._coefficient import call, numbers
from ._term import PointOperator

if TYPE_CHECKING:
    from ._operator import Operator

# Rows (points times directions) of one chunk: on a CPU enough to fill the matrix
# products and few enough for the cache; elsewhere a guess, no accelerator was measured.
# More in high dimension, for each chunk adds up the gradient of the whole first layer.
_CPU_ROWS, _MOST_CPU_ROWS = 2048, 8192
_OTHER_ROWS = 2**17


class Plan(eqx.Module):
    """How an operator is evaluated on a field at many points."""

    steps: tuple[Step, ...] = eqx.field(static=True)
    "for each set of directions: path, order, directions, primitives without a rule"
    points: int = eqx.field(static=True)
    chunk: int = eqx.field(static=True)
    "points evaluated at a time"
    memory: int = eqx.field(static=True)
    "bytes of temporaries of the values"
    gradient_memory: int | None = eqx.field(static=True)
    "the same for the gradient with respect to the parameters, if there are any"

    def __str__(self) -> str:
        lines = [
            f"{s.path}: {s.directions} direction{'s' * (s.directions != 1)} of order "
            f"{s.order}"
            + (f"; nested jvp through {', '.join(s.fallbacks)}" if s.fallbacks else "")
            for s in self.steps
        ] or ["no derivatives"]
        memory = f"temporaries: {_bytes(self.memory)}"
        if self.gradient_memory is not None:
            memory += f", with gradient {_bytes(self.gradient_memory)}"
        points = f"{self.points} points, {self.chunk} at a time"
        return "\n".join([*lines, points, memory])


def _bytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


class AppliedOperator(eqx.Module):
    """An operator applied to a function; made by calling the operator."""

    operator: "Operator"
    u: Any
    path: Path
    chunk: int | None = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.chunk is not None:
            check_count("chunk", self.chunk)
        if not isinstance(self.path, Path):
            raise TypeError(
                f"path must be a Path such as ByDirections(), got {self.path!r}"
            )
        if not callable(self.u):
            raise TypeError(f"u must be a function of (x, t), got {self.u!r}")

    def __call__(self, x: ArrayLike, t: ArrayLike | None = None) -> Float[Array, "..."]:
        """The value at one point, shape (d,), or at many: shape (n, d) with one time,
        no time or n times, or shape (n_t, n_x, d) with n_t times. Many points are
        evaluated in chunks, and each time costs one quadrature."""
        batch, shape = batch_of(self.u, x, t)
        (one,) = evaluations([self], batch)
        return one.shaped(shape)

    def plan(self, x: ArrayLike, t: ArrayLike | None = None) -> Plan:
        """See `Operator.plan`."""
        batch, shape = batch_of(self.u, x, t)
        points = batch.points.shape[0]
        size = min(points, self.chunk_for(batch)) if shape else 1
        params, static = eqx.partition(self.u, eqx.is_inexact_array)

        def values(params: Any, x: Array, t: Array | None) -> Array:
            u = eqx.combine(params, static)
            return jnp.sum(self.operator(u, path=self.path, chunk=self.chunk)(x, t))

        def memory(function: Any) -> int:
            given = None if t is None else jnp.asarray(t, float)
            done = jax.jit(function).lower(params, jnp.asarray(x), given).compile()
            analysis: Any = done.memory_analysis()
            return int(analysis.temp_size_in_bytes)

        gradient = memory(jax.grad(values)) if jax.tree.leaves(params) else None
        return Plan(self.steps(batch), points, size, memory(values), gradient)

    def derivatives(
        self,
        function: Function,
        x: Array,
        t: Array | None,
        point: PointOperator,
        token: Array | None,
    ) -> Derivatives:
        """The terms of the operator on a function at a point, but those of order zero
        and of u_tt."""
        at: tuple[Array, ...] = (x,)
        inner: Callable[..., Array] = lambda x: function(x, t)
        first: tuple[Array | None, ...] = (point.first,)
        if point.rate is not None and t is not None:
            at, inner = (x, t), function
            first = (point.first, point.rate.astype(t.dtype))
        return derivatives(
            inner, at, point.directions, first=first, path=self.path, token=token
        )

    def chunk_for(self, batch: Batch, copies: int = 1) -> int:
        """How many points are evaluated at a time."""
        if self.chunk is not None:
            return self.chunk
        rows = max([1, *(s.rows for s in self.steps(batch))])
        limit = _OTHER_ROWS
        if jax.default_backend() == "cpu":
            limit = min(max(_CPU_ROWS, batch.x.shape[-1] // 2), _MOST_CPU_ROWS)
        return max(1, limit // (copies * rows))

    def steps(self, batch: Batch) -> tuple[Step, ...]:
        """How the derivatives are found."""

        def run(x: Array, t: Array | None) -> Any:
            points = [p.operator.at_point(x, t) for p in self.operator.parts]
            raw = raw_of(self.u)
            return [self.derivatives(raw, x, t, point, None) for point in points]

        found = jax.eval_shape(run, *batch.first)
        steps = tuple(step for one in found for step in one.steps)
        if self.operator.kinds(*batch.first).acceleration is not None:
            steps = (*steps, Step("nested jvp by t", 2, 1, 1))
        return steps


class Evaluation(eqx.Module):
    """An operator and a local term on a function, at each point of a batch: what one
    pass through the network has to give, and what is made of it."""

    applied: AppliedOperator
    batch: Batch
    local: Callable[..., Array] | None
    "of the value, the gradient, the point and, if there is one, the time"
    needs_value: bool = eqx.field(static=True)
    data: tuple[Any, Float[Array, "n ..."] | None, dict[str, Array]]
    "for each point: its coefficients, what is known before the pass, and integrals"
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = eqx.field(static=True)
    "of u and of the value at one point: () or, of several numbers, (n,) and (m,)"
    weights: Float[Array, " m"] | None = None
    "of the squares of several numbers, in sums of them"

    @device_local()
    def at_point(
        self, x: Array, t: Array | None, token: Array | None, data: Any
    ) -> Float[Array, "..."]:
        """The value at one point, from its data."""
        (series, known, integrals), u = data, self.applied.u
        parts = self.applied.operator.parts
        points = [part.operator.at_point(x, t) for part in parts]

        def of(function: Function) -> Derivatives:
            """What is needed of a function at this point."""
            found = [self.applied.derivatives(function, x, t, p, token) for p in points]
            total = self._mixed(parts, [one.total for one in found], x)
            value, gradient = None, None
            if self.needs_value:
                value = _first(one.value for one in found)
                value = function(x, t) if value is None else value
            if self.local is not None:
                gradient = _first(one.gradient for one in found)
                if gradient is None:
                    gradient = _gradient(function, x, t, self.shapes[0])
            return Derivatives(total, value, gradient, ())

        if series is None:
            found = of(raw_of(u))
        elif as_field(u).is_affine and self.shapes == ((), ()):
            rate = points[0].rate if points else None
            found = _corrected(u, of(raw_of(u)), series, rate, of)
        else:
            found = of(as_field(u).near(series, t))
        out, value = found.total, found.value
        of_order_zero = lambda c: None if c is None or value is None else c * value
        zeros = [of_order_zero(p.zero) for p in points]
        if any(one is not None for one in zeros):
            out = out + self._mixed(parts, zeros, x)
        if self.local is not None:
            u, grad = found.value, found.gradient
            term = call("local", self.local, integrals, u=u, grad=grad, x=x, t=t)
            out = out + numbers("local", term, self.shapes[1])
        out = out if known is None else out + known
        # Of a constant all derivatives are one zero.
        return jnp.broadcast_to(out, self.shapes[1])

    def _mixed(
        self, parts: Sequence[Any], values: Sequence[Array | None], x: Array
    ) -> Array:
        """The sum over the parts of an operator of matrix times value."""
        out = None
        for part, value in zip(parts, values, strict=True):
            if value is not None and part.matrix is not None:
                (n,) = self.shapes[0] or (1,)
                value = jnp.broadcast_to(value, (n,))
                value = part.matrix.astype(value.dtype) @ value
            out = add(out, value)
        return jnp.zeros((), x.dtype) if out is None else out

    def product(self, a: Array, b: Array) -> Float[Array, ""]:
        """That of two values at a point; of several numbers the weighted sum."""
        if a.ndim == 0:
            return a * b
        if self.weights is None:
            return a @ b
        return (self.weights.astype(a.dtype) * a) @ b

    def shaped(self, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """The values in the shape of the points."""
        return self.values(shape != ()).reshape(shape + self.shapes[1])

    def values(self, many: bool = True) -> Float[Array, "n ..."]:
        """The value at each point of the batch, flat."""
        points, times = self.batch.points, self.batch.times
        if not many:
            # Without vmap, so that users can put any transformation around it.
            data = jax.tree.map(lambda a: a[0], self.data)
            t = None if times is None else times[0]
            return self.at_point(points[0], t, None, data)[None]
        chunk = self.applied.chunk_for(self.batch)
        return over_points(self.at_point, points, times, self.data, chunk)


def evaluations(
    applied: Sequence[AppliedOperator],
    batch: Batch,
    local: Callable[..., Array] | None = None,
    known: Array | None = None,
    series: Any = None,
    integrals: Mapping[str, Array] = MappingProxyType({}),
    weights: Float[Array, " m"] | None = None,
) -> list[Evaluation]:
    """Some operators on the same function, each with the same local term, and with
    numbers for each point that are added; what they share is computed once.

    **Arguments:**

    - `series`: the corrections at the times of the batch, where they are known already.
    - `integrals`: for the local term, by name, at each point.
    - `weights`: of the squares, where there are several numbers at a point.
    """
    u = applied[0].u
    shape = output_shape(u, batch)
    kinds = [a.operator.kinds(*batch.first) for a in applied]
    moving = any(k.rate is not None for k in kinds)
    timed = moving or any(k.acceleration is not None for k in kinds)
    if timed and as_field(u).is_slice:
        raise ValueError("u is at one time already: time_derivative() needs the field")
    if series is None:
        series = _series(u, batch.t, 1 if moving else 0)
    series = batch.for_points(series)
    out = []
    for a, kind in zip(applied, kinds, strict=True):
        changing = kind.rate is not None and series is not None
        needs_value = kind.zero is not None or local is not None or changing
        own = known
        shapes = (shape, a.operator.shape(shape))
        if kind.acceleration is not None:
            own = add(own, over_batch(functools.partial(_acceleration, a), batch))
        data = (series, own, dict(integrals))
        out.append(Evaluation(a, batch, local, needs_value, data, shapes, weights))
    return out


def _series(u: Any, t: Array | None, order: int) -> Any:
    """The corrections at some times with their derivatives, one quadrature for each
    time; None for functions that have none."""
    field = as_field(u)

    def at(t: Array | None, order: int) -> Any:
        found = field.expand(t, order)
        return None if found is None else found.series

    if t is not None and not field.is_slice:
        return jax.vmap(lambda t: at(t, order))(t)
    return jax.tree.map(lambda c: c[None], at(None, 0))


def _corrected(
    u: Any,
    raw: Derivatives,
    series: Correction,
    rate: Array | None,
    of: Callable[[Function], Derivatives],
) -> Derivatives:
    """The derivatives of a conserved field from those of its raw network.

    **Arguments:**

    - `series`: its correction, with derivatives in t on the first axis: the value, and
        the first one where `rate` is given.
    - `rate`: the coefficient of the derivative in t.
    - `of`: the derivatives of another function, for the profile of the shift.
    """
    profile = as_field(u).profile
    phi = None if profile is None else of(lambda x, t: profile(x))
    dtype, correction = raw.total.dtype, series.term(0)
    scale, shift = correction.scale.astype(dtype), correction.shift.astype(dtype)

    def affine(a: Array, b: Array | None) -> Array:
        return scale * a if b is None else scale * a + shift * b

    def value(*coefficients: Array) -> Array:
        assert raw.value is not None
        known = None if phi is None or phi.value is None else phi.value[None]
        return Correction(*coefficients)(raw.value[None], known)[0]

    total = affine(raw.total, None if phi is None else phi.total)
    gradient = raw.gradient
    if gradient is not None:
        gradient = affine(gradient, None if phi is None else phi.gradient)
    if rate is not None:
        slopes = series.term(1).coefficients
        change = jax.jvp(value, correction.coefficients, slopes)[1]
        total = total + rate * change
    now = None if raw.value is None else value(*correction.coefficients)
    return Derivatives(total, now, gradient, raw.steps)


def _first(given: Iterable[Array | None]) -> Array | None:
    return next((a for a in given if a is not None), None)


def _gradient(
    function: Function, x: Array, t: Array | None, shape: tuple[int, ...]
) -> Array:
    # Forward mode has a pass for each coordinate, reverse mode one for each component.
    if shape and x.size <= 2 * shape[0]:
        return jax.jacfwd(function)(x, t)
    try:
        return jax.jacrev(function)(x, t) if shape else jax.grad(function)(x, t)
    except Exception:
        # Loops of unknown length have no reverse mode.
        return jax.jacfwd(function)(x, t)


def _acceleration(applied: AppliedOperator, x: Array, t: Array) -> Array:
    """The term of u_tt at one point."""

    def rate(t: Array) -> Array:
        value = lambda t: at_time(applied.u, t)(x)
        return jax.jvp(value, (t,), (jnp.ones_like(t),))[1]

    found = jax.jvp(rate, (t,), (jnp.ones_like(t),))[1]
    out = None
    for part in applied.operator.parts:
        with device_local():
            weight = part.operator.at_point(x, t).acceleration
        if weight is None:
            continue
        own = weight * found
        if part.matrix is not None:
            own = part.matrix.astype(own.dtype) @ jnp.atleast_1d(own)
        out = add(out, own)
    assert out is not None
    return out
