"""An operator applied to a field: at one point or many, and how that is done."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._checks import check_count
from .._field import ConservedField, FieldAt
from ._jet import add
from ._parts import call
from ._paths import Path, Step

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
            f"u cannot be evaluated as {arguments} at a point of shape {point.shape}: "
            f"{type(error).__name__}: {reason}"
        ) from error
    shape = getattr(out, "shape", None)
    if shape != ():
        if shape is None:
            raise ValueError(
                f"u must return one JAX number for one point, got {type(out).__name__}"
            )
        raise ValueError(
            f"u must return one number for one point, got shape {shape}; apply the "
            f"operator to one component, lambda x, t: u(x, t)[k]"
        )
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise TypeError(f"u must return a floating-point number, got {out.dtype}")


def raw_of(u: Any) -> Callable[[Array, Array | None], Array]:
    """The function that derivatives by x run over: the network under a conserved
    field, or u itself."""
    net = u.net if isinstance(u, ConservedField | FieldAt) else u
    return lambda x, t: call(net, x, t)


class Affine(NamedTuple):
    """A field as `scale f + shift profile` at each point of a batch, flat."""

    scale: Array | None
    shift: Array | None
    profile: Callable[[Array], Array] | None
    value: Array | None
    "the field itself, where it was asked for"


def affine(u: Any, batch: Batch, need_value: bool) -> Affine:
    """The affine structure of a field, with one quadrature for each time."""
    profile = u.profile if isinstance(u, ConservedField | FieldAt) else None

    def at(
        x: Array, t: Array | None
    ) -> tuple[Array | None, Array | None, Array | None]:
        now = u.at(t) if isinstance(u, ConservedField) else u
        if isinstance(now, FieldAt):
            one = jnp.ones(x.shape[0], x.dtype)
            scale, shift = now.scale.astype(x.dtype), now.shift.astype(x.dtype)
            value = jax.vmap(now)(x) if need_value else None
            return one * scale, one * shift, value
        value = jax.vmap(lambda x: call(u, x, t))(x) if need_value else None
        return None, None, value

    times = None if batch.t is None else 0
    out = jax.vmap(at, (0, times))(batch.x, batch.t)
    scale, shift, value = (None if v is None else v.reshape(-1) for v in out)
    return Affine(scale, shift, profile, value)


PointFunction = Callable[[Array, Array | None, Array | None], Array]
"""Of a point, its time, and the token that stands for `vmap` over points."""


def over_points(
    function: PointFunction, x: Array, t: Array | None, chunk: int
) -> Array:
    """A function at many points, `chunk` of them at a time; in reverse mode each chunk
    is evaluated again, so that memory does not grow with their number."""
    mapped = jax.vmap(lambda x, t: function(x, t, x), (0, None if t is None else 0))
    n = x.shape[0]
    if n <= chunk:
        return mapped(x, t)
    pieces = in_chunks((x, t), n, chunk)
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
        values = affine(self.u, batch, self.has_zero(batch))
        out = self.total(
            batch, values, self.derivatives(batch, raw_of(self.u), shape != ())
        )
        return out.reshape(shape)

    def total(self, batch: Batch, values: Affine, raw: Array) -> Array:
        """`A[u] = scale A[f] + shift A[profile]`, from the derivatives of f; the terms
        of order zero act on u itself."""
        out = raw if values.scale is None else values.scale * raw
        rest = self.rest(batch, values)
        return out if rest is None else out + rest

    def rest(self, batch: Batch, values: Affine) -> Array | None:
        """What the derivatives of f do not give: terms of order zero, and the
        profile."""
        out = None
        if values.value is not None:
            over = (0, None if batch.t is None else 0)
            zero: Any = lambda x, t: self.operator.symbol(x, t).zero
            out = values.value * jax.vmap(zero, over)(batch.points, batch.times)
        profile = values.profile
        if profile is not None and values.shift is not None:
            derivatives = self.derivatives(batch, lambda x, t: profile(x), True)
            out = add(out, values.shift * derivatives)
        return out

    def has_zero(self, batch: Batch) -> bool:
        """Whether the operator has terms of order zero."""
        x, t = batch.x[0, 0], None if batch.t is None else batch.t[0]
        return jax.eval_shape(self.operator.symbol, x, t).zero is not None

    def at_point(
        self, function: Callable[[Array, Array | None], Array]
    ) -> PointFunction:
        """The derivatives of a function at one point."""
        return lambda x, t, token: self.steps(function, x, t, token)[0]

    def steps(
        self,
        function: Callable[[Array, Array | None], Array],
        x: Array,
        t: Array | None,
        token: Array | None,
    ) -> tuple[Array, tuple[Step, ...]]:
        """The derivatives at a point, and the steps they took."""
        symbol = self.operator.symbol(x, t)
        return self.path.derivatives(lambda x: function(x, t), x, symbol, token)

    def derivatives(
        self,
        batch: Batch,
        function: Callable[[Array, Array | None], Array],
        many: bool,
    ) -> Array:
        """The terms of order one and higher at each point of a batch, flat."""
        point = self.at_point(function)
        if not many:
            # Without vmap, so that users can put any transformation around it.
            t = None if batch.t is None else batch.t[0]
            return point(batch.x[0, 0], t, None)[None]
        return over_points(point, batch.points, batch.times, self.chunk_for(batch))

    def chunk_for(self, batch: Batch, copies: int = 1) -> int:
        """How many points are evaluated at a time."""
        if self.chunk is not None:
            return self.chunk
        steps = self._steps(batch)
        rows = max([1, *(s.rows for s in steps)])
        limit = _OTHER_ROWS
        if jax.default_backend() == "cpu":
            limit = min(max(_CPU_ROWS, batch.x.shape[-1] // 2), _MOST_CPU_ROWS)
        return max(1, limit // (copies * rows))

    def _steps(self, batch: Batch) -> tuple[Step, ...]:
        x, t = batch.x[0, 0], None if batch.t is None else batch.t[0]
        raw = raw_of(self.u)
        return jax.eval_shape(lambda x, t: self.steps(raw, x, t, None), x, t)[1]


class Plan(eqx.Module):
    """How an operator is evaluated on a field at many points."""

    steps: tuple[Step, ...] = eqx.field(static=True)
    "for each bundle of directions: path, order, directions, primitives without a rule"
    points: int = eqx.field(static=True)
    chunk: int = eqx.field(static=True)
    "points evaluated at a time"
    memory: int = eqx.field(static=True)
    "bytes of temporaries of the values"
    gradient_memory: int | None = eqx.field(static=True)
    "bytes of temporaries of their gradient by the parameters; None without parameters"

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
        return "\n".join(
            [*lines, f"{self.points} points, {self.chunk} at a time", memory]
        )


def _bytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def make_plan(
    operator: "Operator",
    u: Any,
    x: ArrayLike,
    t: ArrayLike | None,
    path: Path,
    chunk: int | None,
) -> Plan:
    """See `Operator.plan`."""
    applied = Applied(operator, u, path, chunk)
    batch, shape = batch_of(u, x, t)
    points = batch.points.shape[0]
    size = min(points, applied.chunk_for(batch)) if shape else 1
    params, static = eqx.partition(u, eqx.is_inexact_array)

    def values(params: Any, x: Array, t: Array | None) -> Array:
        return jnp.sum(
            Applied(operator, eqx.combine(params, static), path, chunk)(x, t)
        )

    def memory(function: Any) -> int:
        given = None if t is None else jnp.asarray(t, float)
        done = jax.jit(function).lower(params, jnp.asarray(x), given).compile()
        analysis: Any = done.memory_analysis()
        return int(analysis.temp_size_in_bytes)

    gradient = memory(jax.grad(values)) if jax.tree.leaves(params) else None
    return Plan(applied._steps(batch), points, size, memory(values), gradient)
