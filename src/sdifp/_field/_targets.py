"""Prescribed integrals as arrays."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from .._core import Target

Times = ArrayLike | Sequence[float]

TargetLike = float | np.floating | np.ndarray | Array | Callable[[Array], ArrayLike]


def target_at(target: Target, t: Array | float | None) -> Array:
    """The target at time t."""
    # A function of an array, as it is promised one.
    time = None if t is None else jnp.asarray(t, jnp.result_type(float, t))
    out = jnp.asarray(target.value(time), jnp.result_type(float))
    if out.shape != ():
        raise ValueError(
            f"{target.name} must return one number at each time, got shape {out.shape}"
        )
    return out
