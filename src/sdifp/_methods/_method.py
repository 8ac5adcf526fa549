"""What a method is: the field that is trained, the field that comes out of it, and what
it adds to the loss."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._field import ConservedField, GradientMode, conserve
from .._operators import Estimator
from .._quadrature import QuadratureRule
from .._quadrature._rule import two_means
from ..problems import Problem, Recipe


class Instant(NamedTuple):
    """One time of a batch, as a method sees it."""

    problem: Problem
    u: Callable[[Array], Array]
    "what is trained, a function of one point at this time; a `FieldAt` if corrected"
    rule: QuadratureRule
    t: Float[Array, ""]
    multipliers: Float[Array, " n"]

    def errors(self) -> Float[Array, " n"]:
        """The errors of the prescribed integrals."""
        return integral_errors(self.problem, self.u, self.rule, self.t)


class Method(eqx.Module):
    """A way to train a network on a problem with prescribed integrals."""

    @property
    def needs_targets(self) -> bool:
        """Whether the problem must prescribe an integral."""
        return True

    def check(self, problem: Problem) -> None:
        """Raise `ValueError` if the problem does not allow this method."""
        if self.needs_targets and problem.mass is None and problem.energy is None:
            raise ValueError(
                f"{type(self).__name__} needs mass or energy, and {problem.name} "
                f"prescribes neither; Plain() (--method plain) does without"
            )

    def rule(self, problem: Problem, nodes: int, key: Array) -> QuadratureRule:
        """The rule of the training, and of the integrals afterwards."""
        return problem.rule(nodes, key)

    def estimator(self, recipe: Recipe) -> Estimator:
        """How the residual is estimated."""
        return recipe.estimator

    def field(
        self, problem: Problem, net: Any, rule: QuadratureRule, recipe: Recipe
    ) -> Any:
        """The function of x and t that is trained."""
        del problem, rule, recipe
        return net

    def redraw(self, field: Any, key: Array) -> Any:
        """The same with fresh randomness for one step."""
        del key
        return field

    def finish(self, problem: Problem, net: Any, rule: QuadratureRule) -> Any:
        """The function of x and t that comes out of the training."""
        del problem, rule
        return net

    def multipliers(self, problem: Problem) -> Float[Array, " n"]:
        """Numbers that the method keeps for each time of a batch."""
        del problem
        return jnp.zeros(0)

    def rows(self, at: Instant) -> Float[Array, " m"]:
        """What the method adds to the loss at one time: half the squares of these."""
        del at
        return jnp.zeros(0)

    def update(self, at: Instant) -> Float[Array, " n"]:
        """The multipliers after a step."""
        return at.multipliers


def conserved(
    problem: Problem, net: Any, rule: QuadratureRule, gradient: GradientMode
) -> ConservedField:
    """The network with the integrals of the problem."""
    return conserve(
        net,
        rule,
        problem.mass,
        problem.energy,
        profile=problem.profile if problem.mass is not None else None,
        gradient=gradient,
        normalised=problem.normalised,
    )


def integral_errors(
    problem: Problem,
    u: Callable[[Array], Array],
    rule: QuadratureRule,
    t: Float[Array, ""],
) -> Float[Array, " n"]:
    """The errors of the prescribed integrals of a function of x at one time, mass
    before energy, relative to the size of the field."""
    mean, square = two_means(rule, u)
    wanted_mean, wanted_square = (problem.target(k, t) for k in ("mass", "energy"))
    errors = []
    if wanted_mean is not None:
        # A mass of zero has no relative error: the field's size stands in.
        size = jax.lax.stop_gradient(square) if wanted_square is None else wanted_square
        unit = jnp.maximum(jnp.abs(wanted_mean), jnp.sqrt(jnp.abs(size)))
        errors.append((mean - wanted_mean) / jnp.where(unit > 0.0, unit, 1.0))
    if wanted_square is not None:
        unit = jnp.where(wanted_square > 0.0, wanted_square, 1.0)
        errors.append((square - wanted_square) / unit)
    return jnp.stack(errors)
