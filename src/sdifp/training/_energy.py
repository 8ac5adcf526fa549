"""What one step minimises where the solution minimises a functional."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from ..field import Jets, MomentTable, jets_at, value_and_gradient
from ..invariants import At, Invariant
from ..operators import Functional
from ..problems import Problem
from ..quadrature import QuadratureRule
from ._coupled import expansion_at, jet_row, rows_and_derivatives
from ._methods import Instant
from ._window import Window, with_net

# Curvatures of the density count as at least this part of their size over the domain,
# so that the step is bounded where the density is flat.
_LEAST_CURVATURE = 1e-3


class EnergyObjective(eqx.Module):
    """The objective of one step: a functional on fresh nodes, which the network cannot
    exploit, and what the method adds."""

    window: Window
    multipliers: Float[Array, "1 n"]
    key: Array
    step: Int[Array, ""]
    switched: Bool[Array, ""]
    kept: MomentTable | None
    "always None: there is no time"

    @property
    def functional(self) -> Functional:
        """What is minimised."""
        found = self.window.problem.functional
        assert found is not None
        return found

    @property
    def rule(self) -> QuadratureRule:
        """The rule of this step."""
        rule = self.window.rule
        if not rule.is_randomised:
            return rule
        return rule.resample(jax.random.fold_in(self.key, 0))

    def field(self, net: Any) -> Any:
        """The field that is trained, on the rule of this step."""
        field = with_net(self.window.field, net)
        fresh = self.window.method.resample(field, jax.random.fold_in(self.key, 1))
        return fresh.on(self.rule)

    def renewed(self, net: Any) -> "EnergyObjective":
        """The same: nothing is kept from step to step."""
        del net
        return self

    def loss(self, net: Any) -> Float[Array, ""]:
        """The functional on the nodes of this step, and half the squares of what the
        method adds."""
        u = self.field(net)
        found = expansion_at(u, None, 0)
        if found is None:
            return self.loss_of(u.at())
        # Of a field that meets its targets nowhere: the step is undone.
        lost = jnp.where(found.now.is_hopeless, jnp.nan, 0.0)
        return self.loss_of(found.now) + lost

    def loss_of(self, now: Callable[[Array], Array]) -> Float[Array, ""]:
        """That of a function of one point."""
        rule, volume = self.rule, self.rule.domain.volume
        nodes, weights = rule.at(jnp.arange(rule.size))
        jets = jets_at(now, nodes)
        added = self.window.method.rows(self._instant(now))
        energy = self.functional.of_jets(nodes, weights, jets, volume)
        return energy + 0.5 * jnp.sum(added**2)

    def total(self, net: Any) -> Float[Array, ""]:
        """The same."""
        return self.loss(net)

    def linearise(
        self, net: Any
    ) -> tuple[Float[Array, ""], Float[Array, " n"], Float[Array, "n p"]]:
        """The loss, and rows R with derivatives J such that `J^T R` is its gradient and
        `J^T J` its curvature in the values and gradients of the field.

        With H the second derivatives of the Lagrangian's density at a node, negative
        ones left out, the rows are `(w H)^(1/2) H^-1 grad F`, and their derivatives
        those of `(w H)^(1/2) (u, grad u)`: the natural gradient of the energy.
        """
        params, static = eqx.partition(net, eqx.is_inexact_array)
        flat, unravel = ravel_pytree(params)

        def field(flat: Array) -> Any:
            return self.field(eqx.combine(unravel(flat), static))

        rule, functional = self.rule, self.functional
        nodes, weights = rule.at(jnp.arange(rule.size))
        found = rows_and_derivatives(jet_row, field, flat, nodes[None], None, 0)
        values, slopes = found
        jets = Jets.of_rows(values, self.window.problem.shape)
        volume = rule.domain.volume
        energy = functional.of_jets(nodes, weights, jets, volume)
        slope, curvature = functional.local_jets(nodes, weights, jets, volume)
        if field(flat).rule is not None:
            known = (nodes, weights, jets, slope)
            curvature = curvature - _of_constraint(self.window.problem, *known)
        width = float(np.max(rule.domain.width))
        count = len(self.window.problem.components)
        rows, factors = _natural(slope, curvature, weights, width, count)
        jacobian = jnp.einsum("mjk,mkp->mjp", factors, slopes)

        def added(flat: Array) -> Array:
            u = field(flat)
            known = expansion_at(u, None, 0)
            now = u.at() if known is None else known.now
            return self.window.method.rows(self._instant(now))

        extra = added(flat)
        whole, derivatives = [rows.reshape(-1)], [jacobian.reshape(-1, flat.size)]
        if extra.size:
            whole.append(extra)
            derivatives.append(jax.jacrev(added)(flat))
        loss = energy + 0.5 * jnp.sum(extra**2)
        return loss, jnp.concatenate(whole), jnp.concatenate(derivatives)

    def updated_multipliers(self, net: Any) -> Float[Array, "1 n"]:
        """The multipliers of the method after this step."""
        if not self.multipliers.size:
            return self.multipliers
        return self.window.method.update(self._instant(self.field(net).at()))[None]

    def _instant(self, now: Any) -> Instant:
        problem = self.window.problem
        return Instant(problem, now, self.rule, None, self.multipliers[0])


def _of_constraint(
    problem: Problem, nodes: Array, weights: Array, jets: Jets, slope: Jets
) -> Float[Array, "m k k"] | float:
    """The second derivatives of the prescribed quadratic integral at each node, times
    its Lagrange multiplier: the curvature of the functions that have the integral.

    Where v has no effect on the linear integrals, the slope along v is the multiplier
    times that of the quadratic integral: here v is u without its linear part.
    """
    forms = [one for one in problem.prescribed if not one.is_linear]
    if not forms:
        return 0.0
    linear = [one for one in problem.prescribed if one.is_linear]
    profile, n, d = problem.shift_profile, len(problem.components), nodes.shape[1]

    def psi(x: Array) -> Float[Array, "p n"]:
        rows = []
        for one in linear:
            found = jnp.reshape(one.weight_at(x, None, n), -1).astype(x.dtype)
            rows.append(jnp.zeros(n, x.dtype).at[jnp.array(one.among(n))].set(found))
        return jnp.stack(rows)

    chi = psi if profile is None else lambda x: profile(x) * psi(x)
    along = flat = jets.rows
    if linear:
        weighted = weights[:, None, None] * jax.vmap(psi)(nodes)
        away = jax.vmap(functools.partial(value_and_gradient, chi))(nodes)
        away = [a.reshape(*weighted.shape[:2], -1) for a in away]
        overlaps = jnp.einsum("mpn,mqn->pq", weighted, away[0])
        sums = jnp.einsum("mpn,mn->p", weighted, flat[:, :n])
        factors = jnp.linalg.lstsq(overlaps, sums)[0]
        along = flat - jnp.einsum("mpk,p->mk", jnp.concatenate(away, 2), factors)

    def density(form: Invariant, z: Array, x: Array) -> Array:
        at = At(z[:n], [0.0] * n, x, None, z[n:].reshape(n, d))
        return problem.domain.volume * jnp.reshape(form.density(at), ())

    total: Float[Array, "m k k"] | float = 0.0
    for form in forms:
        of = functools.partial(density, form)
        # Its own components: those of other forms have multipliers of their own.
        own = np.isin(np.arange(n), form.among(n))
        own = np.concatenate([own, np.repeat(own, d)])
        product = lambda rows, own=own: weights @ jnp.sum(rows * along * own[None], 1)
        multiplier = product(slope.rows) / product(jax.vmap(jax.grad(of))(flat, nodes))
        total = total + multiplier * jax.vmap(jax.hessian(of))(flat, nodes)
    return total


def _natural(
    slope: Jets,
    curvature: Float[Array, "m k k"],
    weights: Float[Array, " m"],
    width: float,
    count: int,
) -> tuple[Float[Array, "m k"], Float[Array, "m k k"]]:
    """Rows, and the matrices that make their derivatives of those of the jets."""
    gradient = slope.rows
    # In units in which each entry of the jets has curvature one on average.
    size = weights @ jnp.abs(jnp.diagonal(curvature, axis1=1, axis2=2))
    of_gradient = jnp.mean(size[count:])
    size = size.at[:count].max(of_gradient / width**2)
    size = size.at[count:].max(_LEAST_CURVATURE * of_gradient)
    size = jnp.where(size > 0.0, size, 1.0)
    root = jnp.sqrt(size)
    values, vectors = jnp.linalg.eigh(curvature / jnp.outer(root, root)[None])
    values = jnp.maximum(values, _LEAST_CURVATURE)
    weighted = jnp.sqrt(weights.astype(values.dtype))[:, None]
    turned = jnp.einsum("mkj,mk->mj", vectors, gradient / root[None])
    rows = weighted * turned / jnp.sqrt(values)
    factors = (weighted * jnp.sqrt(values))[:, :, None] * jnp.swapaxes(vectors, 1, 2)
    return rows, factors * root[None, None]
