"""Weights of the residuals of a system, measured before the first step."""

import equinox as eqx
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._checks import once
from ._coupled import rows_and_derivatives
from ._objective import StepObjective
from ._step import State, objective_of
from ._window import Window

# Points of the first batch at which derivatives are looked at.
_POINTS = 32
# Weights differ by at most this from one.
_MOST = 1e3


def measured_weights(
    window: Window, state: State, key: Array
) -> Float[Array, " m"] | None:
    """Weights that make all residuals equally sensitive to the parameters on average:
    the mean square of the derivatives of each, times its weight, is the same, as in the
    neural tangent kernel. Those that the equation has are kept; None for one residual.
    """
    problem = window.problem
    if problem.functional is not None:
        return None
    if problem.residual.weights is not None:
        return jnp.asarray(problem.residual.weights)
    if not problem.residual.operator.shape(problem.shape):
        return None
    found: Array = once(_sensitivities)(window, state, key)
    # A residual that no parameter changes cannot be made smaller.
    there = found > 0.0
    mean = jnp.sum(found) / jnp.maximum(jnp.sum(there), 1)
    ratio = jnp.where(there, mean / jnp.where(there, found, 1.0), 1.0)
    return jnp.clip(jnp.where(jnp.isfinite(ratio), ratio, 1.0), 1.0 / _MOST, _MOST)


def _sensitivities(window: Window, state: State, key: Array) -> Array:
    """The mean square of the derivatives of each residual with respect to the
    parameters."""
    objective = objective_of(window, state, key).renewed(state.net)
    assert isinstance(objective, StepObjective)
    equation, t = window.problem.residual, objective.t
    x = objective.x[:, : max(1, _POINTS // len(objective.x))]
    objective = eqx.tree_at(lambda o: o.x, objective, x)
    params, static = eqx.partition(state.net, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(params)
    field = lambda flat: objective.field(eqx.combine(unravel(flat), static))
    known = objective.known(field, flat)
    row = lambda u, x, t, **known: equation.at_point(u, x, t, known)
    order = window.problem.order
    _, slopes = rows_and_derivatives(row, field, flat, x, t, order, known)
    return jnp.mean(jnp.sum(slopes**2, -1), 0)
