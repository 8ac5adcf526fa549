"""What is known of a solution at the beginning and on the walls of a box."""

import dataclasses
from collections.abc import Callable, Sequence

from jaxtyping import Array

from .._domain import Box


@dataclasses.dataclass(frozen=True, eq=False)
class Initial:
    """Initial data.

    **Arguments:**

    - `value`: u at the beginning, a function of one point that returns one number.
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

    def on(self, domain: Box) -> tuple[bool, ...]:
        """For each axis, whether the condition holds on its walls."""
        walled = [not periodic for periodic in domain.periodic]
        if self.axes is None:
            return tuple(walled)
        for axis in self.axes:
            if not 0 <= axis < domain.dimension or not walled[axis]:
                raise ValueError(
                    f"axes must be axes of the box that are not periodic, got {axis}"
                )
        return tuple(k in self.axes for k in range(domain.dimension))


Condition = Initial | Dirichlet | Neumann
