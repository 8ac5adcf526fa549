"""Checks of what users hand in: those of `_core`, and of arrays of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._core import SUM_TOLERANCE as SUM_TOLERANCE
from ._core import check_count as check_count
from ._core import check_finite as check_finite
from ._core import check_positive as check_positive
from ._core import check_profile as check_profile
from ._core import check_volume as check_volume
from ._core import check_weights as check_weights


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
