"""A positive network on the nodes of a rule, and what makes its moments the targets."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._core import Status
from ..correction import (
    Exponential,
    PositiveMap,
    TestFunctions,
    Wanted,
    accumulator,
    most_ratio,
    residuals,
    solve_exponential,
)
from ..invariants import Moment, entries
from ..quadrature import QuadratureRule, listed
from ._gradient import Summand, difference
from ._protocol import evaluate


class PositiveCoefficients(NamedTuple):
    """The correction of a positive network, and the test functions of its tilt."""

    correction: Exponential
    tests: TestFunctions | None

    def apply(self, positive: PositiveMap, z: Array, psi: Array | None) -> Array:
        """The field where the network is z and the weights of the moments are psi."""
        tests = None if self.tests is None else self.tests(psi)
        return self.correction.apply(positive, z, tests)

    @property
    def multiples(self) -> tuple[Array, ...]:
        """The numbers of `f^q e^(level + lambda . psi)`: the level, and q or lambda."""
        found = self.correction
        level = found.level
        if found.power is not None:
            return level, found.power
        if self.tests is None or found.tilt is None:
            return (level,)
        off = self.tests(jnp.zeros_like(self.tests.centre))
        turn = self.tests.change(jnp.eye(len(off), dtype=off.dtype))
        return level + found.tilt @ off, found.tilt @ turn


class Solution(NamedTuple):
    """The coefficients at one time, and what they depend on; of numbers that can be
    interpolated in time."""

    coefficients: PositiveCoefficients
    wanted: Wanted
    slope: Float[Array, "n n"]
    "of the residuals in the unknowns of the correction"
    least: Float[Array, " b"]
    "of what targets over the mean may be on the nodes"
    most: Float[Array, " b"]
    outcome: Float[Array, ""]
    "the number of a `Status`"

    @property
    def status(self) -> Int[Array, ""]:
        """The outcome."""
        return jnp.round(self.outcome).astype(jnp.int32)

    @property
    def pivot(self) -> Array:
        """Of the correction."""
        return self.coefficients.correction.pivot

    @property
    def sums(self) -> tuple[Any, ...]:
        """What depends on the network."""
        return unknowns(self.coefficients)

    def with_sums(self, sums: tuple[Any, ...]) -> "Solution":
        """The same with other such numbers."""
        return self.with_correction(
            eqx.tree_at(unknowns, self.coefficients, sums).correction
        )

    def with_correction(self, correction: Exponential) -> "Solution":
        """The same with another correction."""
        own = self.coefficients._replace(correction=correction)
        return self._replace(coefficients=own)

    def about(self, pivot: Array) -> "Solution":
        """The same about another pivot."""
        return self.with_correction(self.coefficients.correction.about(pivot))


def unknowns(coefficients: PositiveCoefficients) -> tuple[Any, ...]:
    """The factor, and the power or the tilt."""
    factor, _, power, tilt = coefficients.correction
    return tuple(a for a in (factor, power, tilt) if a is not None)


class NodeValues(Summand):
    """The correction of a positive network at one time, from its values on nodes."""

    net: Callable[..., Array]
    "before the map"
    time: Array | None
    mean: Array
    "the target"
    ratio: Array | None
    "the logarithm of the target of the second moment over the squared mean"
    targets: Float[Array, " p"]
    "of the moments, over the mean"
    positive: PositiveMap = eqx.field(static=True)
    moments: tuple[Moment, ...] = eqx.field(static=True)
    field: Any = eqx.field(static=True)
    "the `finfo` of its dtype"

    def _on(self, nodes: Array, weights: Array) -> tuple[Array, Array, Array]:
        """The values of the network, weights and weights of moments, nodes first."""
        kind = accumulator()
        z = jax.vmap(lambda x: evaluate(self.net, x, self.time))(nodes)
        psi = jax.vmap(lambda x: psi_at(self.moments, x, self.time))(nodes)
        return z.astype(kind), weights.astype(kind), psi

    def whole(self, rule: QuadratureRule, chunk: int) -> Solution:
        return self._solved(*listed(rule, _Block(self), chunk))

    def part(self, nodes: Array, weights: Array) -> Solution:
        return self._solved(*self._on(nodes, weights))

    def _solved(self, z: Array, w: Array, psi: Array) -> Solution:
        # Weights are constants, also where they come out of a loop over parts.
        w, psi = jax.lax.stop_gradient(w / jnp.sum(w)), psi.T
        tests = None
        least = most = jnp.zeros(0, w.dtype)
        if self.moments:
            tests = TestFunctions.of(psi, self.targets, w)
            least, most = jnp.min(psi, 1), jnp.max(psi, 1)
        if self.ratio is not None:
            logs = self.positive.log(jax.lax.stop_gradient(z))
            least, most = jnp.ones(1, w.dtype), most_ratio(logs, w)[None]
        on_nodes = None if tests is None else tests(psi)
        wanted = Wanted(self.mean, self.ratio, on_nodes)
        found, status = solve_exponential(wanted, self.positive, z, w, self.field)

        def sums(by: Array) -> Array:
            return residuals(found.moved(by), wanted, self.positive, z, w)

        n = found.unknowns
        eye, slope = jnp.eye(n, dtype=w.dtype), jax.jacfwd(sums)(jnp.zeros(n, w.dtype))
        bounds = jax.lax.stop_gradient((least, most))
        return Solution(
            PositiveCoefficients(found, tests),
            wanted._replace(tests=None),
            # Nothing changes a constant.
            jnp.where(status == Status.REGULAR, slope, eye),
            *bounds,
            status.astype(w.dtype),
        )

    def _residuals(self, now: Solution, nodes: Array, weights: Array) -> Array:
        z, w, psi = self._on(nodes, weights)
        found, tests = now.coefficients
        on_nodes = None if tests is None else tests(psi.T)
        wanted = now.wanted._replace(tests=on_nodes)
        return residuals(found, wanted, self.positive, z, w)

    def changed(
        self, whole: Solution, frozen: Any, rule: QuadratureRule, some: Any
    ) -> Solution:
        off = difference(NodeValues._residuals, self, frozen, whole, rule, some)
        off = jnp.where(whole.status == Status.REGULAR, off, 0.0)
        # One Newton step: with the same parameters the residuals are met before it, so
        # it has the gradient of the solution.
        by = -jnp.linalg.solve(whole.slope, off)
        return whole.with_correction(whole.coefficients.correction.moved(by))


class _Block(eqx.Module):
    values: NodeValues

    def __call__(self, nodes: Array, weights: Array) -> tuple[Array, Array, Array]:
        return self.values._on(nodes, weights)


def psi_at(moments: Sequence[Moment], x: Array, t: Array | None) -> Float[Array, " p"]:
    """The weights of some moments of one component at a point."""
    kind = accumulator()
    found = [entries(moment.weight_at(x, t, 1))[0] for moment in moments]
    rows = [jnp.asarray(a, kind) for a in found]
    return jnp.stack(rows) if rows else jnp.zeros(0, kind)
