"""certificate: what holds, measured, on the rule and in the continuum."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats.qmc
from jaxtyping import Array

from .._core import Certificate, assemble, time_list
from .._domain import Box
from .._quadrature import QuadratureRule, lattice, monte_carlo, sobol
from .._quadrature._lattice import MOST_SEARCHED_NODES
from .._quadrature._rule import two_means
from ._field import ConservedField, FieldAt
from ._targets import Times, target_at

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
    volume = 1.0 if field.normalised else box.volume

    grid = time_list(times)
    point = jnp.asarray(field.rule.block(0, 1)[0][0])

    def measure(t: float | None) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        # As an array, so that all times share one program.
        now = field.at(None if t is None else jnp.asarray(t))
        found = [
            volume * np.asarray(_two_integrals(now, r)).reshape(2, -1)
            for r in (field.rule, other, *rules)
        ]
        scale, status = np.asarray(now.scale), np.asarray(now.status)
        return np.atleast_1d(scale), np.atleast_1d(status), found

    output = jax.eval_shape(lambda: field.at(grid[0])(point)).dtype
    return assemble(
        grid,
        list(zip(field.mass, field.energy, strict=True)),
        lambda target, t: float(target_at(target, t)),
        measure,
        volume=volume,
        rule=repr(field.rule),
        other_rule=repr(other),
        replicates=f"{replicates} randomisations of {base!r}",
        eps=float(max(jnp.finfo(d).eps for d in (output, jnp.result_type(float)))),
    )


@eqx.filter_jit
def _two_integrals(now: FieldAt, rule: QuadratureRule) -> Array:
    return two_means(rule, now)


def independent_rule(box: Box, size: int, key: Array) -> QuadratureRule:
    """A randomised rule of a box that shares nothing with another of this size."""
    nodes = max(_NODES, 1 << (size - 1).bit_length())
    if box.dimension <= 100 and nodes <= MOST_SEARCHED_NODES:
        return lattice(box, nodes, key=key)
    if box.dimension <= scipy.stats.qmc.Sobol.MAXDIM:
        return sobol(box, nodes, key=key)
    return monte_carlo(box, size, key=key)
