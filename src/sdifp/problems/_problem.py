"""Problem: an equation with its domain, conditions, invariants and, if known, its
solution."""

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box
from ..field import TargetLike, target_at
from ..invariants import Invariant, Mass, SquaredNorm
from ..operators import Residual
from ..quadrature import QuadratureRule, rule_for
from ._conditions import Condition, Dirichlet, Initial, Neumann

DEFAULT_NAME = "problem"


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Problem:
    """The facts of an initial value problem on a box: what is solved, not how.

    **Arguments:**

    - `domain`: a `Box`; its periodic axes are periodic.
    - `equation`: a `Residual`, zero where the equation holds.
    - `conditions`: `Initial(u0)`, and `Dirichlet(profile)` or `Neumann()` for the walls
        of axes that are not periodic.
    - `interval`: the first and the last time, `(0.0, T)`.
    - `invariants`: the integrals that are known, `[Mass(1.0), SquaredNorm(2.0)]`; their
        targets are numbers or functions of t.
    - `reference`: the solution, a function of one point and one time, if known.
    - `name`: for tables and messages; by default, that of the file which `sdifp train`
        is given.
    - `mass`, `squared_norm`: the short form of `Mass` and `SquaredNorm`.
    """

    domain: Box
    equation: Residual
    conditions: tuple[Condition, ...]
    interval: tuple[float, float]
    invariants: tuple[Invariant, ...]
    reference: Callable[[Array, Array], Array] | None
    name: str

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
    ) -> None:
        short: list[Invariant] = []
        if mass is not None:
            short.append(Mass(mass))
        if squared_norm is not None:
            short.append(SquaredNorm(squared_norm))
        given = {
            **{"domain": domain, "equation": equation, "reference": reference},
            **{"conditions": _conditions(conditions), "interval": _interval(interval)},
            **{"invariants": (*short, *invariants), "name": name},
        }
        for key, value in given.items():
            object.__setattr__(self, key, value)
        self._check_arguments()

    def _check_arguments(self) -> None:
        if not isinstance(self.domain, Box):
            raise TypeError(f"domain must be a Box, got {self.domain!r}")
        if not isinstance(self.equation, Residual):
            raise TypeError(f"equation must be a Residual, got {self.equation!r}")
        _check_invariants(self.invariants)
        _ = self.neumann
        dtype = jnp.result_type(float)
        x = jax.ShapeDtypeStruct((self.domain.dimension,), dtype)
        t = jax.ShapeDtypeStruct((), dtype)
        second = self.equation.operator.kinds(x, t).acceleration is not None
        if second and self.velocity is None:
            raise ValueError(
                "velocity must be given: the equation is of second order in time"
            )
        for name, arguments in (
            ("initial", (x,)),
            ("velocity", (x,)),
            ("profile", (x,)),
            ("reference", (x, t)),
        ):
            function = getattr(self, name)
            if function is None:
                continue
            shape = getattr(eqx.filter_eval_shape(function, *arguments), "shape", None)
            if shape != ():
                raise ValueError(
                    f"{name} must return one number for one point of shape "
                    f"({self.domain.dimension},), got shape {shape}"
                )

    def _the(self, kind: type) -> Condition | None:
        return next((c for c in self.conditions if isinstance(c, kind)), None)

    @property
    def duration(self) -> float:
        """The length of the interval of time."""
        return self.interval[1] - self.interval[0]

    @property
    def initial(self) -> Callable[[Array], Array]:
        """u at the beginning."""
        found = self._the(Initial)
        assert isinstance(found, Initial)
        return found.value

    @property
    def velocity(self) -> Callable[[Array], Array] | None:
        """du/dt at the beginning, for equations of second order in time."""
        found = self._the(Initial)
        assert isinstance(found, Initial)
        return found.velocity

    @property
    def profile(self) -> Callable[[Array], Array] | None:
        """What vanishes on Dirichlet walls; None where there are none."""
        found = self._the(Dirichlet)
        return found.profile if isinstance(found, Dirichlet) else None

    @property
    def neumann(self) -> tuple[bool, ...]:
        """For each axis, whether the normal derivative vanishes on its walls."""
        found = self._the(Neumann)
        if isinstance(found, Neumann):
            return found.on(self.domain)
        return (False,) * self.domain.dimension

    @property
    def order(self) -> int:
        """The order of the equation in time: 2 if there is an initial velocity."""
        return 1 if self.velocity is None else 2

    def rule(self, nodes: int, key: Array) -> QuadratureRule:
        """The rule that suits the domain; the key matters above three dimensions."""
        return rule_for(self.domain, nodes, neumann=self.neumann, key=key)

    def mean_target(self, invariant: Invariant, t: Array | float) -> Array:
        """The target of an invariant at a time, divided by the volume."""
        value = jnp.asarray(target_at(invariant.target, t), jnp.result_type(float))
        return value / self.domain.volume

    def check(self, key: Array | None = None) -> None:
        """Raise `ValueError` if an axis has no boundary condition, or if initial data,
        boundary data, targets and reference disagree, with the size of the
        disagreement.

        **Arguments:**

        - `key`: for the random points of this check.
        """
        from ._check import check_problem

        check_problem(self, jax.random.key(0) if key is None else key)


def _conditions(given: Sequence[Condition]) -> tuple[Condition, ...]:
    found = tuple(given)
    for one in found:
        if not isinstance(one, Initial | Dirichlet | Neumann):
            raise TypeError(
                f"conditions must hold Initial, Dirichlet or Neumann, got {one!r}"
            )
    kinds = [type(one) for one in found]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise ValueError(f"conditions must hold one {kind.__name__} at most")
    if Initial not in kinds:
        raise ValueError(
            f"conditions must hold Initial(u0), for only problems in time can be "
            f"solved, got {[kind.__name__ for kind in kinds]}"
        )
    return found


def _interval(given: tuple[float, float] | None) -> tuple[float, float]:
    if given is None:
        raise ValueError(
            "interval must be (0.0, T), got None: steady problems are not supported yet"
        )
    numbers = np.asarray(given)
    if numbers.shape != (2,) or not np.issubdtype(numbers.dtype, np.number):
        raise ValueError(f"interval must be two times, (0.0, T), got {given!r}")
    start, end = (float(t) for t in numbers)
    if start != 0.0 or not 0.0 < end < float("inf"):
        raise ValueError(
            f"interval must begin at 0 and end at a later time, got {given!r}"
        )
    return start, end


def _check_invariants(invariants: tuple[Invariant, ...]) -> None:
    names = [invariant.name for invariant in invariants]
    for invariant in invariants:
        if not isinstance(invariant, Mass | SquaredNorm):
            raise TypeError(
                f"invariants must hold Mass or SquaredNorm, got {invariant!r}"
            )
        if invariant.target is None or invariant.component is not None:
            raise ValueError(
                f"invariants must have a target and no component, for the field has "
                f"only one, got {invariant!r}"
            )
        if names.count(invariant.name) > 1:
            raise ValueError(f"invariants has {invariant.name} twice")
