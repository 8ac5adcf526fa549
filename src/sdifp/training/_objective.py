"""What one step minimises: residuals, initial data, and what the method adds."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from .._mesh import averaged, device_local, gathered, is_divided
from ..estimators import WarmUp
from ..field import (
    Interpolated,
    Jets,
    Lagged,
    MomentTable,
    PlainSlice,
    at_time,
    integrals_at,
    sum_at,
)
from ..invariants import Integral
from ..operators import Batch, Residual, time_derivative
from ..quadrature import QuadratureRule
from ._coupled import (
    Known,
    Row,
    coupling_at,
    expansion_at,
    jet_row,
    rows_and_derivatives,
)
from ._methods import Instant
from ._window import Window, with_net

# Derivatives of the field on nodes, or of kernels, that are held together.
_NUMBERS = 2**24


class StepObjective(eqx.Module):
    """The objective of one step: a batch of points, and fresh randomness."""

    window: Window
    x: Float[Array, "n_t n_x d"]
    t: Float[Array, " n_t"] | None
    "None without time, with one entry on the first axis of all else"
    multipliers: Float[Array, "n_t n"]
    key: Array
    step: Int[Array, ""]
    switched: Bool[Array, ""]
    kept: MomentTable | None
    "by `Lagged`, of an earlier step"

    def field(self, net: Any) -> Any:
        """The field that is trained, with its randomness for this step."""
        field = with_net(self.window.field, net)
        fresh = self.window.method.resample(field, jax.random.fold_in(self.key, 0))
        if isinstance(fresh.gradient, Interpolated):
            return fresh.tabulated(self.window.start, self.window.length)
        if self.kept is None:
            return fresh
        return fresh.with_gradient(fresh.gradient.keep(self.kept))

    def renewed(self, net: Any) -> "StepObjective":
        """The same with the moments of now where `Lagged` is to compute them anew."""
        mode = self.window.field.gradient
        if not isinstance(mode, Lagged):
            return self
        u, start, length = self.field(net), self._start, self.window.length
        assert length is not None
        new = lambda: mode.tabulate(u, start, length)
        kept = jax.lax.cond(self.step % mode.every == 0, new, lambda: self.kept)
        return eqx.tree_at(lambda o: o.kept, self, kept)

    def loss(self, net: Any) -> Float[Array, ""]:
        """An estimate of half the mean squared residual, and the rest of the loss, on
        the points of all devices."""
        params, static = eqx.partition(net, eqx.is_inexact_array)
        own = lambda params: self._own_loss(eqx.combine(params, static))
        if not is_divided():
            return own(params)

        # The gradient of each device is by its own copy of the parameters.
        @jax.custom_vjp
        def of_all(params: Any) -> Array:
            return averaged(own(params))

        def forward(params: Any) -> tuple[Array, Any]:
            return averaged(jax.value_and_grad(own)(params))

        def backward(gradient: Any, cotangent: Array) -> tuple[Any]:
            times = lambda g: (cotangent * g).astype(g.dtype)
            return (jax.tree.map(times, gradient),)

        of_all.defvjp(forward, backward)
        return of_all(params)

    def _own_loss(self, net: Any) -> Float[Array, ""]:
        u = self.field(net)
        key = jax.random.fold_in(self.key, 1)
        recipe, equation = self.window.recipe, self._equation
        estimator = self.window.estimator
        if isinstance(estimator, WarmUp):
            estimator = estimator.at(self.step, self.switched)
        series, integrals, added = self._at_times(u)
        if recipe.causal is None:
            batch = Batch(self.x, self.t)
            known = (series, integrals)
            out = estimator.estimate(equation, u, batch, key, *known).loss
        else:
            rows = self._residuals(u, series, integrals)
            rows = rows.reshape(*self.x.shape[:2], -1)
            squares = averaged(jnp.mean(jnp.sum(rows**2, axis=2), axis=1))
            earlier = jnp.cumsum(squares) - squares
            weights = jax.lax.stop_gradient(jnp.exp(-recipe.causal * earlier))
            out = 0.5 * jnp.mean(weights * squares)
        for values in self._initial_values(u):
            squares = jnp.sum(values.reshape(len(values), -1) ** 2, axis=1)
            out = out + 0.5 * recipe.initial_weight * jnp.mean(squares)
        return out + 0.5 * jnp.mean(jnp.sum(added**2, axis=1))

    def total(self, net: Any) -> Float[Array, ""]:
        """The loss with all terms, half the sum of the squares of the rows."""
        return 0.5 * jnp.sum(self.rows(net) ** 2)

    def rows(self, net: Any) -> Float[Array, " n"]:
        """The rows: half the sum of their squares is the loss."""
        u = self.field(net)
        series, integrals, added = self._at_times(u)
        residuals = self._residuals(u, series, integrals)
        parts = [self._scaled(self._of_all(residuals, len(self.x))).reshape(-1)]
        factor = math.sqrt(self.window.recipe.initial_weight)
        for values in self._initial_values(u):
            own = self._scaled(self._of_all(values, 1))
            parts.append(factor * own.reshape(-1))
        return jnp.concatenate([*parts, added.reshape(-1) / math.sqrt(len(added))])

    def linearise(
        self, net: Any
    ) -> tuple[Float[Array, ""], Float[Array, " n"], Float[Array, "n p"]]:
        """The loss with all terms, the rows and their derivatives with respect to the
        parameters."""
        params, static = eqx.partition(net, eqx.is_inexact_array)
        flat, unravel = ravel_pytree(params)

        def field(flat: Array) -> Any:
            return self.field(eqx.combine(unravel(flat), static))

        problem, recipe = self.window.problem, self.window.recipe
        equation = self._equation
        residual: Row = lambda u, x, t, **known: equation.scaled(
            equation.at_point(u, x, t, known)
        )
        known = self.known(field, flat)
        families: list[Any] = [(residual, self.x, self.t, 1.0, known)]
        for row in self._initial_rows():
            at = (self.x[:1], self._start[None])
            families.append((row, *at, recipe.initial_weight, None))
        rows, slopes = [], []
        for row, x, t, weight, known in families:
            found = rows_and_derivatives(row, field, flat, x, t, problem.order, known)
            own_rows, own_slopes = (self._of_all(a, len(x)) for a in found)
            factor = math.sqrt(weight)
            rows.append(factor * self._scaled(own_rows).reshape(-1))
            slopes.append(factor * self._scaled(own_slopes).reshape(-1, flat.size))

        def added(flat: Array, t: Any, multipliers: Array) -> Array:
            found = self._expanded(field(flat), t, 0)
            return self._added(field(flat), found, t, multipliers)

        over_t = lambda f: jax.vmap(f, (None, 0, 0))(flat, self.t, self.multipliers)
        values = over_t(added)
        if values.size:
            root = math.sqrt(len(values))
            rows.append(values.reshape(-1) / root)
            slope = averaged(over_t(jax.jacrev(added)))
            slopes.append(slope.reshape(-1, flat.size) / root)
        whole = jnp.concatenate(rows)
        return 0.5 * jnp.sum(whole**2), whole, jnp.concatenate(slopes)

    def known(self, field: Any, flat: Array) -> Known | None:
        """The integrals in the equation at the points of the batch, with derivatives
        through the field on the nodes, some of which are looked at together."""
        integrals = self.window.problem.integrals
        if not integrals:
            return None
        rule = self._rule_of(field(flat))
        (n_t, n_x, d), volume = self.x.shape, rule.domain.volume
        needs_gradient = any(one.needs_gradient for one in integrals)
        row = jet_row if needs_gradient else _value_row
        numbers = len(self.window.problem.components) * (1 + d * needs_gradient)
        entries = n_t * numbers * max(flat.size, n_x)
        pieces = -(-rule.size // max(1, _NUMBERS // entries))
        step = -(-rule.size // pieces)
        coupling = coupling_at(field, flat, self.x, self.t, 0)
        shape = self.window.problem.shape

        def without_gradient(z: Array) -> Array:
            zeros = jnp.zeros((len(z), d * z.shape[1]), z.dtype)
            return jnp.concatenate([z, zeros], 1)

        def of_piece(number: Array) -> Any:
            index = number * step + jnp.arange(step)
            nodes, weights = rule.at(jnp.minimum(index, rule.size - 1))
            weights = jnp.where(index < rule.size, volume * weights, 0.0)
            each = jnp.broadcast_to(nodes, (n_t, *nodes.shape))
            found = rows_and_derivatives(
                row, field, flat, each, self.t, 0, coupling=coupling
            )
            z, slopes = (a.reshape(n_t, step, -1, *a.shape[2:]) for a in found)

            def at(x: Array, t: Any, z: Array, slopes: Array) -> dict[str, Any]:
                slopes = slopes.reshape(-1, flat.size)

                def at_point(one: Integral, x: Array | None) -> tuple[Array, Array]:
                    def of(z: Array) -> Array:
                        rows = z if needs_gradient else without_gradient(z)
                        jets = Jets.of_rows(rows, shape)
                        return sum_at(one, x, t, nodes, weights, jets)

                    value, by_jets = jax.value_and_grad(of)(z)
                    return value, by_jets.reshape(-1)

                def of(one: Integral) -> tuple[Array, Array]:
                    if not one.is_kernel:
                        value, by_jets = at_point(one, None)
                        return value, by_jets @ slopes
                    values, by_jets = jax.vmap(lambda x: at_point(one, x))(x)
                    return values, by_jets @ slopes

                return {one.name: of(one) for one in integrals}

            return jax.vmap(at)(self.x, self.t, z, slopes)

        add = lambda sums, k: (jax.tree.map(jnp.add, sums, of_piece(k)), None)
        sums, _ = jax.lax.scan(add, of_piece(jnp.zeros((), int)), jnp.arange(1, pieces))
        full = lambda a: jnp.broadcast_to(a.reshape(n_t, -1), (n_t, n_x))
        rows = lambda a: a.reshape(n_t, -1, flat.size)
        return Known(
            {name: full(values) for name, (values, _) in sums.items()},
            {name: rows(slopes) for name, (_, slopes) in sums.items()},
        )

    def _rule_of(self, u: Any) -> QuadratureRule:
        """That of the integrals in the equation: the field's own, if it has one."""
        return self.window.rule if u.rule is None else u.rule

    def updated_multipliers(self, net: Any) -> Float[Array, "n_t n"]:
        """The multipliers of the method after this step."""
        if not self.multipliers.size:
            return self.multipliers
        u = self.field(net)
        update = lambda t, m: self.window.method.update(
            self._instant(PlainSlice(u, t), t, m)
        )
        return jax.vmap(update)(self.t, self.multipliers)

    def _of_all(self, rows: Array, n_t: int) -> Array:
        """Rows at the points of this device, and of all others: points inside times."""
        table = rows.reshape(n_t, -1, *rows.shape[1:])
        return gathered(table, axis=1).reshape(-1, *rows.shape[1:])

    def _scaled(self, rows: Array) -> Float[Array, "..."]:
        """Rows of which there are some at each point, in their mean over points."""
        return rows / math.sqrt(len(rows))

    def _instant(self, now: Any, t: Any, multipliers: Array) -> Instant:
        return Instant(self.window.problem, now, self.window.rule, t, multipliers)

    @property
    def _equation(self) -> Residual:
        return self.window.residual

    @property
    def _start(self) -> Float[Array, ""]:
        assert self.window.start is not None
        return self.window.start

    def _expanded(self, u: Any, t: Any, order: int) -> tuple[Any, Any]:
        """The correction at one time with derivatives by t, and the field there."""
        found = expansion_at(u, t, order)
        if found is None:
            return None, PlainSlice(u, t)
        return found.series, found.now

    def _added(self, u: Any, found: Any, t: Any, multipliers: Array) -> Array:
        """What the method adds to the loss at one time."""
        return self.window.method.rows(self._instant(found[1], t, multipliers))

    def _at_times(
        self, u: Any
    ) -> tuple[Any, dict[str, Float[Array, " n"]], Float[Array, "n_t m"]]:
        """The corrections at all times, the integrals in the equation at all points and
        what the method adds to the loss, from the same quadratures."""
        equation = self._equation
        first = None if self.t is None else self.t[0]
        kinds = equation.operator.kinds(self.x[0, 0], first)
        order, mode = 0 if kinds.rate is None else 1, u.gradient

        def at(x: Array, t: Any, multipliers: Array) -> tuple[Any, Any, Array]:
            found = self._expanded(u, t, order)
            known = (found[1], self._rule_of(u), mode, x, t)
            integrals = integrals_at(equation.integrals, *known)
            at_points = equation.at_points(integrals, len(x))
            return found[0], at_points, self._added(u, found, t, multipliers)

        series, integrals, added = jax.vmap(at)(self.x, self.t, self.multipliers)
        return series, jax.tree.map(lambda a: a.reshape(-1), integrals), added

    def _residuals(self, u: Any, series: Any, integrals: Any) -> Float[Array, "n ..."]:
        """The residual at each point, with all terms, times the roots of weights."""
        residual, batch = self._equation, Batch(self.x, self.t)
        known = {"series": series, "integrals": integrals}
        (one,) = residual.evaluations(u, batch, [residual.operator], **known)
        return residual.scaled(one.values())

    def _initial_values(self, u: Any) -> list[Array]:
        """The rows of the initial data, at the points of the first time."""
        rows, t = self._initial_rows(), self.window.start
        return [jax.vmap(lambda x, row=row: row(u, x, t))(self.x[0]) for row in rows]

    def _initial_rows(self) -> list[Row]:
        """Where the initial data are learnt, rows for them."""
        if self.window.recipe.hard_initial or self.window.start is None:
            return []
        window = self.window
        rows: list[Row] = [
            lambda u, x, t: at_time(u, t)(x) - device_local()(window.initial)(x)
        ]
        if window.velocity is not None:
            velocity = device_local()(window.velocity)
            rows.append(lambda u, x, t: time_derivative()(u)(x, t) - velocity(x))
        return rows


def _value_row(u: Any, x: Array, t: Array | None) -> Float[Array, " k"]:
    """The values of the components of a field at a point."""
    return u(x, t).reshape(-1)
