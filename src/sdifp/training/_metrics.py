"""What is known of a field while it is trained, and what comes out."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..field import Certificate, Interpolated, at_time, times_between
from ..problems import Problem
from ..quadrature import QuadratureRule
from ._methods import integral_errors

# Nodes of the independent rule, in 1, 2, 3 and more dimensions. In one to three they
# are not those of the rule in training, whose numbers of nodes are round.
_NODES = (509, 83**2, 29**3, 2**14)
TIMES = 9


@dataclasses.dataclass(frozen=True)
class Metrics:
    """Measured while training goes on. Errors are the worst over nine times of the
    window, on a rule that the training does not see."""

    step: int
    "steps done, in all windows"
    steps: int
    "steps in all"
    seconds: float
    """wall time of the training so far: compilation, steps and measurements; a resumed
    training adds to that of the one before"""
    loss: float
    "the mean over the steps since the last report"
    errors: dict[str, float]
    "the relative error of each invariant, by name"
    l2_error: float | None
    "relative error against the reference; None without one"
    scale: tuple[float, float] | None
    "the least and the largest scale; None for methods that correct nothing"
    shift: tuple[float, float] | None
    "the least and the largest shift, likewise"
    window: int = 0
    interpolation: float | None = None
    """the largest relative error of an invariant on the rule of the training, between
    the times of `Interpolated`; None where moments are not interpolated"""

    def __str__(self) -> str:
        return f"step {self.step}/{self.steps}, {self.numbers}, {self.seconds:.0f} s"

    @property
    def numbers(self) -> str:
        """Loss, errors and scale in one line."""
        known = {} if self.l2_error is None else {"L2": self.l2_error}
        named = {"loss": self.loss} | known | self.errors
        parts = [f"{name} {value:.1e}" for name, value in named.items()]
        if self.scale is not None:
            parts.append(f"scale {self.scale[0]:.3g} to {self.scale[1]:.3g}")
        if self.interpolation is not None:
            parts.append(f"interpolation {self.interpolation:.1e}")
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True)
class Trained:
    """What comes out of a training."""

    field: Any
    "a function of one point and one time; a `ConservedField` where integrals hold"
    net: Any
    "the raw network with its initial data, before any correction"
    parameters: Any
    "the network alone, of the last window: begin another training from it"
    certificate: Certificate | None
    "what holds of the integrals; None for methods that correct nothing"
    metrics: Metrics
    "of the whole duration"


class TrainingDiverged(ArithmeticError):
    """The loss is no longer finite or has grown ten thousandfold, or the targets cannot
    be met. `trained` is the last good state."""

    def __init__(self, message: str, trained: Trained):
        super().__init__(message)
        self.trained = trained


def independent_rule(problem: Problem, key: Array) -> QuadratureRule:
    """The rule that fields are measured on."""
    return problem.rule(_NODES[min(problem.domain.dimension, 4) - 1], key)


def _squares(problem: Problem, now: Any, t: Array, x: Array) -> Array:
    """Of the error and of the reference at one point."""
    if problem.reference is None:
        return jnp.zeros(2)
    exact = problem.reference(x, t)
    return jnp.stack([(now(x) - exact) ** 2, exact**2])


@eqx.filter_jit
def measure(
    problem: Problem, field: Any, rule: QuadratureRule, times: Array
) -> tuple[Array, Array | None, list[tuple[Array, Array] | None]]:
    """The errors of the invariants of a field, the worst over some times, its L2 error
    and the ranges of its scale and its shift."""

    def at(t: Array) -> tuple[Array, Array, Array, tuple[Array | None, ...]]:
        now = at_time(field, t)
        errors = integral_errors(problem, now, rule, t)
        off, size = rule.mean(eqx.Partial(_squares, problem, now, t))
        return errors, off, size, (now.scale, now.shift)

    errors, off, size, coefficients = jax.lax.map(at, times)
    l2 = None
    if problem.reference is not None:
        l2 = jnp.sqrt(jnp.sum(off) / jnp.sum(size))
    worst = jnp.max(jnp.abs(errors), axis=0) if errors.size else errors[0]
    ranges = [None if c is None else (jnp.min(c), jnp.max(c)) for c in coefficients]
    return worst, l2, ranges


@eqx.filter_jit
def interpolation_error(
    problem: Problem, field: Any, start: Array, length: Array | float
) -> Array | None:
    """The largest error of an invariant on the rule of a field in training, at times
    between those of its table; None where moments are not interpolated."""
    mode = field.gradient
    if not isinstance(mode, Interpolated):
        return None
    known = field.tabulated(start, length)
    errors = jax.lax.map(
        lambda t: integral_errors(problem, known.at(t), field.rule, t),
        times_between(start, length, mode.times),
    )
    return jnp.max(jnp.abs(errors))
