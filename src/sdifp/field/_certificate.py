"""certificate: what holds, measured, on the rule and in the continuum."""

import functools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats.qmc
from jaxtyping import Array, ArrayLike, Float

from .._checks import output_of
from .._core import Certificate, assemble
from .._domain import Box
from ..invariants import At, Invariant, densities, time_list
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
from ._protocol import evaluate
from ._slice import FieldSlice, Times, double_target_at

# Nodes of each randomisation in the estimate of the continuum.
_NODES = 2**12


def certify(
    field: ConservedField,
    times: Times | None,
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
    other = other_rule or independent_rule(box, field.rule.size, for_other)
    if other.domain != box:
        raise ValueError(
            f"other_rule must live on the box of the field, {box}, got {other.domain}"
        )
    prescribed = field.prescribed

    def integrals(now: FieldSlice, rule: QuadratureRule) -> np.ndarray:
        means = [0.0 if m is None else m for m in now.means]
        found = _means(prescribed.every, rule, now, means, now.time)
        return prescribed.volume * np.asarray(found, float)

    def at(
        t: float | None,
    ) -> tuple[np.ndarray, np.ndarray, Callable[[QuadratureRule], np.ndarray]]:
        # As an array, so that all times share one program.
        now = field.at(None if t is None else jnp.asarray(t))
        scale, status = (np.atleast_1d(np.asarray(a)) for a in (now.scale, now.status))
        return scale, status, functools.partial(integrals, now)

    # The axes on which the rule relies on a field that is even across the walls.
    axes = field.rule.axes if isinstance(field.rule, TensorRule) else ()
    even = [isinstance(axis, Midpoint) for axis in axes] or [False] * box.dimension
    output = output_of(field.net, box.dimension, field.has_time).dtype
    return assemble(
        time_list(times),
        prescribed,
        [field.rule, other, *rules],
        base,
        evaluate=double_target_at,
        at=at,
        finer=lambda nodes: rule_for(box, nodes, neumann=even, key=for_finer),
        eps=float(max(jnp.finfo(d).eps for d in (output, jnp.result_type(float)))),
    )


class _Densities(eqx.Module):
    function: Callable[[Array], Array]
    means: tuple[ArrayLike, ...]
    time: Array | None
    invariants: tuple[Invariant, ...] = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        u = jnp.atleast_1d(self.function(x))
        given = self.means or (0.0,) * len(u)
        means = [jnp.asarray(m, u.dtype) for m in given]
        gradient = None
        if any(one.needs_gradient for one in self.invariants):
            # Backward in high dimension; forward elsewhere, which loops allow, too.
            slope = jax.jacfwd if x.size <= max(u.size, 3) else jax.jacrev
            gradient = jnp.atleast_2d(slope(self.function)(x))
        at = At(u, means, x, self.time, gradient)
        rows = densities(self.invariants, at)
        return jnp.stack([jnp.asarray(row, u.dtype) for row in rows])


def means_of(
    invariants: Sequence[Invariant],
    rule: QuadratureRule,
    function: Callable[[Array], Array],
    means: Sequence[ArrayLike] = (),
    time: Array | None = None,
) -> Float[Array, " n"]:
    """The means over the domain of the rows of each invariant, of a function of one
    point; `sdifp.invariants.read_rows` tells them apart.

    **Arguments:**

    - `means`: the prescribed mean of each component; zero where there is none.
    - `time`: that of the function, for weights that depend on it.
    """
    if not invariants:
        return jnp.zeros(0)
    return rule.mean(_Densities(function, tuple(means), time, tuple(invariants)))


def check_densities(
    invariants: Sequence[Invariant],
    function: Callable[..., Array],
    dimension: int,
    has_time: bool,
) -> None:
    """Raise the sentence of the first invariant that cannot be evaluated at a point, of
    a function of (x, t) or of x."""
    if not invariants:
        return

    def rows(x: Array, t: Array | None = None) -> Array:
        at_time = lambda x: evaluate(function, x, t)
        return _Densities(at_time, (), t, tuple(invariants))(x)

    output_of(rows, dimension, has_time)


# A name of its own, for tests to compile it in a hurry.
_means = eqx.filter_jit(means_of)


def independent_rule(box: Box, size: int, key: Array) -> QuadratureRule:
    """A randomised rule of a box that shares nothing with another of this size."""
    nodes = max(_NODES, 1 << (size - 1).bit_length())
    if box.dimension <= 100 and nodes <= MOST_SEARCHED_NODES:
        return lattice(box, nodes, key=key)
    if box.dimension <= scipy.stats.qmc.Sobol.MAXDIM:
        return sobol(box, nodes, key=key)
    return monte_carlo(box, size, key=key)
