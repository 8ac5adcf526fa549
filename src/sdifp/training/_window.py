"""Stretches of time: what is trained on one, and how the next one begins."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..estimators import Estimator
from ..field import as_field, at_time, evaluate, positive
from ..operators import Residual
from ..problems import Problem, in_numbers
from ..quadrature import QuadratureRule
from ._methods import Method
from ._networks import Ansatz, Series, SteadyAnsatz
from ._recipe import Recipe

# Points of the series that hold the initial data of later windows in one dimension.
_SERIES = 512


class Window(eqx.Module):
    """A stretch of time: what is trained on it and how, with its initial data."""

    problem: Problem = eqx.field(static=True)
    method: Method
    recipe: Recipe = eqx.field(static=True)
    field: Any
    "what the method trains, a `Field` over an `Ansatz`"
    final: Any
    "what comes out of it, likewise"
    rule: QuadratureRule
    initial: Any
    velocity: Any
    start: Float[Array, ""] | None
    "None for a steady problem, which is one window without time"
    weights: Float[Array, " m"] | None = None
    "of the squares of the residuals of a system"

    @property
    def residual(self) -> Residual:
        """The equation, with these weights."""
        found = self.problem.residual
        return found if self.weights is None else found.weighted(self.weights)

    @property
    def length(self) -> float | None:
        """Its duration; None without time."""
        if self.problem.is_steady:
            return None
        return self.problem.duration / self.recipe.windows

    @property
    def estimator(self) -> Estimator:
        """How the residual is estimated."""
        return self.method.estimator or self.recipe.estimator


def begin_window(
    problem: Problem,
    method: Method,
    recipe: Recipe,
    rule: QuadratureRule,
    final_rule: QuadratureRule,
    number: int,
    before: Any = None,
    weights: Float[Array, " m"] | None = None,
) -> Window:
    """The window after `number` others; `before` is the field that was trained on the
    last of them. One that is corrected afterwards goes on uncorrected. The residuals of
    a system have `weights`."""
    if problem.is_steady:
        steady: Any = SteadyAnsatz(_Zero(problem.shape), problem.profile)
        if problem.positive:
            steady = positive(steady)
        nothing = (None, None, None)
        return _window(
            problem, method, recipe, steady, rule, final_rule, *nothing, weights
        )
    box, length = problem.domain, problem.duration / recipe.windows
    start = jnp.asarray(number * length, float)
    initial: Any = problem.initial
    velocity: Any = problem.velocity
    if before is not None:
        initial = at_time(before, start)
        velocity = None if velocity is None else _Rate(before, start)
    # What the network has at the beginning, before it is made positive.
    u0, v0 = initial, velocity
    if problem.positive:
        u0 = _Logarithm(initial)
        v0 = None if velocity is None else _Ratio(velocity, initial)
    smooth = box.dimension == 1 and (box.periodic[0] or np.all(problem.neumann))
    if recipe.windows > 1 and smooth:
        # Every window then has data of one kind, and one program serves them all.
        u0, v0 = (None if f is None else Series.fit(f, box, _SERIES) for f in (u0, v0))
        if not problem.positive:
            initial, velocity = u0, v0
    if not recipe.hard_initial:
        u0, v0 = None, None
    # The network itself is put in at each step: any function stands in for it here.
    ansatz: Any = Ansatz(_Zero(problem.shape), u0, v0, start, length, problem.profile)
    if problem.positive:
        ansatz = positive(ansatz)
    begin = (initial, velocity, start)
    return _window(problem, method, recipe, ansatz, rule, final_rule, *begin, weights)


def _window(
    problem: Problem,
    method: Method,
    recipe: Recipe,
    ansatz: Any,
    rule: QuadratureRule,
    final_rule: QuadratureRule,
    initial: Any,
    velocity: Any,
    start: Array | None,
    weights: Array | None,
) -> Window:
    return Window(
        problem,
        method,
        recipe,
        as_field(method.training_field(problem, ansatz, rule, recipe)),
        as_field(method.trained_field(problem, ansatz, final_rule)),
        rule,
        initial,
        velocity,
        start,
        weights,
    )


def with_net(field: Any, net: Any) -> Any:
    """The field over its ansatz with another network in it."""
    return field.over(field.net.with_net(net))


class _Rate(eqx.Module):
    """The derivative by t of a function of x and t at one time."""

    function: Any
    time: Array

    def __call__(self, x: Array) -> Array:
        at = lambda t: self.function(x, t)
        return jax.jvp(at, (self.time,), (jnp.ones_like(self.time),))[1]


class _Logarithm(eqx.Module):
    function: Any

    def __call__(self, x: Array) -> Array:
        value = self.function(x)
        return jnp.log(jnp.maximum(value, jnp.finfo(value.dtype).tiny))


class _Ratio(eqx.Module):
    above: Any
    below: Any

    def __call__(self, x: Array) -> Array:
        return self.above(x) / self.below(x)


class _Zero(eqx.Module):
    # Equal in every window, and so is their program.
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: Array, t: Array | None = None) -> Array:
        return jnp.zeros(self.shape, x.dtype)


def check_functions(net: Any, problem: Problem) -> None:
    """Let an error in a network or in the functions of a problem show before a step is
    compiled, and before a run has a folder."""
    d, dtype = problem.domain.dimension, jnp.result_type(float)
    x = jax.ShapeDtypeStruct((d,), dtype)
    t = None if problem.is_steady else jax.ShapeDtypeStruct((), dtype)
    if not jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)):
        raise ValueError(
            "network has no parameters to train: they must be its leaves, as those of "
            "an Equinox module or of jax.tree_util.Partial(apply, parameters) are"
        )
    try:
        at_point = lambda net, x, t: evaluate(net, x, t)
        shape = getattr(eqx.filter_eval_shape(at_point, net, x, t), "shape", None)
    except Exception as error:
        shape = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    if shape != problem.shape:
        time = "" if problem.is_steady else " and a time"
        got = f"shape {shape}" if isinstance(shape, tuple) and shape else shape
        names = f" for {', '.join(problem.components)}" if problem.shape else ""
        raise ValueError(
            f"network must return {in_numbers(problem.shape)} for a point of shape "
            f"({d},){time}, as {problem.name} needs it{names}, got {got}"
        )
    rule = problem.rule(2**d if d <= 3 else 2, jax.random.key(0))
    if problem.functional is None:
        residual = problem.residual
        eqx.filter_eval_shape(lambda n, x, t: residual(n, x, t, rule=rule), net, x, t)
    else:
        eqx.filter_eval_shape(problem.functional, net, rule)
    for invariant in problem.prescribed:
        eqx.filter_eval_shape(lambda t, i=invariant: problem.mean_target(i, t), t)
