"""Sums over many points whose gradient is taken chunk by chunk."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
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
    # All that is closed over, keys and other whole numbers too: what a custom rule
    # closes over cannot be used under `lax.cond`.
    pure = eqx.filter_closure_convert(mapped, *_piece((xs, ts, pieces)))
    closed_over, rest = eqx.partition(pure, eqx.is_inexact_array)
    fixed, static = eqx.partition(rest, eqx.is_array)

    def total(params: Any, data: Any, chunk: Any, fixed: Any) -> Array:
        x, t, live = chunk
        values = eqx.combine(params, fixed, static)(x, t, data)
        return jnp.sum(jnp.where(live, values, 0.0))

    chunks = (xs, ts, live)
    first = _piece((pieces, chunks))
    dtype = jax.eval_shape(total, closed_over, *first, fixed).dtype

    def value(params: Any, data: Any, chunks: Any, fixed: Any) -> Array:
        def body(carry: Array, piece: Any) -> tuple[Array, None]:
            return carry + total(params, *piece, fixed=fixed), None

        return _scan(body, jnp.zeros((), dtype), (data, chunks))[0]

    def forward(params: Any, data: Any, chunks: Any, fixed: Any) -> tuple[Array, Any]:
        def body(carry: Any, piece: Any) -> tuple[Any, Any]:
            out, (by_params, by_data) = jax.value_and_grad(total, (0, 1))(
                params, *piece, fixed
            )
            return jax.tree.map(jnp.add, carry, (out, by_params)), by_data

        start = (jnp.zeros((), dtype), jax.tree.map(jnp.zeros_like, params))
        (out, by_params), by_data = _scan(body, start, (data, chunks))
        return out, (by_params, by_data)

    def backward(kept: Any, cotangent: Array) -> Any:
        times = lambda a: (cotangent * a).astype(a.dtype)
        by_params, by_data = jax.tree.map(times, kept)
        return by_params, by_data, None, None

    run = jax.custom_vjp(value)
    run.defvjp(forward, backward)
    return run(closed_over, pieces, chunks, fixed)


def _piece(pieces: Any) -> Any:
    return jax.tree.map(lambda a: a[0], pieces)


def _scan(body: Callable[..., Any], start: Any, pieces: Any) -> tuple[Any, Any]:
    """`lax.scan`, without the loop where there is one piece."""
    if jax.tree.leaves(pieces)[0].shape[0] > 1:
        return jax.lax.scan(body, start, pieces)
    out, extra = body(start, _piece(pieces))
    return out, jax.tree.map(lambda a: a[None], extra)
