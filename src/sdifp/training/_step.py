"""The training step, many of them in one program, and their state as arrays."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from .._mesh import EVERYWHERE, along, divided, on_each
from ..field import Lagged, MomentTable
from ._energy import EnergyObjective
from ._objective import StepObjective
from ._window import Window, with_net

# Of each of two estimates, for an audit in training.
_DRAWS = 32


class State(eqx.Module):
    """All that changes from step to step."""

    net: Any
    optimiser: Any
    multipliers: Float[Array, "n_t n"]
    step: Int[Array, ""]
    "in this window"
    total: Float[Array, ""]
    "the sum of the losses since the last report"
    counted: Int[Array, ""]
    "how many they are"
    switched: Bool[Array, ""]
    "whether `WarmUp` has been found to be due for its later estimate"
    kept: MomentTable | None
    "the moments that `Lagged` goes on with"

    @staticmethod
    def start(window: Window, net: Any) -> "State":
        """Before the first step of a window."""
        recipe = window.recipe
        multipliers = window.method.multipliers(window.problem)
        n_t = 1 if window.problem.is_steady else recipe.points.n_t
        tiled = jnp.tile(multipliers[None], (n_t, 1))
        optimiser = recipe.optimiser.start(net, recipe.steps)
        zero = jnp.zeros((), int)
        late, kept = jnp.asarray(False), _nothing_kept(window, net)
        state = State(net, optimiser, tiled, zero, jnp.zeros(()), zero, late, kept)
        # Without weak types, which would not come back from a file: each kind of types
        # is compiled for itself.
        strong = lambda a: a.astype(a.dtype) if isinstance(a, jax.Array) else a
        return jax.tree.map(strong, state)

    def reported(self) -> "State":
        """The same with no losses counted."""
        where = lambda s: (s.total, s.counted)
        return eqx.tree_at(where, self, replace_fn=jnp.zeros_like)


@eqx.filter_jit
def advance(
    window: Window, state: State, key: Array, count: Int[Array, ""]
) -> tuple[State, Bool[Array, ""]]:
    """Up to `count` steps; returns the state, and whether all is finite. A step after
    which something is not is undone, and ends the loop."""
    last = state.step + count
    arrays, static = eqx.partition(state, eqx.is_array)

    def one(carry: tuple[Any, Array]) -> tuple[Any, Array]:
        arrays, _ = carry
        state = eqx.combine(arrays, static)
        new, loss = _step(window, state, key)
        leaves = jax.tree.leaves(eqx.filter(new.net, eqx.is_inexact_array))
        healthy = jnp.isfinite(loss) & jnp.all(
            jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves])
        )
        kept = jax.tree.map(
            lambda new, old: jnp.where(healthy, new, old),
            eqx.filter(new, eqx.is_array),
            arrays,
        )
        return kept, healthy

    def go_on(carry: tuple[Any, Array]) -> Array:
        return (carry[0].step < last) & carry[1]

    arrays, healthy = jax.lax.while_loop(go_on, one, (arrays, jnp.asarray(True)))
    return eqx.combine(arrays, static), healthy


def objective_of(
    window: Window, state: State, key: Array
) -> StepObjective | EnergyObjective:
    """The objective of the next step, on fresh points."""
    return _objective(window, state, *_fresh(window, state, key))


def _fresh(window: Window, state: State, key: Array) -> tuple[Any, Any, Array]:
    """The points of the next step and their times, where there are any, and a key."""
    problem, recipe = window.problem, window.recipe
    for_points, for_step = jax.random.split(
        jax.random.fold_in(key, state.step // recipe.optimiser.refresh)
    )
    if problem.functional is not None:
        return None, None, for_step
    if window.start is None or window.length is None:
        return recipe.points.draw_steady(for_points, problem.domain), None, for_step
    at = (problem.domain, window.start, window.length)
    return *recipe.points.draw(for_points, *at), for_step


def _objective(
    window: Window, state: State, x: Any, t: Any, key: Array
) -> StepObjective | EnergyObjective:
    stage = (state.step, state.switched, state.kept)
    if x is None:
        return EnergyObjective(window, state.multipliers, key, *stage)
    return StepObjective(window, x, t, state.multipliers, key, *stage)


def _step(window: Window, state: State, key: Array) -> tuple[State, Array]:
    """One step: fresh points, one step of the optimiser, the method's own state."""
    recipe, (x, t, for_step) = window.recipe, _fresh(window, state, key)

    def update(
        x: Any, t: Any, key: Array, window: Window, state: State
    ) -> tuple[Any, Array]:
        objective = _objective(window, state, x, t, key).renewed(state.net)
        net, inner, loss = recipe.optimiser.step(
            state.net, state.optimiser, objective, recipe.steps
        )
        multipliers = objective.updated_multipliers(net)
        changed = (net, inner, multipliers, objective.kept)
        return eqx.filter(changed, eqx.is_array), loss

    found, loss = on_each(
        update,
        *(x if x is None else divided(x, 1), t, for_step, window, state),
        specs=(along(1), *[EVERYWHERE] * 4),
    )
    before = (state.net, state.optimiser, state.multipliers, state.kept)
    net, inner, multipliers, kept = eqx.combine(
        found, eqx.filter(before, eqx.is_array, inverse=True)
    )
    total = state.total + loss.astype(state.total.dtype)
    changed = (net, inner, multipliers, state.step + 1, total, state.counted + 1)
    return State(*changed, state.switched, kept), loss


def _nothing_kept(window: Window, net: Any) -> MomentTable | None:
    """What `Lagged` keeps before the first step, which computes it."""
    mode = window.field.gradient
    if not isinstance(mode, Lagged):
        return None
    u = with_net(window.field, net)
    shapes = eqx.filter_eval_shape(mode.tabulate, u, window.start, window.length)
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)


@eqx.filter_jit
def is_due(window: Window, state: State, key: Array) -> Bool[Array, ""]:
    """Whether the bias of the early estimate of `WarmUp` exceeds its noise, on the
    points of the next step."""
    params, static = eqx.partition(state.net, eqx.is_inexact_array)
    fresh = objective_of(window, state, key)

    def gradient(late: Array, key: Array) -> Array:
        objective = eqx.tree_at(lambda o: (o.switched, o.key), fresh, (late, key))
        slope = jax.grad(lambda p: objective.loss(eqx.combine(p, static)))(params)
        return ravel_pytree(slope)[0]

    keys = jax.random.split(jax.random.fold_in(fresh.key, 2), _DRAWS)
    draws = [
        jax.lax.map(lambda k, late=late: gradient(jnp.asarray(late), k), keys)
        for late in (False, True)
    ]
    return bias_exceeds_noise(*draws)


def bias_exceeds_noise(early: Array, late: Array) -> Bool[Array, ""]:
    """Whether the bias of an estimate exceeds its noise, from draws, shape (draws, p),
    of it and of an unbiased one.

    The squared norm of the bias is estimated without bias of its own, as the product
    of the mean differences of two halves of the draws.
    """
    half = len(early) // 2
    difference = early - late
    first, second = jnp.mean(difference[:half], 0), jnp.mean(difference[half:], 0)
    noise = jnp.sum(jnp.var(early, axis=0, ddof=1))
    return first @ second > noise


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree, by their paths; all else is left out."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        _name(path): np.asarray(leaf)
        for path, leaf in leaves
        if isinstance(leaf, jax.Array | np.ndarray)
    }


def from_arrays(template: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The template with its arrays replaced by those of `to_arrays`. Raises
    `ValueError` unless names, shapes and types are the same."""
    wanted = to_arrays(template)
    for name in sorted(wanted.keys() | arrays.keys()):
        one, other = (
            f"{a[name].dtype} of shape {a[name].shape}" if name in a else "nothing"
            for a in (wanted, arrays)
        )
        if one != other:
            raise ValueError(f"arrays do not fit: {name} must be {one}, got {other}")

    def new(path: tuple[Any, ...], leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array | np.ndarray):
            return leaf
        found = arrays[_name(path)]
        return jnp.asarray(found) if isinstance(leaf, jax.Array) else found

    return jax.tree_util.tree_map_with_path(new, template)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
