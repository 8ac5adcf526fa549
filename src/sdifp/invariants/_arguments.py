"""Functions of the user's: their arguments, by their signature, and their values."""

import inspect
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

# What users call the derivative in time.
_RATES = ("u_t", "ut", "u_dot", "dudt", "du_dt", "rate", "velocity")

# Characters of what was given, in an error.
_LONGEST = 120


def needed_arguments(function: Callable[..., Any]) -> list[str]:
    """The names of the positional arguments that have no default; none where the
    signature is not known."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = parameters(function)
    return [p.name for p in known if p.kind in kinds and p.default is p.empty]


def time_derivative_hint(names: Collection[str]) -> str:
    """What to do about an integral that asks for the derivative in time."""
    if not set(names) & set(_RATES):
        return ""
    return (
        "; for one with the time derivative of u, write the equation as a first-order "
        "system of (u, v)"
    )


def shown(given: Any) -> str:
    """What was given, in one line of an error."""
    text = " ".join(repr(given).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """All that the signature has; none where it is not known."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def value_of(
    label: str,
    function: Callable[..., Any],
    given: dict[str, Any],
    shapes: Collection[tuple[int, ...]],
    wanted: str,
    *,
    by_name: bool = False,
) -> Any:
    """What a function returns: an array of real numbers of one of some shapes, or a
    `ValueError` of one sentence.

    **Arguments:**

    - `label`: what the function is called in the sentence.
    - `given`: its arguments by name, those of one point or time.
    - `wanted`: the value in words.
    - `by_name`: whether they are given by name.
    """
    try:
        found = function(**given) if by_name else function(*given.values())
    except Exception as error:
        what = "time" if [*given] == ["t"] else "point"
        first = str(error).strip().splitlines()
        raise ValueError(
            f"{label} cannot be evaluated with ({', '.join(given)}) at one {what}: "
            f"{first[0] if first else type(error).__name__}"
        ) from error
    known = isinstance(found, int | float) or hasattr(found, "dtype")
    shape = np.shape(found) if known else None
    if shape is None or shape not in shapes or np.iscomplexobj(found):
        got = f"an object of type {type(found).__name__}"
        if shape is not None:
            got = "complex numbers" if np.iscomplexobj(found) else f"shape {shape}"
        raise ValueError(f"{label} must return {wanted}, got {got}")
    return found
