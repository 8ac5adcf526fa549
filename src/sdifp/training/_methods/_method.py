"""What a method is: the field that is trained, the field that comes out of it, and what
it adds to the loss."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...estimators import Estimator
from ...field import ConservedField, Exact, GradientMode, conserve
from ...invariants import Invariant, Measured, read_rows, relative_errors
from ...problems import Problem
from ...quadrature import QuadratureRule
from .._recipe import Recipe


class Instant(NamedTuple):
    """One time of a batch, as a method sees it."""

    problem: Problem
    u: Any
    "what is trained, a function of one point at this time; a `FieldSlice` if corrected"
    rule: QuadratureRule
    t: Float[Array, ""] | None
    "None without time"
    multipliers: Float[Array, " n"]

    def errors(self) -> Float[Array, " n"]:
        """The errors of the prescribed integrals."""
        return integral_errors(self.problem, self.u, self.rule, self.t)


class Method(eqx.Module):
    """A way to train a network on a problem with prescribed integrals."""

    @property
    @abc.abstractmethod
    def needs_targets(self) -> bool:
        """Whether the problem must prescribe an integral."""

    @property
    @abc.abstractmethod
    def estimator(self) -> Estimator | None:
        """How the residual is estimated; None for the estimator of the recipe."""

    @property
    @abc.abstractmethod
    def multiplier_rate(self) -> float:
        """By how much the multiplier of each integral grows in a step, per relative
        error; 0 for a method without multipliers."""

    def check(self, problem: Problem) -> None:
        """Raise `ValueError` if the problem does not allow this method."""
        if self.needs_targets and not problem.prescribed:
            raise ValueError(
                f"{type(self).__name__} needs invariants, and {problem.name} has none "
                f"with a target (mass, squared_norm or others); Plain() (--method "
                f"plain) does without"
            )

    @abc.abstractmethod
    def training_rule(self, problem: Problem, nodes: int, key: Array) -> QuadratureRule:
        """The rule of the training, and of the integrals afterwards. Raises
        `ValueError` if the domain does not allow it."""

    @abc.abstractmethod
    def training_field(
        self, problem: Problem, net: Any, rule: QuadratureRule, recipe: Recipe
    ) -> Any:
        """The function of x and t that is trained."""

    @abc.abstractmethod
    def resample(self, field: Any, key: Array) -> Any:
        """The field that is trained, with fresh randomness for one step."""

    @abc.abstractmethod
    def trained_field(self, problem: Problem, net: Any, rule: QuadratureRule) -> Any:
        """The function of x and t that comes out of the training."""

    @abc.abstractmethod
    def rows(self, at: Instant) -> Float[Array, " m"]:
        """What the method adds to the loss at one time: half the squares of these."""

    def multipliers(self, problem: Problem) -> Float[Array, " n"]:
        """The multipliers of one time of a batch before the first step."""
        return jnp.zeros(len(problem.prescribed) if self.multiplier_rate else 0)

    def update(self, at: Instant) -> Float[Array, " n"]:
        """The multipliers after a step."""
        return at.multipliers + self.multiplier_rate * at.errors()


# What methods share, to be assigned to the hooks of their names.


def same_field(self: Method, field: Any, key: Array) -> Any:
    """`resample` without any randomness."""
    del self, key
    return field


def uncorrected(self: Method, problem: Problem, net: Any, rule: QuadratureRule) -> Any:
    """`trained_field` as it was trained."""
    del self, problem, rule
    return net


def corrected(self: Method, problem: Problem, net: Any, rule: QuadratureRule) -> Any:
    """`trained_field` with the invariants of the problem."""
    del self
    return conserved(problem, net, rule, Exact())


def no_rows(self: Method, at: Instant) -> Float[Array, " m"]:
    """`rows` that add nothing to the loss."""
    del self, at
    return jnp.zeros(0)


class RawTraining(Method):
    """A method that trains the network itself, without a correction."""

    estimator = None
    resample = same_field

    def training_rule(self, problem: Problem, nodes: int, key: Array) -> QuadratureRule:
        return problem.rule(nodes, key)

    def training_field(
        self, problem: Problem, net: Any, rule: QuadratureRule, recipe: Recipe
    ) -> Any:
        del problem, rule, recipe
        return net


def conserved(
    problem: Problem, net: Any, rule: QuadratureRule, gradient: GradientMode
) -> ConservedField:
    """The network with the invariants of the problem."""
    return conserve(
        net,
        rule,
        invariants=problem.invariants,
        profile=problem.shift_profile,
        gradient=gradient,
    )


def integral_errors(
    problem: Problem,
    u: Callable[[Array], Array],
    rule: QuadratureRule,
    t: Float[Array, ""] | None,
) -> Float[Array, " n"]:
    """The relative errors of the prescribed invariants of a problem, of a function of x
    at one time."""
    return errors_of(problem, integrals_at(problem, problem.prescribed, u, rule, t), t)


def integrals_at(
    problem: Problem,
    invariants: tuple[Invariant, ...],
    u: Callable[[Array], Array],
    rule: QuadratureRule,
    t: Float[Array, ""] | None,
) -> list[Measured]:
    """Invariants of a function of x at one time, as means over the domain."""
    return read_rows(invariants, problem.means_of(invariants, rule, u, t), 1.0)


def errors_of(
    problem: Problem, found: Sequence[Measured], t: Float[Array, ""] | None
) -> Float[Array, " n"]:
    """The relative errors of the prescribed invariants of a problem, from their means
    over the domain at one time."""
    targets = [problem.mean_target(one, t) for one in problem.prescribed]
    known = [m._replace(size=jax.lax.stop_gradient(m.size)) for m in found]
    errors = relative_errors(problem.prescribed, known, targets, 1.0, jnp)
    return jnp.stack(errors) if errors else jnp.zeros(0)
