"""Points and times as users give them, and functions evaluated at many of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._checks import check_real
from ..field import as_field

Function = Callable[[Array, Array | None], Array]


def raw_of(u: Any) -> Function:
    """The function that derivatives with respect to x run over: the network under a
    conserved field, or u itself."""
    net = as_field(as_field(u).net)
    # JAX compares functions, and modules by their arrays.
    return lambda x, t: net(x, t)


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
        return None if self.t is None else self.for_points(self.t)

    def for_points(self, values: Any) -> Any:
        """For each point what is given for its time, an array or a tree of them."""

        def spread(array: Array) -> Array:
            full = (*self.x.shape[:2], *array.shape[1:])
            # Written out, for an array of no numbers has no size to tell it.
            n = full[0] * full[1]
            return jnp.broadcast_to(array[:, None], full).reshape(n, *full[2:])

        return jax.tree.map(spread, values)


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
    t = as_field(u).time_for(d, t)
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
    _check_output(u, batch)
    return batch, shape


def output_shape(u: Any, batch: Batch) -> tuple[int, ...]:
    """That of u at one point: () or, for several components, (n,)."""
    shape: tuple[int, ...] = eqx.filter_eval_shape(raw_of(u), *batch.first).shape
    return shape


def _check_output(u: Any, batch: Batch) -> None:
    """Raise unless u gives one real number for one point, or one per component."""
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
    if shape is None or len(shape) > 1 or 0 in shape:
        got = type(out).__name__ if shape is None else f"shape {shape}"
        raise ValueError(
            f"u must return one JAX number for one point of shape {point.shape}, or a "
            f"vector of its components, got {got}; use jax.vmap for many points"
        )
    check_real("u", out.dtype)


def over_batch(function: Callable[[Array, Array | None], Array], batch: Batch) -> Array:
    """A function of one point and its time at each point of a batch, flat. Points
    inside times: what depends on the time alone is done once for each."""
    over_x = jax.vmap(function, (0, None))
    over_t = jax.vmap(over_x, (0, None if batch.t is None else 0))
    out = over_t(batch.x, batch.t)
    return out.reshape(-1, *out.shape[2:])


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
