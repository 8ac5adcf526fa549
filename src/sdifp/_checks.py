"""Checks of what users hand in: those of `_core`, and of arrays of JAX."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._core import SUM_TOLERANCE as SUM_TOLERANCE
from ._core import check_count as check_count
from ._core import check_finite as check_finite
from ._core import check_known as check_known
from ._core import check_positive as check_positive
from ._core import check_profile as check_profile
from ._core import check_volume as check_volume
from ._core import check_weights as check_weights

# For a program that runs once, so that it is not worth the time to optimise it.
once: Any = eqx.filter_jit(  # type: ignore[call-overload]
    compiler_options={"xla_backend_optimization_level": 0}
)


def is_concrete(array: object) -> bool:
    """Whether the numbers can be looked at: not inside `jit` or `vmap`."""
    return not isinstance(array, jax.core.Tracer)


def check_floating(name: str, array: object) -> Array | np.ndarray:
    """An array of floating-point numbers, or a `TypeError`."""
    if not isinstance(array, jax.Array | np.ndarray):
        array = np.asarray(array)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(
            f"{name} must hold floating-point numbers, got {array.dtype}; convert "
            f"with {name}.astype(float)"
        )
    return array


def check_real(name: str, dtype: Any) -> None:
    """Raise `TypeError` unless what a function returned are floating-point numbers."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(
            f"{name} must return real numbers, got {dtype}: write a complex field as "
            f"two real components, its real and its imaginary part"
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"{name} must return floating-point numbers, got {dtype}")


def output_of(function: Callable[..., Any], dimension: int, has_time: bool) -> Any:
    """Shape and dtype of what a function returns for one point, and a time if it takes
    one."""
    shapes = ((dimension,), ()) if has_time else ((dimension,),)
    dtype = jnp.result_type(float)
    return eqx.filter_eval_shape(
        function, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
    )


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]
