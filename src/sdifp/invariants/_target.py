"""Prescribed integrals: numbers or functions of time."""

from collections.abc import Callable
from typing import Any

import numpy as np


class Target:
    """A number or a function of t, as one constant without leaves."""

    def __init__(self, name: str, given: Any) -> None:
        self.is_function = callable(given)
        self.name = name
        self.rounding = float(np.finfo(np.float64).eps)
        "the relative rounding error of a number"
        if callable(given):
            self.given: float | Callable[[Any], Any] = given
            return
        array = np.asarray(given)
        if array.shape != () or not np.issubdtype(array.dtype, np.number):
            raise ValueError(
                f"{name} must be a number or a function of t for each component, got "
                f"{given!r}"
            )
        if np.iscomplexobj(array) or not np.isfinite(array):
            raise ValueError(f"{name} must be real and finite, got {given!r}")
        self.given = float(array)
        if array.dtype in (np.float16, np.float32):
            self.rounding = float(np.finfo(array.dtype).eps)

    def value(self, t: Any) -> Any:
        """The target at time t, as it was given: a number is a Python float."""
        value = self.given(t) if callable(self.given) else self.given
        return float(value) if isinstance(value, int | float | np.number) else value

    def __hash__(self) -> int:
        return hash((self.given, self.rounding))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and (self.given, self.rounding) == (
            other.given,
            other.rounding,
        )

    def __repr__(self) -> str:
        return repr(self.given)


def time_list(times: Any) -> list[float] | list[None]:
    """The times to look at; one without a name for a network without time."""
    if times is None:
        return [None]
    grid: list[float] = np.ravel(np.asarray(times, float)).tolist()
    if not grid:
        raise ValueError("times must hold at least one time, got none")
    return grid
