"""certificate: what holds, measured, on the rule and in the continuum."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats.qmc
from jaxtyping import Array

from .._core import Certificate, assemble
from .._domain import Box
from ..invariants import time_list
from ..quadrature import (
    MOST_SEARCHED_NODES,
    Midpoint,
    QuadratureRule,
    TensorRule,
    lattice,
    monte_carlo,
    rule_for,
    sobol,
)
from ._field import ConservedField
from ._integrals import means_of
from ._slice import FieldSlice
from ._targets import Times, double_target_at

# Nodes of each randomisation in the estimate of the continuum.
_NODES = 2**12


def certify(
    field: ConservedField,
    times: Times | None,
    *,
    key: Array,
    other_rule: QuadratureRule | None,
    replicates: int,
) -> Certificate:
    """Measure a field; see `ConservedField.certificate`."""
    if replicates < 2:
        raise ValueError(f"replicates must be at least 2, got {replicates}")
    box = field.rule.domain
    for_other, for_base, for_rules = jax.random.split(key, 3)
    for_finer = jax.random.fold_in(key, 3)
    base = independent_rule(box, field.rule.size, for_base)
    rules = base.replicates(for_rules, replicates)
    other = (
        independent_rule(box, field.rule.size, for_other)
        if other_rule is None
        else other_rule
    )
    if other.domain != box:
        raise ValueError(
            f"other_rule must live on the box of the field, {box}, got {other.domain}"
        )
    grid = time_list(times)
    point = jnp.asarray(field.rule.block(0, 1)[0][0])
    prescribed = field.prescribed

    def integrals(now: FieldSlice, rule: QuadratureRule) -> np.ndarray:
        means = [0.0 if m is None else m for m in now.means]
        found = _means(prescribed.invariants, rule, now, means)
        return prescribed.volume * np.asarray(found, float)

    def at(
        t: float | None,
    ) -> tuple[np.ndarray, np.ndarray, Callable[[QuadratureRule], np.ndarray]]:
        # As an array, so that all times share one program.
        now = field.at(None if t is None else jnp.asarray(t))
        scale, status = (np.atleast_1d(np.asarray(a)) for a in (now.scale, now.status))
        return scale, status, functools.partial(integrals, now)

    even = _even(field.rule)
    output = jax.eval_shape(lambda: field.at(grid[0])(point)).dtype
    return assemble(
        grid,
        prescribed,
        [field.rule, other, *rules],
        base,
        evaluate=double_target_at,
        at=at,
        finer=lambda nodes: rule_for(box, nodes, neumann=even, key=for_finer),
        eps=float(max(jnp.finfo(d).eps for d in (output, jnp.result_type(float)))),
    )


# A name of its own, for tests to compile it in a hurry.
_means = eqx.filter_jit(means_of)


def _even(rule: QuadratureRule) -> list[bool]:
    """The axes on which the rule relies on a field that is even across the walls."""
    axes = rule.axes if isinstance(rule, TensorRule) else ()
    return [isinstance(axis, Midpoint) for axis in axes] or [False] * rule.dimension


def independent_rule(box: Box, size: int, key: Array) -> QuadratureRule:
    """A randomised rule of a box that shares nothing with another of this size."""
    nodes = max(_NODES, 1 << (size - 1).bit_length())
    if box.dimension <= 100 and nodes <= MOST_SEARCHED_NODES:
        return lattice(box, nodes, key=key)
    if box.dimension <= scipy.stats.qmc.Sobol.MAXDIM:
        return sobol(box, nodes, key=key)
    return monte_carlo(box, size, key=key)
