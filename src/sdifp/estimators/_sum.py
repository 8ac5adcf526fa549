"""Sums over many points whose gradient is taken chunk by chunk."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..operators import PointFunction, in_chunks, mapped_over


def fused_sum(
    function: PointFunction, x: Array, t: Array | None, data: Any, chunk: int
) -> Array:
    """The sum of a function over points, a chunk of them at a time, each forward and
    backward at once: nothing is kept of a chunk but its part of the gradient.

    Reverse mode only, and not by the points. `function` may close over what is
    differentiated.
    """
    n = x.shape[0]
    xs, ts, pieces = in_chunks((x, t, data), n, chunk)
    # The rows that fill the last chunk count nothing.
    live = (jnp.arange(xs.shape[0] * xs.shape[1]) < n).reshape(xs.shape[:2])
    mapped = mapped_over(function, t is not None)
    pure, closed_over = jax.closure_convert(mapped, *_piece((xs, ts, pieces)))

    def total(params: Any, data: Any, chunk: Any) -> Array:
        x, t, live = chunk
        return jnp.sum(jnp.where(live, pure(x, t, data, *params), 0.0))

    chunks = (xs, ts, live)
    first = _piece((pieces, chunks))
    dtype = jax.eval_shape(total, list(closed_over), *first).dtype

    def value(params: Any, data: Any, chunks: Any) -> Array:
        def body(carry: Array, piece: Any) -> tuple[Array, None]:
            return carry + total(params, *piece), None

        return _scan(body, jnp.zeros((), dtype), (data, chunks))[0]

    def forward(params: Any, data: Any, chunks: Any) -> tuple[Array, Any]:
        def body(carry: Any, piece: Any) -> tuple[Any, Any]:
            out, (by_params, by_data) = jax.value_and_grad(total, (0, 1))(
                params, *piece
            )
            return jax.tree.map(jnp.add, carry, (out, by_params)), by_data

        start = (jnp.zeros((), dtype), jax.tree.map(jnp.zeros_like, params))
        (out, by_params), by_data = _scan(body, start, (data, chunks))
        return out, (by_params, by_data)

    def backward(kept: Any, cotangent: Array) -> Any:
        times = lambda a: (cotangent * a).astype(a.dtype)
        by_params, by_data = jax.tree.map(times, kept)
        return by_params, by_data, None

    run = jax.custom_vjp(value)
    run.defvjp(forward, backward)
    return run(list(closed_over), pieces, chunks)


def _piece(pieces: Any) -> Any:
    return jax.tree.map(lambda a: a[0], pieces)


def _scan(body: Callable[..., Any], start: Any, pieces: Any) -> tuple[Any, Any]:
    """`lax.scan`, without the loop where there is one piece."""
    if jax.tree.leaves(pieces)[0].shape[0] > 1:
        return jax.lax.scan(body, start, pieces)
    out, extra = body(start, _piece(pieces))
    return out, jax.tree.map(lambda a: a[None], extra)
