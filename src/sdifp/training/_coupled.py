"""Derivatives of the residuals of a corrected field, point by point.

The correction couples all points, but only through a few numbers at each time: scale
and offset, and their derivatives by t. With those frozen as c, every residual depends
on the parameters through its own point alone, and

    J = dr/dtheta (c frozen) + dr/dc dc/dtheta.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._mesh import averaged, device_local
from ..correction import Correction, Moments
from ..field import (
    Expansion,
    Interpolated,
    MomentTable,
    as_field,
    chebyshev_times,
    moments_over,
)

Row = Callable[[Any, Array, Array], Array]
"""A function of (u, x, t) that returns one number."""


class NearOneTime(eqx.Module):
    """A corrected field near one time, with given coefficients: polynomials in t, all
    that derivatives in t up to some order see of them."""

    net: Callable[..., Array]
    correction: Correction
    "with derivatives in t on the first axis; the pivot is constant"
    time: Float[Array, ""]
    profile: Callable[[Array], Array] | None = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"], t: Float[Array, ""]) -> Float[Array, ""]:
        """The value at one point; right to the order of the coefficients in t."""
        c, since = self.correction, t - self.time
        powers = jnp.stack([since**k / math.factorial(k) for k in range(c.level.size)])
        scale, offset = powers @ jnp.stack([c.scale, c.offset], 1)
        now = Correction(scale, powers @ c.level, c.pivot[0], offset)
        phi = 1.0 if self.profile is None else self.profile(x)
        return now.apply(self.net(x, t), phi)


def expansion_at(u: Any, t: Float[Array, ""], order: int) -> Expansion | None:
    """The expansion of a field, with NaN where there is nothing left to train: the step
    that finds it is undone. None for a field without coefficients."""
    found = as_field(u).expand(t, order)
    if found is None:
        return None
    series, hopeless = found.correction, found.now.is_hopeless
    kept = [jnp.where(hopeless, jnp.nan, c) for c in series.coefficients]
    return Expansion(found.now, Correction(*kept))


def rows_and_derivatives(
    row: Row,
    field: Callable[[Array], Any],
    flat: Float[Array, " p"],
    x: Float[Array, "n_t n_x d"],
    t: Float[Array, " n_t"],
    order: int,
) -> tuple[Float[Array, " n"], Float[Array, "n p"]]:
    """The rows at all points and their derivatives with respect to the parameters;
    `field` makes a field of these, and `order` is that of the highest derivative by t
    in `row`."""
    # A quadrature inside a row would add up what belongs to rows of other devices.
    own_row: Row = device_local()(row)
    if as_field(field(flat)).rule is None:
        one = jax.value_and_grad(lambda flat, x, t: own_row(field(flat), x, t))
        over_x = jax.vmap(one, (None, 0, None))
        rows, slopes = jax.vmap(over_x, (None, 0, 0))(flat, x, t)
        return rows.reshape(-1), slopes.reshape(-1, flat.size)

    # Level and pivot do not depend on the parameters.
    def at_point(
        flat: Array, live: Array, rest: Correction, x: Array, t: Array
    ) -> Array:
        u = field(flat)
        given = rest._replace(scale=live[:, 0], offset=live[:, 1])
        return own_row(NearOneTime(u.net, given, t, u.profile), x, t)

    # The coefficients at each time, and their derivatives.
    coefficients, slopes_of = _coefficients(field, flat, order)

    def at_time(x: Array, t: Array) -> tuple[Array, Array]:
        c = jax.lax.stop_gradient(coefficients(t))
        one = jax.value_and_grad(at_point, (0, 1))
        over_x = jax.vmap(one, (None, None, None, 0, None))
        rows, (own, through) = over_x(flat, _live(c), c, x, t)
        return rows, own + through.reshape(rows.size, -1) @ slopes_of(t)

    rows, slopes = jax.vmap(at_time)(x, t)
    return rows.reshape(-1), slopes.reshape(-1, flat.size)


def _live(c: Correction) -> Float[Array, "order 2"]:
    """What depends on the parameters."""
    return jnp.stack([c.scale, c.offset], 1)


def _coefficients(
    field: Callable[[Array], Any], flat: Float[Array, " p"], order: int
) -> tuple[Callable[[Array], Correction], Callable[[Array], Array]]:
    """The coefficients of a field as a function of time, and the derivatives of those
    that depend on the parameters, a row each."""
    u = field(flat)

    def coefficients(u: Any, t: Array) -> Correction:
        found = expansion_at(u, t, order)
        assert found is not None
        return found.correction

    mode = u.gradient
    if not isinstance(mode, Interpolated) or mode.table is None:
        live = lambda flat, t: _live(coefficients(field(flat), t))
        slopes = lambda t: averaged(jax.jacrev(live)(flat, t)).reshape(-1, flat.size)
        return lambda t: coefficients(field(flat), t), slopes

    # They depend on the parameters through the sums at the times of the table alone.
    over = (mode.table.start, mode.table.length)
    known = moments_over(u.with_gradient(mode.gradient), *over, mode.times)

    def sums(m: Moments) -> Array:
        return jnp.stack([m.residual, m.cross, m.square], -1)

    def sums_at(flat: Array, t: Array) -> Array:
        return sums(field(flat).with_gradient(mode.gradient).at(t).moments)

    def through(sums: Array, t: Array) -> Array:
        residual, cross, square = jnp.moveaxis(sums, -1, 0)
        moments = known._replace(residual=residual, cross=cross, square=square)
        table = MomentTable.through(moments, *over)
        return _live(coefficients(u.with_gradient(mode.keep(table)), t))

    times = chebyshev_times(*over, mode.times)
    of_sums = averaged(jax.vmap(jax.jacrev(sums_at), (None, 0))(flat, times))
    of_sums = of_sums.reshape(-1, flat.size)

    def slopes_of(t: Array) -> Array:
        return jax.jacrev(through)(sums(known), t).reshape(-1, len(of_sums)) @ of_sums

    return lambda t: coefficients(u, t), slopes_of
