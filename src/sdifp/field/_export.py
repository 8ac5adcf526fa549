"""A function of many points as a program of its own. Depends on JAX alone."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from jaxtyping import Array


def program(
    function: Callable[..., Array],
    dimension: int,
    has_time: bool,
    platforms: Sequence[str],
) -> bytes:
    """A function of points of shape (n, d), and of one time, for any n, serialised as
    `jax.export.deserialize` reads it."""
    known = ("cpu", "cuda", "rocm", "tpu")
    names = [platforms] if isinstance(platforms, str) else list(platforms)
    if not names or not set(names) <= set(known):
        raise ValueError(f"platforms must be some of {known}, got {platforms!r}")
    dtype = jnp.result_type(float)
    (n,) = export.symbolic_shape("n")
    arguments: list[Any] = [jax.ShapeDtypeStruct((n, dimension), dtype)]
    if has_time:
        arguments.append(jax.ShapeDtypeStruct((), dtype))
    try:
        done = export.export(jax.jit(function), platforms=names)(*arguments)
        return bytes(done.serialize())
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"the network cannot be exported for {', '.join(names)} and any number of "
            f"points: {reason}"
        ) from error
