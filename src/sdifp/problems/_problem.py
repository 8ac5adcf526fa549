"""Problem: an equation with its domain, conditions, invariants and, if known, its
solution."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_real, output_of
from .._domain import Box
from ..field import TargetLike, check_densities, means_of, target_at
from ..invariants import Integral, Invariant, Mass, SquaredNorm, invariants_from
from ..operators import Functional, Residual
from ..quadrature import QuadratureRule, rule_for
from ._components import DEFAULT_COMPONENT, component_names, component_units, in_numbers
from ._conditions import (
    Condition,
    Dirichlet,
    Free,
    Initial,
    Neumann,
    checked_interval,
    conditions_by_kind,
    neumann_axes,
)

DEFAULT_NAME = "problem"


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Problem:
    """The facts of a problem on a box, in time or steady: what is solved, not how.

    **Arguments:**

    - `domain`: a `Box`; its periodic axes are periodic.
    - `equation`: a `Residual`, zero where the equation holds, or a `Functional`, which
        the solution of a steady problem minimises.
    - `conditions`: `Initial(u0)` where there is time, and `Dirichlet(profile)`,
        `Neumann()` or `Free()` for the walls of axes that are not periodic. A
        functional has natural conditions, and needs none.
    - `interval`: the first and the last time, `(0.0, T)`; None for a steady problem,
        whose functions are functions of x alone.
    - `invariants`: the integrals that are known, `[Mass(1.0), SquaredNorm(2.0)]`, any
        of `sdifp.invariants`; their targets are numbers or functions of t. One without
        a target, such as a `Density`, is measured and not enforced.
    - `reference`: the solution, a function of one point and one time (of one point, if
        steady), if known; it returns what the initial data return. Where there are
        several solutions, such as u and -u, a tuple of functions; errors are relative
        to the nearest of them.
    - `name`: for tables and messages; by default, that of the file which `sdifp train`
        is given.
    - `mass`, `squared_norm`: the short form of `Mass` and `SquaredNorm`.
    - `positive`: whether the solution is positive. The network is then positive, too,
        and corrected in such a way that it stays so; the mass must be prescribed.
    - `minimum`: the value of the functional at the solution, if known.
    - `description`: one or two sentences with the name of the equation and its formula
        in plain text, shown at the top of reports.
    - `components`: of a system, the names of its components, `("velocity",
        "pressure")`, or how many there are; by default as many as the initial data or
        the reference have.
    - `units`: of the components, `("m/s", "Pa")`, for reports.
    """

    domain: Box
    equation: Residual | Functional
    conditions: tuple[Condition, ...]
    interval: tuple[float, float] | None
    invariants: tuple[Invariant, ...]
    reference: Callable[..., Array] | tuple[Callable[..., Array], ...] | None
    name: str
    positive: bool
    minimum: float | None
    description: str
    components: tuple[str, ...]
    "the names of the components; `u` of a field with one"
    units: tuple[str, ...]
    "of each component; empty texts where none are given"
    initial: Callable[[Array], Array] | None = dataclasses.field(init=False)
    "u at the beginning; None for a steady problem"
    velocity: Callable[[Array], Array] | None = dataclasses.field(init=False)
    "du/dt at the beginning, for equations of second order in time"
    profile: Callable[[Array], Array] | None = dataclasses.field(init=False)
    "what vanishes on Dirichlet walls; None where there are none"
    neumann: tuple[bool, ...] = dataclasses.field(init=False)
    "for each axis, whether the normal derivative vanishes on its walls"

    def __init__(
        self,
        domain: Box,
        equation: Residual | Functional,
        conditions: Sequence[Condition] = (),
        interval: tuple[float, float] | None = None,
        invariants: Sequence[Invariant] = (),
        reference: (
            Callable[..., Array] | Sequence[Callable[..., Array]] | None
        ) = None,
        name: str = DEFAULT_NAME,
        *,
        mass: TargetLike | None = None,
        squared_norm: TargetLike | None = None,
        positive: bool = False,
        minimum: float | None = None,
        description: str = "",
        components: int | Sequence[str] | None = None,
        units: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(domain, Box):
            raise TypeError(f"domain must be a Box, got {domain!r}")
        if not isinstance(equation, Residual | Functional):
            raise TypeError(
                f"equation must be a Residual or a Functional, got {equation!r}"
            )
        if not isinstance(description, str):
            raise TypeError(f"description must be a string, got {description!r}")
        short = ((Mass, mass), (SquaredNorm, squared_norm))
        own = invariants_from(invariants)
        found = conditions_by_kind(conditions)
        initial, dirichlet, neumann = (
            found.get(kind) for kind in (Initial, Dirichlet, Neumann)
        )
        known = tuple(reference) if isinstance(reference, Sequence) else reference
        given = {
            "domain": domain,
            "equation": equation,
            "conditions": tuple(conditions),
            "interval": checked_interval(interval, initial, conditions, equation),
            "invariants": (*(i(v) for i, v in short if v is not None), *own),
            "reference": known,
            "name": name,
            "positive": _boolean("positive", positive),
            "minimum": _minimum(minimum, equation),
            "description": description,
            "initial": None if initial is None else initial.value,
            "velocity": None if initial is None else initial.velocity,
            "profile": None if dirichlet is None else dirichlet.profile,
            "neumann": neumann_axes(neumann, domain),
        }
        names, origin = component_names(components), "components"
        if names is None:
            names = self._counted(given["initial"], known, domain.dimension)
            origin = "reference" if initial is None else "initial"
        given |= {"components": names, "units": component_units(units, names)}
        for key, value in given.items():
            object.__setattr__(self, key, value)
        self._check_invariants()
        self._check_functions(origin)
        self._check_equation()

    @staticmethod
    def _counted(initial: Any, reference: Any, d: int) -> tuple[str, ...]:
        """Names of the components of the initial data, or of the reference."""
        first = reference[0] if isinstance(reference, tuple) else reference
        function = first if initial is None else initial
        if function is None:
            return (DEFAULT_COMPONENT,)
        shape: tuple[int, ...] = getattr(output_of(function, d, False), "shape", ())
        count = shape[0] if len(shape) == 1 else None
        return component_names(count) or (DEFAULT_COMPONENT,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the value at a point: (), or (n,) for a system of n components."""
        n = len(self.components)
        return () if n == 1 else (n,)

    def _check_invariants(self) -> None:
        _check_invariants(self.invariants, self.components)
        for one in self.prescribed:
            if self.is_steady and one.target.is_function:
                raise ValueError(
                    f"{one.name} must be a number for a problem without time, got a "
                    f"function"
                )
        if self.positive:
            if self.shape:
                raise ValueError(
                    f"positive must be False for a system, whose components are not "
                    f"corrected as positive fields, got {len(self.components)} "
                    f"components"
                )
            if self.profile is not None:
                raise ValueError(
                    "positive must not be True beside Dirichlet(profile): a positive "
                    "field does not vanish on a wall"
                )
            if not any(isinstance(one, Mass) for one in self.prescribed):
                raise ValueError(
                    "mass must be given for a positive solution: it is what scales it"
                )
        if self.functional is not None and self.functional.name in self._names:
            raise ValueError(
                f"invariants must not have the name of the functional, "
                f"{self.functional.name}; give one of them another name"
            )

    @property
    def _names(self) -> list[str]:
        return [one.name for one in self.invariants]

    def _check_equation(self) -> None:
        if self.functional is not None:
            return
        d, dtype = self.domain.dimension, jnp.result_type(float)
        x, t = (jax.ShapeDtypeStruct(shape, dtype) for shape in ((d,), ()))
        kinds = self.residual.operator.kinds(x, None if self.is_steady else t)
        if kinds.acceleration is not None and self.velocity is None:
            raise ValueError(
                "velocity must be given: the equation is of second order in time"
            )
        try:
            self.residual.shape(self.shape)
        except ValueError as error:
            n = len(self.components)
            known = f"{n} component{'s' * (n > 1)}, {', '.join(self.components)}"
            raise ValueError(
                f"equation must be one of a field with {known}: {error}"
            ) from None

    def _check_functions(self, origin: str) -> None:
        """Check what functions return; `origin` is where the number of components is
        from."""
        d = self.domain.dimension
        timed = [("reference", f, not self.is_steady) for f in self.references]
        functions = [(n, getattr(self, n), False) for n in _OF_X] + timed
        for name, function, has_time in functions:
            if function is None:
                continue
            out = output_of(function, d, has_time)
            shape = getattr(out, "shape", None)
            wanted = () if name == "profile" else self.shape
            if shape != wanted:
                source = f", as {origin} does" if wanted else ""
                if wanted and origin == "components":
                    source = f", as components = ({', '.join(self.components)}) says"
                raise ValueError(
                    f"{name} must return {in_numbers(wanted)} for one point of shape "
                    f"({d},){source}, got shape {shape}"
                )
            check_real(name, out.dtype)
        initial = self.initial
        zero = lambda x: jnp.broadcast_to(jnp.sum(x), self.shape)
        trial = lambda x, *t: zero(x) if initial is None else initial(x)
        check_densities(self.invariants, trial, d, not self.is_steady)

    @property
    def is_steady(self) -> bool:
        """Whether there is no time."""
        return self.interval is None

    @property
    def is_free(self) -> bool:
        """Whether it is said on purpose that walls have no condition."""
        return any(isinstance(one, Free) for one in self.conditions)

    @property
    def residual(self) -> Residual:
        """The equation. Raises if it is a functional."""
        if isinstance(self.equation, Functional):
            raise ValueError(
                f"{self.name} has a functional, {self.equation.name}, and no residual"
            )
        return self.equation

    @property
    def functional(self) -> Functional | None:
        """The equation, if it is a functional."""
        return self.equation if isinstance(self.equation, Functional) else None

    @property
    def integrals(self) -> tuple[Integral, ...]:
        """The integrals of the field that stand in the equation."""
        return self.equation.integrals

    @property
    def references(self) -> tuple[Callable[..., Array], ...]:
        """The solutions that are known."""
        known = self.reference
        if known is None:
            return ()
        return known if isinstance(known, tuple) else (known,)

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
        """The length of the interval of time. Raises for a steady problem."""
        if self.interval is None:
            raise ValueError(f"{self.name} has no interval of time: it is steady")
        return self.interval[1] - self.interval[0]

    @property
    def order(self) -> int:
        """The order of the equation in time: 2 if there is an initial velocity."""
        return 1 if self.velocity is None else 2

    @property
    def shift_profile(self) -> Callable[[Array], Array] | None:
        """What the shift of a correction multiplies: the profile, where there is a
        shift that does not vanish on Dirichlet walls by itself; None for 1."""
        shifts = [one for one in self.prescribed if one.is_linear]
        own = [getattr(one, "vanishes_on_walls", False) for one in shifts]
        return None if all(own) else self.profile

    def rule(self, nodes: int, key: Array) -> QuadratureRule:
        """The rule that suits the domain; the key matters above three dimensions. That
        of a functional is randomised: a network learns to exploit nodes that stay."""
        randomised = self.functional is not None
        return rule_for(
            self.domain, nodes, neumann=self.neumann, randomised=randomised, key=key
        )

    def mean_target(self, invariant: Invariant, t: Array | float | None) -> Array:
        """The target of an invariant that has one at a time, divided by the volume."""
        value = jnp.asarray(target_at(invariant.target, t), jnp.result_type(float))
        return value / self.domain.volume

    def means_of(
        self,
        invariants: Sequence[Invariant],
        rule: QuadratureRule,
        u: Callable[[Array], Array],
        t: Array | None,
    ) -> Array:
        """The means over the domain of the rows of some invariants, of a function of x
        at one time; `sdifp.invariants.read_rows` tells them apart."""
        # A variance is measured about the mean that is prescribed, to keep its digits.
        means: list[Any] = [0.0] * len(self.components)
        for one in self.prescribed:
            if isinstance(one, Mass) and len(one.among(len(means))) == 1:
                means[one.index] = self.mean_target(one, t)
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


# What are functions of x alone.
_OF_X = ("initial", "velocity", "profile")


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _minimum(value: Any, equation: Residual | Functional) -> float | None:
    if value is None:
        return None
    if not isinstance(equation, Functional):
        raise ValueError(f"minimum must be left out for a Residual, got {value!r}")
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"minimum must be finite, got {value!r}")
    return number


def _check_invariants(
    invariants: tuple[Invariant, ...], components: tuple[str, ...]
) -> None:
    names = [invariant.name for invariant in invariants]
    for invariant in invariants:
        named = invariant.only
        if named is not None and len(components) == 1:
            raise ValueError(
                f"invariants must not name components, for the field has only one, got "
                f"{invariant!r}"
            )
        if named is not None and max(named) >= len(components):
            raise ValueError(
                f"{invariant.name} is of component {max(named)}, and the field has "
                f"{len(components)}, {', '.join(components)}, counted from 0"
            )
        if names.count(invariant.name) > 1:
            raise ValueError(f"invariants has {invariant.name} twice")
