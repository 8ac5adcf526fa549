"""Checks of arrays that users hand in. Depends on nothing else in the package."""

import operator
from typing import SupportsFloat

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

# How far from 1 the sum of given weights may be: rounding in float32 passes, a
# forgotten normalisation (cell volumes, counts) does not.
SUM_TOLERANCE = 1e-5


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


def check_finite(name: str, array: Array | np.ndarray) -> None:
    """Raise if a concrete array holds NaN or infinity, naming the first place."""
    bad = np.argwhere(~np.isfinite(np.asarray(array)))
    if len(bad):
        at = tuple(bad[0].tolist())
        value = np.asarray(array)[at]
        place = f"{name}[{', '.join(map(str, at))}]" if at else name
        raise ValueError(
            f"{name} must be finite, got {place} = {value} "
            f"({len(bad)} of {np.asarray(array).size} are not finite)"
        )


def check_weights(weights: Array | np.ndarray, size: int) -> np.ndarray:
    """Concrete weights as float64: positive, finite, `size` of them, with sum 1."""
    weights = check_floating("weights", weights)
    if weights.shape != (size,):
        raise ValueError(
            f"weights must have shape ({size},), one for each node, got {weights.shape}"
        )
    weights = np.asarray(weights, np.float64)
    check_finite("weights", weights)
    bad = np.flatnonzero(weights <= 0.0)
    if bad.size:
        i = int(bad[0])
        raise ValueError(
            f"weights must be positive, got weights[{i}] = {weights[i]} "
            f"({bad.size} of {size} are zero or negative)"
        )
    total = float(weights.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise ValueError(
            f"weights must sum to 1, got {total:.9g}; pass weights / weights.sum()"
        )
    return weights


def check_count(name: str, count: object, least: int = 1) -> int:
    """A whole number of at least `least`; NumPy's integers too, booleans not."""
    try:
        value = operator.index(count)  # type: ignore[arg-type]
    except TypeError:
        value = least - 1
    if isinstance(count, bool) or value < least:
        what = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ValueError(f"{name} must be {what}, got {count!r}")
    return value


def check_positive(name: str, value: float) -> None:
    """Raise unless a number is positive and finite."""
    number: object = value
    if not isinstance(number, SupportsFloat) or not 0.0 < value < float("inf"):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
