"""Problem: an equation with its domain, conditions, invariants and, if known, its
solution."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import output_of
from .._domain import Box
from ..field import TargetLike, check_densities, means_of, target_at
from ..invariants import Invariant, Mass, SquaredNorm
from ..operators import Residual
from ..quadrature import QuadratureRule, rule_for

DEFAULT_NAME = "problem"


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


Condition = Initial | Dirichlet | Neumann


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Problem:
    """The facts of an initial value problem on a box: what is solved, not how.

    **Arguments:**

    - `domain`: a `Box`; its periodic axes are periodic.
    - `equation`: a `Residual`, zero where the equation holds.
    - `conditions`: `Initial(u0)`, and `Dirichlet(profile)` or `Neumann()` for the walls
        of axes that are not periodic.
    - `interval`: the first and the last time, `(0.0, T)`.
    - `invariants`: the integrals that are known, `[Mass(1.0), SquaredNorm(2.0)]`, any
        of `sdifp.invariants`; their targets are numbers or functions of t. One without
        a target, such as a `Density`, is measured and not enforced.
    - `reference`: the solution, a function of one point and one time, if known.
    - `name`: for tables and messages; by default, that of the file which `sdifp train`
        is given.
    - `mass`, `squared_norm`: the short form of `Mass` and `SquaredNorm`.
    - `description`: one or two sentences with the name of the equation and its formula
        in plain text, shown at the top of reports.
    """

    domain: Box
    equation: Residual
    conditions: tuple[Condition, ...]
    interval: tuple[float, float]
    invariants: tuple[Invariant, ...]
    reference: Callable[[Array, Array], Array] | None
    name: str
    description: str
    initial: Callable[[Array], Array] = dataclasses.field(init=False)
    "u at the beginning"
    velocity: Callable[[Array], Array] | None = dataclasses.field(init=False)
    "du/dt at the beginning, for equations of second order in time"
    profile: Callable[[Array], Array] | None = dataclasses.field(init=False)
    "what vanishes on Dirichlet walls; None where there are none"
    neumann: tuple[bool, ...] = dataclasses.field(init=False)
    "for each axis, whether the normal derivative vanishes on its walls"

    def __init__(
        self,
        domain: Box,
        equation: Residual,
        conditions: Sequence[Condition],
        interval: tuple[float, float] | None = None,
        invariants: Sequence[Invariant] = (),
        reference: Callable[[Array, Array], Array] | None = None,
        name: str = DEFAULT_NAME,
        *,
        mass: TargetLike | None = None,
        squared_norm: TargetLike | None = None,
        description: str = "",
    ) -> None:
        if not isinstance(domain, Box):
            raise TypeError(f"domain must be a Box, got {domain!r}")
        if not isinstance(equation, Residual):
            raise TypeError(f"equation must be a Residual, got {equation!r}")
        if not isinstance(description, str):
            raise TypeError(f"description must be a string, got {description!r}")
        short = ((Mass, mass), (SquaredNorm, squared_norm))
        initial, dirichlet, neumann = _conditions(conditions)
        given = {
            "domain": domain,
            "equation": equation,
            "conditions": tuple(conditions),
            "interval": _interval(interval),
            "invariants": (*(i(v) for i, v in short if v is not None), *invariants),
            "reference": reference,
            "name": name,
            "description": description,
            "initial": initial.value,
            "velocity": initial.velocity,
            "profile": None if dirichlet is None else dirichlet.profile,
            "neumann": _neumann_axes(neumann, domain),
        }
        for key, value in given.items():
            object.__setattr__(self, key, value)
        _check_invariants(self.invariants)
        self._check_functions()

    def _check_functions(self) -> None:
        d, dtype = self.domain.dimension, jnp.result_type(float)
        at = (jax.ShapeDtypeStruct(shape, dtype) for shape in ((d,), ()))
        second = self.equation.operator.kinds(*at).acceleration is not None
        if second and self.velocity is None:
            raise ValueError(
                "velocity must be given: the equation is of second order in time"
            )
        for name in ("initial", "velocity", "profile", "reference"):
            function = getattr(self, name)
            if function is None:
                continue
            shape = getattr(output_of(function, d, name == "reference"), "shape", None)
            if shape != ():
                raise ValueError(
                    f"{name} must return one number for one point of shape ({d},), got "
                    f"shape {shape}"
                )
        initial = self.initial
        check_densities(self.invariants, lambda x, t: initial(x), d, True)

    @property
    def prescribed(self) -> tuple[Invariant, ...]:
        """The invariants that have targets."""
        return tuple(one for one in self.invariants if one.target is not None)

    @property
    def measured(self) -> tuple[Invariant, ...]:
        """The invariants without targets: measured and not enforced."""
        return tuple(one for one in self.invariants if one.target is None)

    @property
    def duration(self) -> float:
        """The length of the interval of time."""
        return self.interval[1] - self.interval[0]

    @property
    def order(self) -> int:
        """The order of the equation in time: 2 if there is an initial velocity."""
        return 1 if self.velocity is None else 2

    @property
    def shift_profile(self) -> Callable[[Array], Array] | None:
        """What the shift of a correction multiplies: the profile, where there is a
        shift; None for 1."""
        return self.profile if any(i.is_linear for i in self.prescribed) else None

    def rule(self, nodes: int, key: Array) -> QuadratureRule:
        """The rule that suits the domain; the key matters above three dimensions."""
        return rule_for(self.domain, nodes, neumann=self.neumann, key=key)

    def mean_target(self, invariant: Invariant, t: Array | float) -> Array:
        """The target of an invariant that has one at a time, divided by the volume."""
        value = jnp.asarray(target_at(invariant.target, t), jnp.result_type(float))
        return value / self.domain.volume

    def means_of(
        self,
        invariants: Sequence[Invariant],
        rule: QuadratureRule,
        u: Callable[[Array], Array],
        t: Array,
    ) -> Array:
        """The means over the domain of the rows of some invariants, of a function of x
        at one time; `sdifp.invariants.read_rows` tells them apart."""
        # A variance is measured about the mean that is prescribed, to keep its digits.
        masses = [one for one in self.prescribed if isinstance(one, Mass)]
        means = [self.mean_target(one, t) for one in masses]
        return means_of(invariants, rule, u, means, t)

    def check(self, key: Array | None = None) -> None:
        """Raise `ValueError` if an axis has no boundary condition, or if initial data,
        boundary data, targets and reference disagree, with the size of the
        disagreement.

        **Arguments:**

        - `key`: for the random points of this check.
        """
        from ._check import check_problem

        check_problem(self, jax.random.key(0) if key is None else key)


def _conditions(
    given: Sequence[Condition],
) -> tuple[Initial, Dirichlet | None, Neumann | None]:
    """At most one condition of each kind, and the initial data for sure."""
    found: dict[type, Any] = {}
    for one in given:
        if not isinstance(one, Initial | Dirichlet | Neumann):
            raise TypeError(
                f"conditions must hold Initial, Dirichlet or Neumann, got {one!r}"
            )
        if type(one) in found:
            raise ValueError(f"conditions must hold one {type(one).__name__} at most")
        found[type(one)] = one
    if Initial not in found:
        raise ValueError(
            f"conditions must hold Initial(u0), for only problems in time can be "
            f"solved, got {[kind.__name__ for kind in found]}"
        )
    return found[Initial], found.get(Dirichlet), found.get(Neumann)


def _neumann_axes(given: Neumann | None, domain: Box) -> tuple[bool, ...]:
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


def _interval(given: tuple[float, float] | None) -> tuple[float, float]:
    numbers = np.asarray(given)
    if numbers.shape != (2,) or not np.issubdtype(numbers.dtype, np.number):
        raise ValueError(
            f"interval must be two times, (0.0, T), got {given!r}; steady problems are "
            f"not supported yet"
        )
    start, end = (float(t) for t in numbers)
    if start != 0.0 or not 0.0 < end < float("inf"):
        raise ValueError(
            f"interval must begin at 0 and end at a later time, got {given!r}"
        )
    return start, end


def _check_invariants(invariants: tuple[Invariant, ...]) -> None:
    for invariant in invariants:
        if not isinstance(invariant, Invariant):
            raise TypeError(
                f"invariants must hold Mass, SquaredNorm, Moment or other invariants, "
                f"got {invariant!r}"
            )
    names = [invariant.name for invariant in invariants]
    for invariant in invariants:
        if invariant.only is not None:
            raise ValueError(
                f"invariants must not name components, for the field has only one, got "
                f"{invariant!r}"
            )
        if names.count(invariant.name) > 1:
            raise ValueError(f"invariants has {invariant.name} twice")
