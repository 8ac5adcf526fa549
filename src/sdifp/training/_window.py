"""Stretches of time: what is trained on one, and how the next one begins."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..field import Field, as_field, at_time
from ..problems import Problem
from ..quadrature import QuadratureRule
from ._methods import Method
from ._networks import Ansatz, Series
from ._recipe import Recipe

# Points of the series that hold the initial data of later windows in one dimension.
_SERIES = 512


class Window(eqx.Module):
    """A stretch of time: the field that is trained on it, with its initial data."""

    field: Field
    "what the method trains, over an `Ansatz`"
    final: Field
    "what comes out of it, likewise"
    rule: QuadratureRule
    initial: Any
    velocity: Any
    start: Float[Array, ""]


class Windows(eqx.Module):
    """All that the windows of a training share."""

    problem: Problem
    method: Method
    recipe: Recipe
    rule: QuadratureRule
    final_rule: QuadratureRule

    @property
    def length(self) -> float:
        """The duration of one window."""
        return self.problem.duration / self.recipe.windows

    def first(self) -> Window:
        """The one that begins with the data of the problem."""
        return self._window(self.problem.initial, self.problem.velocity, 0)

    def after(self, window: Window, net: Any, number: int) -> Window:
        """The one that begins with the end of the field that was trained: one that is
        corrected afterwards goes on uncorrected."""
        field = with_net(window.field, net)
        end = jnp.asarray(number * self.length, float)
        initial: Any = at_time(field, end)
        velocity = None if self.problem.velocity is None else _Rate(field, end)
        return self._window(initial, velocity, number)

    def _window(self, initial: Any, velocity: Any, number: int) -> Window:
        problem, recipe = self.problem, self.recipe
        start = jnp.asarray(number * self.length, float)
        box = problem.domain
        smooth = box.dimension == 1 and (box.periodic[0] or np.all(problem.neumann))
        if recipe.windows > 1 and smooth:
            # Every window then has data of one kind, and one program serves them all.
            initial, velocity = (
                None if f is None else Series.fit(f, box, _SERIES)
                for f in (initial, velocity)
            )
        # The network itself is put in at each step: any function stands in for it here.
        ansatz = Ansatz(
            _zero,
            initial if recipe.hard_initial else None,
            velocity if recipe.hard_initial else None,
            start,
            self.length,
            problem.profile,
        )
        return Window(
            as_field(self.method.training_field(problem, ansatz, self.rule, recipe)),
            as_field(self.method.trained_field(problem, ansatz, self.final_rule)),
            self.rule,
            initial,
            velocity,
            start,
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


def _zero(x: Array, t: Array) -> Array:
    # By name, so that it is the same one in every window and so is their program.
    return jnp.zeros((), x.dtype)
