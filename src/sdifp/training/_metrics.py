"""What is known of a field while it is trained, and what comes out."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Array

from ..field import (
    Certificate,
    Interpolated,
    at_time,
    evaluate,
    over_times,
    times_between,
)
from ..invariants import Measured, drift
from ..problems import Problem
from ..quadrature import QuadratureRule
from ._methods import errors_of, integral_errors, integrals_at

# Nodes of the independent rule, in 1, 2, 3 and more dimensions. In one to three they
# are not those of the rule in training, whose numbers of nodes are round.
_NODES = (509, 83**2, 29**3, 2**14)
# Those of each of the rules that a functional is evaluated on in the end.
_FINE_NODES = (1024, 96**2, 32**3, 2**14)
_REPLICATES = 16
TIMES = 9
# How many invariants have a place of their own in a line of metrics.
_NAMED = 3


@dataclasses.dataclass(frozen=True)
class MeasuredDrift:
    """How an invariant that is measured, and not prescribed, changes over nine times of
    the window."""

    value: float
    "the integral at the first of them"
    drift: float | None
    "the largest change since then, with its sign; None without time"
    relative: float | None
    "the same relative to the integral of the density's absolute value at that time"


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
    measured: dict[str, MeasuredDrift] = dataclasses.field(default_factory=dict)
    "the invariants without targets, by name"
    functional: dict[str, float] = dataclasses.field(default_factory=dict)
    "the functional that is minimised, by its name; empty for other problems"
    l2_errors: dict[str, float] = dataclasses.field(default_factory=dict)
    """of each component of a system, likewise, relative to it, by name; without those
    that vanish in the reference. Empty for a field with one component"""

    def __str__(self) -> str:
        return f"step {self.step}/{self.steps}, {self.numbers}, {self.seconds:.0f} s"

    @property
    def numbers(self) -> str:
        """Loss, errors and scale in one line."""
        known = {} if self.l2_error is None else {"L2": self.l2_error}
        parts = [
            f"{n} {value:.1e}" for n, value in ({"loss": self.loss} | known).items()
        ]
        parts += [f"{name} {value:.8g}" for name, value in self.functional.items()]
        parts += _few(self.errors, "", "invariants")
        drifts, values = {}, {}
        for name, one in self.measured.items():
            if one.relative is None:
                values[name] = one.value
            else:
                drifts[name] = one.relative
        parts += [f"{name} {value:.8g}" for name, value in values.items()][:_NAMED]
        parts += _few(drifts, " drift", "measured")
        if self.scale is not None:
            # Without time there is one.
            ends = dict.fromkeys(f"{value:.3g}" for value in self.scale)
            parts.append(f"scale {' to '.join(ends)}")
        if self.interpolation is not None:
            parts.append(f"interpolation {self.interpolation:.1e}")
        return ", ".join(parts)


def _few(values: dict[str, float], what: str, kind: str) -> list[str]:
    """Numbers by name; the worst alone where they are too many for a line."""
    shown = {name: f"{name}{what} {value:.1e}" for name, value in values.items()}
    if len(values) <= _NAMED:
        return list(shown.values())
    size = lambda name: math.inf if math.isnan(values[name]) else abs(values[name])
    return [f"worst of {len(values)} {kind}: {shown[max(values, key=size)]}"]


@dataclasses.dataclass(frozen=True)
class Interval:
    """An integral in the continuum, estimated from independent randomisations of a
    rule, with the interval of 95 % of that estimate. It covers the error of the
    quadrature only, not that of the network."""

    value: float
    margin: float
    "half the width of the interval"

    def __str__(self) -> str:
        return f"{self.value:.8g} +- {self.margin:.1e}"


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
    functional: Interval | None = None
    "the value of the functional that is minimised"


class TrainingDiverged(ArithmeticError):
    """The loss is no longer finite or has grown ten thousandfold, or the targets cannot
    be met. `trained` is the last good state."""

    def __init__(self, message: str, trained: Trained):
        super().__init__(message)
        self.trained = trained


def drift_over(found: Measured) -> MeasuredDrift:
    """The drift of an invariant from its integrals at the times of a window."""
    if len(np.asarray(found.value)) == 1:
        return MeasuredDrift(float(np.asarray(found.value)[0]), None, None)
    value, change, relative = (np.asarray(a) for a in drift(found))
    # NaN is the largest.
    k = int(np.argmax(np.abs(change)))
    return MeasuredDrift(float(value[0]), float(change[k]), float(relative[k]))


def independent_rule(problem: Problem, key: Array) -> QuadratureRule:
    """The rule that fields are measured on."""
    return problem.rule(_NODES[min(problem.domain.dimension, 4) - 1], key)


def _squares(problem: Problem, now: Any, t: Array | None, x: Array) -> Array:
    """Of the error and of the reference at one point, for each reference."""
    exact = [evaluate(reference, x, t) for reference in problem.references]
    rows = [jnp.stack([(now(x) - one) ** 2, one**2]) for one in exact]
    return jnp.stack(rows) if rows else jnp.zeros((0, 2))


def _l2_errors(squares: Array) -> tuple[Array, Array]:
    """The relative L2 error against the nearest reference, and that of each component
    of a system, from integrals of squares, references on the first axis."""
    off, size = jnp.moveaxis(squares, 1, 0)
    whole = jnp.sqrt(off / size)
    if off.ndim == 1:
        return jnp.min(whole), jnp.zeros(0)
    joint = jnp.sqrt(jnp.sum(off, 1) / jnp.sum(size, 1))
    nearest = jnp.argmin(joint)
    return joint[nearest], whole[nearest]


@eqx.filter_jit
def measure(
    problem: Problem, field: Any, rule: QuadratureRule, times: Array | None
) -> tuple[Any, ...]:
    """The errors of the invariants of a field, the worst over some times, what is
    measured of those without targets at each time, as integrals, its L2 errors, the
    ranges of its scale and its shift, and the functional if there is one."""
    invariants = (*problem.prescribed, *problem.measured)
    count = len(problem.prescribed)

    def at(t: Array | None) -> tuple[Any, ...]:
        now = at_time(field, t)
        found = integrals_at(problem, invariants, now, rule, t)
        errors = errors_of(problem, found[:count], t)
        squares = rule.mean(eqx.Partial(_squares, problem, now, t))
        return errors, found[count:], squares, (now.scale, now.shift)

    errors, measured, squares, coefficients = over_times(at, times)
    volume = problem.domain.volume
    measured = [Measured(volume * m.value, volume * m.size) for m in measured]
    l2 = _l2_errors(jnp.sum(squares, 0)) if problem.references else None
    worst = jnp.max(jnp.abs(errors), axis=0) if errors.size else errors[0]
    ranges = [None if c is None else (jnp.min(c), jnp.max(c)) for c in coefficients]
    functional = problem.functional
    value = None if functional is None else functional(at_time(field, None), rule)
    return worst, measured, l2, ranges, value


def value_of_functional(problem: Problem, field: Any, key: Array) -> Interval | None:
    """The functional that a problem minimises, of a field, in the continuum."""
    if problem.functional is None:
        return None
    nodes = _FINE_NODES[min(problem.domain.dimension, 4) - 1]
    for_rule, for_replicates = jax.random.split(key)
    rules = problem.rule(nodes, for_rule).replicates(for_replicates, _REPLICATES)
    found = np.array([float(_functional(problem, field, rule)) for rule in rules])
    quantile = float(scipy.stats.t.ppf(0.975, _REPLICATES - 1))
    spread = float(found.std(ddof=1)) / math.sqrt(_REPLICATES)
    return Interval(float(found.mean()), quantile * spread)


@eqx.filter_jit
def _functional(problem: Problem, field: Any, rule: QuadratureRule) -> Array:
    assert problem.functional is not None
    return problem.functional(at_time(field, None), rule)


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
