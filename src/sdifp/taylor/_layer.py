"""Second-order operators through the first layer of a network. Knows jets only.

A function that sees x through z = W x alone, or through coordinate-wise features and
then a linear layer, z_j = sum_k g_jk(x_k), has second derivatives of low rank. With
`B_kj = dz_j / dx_k` and weights c,

    sum_k c_k d^2 f / dx_k^2 = sum_ij (B^T c B)_ij d^2 f / dz_i dz_j
                             + sum_j (df / dz_j) sum_k c_k d^2 z_j / dx_k^2,

so that as many directions as z has entries are pushed through the rest of the network
with the metric `B^T c B`, instead of one for each coordinate. Exact.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array

from ._interpreter import Composed, Interpreter
from ._jet import Collapse, Jet, constant, densify, only_top, or_zero


def identity_jet(x: Array, top: Array | None, order: int) -> Jet:
    """A point, with the coordinates as directions."""
    (d,) = x.shape
    higher = (None,) * (order - 2)
    return Jet(x, (jnp.ones((d, 1), x.dtype), *higher), top, jnp.arange(d)[:, None])


def _first_layer(
    closed: core.ClosedJaxpr,
    inputs: Sequence[Jet],
    collapse: Collapse,
    token: Array | None,
) -> tuple[Interpreter, dict[Any, Jet], list[Any]]:
    """Evaluate what depends on x coordinate by coordinate, and the linear maps of it.

    Returns the values so far, the jets of the variables in which coordinates meet, and
    the equations that are left.
    """
    stage = Interpreter(closed, collapse, token)
    stage.values.update(zip(closed.jaxpr.invars, inputs, strict=True))
    exits: dict[Any, Jet] = {}
    later: list[Any] = []
    for eqn in closed.jaxpr.eqns:
        atoms = [a for a in eqn.invars if not isinstance(a, core.Literal)]
        if any(a in exits or a not in stage.values for a in atoms):
            later.append(eqn)
            continue
        stage.step(eqn)
        for var in eqn.outvars:
            value = stage.values[var]
            meets = isinstance(value, Jet) and value.index is None
            if meets and not only_top(value):
                exits[var] = value
    # What depends on x coordinate by coordinate and is used again after the layer.
    used = [a for eqn in later for a in eqn.invars] + [closed.jaxpr.outvars[0]]
    for atom in used:
        if isinstance(atom, core.Literal) or atom in exits:
            continue
        if isinstance(stage.values.get(atom), Jet | Composed):
            value = stage.jet(atom)
            if only_top(value):
                stage.values[atom] = value
            else:
                exits[atom] = densify(value, collapse.directions)
    return stage, exits, later


# A complex value is not one direction: real and imaginary part move apart.
_NEVER = 2**40


def layer_width(closed: core.ClosedJaxpr, at: Sequence[Array]) -> tuple[int, bool]:
    """How many directions the path through the first layer has, and whether the slopes
    of the layer differ from point to point.

    **Arguments:**

    - `at`: the point, and the time if it is an argument.
    """
    widths: list[int] = []

    def slopes(x: Array, *time: Array) -> list[Array]:
        collapse = Collapse(2, x.shape[0], jnp.ones(()))
        inputs = (identity_jet(x, None, 2), *(constant(t, 2) for t in time))
        _, exits, _ = _first_layer(closed, inputs, collapse, None)
        widths.extend(
            _NEVER if jnp.iscomplexobj(jet.primal) else jet.primal.size
            for jet in exits.values()
        )
        return [row for jet in exits.values() if (row := jet.lower[0]) is not None]

    program = jax.make_jaxpr(slopes)(*at).jaxpr
    reached = set(program.invars)
    for eqn in program.eqns:
        if any(a in reached for a in eqn.invars if not isinstance(a, core.Literal)):
            reached.update(eqn.outvars)
    varies = any(a in reached for a in program.outvars)
    return sum(widths), varies


def through_layer(
    closed: core.ClosedJaxpr,
    inputs: Sequence[Jet],
    collapse: Collapse,
    token: Array | None,
) -> tuple[Array, Array, Array, set[str]]:
    """The value of a function, its gradient with respect to the first argument, its
    collapsed coefficient of order 2 over all coordinates of that, and the primitives
    that had no rule."""
    stage, exits, later = _first_layer(closed, inputs, collapse, token)
    sizes = [e.primal.size for e in exits.values()]
    width, d = sum(sizes), collapse.directions
    if any(jnp.iscomplexobj(e.primal) for e in exits.values()):
        raise ValueError("ThroughLayer() needs a first layer of real numbers")
    blocks = [or_zero(e.lower[0], e.primal, (d,)) for e in exits.values()]
    none = jnp.zeros((d, 0), inputs[0].primal.dtype)
    slope = jnp.concatenate([b.reshape(d, -1) for b in blocks] or [none], 1)
    weights = collapse.weights
    if collapse.metric is None and weights is not None and weights.ndim == 0:
        metric = weights * (slope.T @ slope)
    elif collapse.metric is None:
        metric = slope.T @ collapse.own(slope)
    else:
        metric = slope.T @ (collapse.metric @ slope)
    rest = Interpreter(closed, Collapse(2, width, None, metric), token)
    rest.values.update(stage.values)
    start = 0
    for (var, old), size in zip(exits.items(), sizes, strict=True):
        rest.values[var] = _unit_jet(old, start, size, width)
        start += size
    for eqn in later:
        rest.step(eqn)
    out = densify(rest.jet(closed.jaxpr.outvars[0]), width)
    gradient = jnp.tensordot(slope, or_zero(out.lower[0], out.primal, (width,)), 1)
    top = or_zero(out.top, out.primal)
    return out.primal, gradient, top, stage.fallbacks | rest.fallbacks


def _unit_jet(old: Jet, start: int, size: int, width: int) -> Jet:
    """The same value with its own entries as directions, `start` the first of them."""
    if old.primal.ndim == 1:
        at = jnp.arange(width) - start
        inside = ((at >= 0) & (at < size)).astype(old.primal.dtype)
        index = jnp.clip(at, 0, size - 1)[:, None]
        return Jet(old.primal, (inside[:, None],), old.top, index)
    rows = jnp.eye(width, dtype=old.primal.dtype)[:, start : start + size]
    return Jet(old.primal, (rows.reshape(width, *old.primal.shape),), old.top)
