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
from ..field import Interpolated, Lagged, MomentTable, PlainSlice, at_time
from ..operators import Batch, time_derivative
from ._coupled import Row, expansion_at, rows_and_derivatives
from ._methods import Instant
from ._window import Window, with_net


class StepObjective(eqx.Module):
    """The objective of one step: a batch of points, and fresh randomness."""

    window: Window
    x: Float[Array, "n_t n_x d"]
    t: Float[Array, " n_t"]
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
        u, start = self.field(net), self.window.start
        new = lambda: mode.tabulate(u, start, self.window.length)
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
        recipe, equation = self.window.recipe, self.window.problem.equation
        estimator = self.window.estimator
        if isinstance(estimator, WarmUp):
            estimator = estimator.at(self.step, self.switched)
        series, added = self._at_times(u)
        if recipe.causal is None:
            batch = Batch(self.x, self.t)
            out = estimator.estimate(equation, u, batch, key, series).loss
        else:
            rows = self._residuals(u, series).reshape(self.x.shape[:2])
            squares = averaged(jnp.mean(rows**2, axis=1))
            earlier = jnp.cumsum(squares) - squares
            weights = jax.lax.stop_gradient(jnp.exp(-recipe.causal * earlier))
            out = 0.5 * jnp.mean(weights * squares)
        for values in self._initial_values(u):
            out = out + 0.5 * recipe.initial_weight * jnp.mean(values**2)
        return out + 0.5 * jnp.mean(jnp.sum(added**2, axis=1))

    def rows(self, net: Any) -> Float[Array, " n"]:
        """The rows: half the sum of their squares is the loss."""
        u = self.field(net)
        series, added = self._at_times(u)
        parts = [self._scaled(self._of_all(self._residuals(u, series), self.t))]
        factor = math.sqrt(self.window.recipe.initial_weight)
        for values in self._initial_values(u):
            own = self._scaled(self._of_all(values, self.window.start[None]))
            parts.append(factor * own)
        return jnp.concatenate([*parts, added.reshape(-1) / math.sqrt(len(added))])

    def linearise(self, net: Any) -> tuple[Float[Array, " n"], Float[Array, "n p"]]:
        """The rows and their derivatives with respect to the parameters."""
        params, static = eqx.partition(net, eqx.is_inexact_array)
        flat, unravel = ravel_pytree(params)

        def field(flat: Array) -> Any:
            return self.field(eqx.combine(unravel(flat), static))

        problem, recipe = self.window.problem, self.window.recipe
        residual: Row = lambda u, x, t: problem.equation(u, x, t)
        families = [(residual, self.x, self.t, 1.0)]
        for row in self._initial_rows():
            at = (self.x[:1], self.window.start[None])
            families.append((row, *at, recipe.initial_weight))
        rows, slopes = [], []
        for row, x, t, weight in families:
            found = rows_and_derivatives(row, field, flat, x, t, problem.order)
            own_rows, own_slopes = (self._of_all(a, t) for a in found)
            factor = math.sqrt(weight)
            rows.append(factor * self._scaled(own_rows))
            slopes.append(factor * self._scaled(own_slopes))

        def added(flat: Array, t: Array, multipliers: Array) -> Array:
            return self._at(field(flat), t, multipliers, 0)[1]

        over_t = lambda f: jax.vmap(f, (None, 0, 0))(flat, self.t, self.multipliers)
        values = over_t(added)
        if values.size:
            root = math.sqrt(len(values))
            rows.append(values.reshape(-1) / root)
            slope = averaged(over_t(jax.jacrev(added)))
            slopes.append(slope.reshape(-1, flat.size) / root)
        return jnp.concatenate(rows), jnp.concatenate(slopes)

    def updated_multipliers(self, net: Any) -> Float[Array, "n_t n"]:
        """The multipliers of the method after this step."""
        if not self.multipliers.size:
            return self.multipliers
        u = self.field(net)
        update = lambda t, m: self.window.method.update(
            self._instant(PlainSlice(u, t), t, m)
        )
        return jax.vmap(update)(self.t, self.multipliers)

    def _of_all(self, rows: Array, t: Array) -> Array:
        """Rows at the points of this device, and of all others: points inside times."""
        table = rows.reshape(len(t), -1, *rows.shape[1:])
        return gathered(table, axis=1).reshape(-1, *rows.shape[1:])

    def _scaled(self, rows: Array) -> Array:
        return rows / math.sqrt(len(rows))

    def _instant(self, now: Any, t: Array, multipliers: Array) -> Instant:
        return Instant(self.window.problem, now, self.window.rule, t, multipliers)

    def _at(
        self, u: Any, t: Array, multipliers: Array, order: int
    ) -> tuple[Any, Array]:
        """The correction at one time with derivatives by t, and what the method adds to
        the loss, from the same quadrature."""
        found = expansion_at(u, t, order)
        now = PlainSlice(u, t) if found is None else found.now
        added = self.window.method.rows(self._instant(now, t, multipliers))
        return None if found is None else found.series, added

    def _at_times(self, u: Any) -> tuple[Any, Float[Array, "n_t m"]]:
        kinds = self.window.problem.equation.operator.kinds(self.x[0, 0], self.t[0])
        at = lambda t, m: self._at(u, t, m, 0 if kinds.rate is None else 1)
        return jax.vmap(at)(self.t, self.multipliers)

    def _residuals(self, u: Any, series: Any) -> Float[Array, " n"]:
        """The residual at each point, with all terms."""
        residual, batch = self.window.problem.equation, Batch(self.x, self.t)
        operator = residual.operator
        return residual.evaluations(u, batch, [operator], series=series)[0].values()

    def _initial_values(self, u: Any) -> list[Array]:
        """The rows of the initial data, at the points of the first time."""
        t = self.window.start
        rows = self._initial_rows()
        return [jax.vmap(lambda x, row=row: row(u, x, t))(self.x[0]) for row in rows]

    def _initial_rows(self) -> list[Row]:
        """Where the initial data are learnt, rows for them."""
        if self.window.recipe.hard_initial:
            return []
        window = self.window
        rows: list[Row] = [
            lambda u, x, t: at_time(u, t)(x) - device_local()(window.initial)(x)
        ]
        if window.velocity is not None:
            velocity = device_local()(window.velocity)
            rows.append(lambda u, x, t: time_derivative()(u)(x, t) - velocity(x))
        return rows
