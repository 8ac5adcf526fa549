"""Problem: an equation with its domain, data, targets and, if known, its solution."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from .._checks import check_positive
from .._domain import Box
from .._operators import Residual
from .._quadrature import QuadratureRule, rule_for
from ._recipe import Recipe
from ._recipes import default_recipe

Target = float | Callable[[Array], ArrayLike]


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """An initial value problem on a box.

    **Arguments:**

    - `box`: where it lives; periodic axes are periodic.
    - `duration`: times go from 0 to this.
    - `residual`: the equation, zero where it holds.
    - `initial`: u at time 0, a function of one point that returns one number.
    - `velocity`: du/dt at time 0, for equations of second order in time.
    - `mass`: the integral of u over the box: a number or a function of t; None where it
        is not known.
    - `energy`: the integral of u^2, likewise.
    - `reference`: the solution, a function of one point and one time, if known.
    - `neumann`: whether the normal derivative vanishes on the walls that are not
        periodic: one bool, or one for each axis.
    - `profile`: where u vanishes on the walls, a function of one point that does so
        and is positive inside. The network is multiplied by it, and so is the shift.
    - `normalised`: mass and energy are divided by the volume of the box.
    - `fast`, `accurate`: settings that take about a minute, and minutes. By default
        `fast` follows from the dimension, and `accurate` is `fast` with three times
        the steps.
    - `name`: for tables and messages; by default, that of the file which `sdifp train`
        is given.
    """

    box: Box
    duration: float
    residual: Residual
    initial: Callable[[Array], Array]
    velocity: Callable[[Array], Array] | None = None
    mass: Target | None = None
    energy: Target | None = None
    reference: Callable[[Array, Array], Array] | None = None
    neumann: bool | Sequence[bool] = False
    profile: Callable[[Array], Array] | None = None
    normalised: bool = False
    # Never None once it is made.
    fast: Recipe = None  # type: ignore[assignment]
    accurate: Recipe = None  # type: ignore[assignment]
    name: str = "problem"

    def __post_init__(self) -> None:
        check_positive("duration", self.duration)
        if not isinstance(self.residual, Residual):
            raise TypeError(f"residual must be a Residual, got {self.residual!r}")
        d, neumann = self.box.dimension, np.asarray(self.neumann)
        if neumann.dtype != np.bool_ or neumann.shape not in ((), (d,)):
            raise ValueError(
                f"neumann must be one bool, or one bool for each of the {d} axes, got "
                f"{self.neumann!r}"
            )
        fast: Any = self.fast
        if fast is None:
            fast = default_recipe(d, neumann=bool(neumann.any()))
            object.__setattr__(self, "fast", fast)
        accurate: Any = self.accurate
        if accurate is None:
            object.__setattr__(self, "accurate", fast.but(steps=3 * fast.steps))
        dtype = jnp.result_type(float)
        x = jax.ShapeDtypeStruct((self.box.dimension,), dtype)
        t = jax.ShapeDtypeStruct((), dtype)
        second = self.residual.operator.kinds(x, t).acceleration is not None
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
                    f"({self.box.dimension},), got shape {shape}"
                )

    @property
    def order(self) -> int:
        """The order of the equation in time: 2 if there is an initial velocity."""
        return 1 if self.velocity is None else 2

    def rule(self, nodes: int, key: Array) -> QuadratureRule:
        """The rule that suits the box; the key matters above three dimensions."""
        return rule_for(self.box, nodes, neumann=self.neumann, key=key)

    def target(self, name: str, t: ArrayLike) -> Array | None:
        """`mass` or `energy` at a time, divided by the volume."""
        given = getattr(self, name)
        if given is None:
            return None
        value = jnp.asarray(given(jnp.asarray(t, float)) if callable(given) else given)
        value = value.astype(jnp.result_type(float))
        return value if self.normalised else value / self.box.volume

    def check(self, key: Array | None = None) -> None:
        """Raise `ValueError` if an axis has no boundary condition, or if initial data,
        boundary data, targets and reference disagree, with the size of the
        disagreement.

        **Arguments:**

        - `key`: for the random points of this check.
        """
        from ._check import check_problem

        check_problem(self, jax.random.key(0) if key is None else key)
