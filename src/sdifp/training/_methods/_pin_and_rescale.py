"""The value at one point instead of an integral, and a rescaling afterwards."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...field import Exact, positive
from ...problems import Problem
from ...quadrature import QuadratureRule
from .._recipe import Recipe
from ._method import Method, conserved, no_rows, same_field


class Pinned(eqx.Module):
    """A network that is shifted such that it has a given value at one point."""

    net: Any
    point: tuple[float, ...] = eqx.field(static=True)
    value: float = eqx.field(static=True)
    profile: Callable[[Array], Array] | None = eqx.field(static=True)

    def with_net(self, net: Callable[..., Array]) -> "Pinned":
        """The same with another network."""
        return eqx.tree_at(lambda p: p.net, self, self.net.with_net(net))

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """The value at one point."""
        at = jnp.asarray(self.point, x.dtype)
        lacking = self.value - self.net(at)
        if self.profile is not None:
            lacking = lacking * self.profile(x) / self.profile(at)
        return self.net(x) + lacking


class PinAndRescale(Method):
    """The value at one point held at 1 in training, and a rescaling afterwards.

    The network is multiplied by the number that gives it the prescribed integral: the
    simplest remedy for a steady problem that u = 0 solves, and for a linear one a good
    one. Where the equation is not linear, the value at the point makes it another
    problem.

    **Arguments:**

    - `point`: the coordinates of the point, where the solution must not vanish; by
        default the middle of the domain.
    """

    point: Sequence[float] | None = eqx.field(static=True, default=None)

    needs_targets = True
    estimator = None
    multiplier_rate = 0.0
    resample = same_field
    rows = no_rows

    def training_rule(self, problem: Problem, nodes: int, key: Array) -> QuadratureRule:
        if not problem.is_steady:
            raise ValueError(
                f"PinAndRescale is for steady problems, and {problem.name} has time"
            )
        if problem.shape:
            raise ValueError(
                f"PinAndRescale is for fields with one component, and {problem.name} "
                f"has {len(problem.components)}"
            )
        linear = [one.name for one in problem.prescribed if one.is_linear]
        if len(problem.prescribed) != 1 or (linear and not problem.positive):
            names = ", ".join(one.name for one in problem.prescribed)
            raise ValueError(
                f"PinAndRescale can rescale to one integral, a quadratic one or the "
                f"mass of a positive solution, and {problem.name} prescribes {names}"
            )
        box = problem.domain
        try:
            point = np.asarray(self._point(problem))
            fits = bool(np.all((point >= box.lower) & (point <= box.upper)))
        except (TypeError, ValueError):
            fits = False
        if not fits or len(point) != box.dimension:
            raise ValueError(
                f"point must have one coordinate for each of the {box.dimension} axes "
                f"of the box and lie in it, got {self.point!r}"
            )
        profile = problem.profile
        if profile is not None and float(profile(jnp.asarray(point))) == 0.0:
            raise ValueError(
                f"point must not lie on a wall, where u = 0, got {self._point(problem)}"
            )
        return problem.rule(nodes, key)

    def _point(self, problem: Problem) -> tuple[float, ...]:
        box = problem.domain
        middle = 0.5 * (box.lower + box.upper) if self.point is None else self.point
        return tuple(float(v) for v in np.ravel(np.asarray(middle, float)))

    def _pinned(self, problem: Problem, net: Any) -> Any:
        point = self._point(problem)
        if problem.positive:
            # The exponential of zero is one.
            return positive(Pinned(net.net, point, 0.0, None))
        return Pinned(net, point, 1.0, problem.profile)

    def training_field(
        self, problem: Problem, net: Any, rule: QuadratureRule, recipe: Recipe
    ) -> Any:
        del rule, recipe
        return self._pinned(problem, net)

    def trained_field(self, problem: Problem, net: Any, rule: QuadratureRule) -> Any:
        return conserved(problem, self._pinned(problem, net), rule, Exact())
