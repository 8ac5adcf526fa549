"""What cannot be prescribed of groups of components, each refused in one sentence."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import is_concrete
from .._core import check_definite, check_independent, orthonormalised
from ..invariants import QuadraticForm
from ..quadrature import QuadratureRule
from ._gradient import CHUNK
from ._group import Basis, GroupFunctions, gram_on

# Nodes on which a metric is looked at together.
_LOOK = 2**14

# Directions count as unable to change the moments below this power of the rounding, of
# what directions of their size can do.
_SINGULAR_POWER = 0.6


def check_groups(
    groups: Sequence[GroupFunctions],
    rule: QuadratureRule,
    t: Array | None,
    has_time: bool,
    volume: float,
) -> None:
    """Raise `ValueError` for weights that are not usable on a rule: dependent ones, a
    quadratic form that is not positive or not quadratic, targets that are numbers and
    infeasible.

    **Arguments:**

    - `t`: a time at which weights that depend on it are looked at; without one they are
        not, and their status says later what is wrong.
    - `has_time`: whether the network takes a time.
    """
    for functions in groups:
        group = functions.group
        form = group.quadratic
        if form is not None:
            if not form.target.is_function and form.target.value(None) < 0.0:
                raise ValueError(
                    f"{form.name} must not be negative, got {form.target.value(None):g}"
                )
            (_check_form if functions.is_jet else _check_metric)(functions, rule)
        if not group.linear:
            continue
        bound = form is not None and not functions.is_jet
        if bound and len(group.linear) >= rule.size * len(group.components):
            raise ValueError(
                f"rule must have more nodes where {group.names} are prescribed, got "
                f"{rule.size}: the linear moments leave no freedom"
            )
        if t is not None or not has_time or not _is_moving(functions):
            _check_weights(functions, rule, t, volume)


def _is_moving(functions: GroupFunctions) -> bool:
    return any(getattr(i, "weight_has_time", False) for i in functions.group.linear)


def _check_weights(
    functions: GroupFunctions, rule: QuadratureRule, t: Array | None, volume: float
) -> None:
    """Raise `ValueError` for linear moments that are not independent, or that the
    directions cannot change."""
    group = functions.group
    gram = gram_on(functions, Basis(None), rule, t, CHUNK)
    if not is_concrete(gram):
        return
    known = np.asarray(gram, float)
    if not np.isfinite(known).all():
        raise ValueError(
            f"weight of {group.names} is not finite on the nodes of the rule"
        )
    rounding = float(jnp.finfo(gram.dtype).eps)
    check_independent([one.name for one in group.linear], known, rounding)
    if functions.is_oblique:
        _check_directions(functions, rule, t, gram)
    else:
        _check_least(functions, known, volume)


def _check_directions(
    functions: GroupFunctions, rule: QuadratureRule, t: Array | None, gram: Array
) -> None:
    on = lambda basis: gram_on(functions, basis, rule, t, CHUNK)
    change = orthonormalised(gram, lambda once: on(Basis(once)))
    basis = Basis(change, (jnp.eye(len(gram), dtype=gram.dtype),))
    squares = lambda x: jnp.sum(basis.mixed(functions.directions(x, t)) ** 2, 1)
    # What directions of these sizes do to orthonormal test functions.
    sizes = np.sqrt(np.asarray(rule.mean(squares), float))
    coupling = np.asarray(on(basis), float) / np.where(sizes > 0.0, sizes, 1.0)
    least = float(np.linalg.svd(coupling, compute_uv=False)[-1])
    if not least > float(jnp.finfo(gram.dtype).eps) ** _SINGULAR_POWER:
        raise ValueError(
            f"profile must allow the moments to be changed: the weights of "
            f"{functions.group.names} times it are orthogonal to a combination of the "
            f"weights on the nodes of the rule"
        )


def _check_least(functions: GroupFunctions, gram: np.ndarray, volume: float) -> None:
    """Raise `ValueError` for targets that are numbers and below the least value."""
    group, form = functions.group, functions.group.quadratic
    given = [*group.linear, *([form] if form is not None else [])]
    if form is None or _is_moving(functions):
        return
    if any(one.target.is_function for one in given):
        return
    wanted = np.array([one.target.value(None) / volume for one in group.linear])
    scale = 1.0 / np.sqrt(np.diag(gram))
    scaled = gram * np.outer(scale, scale)
    least = wanted * scale @ np.linalg.solve(scaled, wanted * scale)
    target = form.target.value(None) / volume
    if target < least * (1.0 - 1e-6):
        raise ValueError(
            f"the targets of {group.names} cannot be met: {form.name} = "
            f"{target * volume:g} is below the least that a field with these moments "
            f"can have, {least * volume:g}"
        )


def _check_metric(functions: GroupFunctions, rule: QuadratureRule) -> None:
    """Raise `ValueError` unless the weight of a quadratic form is symmetric and
    positive definite on every node."""
    form = functions.group.quadratic
    assert form is not None
    for first in range(0, rule.size, _LOOK):
        nodes, _ = rule.block(first, min(_LOOK, rule.size - first))
        if not is_concrete(nodes) or functions.metric(nodes[0]) is None:
            return
        known: Any = jax.vmap(functions.metric)(nodes)
        rounding = 1e4 * float(jnp.finfo(known.dtype).eps)
        found = np.asarray(known, float)
        found = found[:, None, None] if found.ndim == 1 else found
        if not np.isfinite(found).all():
            node = first + int(np.argwhere(~np.isfinite(found))[0, 0])
            raise ValueError(f"weight of {form.name} is not finite on node {node}")
        size = np.abs(found).max((1, 2), keepdims=True)
        skew = np.abs(found - np.swapaxes(found, 1, 2)) > rounding * size
        if skew.any():
            node = first + int(np.argwhere(skew)[0, 0])
            raise ValueError(f"weight of {form.name} must be symmetric on node {node}")
        check_definite(
            f"weight of {form.name}", found, float(jnp.finfo(known.dtype).eps), first
        )


def _check_form(functions: GroupFunctions, rule: QuadratureRule) -> None:
    """Raise `ValueError` for a form of u and its gradient that is not quadratic, or
    negative, at some values on some nodes."""
    form: Any = functions.group.quadratic
    if isinstance(form, QuadraticForm):
        form.check_indices(len(form.among(functions.count)), rule.dimension)
    nodes = rule.at(jnp.asarray([0, rule.size // 2, rule.size - 1]))[0]
    if not is_concrete(nodes):
        return
    shape = (len(form.among(functions.count)), 1 + rule.dimension)
    v, w = np.random.default_rng(0).normal(size=(2, *shape))
    # That of a parallelogram, and twice a side.
    given = jnp.asarray(np.stack([v, w, v + w, v - w, 2.0 * v]))
    at = lambda x: jax.vmap(lambda v: form.form_at(v[:, 0], v[:, 1:], x))(given)
    found = np.asarray(jax.vmap(at)(nodes), float)
    if not np.isfinite(found).all():
        raise ValueError(f"form of {form.name} is not finite on the nodes of the rule")
    one, other, plus, minus, twice = found.T
    off = np.stack([plus + minus - 2.0 * (one + other), twice - 4.0 * one])
    size = np.abs(found).max()
    if np.abs(off).max() > float(jnp.finfo(given.dtype).eps) ** 0.5 * size:
        raise ValueError(
            f"form of {form.name} must be quadratic in u and grad: twice the values "
            f"must give four times the form, and forms of sums those of a parallelogram"
        )
    if found.min() < 0.0 or size == 0.0:
        raise ValueError(f"form of {form.name} must be positive, got {found.min():.3g}")
