"""Checks of numbers that users hand in, for all engines."""

import operator
from typing import Any, SupportsFloat

import numpy as np

# How far from 1 the sum of given weights may be: rounding in float32 passes, a
# forgotten normalisation (cell volumes, counts) does not.
SUM_TOLERANCE = 1e-5


def check_finite(name: str, array: object) -> None:
    """Raise if an array holds NaN or infinity, naming the first place."""
    bad = np.argwhere(~np.isfinite(np.asarray(array)))
    if len(bad):
        at = tuple(bad[0].tolist())
        value = np.asarray(array)[at]
        place = f"{name}[{', '.join(map(str, at))}]" if at else name
        raise ValueError(
            f"{name} must be finite, got {place} = {value} "
            f"({len(bad)} of {np.asarray(array).size} are not finite)"
        )


def check_known(name: str, array: object, shape: tuple[int | None, ...]) -> np.ndarray:
    """An array of known, finite numbers in double precision, of a shape in which None
    stands for any number."""
    try:
        out = np.asarray(array, np.float64)
    except Exception as error:
        raise TypeError(
            f"{name} must be an array of known numbers, got {type(array).__name__}"
        ) from error
    if out.ndim != len(shape) or any(
        wanted not in (None, got) for got, wanted in zip(out.shape, shape, strict=True)
    ):
        entries = ["any" if wanted is None else str(wanted) for wanted in shape]
        text = f"({entries[0]},)" if len(entries) == 1 else f"({', '.join(entries)})"
        raise ValueError(f"{name} must have shape {text}, got {out.shape}")
    check_finite(name, out)
    return out


def check_weights(weights: Any, size: int) -> np.ndarray:
    """Weights, an array, as float64: positive, finite, `size` of them, with sum 1."""
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


def check_volume(log_volume: float, dtype: str) -> None:
    """Raise unless a volume, given by its logarithm, fits a dtype."""
    limits = np.finfo(dtype)
    if not np.log(float(limits.tiny)) < log_volume < np.log(float(limits.max)):
        raise ValueError(
            f"the volume of the box, exp({log_volume:.6g}), does not fit {dtype}; give "
            f"means as targets, with a box that is made with normalised=True"
        )


def check_profile(mean: Any, size: Any, eps: Any) -> None:
    """Raise unless a profile can shift the mean of a field, from the means of it and of
    its absolute value on the rule."""
    if not np.isfinite(float(size)):
        raise ValueError("profile must be finite on the nodes of the rule")
    if abs(float(mean)) <= 4 * float(eps) * float(size):
        what = "be zero on every node of" if size == 0.0 else "have mean zero on"
        raise ValueError(f"profile must not {what} the rule: nothing would be shifted")
