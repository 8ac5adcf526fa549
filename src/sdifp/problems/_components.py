"""The components of the field of a problem: their names, units and number."""

from collections.abc import Sequence
from typing import Any

import numpy as np

DEFAULT_COMPONENT = "u"


def in_numbers(shape: tuple[int, ...]) -> str:
    """What a function must return whose values have a shape."""
    return f"{shape[0]} numbers (one for each component)" if shape else "one number"


def component_names(given: int | Sequence[str] | None) -> tuple[str, ...] | None:
    """Those of the components of a field, as a user gives them."""
    if given is None:
        return None
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        if given < 1:
            raise ValueError(f"components must be at least 1, got {given}")
        if given == 1:
            return (DEFAULT_COMPONENT,)
        return tuple(f"{DEFAULT_COMPONENT}{k + 1}" for k in range(given))
    names: tuple[Any, ...] = (given,)
    if isinstance(given, Sequence) and not isinstance(given, str):
        names = tuple(given)
    usable = all(isinstance(n, str) and n.isprintable() and n.strip() for n in names)
    if not names or not usable or len(set(names)) < len(names):
        raise ValueError(
            f"components must be a number or different names, got {given!r}"
        )
    return names


def component_units(
    given: Sequence[str] | None, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Those of the components; empty where none are given."""
    if given is None:
        return ("",) * len(names)
    units = (given,) if isinstance(given, str) else tuple(given)
    if len(units) != len(names) or not all(isinstance(unit, str) for unit in units):
        raise ValueError(
            f"units must hold a text for each component, {', '.join(names)}, got "
            f"{given!r}"
        )
    return units
