"""Why a functional is lost in training: it has no lower bound, or no value."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..field import as_field, jets_at
from ._energy import EnergyObjective

# By how much gradients, or the field, are multiplied to see where the functional goes:
# so far that terms of higher order decide.
_FACTORS = (1e4, 1e8)
# Nodes that are looked at.
_NODES = 256


def why_lost(objective: EnergyObjective, net: Any) -> str | None:
    """Why there is no use in going on, if so: what the functional does."""
    functional = objective.functional
    x, jets, values = map(np.asarray, _densities(objective, net))
    if not np.all(np.isfinite(values)):
        k = int(np.argmin(np.isfinite(values)))
        at = ", ".join(f"{v:.4g}" for v in x[k][:3]) + (
            ", ..." if len(x[k]) > 3 else ""
        )
        return (
            f"the density of {functional.name} is {values[k]} at x = [{at}], where "
            f"u = {', '.join(f'{v:.4g}' for v in np.ravel(jets[k]))}"
        )
    held = any(one.needs_gradient for one in objective.window.problem.prescribed)
    held = held or any(one.needs_gradient for one in functional.integrals)
    if not held and falls(_with_steep_gradients(objective, net)):
        return (
            f"{functional.name} has no lower bound: its density falls without limit "
            f"where the gradient grows; check its signs"
        )
    free = as_field(objective.field(net)).rule is None
    if free and falls(_with_multiples(objective, net)):
        return (
            f"{functional.name} has no lower bound: it falls without limit where u is "
            f"multiplied by a number; check its signs, or prescribe an integral, such "
            f"as squared_norm"
        )
    return None


def falls(values: Float[Array, "2 n"]) -> bool:
    """Whether one of some numbers falls at least in proportion to the factors."""
    near, far = np.asarray(values)
    ratio = _FACTORS[1] / _FACTORS[0]
    return bool(np.any((near < 0.0) & (far < 0.5 * ratio * near)))


@eqx.filter_jit
def _densities(objective: EnergyObjective, net: Any) -> tuple[Array, Array, Array]:
    """The nodes, the field there and the density."""
    nodes, jets, known = _on_nodes(objective, net)
    values = jax.vmap(objective.functional.at_point)(nodes, jets.u, jets.grad, known)
    return nodes, jets.u, values


@eqx.filter_jit
def _with_steep_gradients(objective: EnergyObjective, net: Any) -> Float[Array, "2 n"]:
    """The density at some nodes with steep gradients in random directions: its mean
    over both signs, as of a field that oscillates, in which what is held does not
    change."""
    nodes, jets, known = _on_nodes(objective, net)
    some = lambda a: a[:: max(1, len(nodes) // _NODES)]
    x, u, slopes = some(nodes), some(jets.u), some(jets.grad)
    known = jax.tree.map(some, known)
    size = 1.0 + jnp.sqrt(jnp.mean(jets.grad**2))
    along = jax.random.normal(objective.key, slopes.shape, slopes.dtype)
    norms = jnp.linalg.norm(along.reshape(len(along), -1), axis=1)
    along = size * along / norms.reshape(-1, *[1] * (along.ndim - 1))
    density = jax.vmap(objective.functional.at_point)

    def of(factor: float) -> Array:
        both = [density(x, u, sign * factor * along, known) for sign in (1.0, -1.0)]
        return 0.5 * (both[0] + both[1])

    return jnp.stack([of(factor) for factor in _FACTORS])


@eqx.filter_jit
def _with_multiples(objective: EnergyObjective, net: Any) -> Float[Array, "2 1"]:
    """The loss with multiples of the field."""
    now = objective.field(net).at()
    of = lambda factor: objective.loss_of(lambda x: factor * now(x))
    return jnp.stack([of(factor) for factor in _FACTORS])[:, None]


def _on_nodes(objective: EnergyObjective, net: Any) -> tuple[Array, Any, Any]:
    """The nodes of a step, the field there, and the integrals in the density."""
    rule = objective.rule
    nodes, weights = rule.at(jnp.arange(rule.size))
    jets = jets_at(objective.field(net).at(), nodes)
    volume = rule.domain.volume
    known = objective.functional.integrals_of(nodes, weights, jets, volume)
    return nodes, jets, known
