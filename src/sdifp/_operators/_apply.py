"""An operator applied to a field: at one point or many, and how that is done."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._checks import check_count
from .._field import ConservedField, FieldAt, at_time, at_with_series
from .._mesh import alone
from .._projection import Correction
from ._jet import add
from ._parts import call
from ._paths import Path, Step
from ._symbol import Symbol

if TYPE_CHECKING:
    from ._operator import Operator

# Rows (points times directions) of one chunk: on a CPU enough to fill the matrix
# products and few enough for the cache; elsewhere a guess, no accelerator was measured.
# More in high dimension, for each chunk adds up the gradient of the whole first layer.
_CPU_ROWS, _MOST_CPU_ROWS = 2048, 8192
_OTHER_ROWS = 2**17


class Batch(NamedTuple):
    """Points, `n_x` at each of `n_t` times."""

    x: Float[Array, "n_t n_x d"]
    t: Float[Array, " n_t"] | None

    @property
    def first(self) -> tuple[Array, Array | None]:
        """The first point, and its time."""
        return self.x[0, 0], None if self.t is None else self.t[0]

    @property
    def points(self) -> Float[Array, "n d"]:
        return self.x.reshape(-1, self.x.shape[-1])

    @property
    def times(self) -> Float[Array, " n"] | None:
        if self.t is None:
            return None
        return jnp.broadcast_to(self.t[:, None], self.x.shape[:2]).reshape(-1)


def batch_of(
    u: Any, x: ArrayLike, t: ArrayLike | None
) -> tuple[Batch, tuple[int, ...]]:
    """Points and times as the user gives them, and the shape of the values. Raises if
    they do not fit each other or u."""
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise TypeError(f"x must hold real numbers, got {x.dtype}")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        x = x.astype(float)
    if x.ndim not in (1, 2, 3) or 0 in x.shape:
        raise ValueError(
            f"x must have shape (d,), (n, d) or (n_t, n_x, d), got {x.shape}"
        )
    d, shape = x.shape[-1], x.shape[:-1]
    if isinstance(u, FieldAt):
        if t is not None:
            raise ValueError(f"t must be left out: u is at one time already, got {t!r}")
        t = u.time
    if isinstance(u, ConservedField):
        if d != u.rule.dimension:
            raise ValueError(
                f"x must have the dimension of the field, {u.rule.dimension}, got "
                f"points of dimension {d}"
            )
        if u.has_time != (t is not None):
            need = "be given" if u.has_time else "be left out: the network has none"
            raise ValueError(f"t must {need}, got {t!r}")
    if t is None:
        batch = Batch(x.reshape(1, -1, d), None)
    else:
        # Numbers take the precision of the points, arrays keep their own.
        own = jnp.result_type(t) if isinstance(t, jax.Array | np.ndarray) else x.dtype
        t = jnp.asarray(t, own if jnp.issubdtype(own, jnp.floating) else x.dtype)
        if t.ndim == 0:
            batch = Batch(x.reshape(1, -1, d), t[None])
        elif x.ndim > 1 and t.shape == shape[:1]:
            batch = Batch(x if x.ndim == 3 else x[:, None], t)
        else:
            raise ValueError(
                f"t must be one time, or one for each entry of the first axis of x, "
                f"got shape {t.shape} with x of shape {x.shape}"
            )
    _check_scalar(u, batch)
    return batch, shape


def _check_scalar(u: Any, batch: Batch) -> None:
    """Raise unless u gives one real number for one point."""
    point = jax.ShapeDtypeStruct(batch.x.shape[-1:], batch.x.dtype)
    time = None if batch.t is None else jax.ShapeDtypeStruct((), batch.t.dtype)
    try:
        out = eqx.filter_eval_shape(raw_of(u), point, time)
    except Exception as error:
        arguments = "u(x)" if time is None else "u(x, t)"
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"u cannot be evaluated as {arguments} at one point of shape "
            f"{point.shape}: {type(error).__name__}: {reason}; use jax.vmap for many "
            f"points"
        ) from error
    shape = getattr(out, "shape", None)
    if shape != ():
        if shape is None:
            raise ValueError(
                f"u must return one JAX number for one point, got {type(out).__name__}"
            )
        raise ValueError(
            f"u must return one number for one point of shape {point.shape}, got shape "
            f"{shape}; apply the operator to one component, lambda x, t: u(x, t)[k], "
            f"and use jax.vmap for many points"
        )
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise TypeError(f"u must return a floating-point number, got {out.dtype}")


def raw_of(u: Any) -> Callable[[Array, Array | None], Array]:
    """The function that derivatives by x run over: the network under a conserved
    field, or u itself."""
    net = u.net if isinstance(u, ConservedField | FieldAt) else u
    return lambda x, t: call(net, x, t)


class Parts(NamedTuple):
    """What an operator and a local term take of a function at one point."""

    terms: Array
    "see `Found`"
    value: Array | None
    gradient: Array | None


def corrected(
    raw: Parts,
    series: Float[Array, "terms 4"],
    phi: Parts | None,
    rate: Array | None,
) -> Parts:
    """What the same take of a conserved field, from those of the raw network and of the
    profile.

    **Arguments:**

    - `series`: see `at_with_series`; two terms where there is a derivative by t.
    - `rate`: its coefficient.
    """
    dtype, correction = raw.terms.dtype, Correction.of(series[0])
    scale, shift = correction.scale.astype(dtype), correction.shift.astype(dtype)

    def affine(a: Array, b: Array | None) -> Array:
        return scale * a if b is None else scale * a + shift * b

    def value(series: Array) -> Array:
        assert raw.value is not None
        known = None if phi is None or phi.value is None else phi.value[None]
        return Correction.of(series)(raw.value[None], known)[0]

    terms, now, gradient = raw.terms, raw.value, raw.gradient
    terms = affine(terms, None if phi is None else phi.terms)
    if gradient is not None:
        gradient = affine(gradient, None if phi is None else phi.gradient)
    if now is not None:
        now = value(series[0])
    if rate is not None:
        change = jax.jvp(value, (series[0],), (series[1],))[1]
        terms = terms + rate * change
    return Parts(terms, now, gradient)


def over_batch(function: Callable[[Array, Array | None], Array], batch: Batch) -> Array:
    """A function of one point and its time at each point of a batch, flat. Points
    inside times: what depends on the time alone is done once for each."""
    over_x = jax.vmap(function, (0, None))
    over_t = jax.vmap(over_x, (0, None if batch.t is None else 0))
    out = over_t(batch.x, batch.t)
    return out.reshape(-1, *out.shape[2:])


Series = Float[Array, "n_t terms 4"]


def series_of(u: Any, batch: Batch, order: int) -> Series | None:
    """The corrections at the times of a batch, one quadrature for each; None for
    functions that have none."""
    if isinstance(u, ConservedField) and batch.t is not None:
        return jax.vmap(lambda t: at_with_series(u, t, order)[1])(batch.t)
    if isinstance(u, FieldAt | ConservedField):
        now = u if isinstance(u, FieldAt) else u.at()
        return now.correction.coefficients[None, None]
    return None


PointFunction = Callable[[Array, Array | None, Array | None, Any], Array]
"""Of a point, its time, the token that stands for `vmap` over points, and data of this
point."""


def mapped_over(function: PointFunction, timed: bool) -> Callable[..., Array]:
    """The function under `vmap` over points, times and data."""
    over = (0, 0 if timed else None, 0)
    return jax.vmap(lambda x, t, data: function(x, t, x, data), over)


def over_points(
    function: PointFunction, x: Array, t: Array | None, data: Any, chunk: int
) -> Array:
    """A function at many points, `chunk` of them at a time; in reverse mode each chunk
    is evaluated again, so that memory does not grow with their number."""
    mapped = mapped_over(function, t is not None)
    n = x.shape[0]
    if n <= chunk:
        return mapped(x, t, data)
    pieces = in_chunks((x, t, data), n, chunk)
    out = jax.lax.map(lambda piece: jax.checkpoint(mapped)(*piece), pieces)
    return out.reshape(-1, *out.shape[2:])[:n]


def in_chunks(tree: Any, n: int, chunk: int) -> Any:
    """Arrays of n rows as equal chunks of at most `chunk`, the first row repeated at
    the end where they do not divide."""
    pieces = -(-n // chunk)
    size = -(-n // pieces)

    def split(a: Array) -> Array:
        missing = pieces * size - n
        if missing:
            a = jnp.concatenate([a, jnp.broadcast_to(a[:1], (missing, *a.shape[1:]))])
        return a.reshape(pieces, size, *a.shape[1:])

    return jax.tree.map(split, tree)


Local = Callable[..., Array]
"""Of the value, the gradient, the point and, if there is one, the time."""


class Applied(eqx.Module):
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
        return one.values(shape != ()).reshape(shape)

    def kinds(self, batch: Batch) -> Symbol:
        """The shapes of the operator at a point: which kinds of terms it has."""
        return self.operator.kinds(*batch.first)

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
        raw = raw_of(self.u)

        def run(x: Array, t: Array | None) -> Any:
            return self.path.derivatives(raw, x, t, self.operator.symbol(x, t), None)

        steps = jax.eval_shape(run, *batch.first).steps
        if self.kinds(batch).acceleration is not None:
            steps = (*steps, Step("nested jvp by t", 2, 1, 1))
        return steps


class Need(NamedTuple):
    """What is needed of the network at each point, beside the terms."""

    value: bool
    gradient: bool


class Evaluation(eqx.Module):
    """An operator and a local term on a function, at each point of a batch: what one
    pass through the network has to give, and what is made of it."""

    applied: Applied
    batch: Batch
    local: Local | None
    need: Need = eqx.field(static=True)
    data: tuple[Float[Array, "n terms 4"] | None, Float[Array, " n"] | None]
    "for each point: its correction, and what is known before the pass"

    @alone()
    def at_point(
        self, x: Array, t: Array | None, token: Array | None, data: Any
    ) -> Float[Array, ""]:
        """The value at one point, from its data."""
        (series, known), u = data, self.applied.u
        symbol = self.applied.operator.symbol(x, t)
        parts = self._parts(raw_of(u), x, t, symbol, token)
        if series is not None:
            phi = None
            if u.profile is not None:
                phi = self._parts(lambda x, t: u.profile(x), x, t, symbol, token)
            parts = corrected(parts, series, phi, symbol.rate)
        out = parts.terms
        if symbol.zero is not None and parts.value is not None:
            out = out + symbol.zero * parts.value
        if self.local is not None:
            out = out + _local_term(self.local, parts, x, t)
        return out if known is None else out + known

    def _parts(
        self,
        function: Callable[[Array, Array | None], Array],
        x: Array,
        t: Array | None,
        symbol: Symbol,
        token: Array | None,
    ) -> Parts:
        """What is needed of a function at one point."""
        found = self.applied.path.derivatives(function, x, t, symbol, token)
        value, gradient = found.value, found.gradient
        if not self.need.value:
            value = None
        elif value is None:
            value = function(x, t)
        if not self.need.gradient:
            gradient = None
        elif gradient is None:
            gradient = _gradient(function, x, t)
        return Parts(found.terms, value, gradient)

    def values(self, many: bool = True) -> Float[Array, " n"]:
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
    applied: Sequence[Applied],
    batch: Batch,
    local: Local | None = None,
    known: Array | None = None,
    series: Series | None = None,
) -> list[Evaluation]:
    """Some operators on the same function, each with the same local term, and with
    numbers for each point that are added; what they share is computed once.

    **Arguments:**

    - `series`: the corrections at the times of the batch, where they are known already.
    """
    u = applied[0].u
    kinds = [a.kinds(batch) for a in applied]
    moving = any(k.rate is not None for k in kinds)
    if isinstance(u, FieldAt) and (
        moving or any(k.acceleration is not None for k in kinds)
    ):
        raise ValueError("u is at one time already: time_derivative() needs the field")
    if series is None:
        series = series_of(u, batch, 1 if moving else 0)
    if series is not None:
        # For each point that of its time.
        full = (*batch.x.shape[:2], *series.shape[1:])
        series = jnp.broadcast_to(series[:, None], full).reshape(-1, *full[2:])
    out = []
    for a, kind in zip(applied, kinds, strict=True):
        changing = kind.rate is not None and series is not None
        value = kind.zero is not None or local is not None or changing
        own = known
        if kind.acceleration is not None:
            own = add(own, over_batch(functools.partial(_acceleration, a), batch))
        need = Need(value, local is not None)
        out.append(Evaluation(a, batch, local, need, (series, own)))
    return out


def _gradient(
    function: Callable[[Array, Array | None], Array], x: Array, t: Array | None
) -> Array:
    try:
        return jax.grad(function)(x, t)
    except Exception:
        # Loops of unknown length have no reverse mode.
        return jax.jacfwd(function)(x, t)


def _local_term(local: Local, parts: Parts, x: Array, t: Array | None) -> Array:
    arguments = (parts.value, parts.gradient, x, *(() if t is None else (t,)))
    try:
        value = local(*arguments)
    except TypeError as error:
        names = "(u, grad, x)" if t is None else "(u, grad, x, t)"
        raise ValueError(
            f"local cannot be evaluated as local{names}: {str(error).splitlines()[0]}"
        ) from error
    return one_number("local", value)


def _acceleration(applied: Applied, x: Array, t: Array) -> Array:
    """The term of u_tt at one point."""

    def rate(t: Array) -> Array:
        value = lambda t: at_time(applied.u, t)(x)
        return jax.jvp(value, (t,), (jnp.ones_like(t),))[1]

    with alone():
        weight = applied.operator.symbol(x, t).acceleration
    assert weight is not None
    return weight * jax.jvp(rate, (t,), (jnp.ones_like(t),))[1]


def one_number(name: str, value: Any) -> Array:
    """What a user's function returned at one point. Raises unless it is a number."""
    got = "None" if value is None else f"shape {jnp.shape(value)}"
    if value is None or jnp.shape(value) != ():
        raise ValueError(f"{name} must return one number for one point, got {got}")
    value = jnp.asarray(value)
    if jnp.iscomplexobj(value):
        raise TypeError(f"{name} must return a real number, got {value.dtype}")
    return value
