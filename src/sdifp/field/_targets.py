"""Prescribed integrals as arrays."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from ..invariants import Target

Times = ArrayLike | Sequence[float]

TargetLike = float | np.floating | np.ndarray | Array | Callable[[Array], ArrayLike]


def target_at(target: Target, t: Array | float | None) -> Array | float:
    """The target at time t: a number as a Python float, which keeps its digits."""
    # A function of an array, as it is promised one.
    time = None if t is None else jnp.asarray(t, jnp.result_type(float, t))
    value = target.value(time)
    if isinstance(value, float):
        return value
    out = jnp.asarray(value, jnp.result_type(float))
    if out.shape != ():
        raise ValueError(
            f"{target.name} must return one number at each time, got shape {out.shape}"
        )
    return out


def double_target_at(target: Target, t: float | None) -> float:
    """The same in double precision, whatever the precision of the field, unless the
    function cannot be evaluated in that."""
    try:
        with jax.enable_x64(True):
            return float(target_at(target, t))
    except Exception:
        return float(target_at(target, t))
