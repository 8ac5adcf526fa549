"""What a problem prescribes at its beginning and on its walls."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array

from .._domain import Box
from ..operators import Functional, Residual


@dataclasses.dataclass(frozen=True, eq=False)
class Initial:
    """Initial data.

    **Arguments:**

    - `value`: u at the beginning, a function of one point that returns one number, or
        one for each component.
    - `velocity`: du/dt there, for equations of second order in time.
    """

    value: Callable[[Array], Array]
    velocity: Callable[[Array], Array] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Dirichlet:
    """u = 0 on all walls that are neither periodic nor Neumann.

    **Arguments:**

    - `profile`: a function of one point that vanishes on these walls and is positive
        inside. The network is multiplied by it, and so is the shift of the correction.
    """

    profile: Callable[[Array], Array]


@dataclasses.dataclass(frozen=True, eq=False)
class Neumann:
    """The normal derivative of u vanishes.

    **Arguments:**

    - `axes`: on the walls of these axes; by default of all that are not periodic.
    """

    axes: Sequence[int] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Free:
    """Nothing is prescribed on the walls that are neither periodic nor Neumann, on
    purpose: the equation needs nothing there, or the integrals do instead."""


Condition = Initial | Dirichlet | Neumann | Free


def conditions_by_kind(given: Sequence[Condition]) -> dict[type, Any]:
    """At most one condition of each kind."""
    found: dict[type, Any] = {}
    for one in given:
        if not isinstance(one, Condition):
            raise TypeError(
                f"conditions must hold Initial, Dirichlet, Neumann or Free, got {one!r}"
            )
        if type(one) in found:
            raise ValueError(f"conditions must hold one {type(one).__name__} at most")
        found[type(one)] = one
    if Free in found and Dirichlet in found:
        raise ValueError(
            "conditions must not hold both Free and Dirichlet: both are of all walls "
            "that are neither periodic nor Neumann"
        )
    return found


def neumann_axes(given: Neumann | None, domain: Box) -> tuple[bool, ...]:
    walled = [not periodic for periodic in domain.periodic]
    if given is None:
        return (False,) * domain.dimension
    if given.axes is None:
        return tuple(walled)
    for axis in given.axes:
        if not 0 <= axis < domain.dimension or not walled[axis]:
            raise ValueError(
                f"axes must be axes of the box that are not periodic, got {axis}"
            )
    return tuple(k in given.axes for k in range(domain.dimension))


def checked_interval(
    given: tuple[float, float] | None,
    initial: Initial | None,
    conditions: Sequence[Condition],
    equation: Residual | Functional,
) -> tuple[float, float] | None:
    if given is None:
        if initial is not None:
            raise ValueError(
                "interval must be given, (0.0, T), beside Initial(u0); a steady "
                "problem has neither"
            )
        return None
    if isinstance(equation, Functional):
        raise ValueError(
            f"interval must be left out for a Functional, which has no time, got "
            f"{given!r}"
        )
    if initial is None:
        names = [type(one).__name__ for one in conditions]
        raise ValueError(
            f"conditions must hold Initial(u0) for a problem in time, got {names}"
        )
    numbers = np.asarray(given)
    if numbers.shape != (2,) or not np.issubdtype(numbers.dtype, np.number):
        raise ValueError(
            f"interval must be two times, (0.0, T), or None for a steady problem, got "
            f"{given!r}"
        )
    start, end = (float(t) for t in numbers)
    if start != 0.0 or not 0.0 < end < float("inf"):
        raise ValueError(
            f"interval must begin at 0 and end at a later time, got {given!r}"
        )
    return start, end
