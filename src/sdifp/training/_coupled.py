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

from .._field import ConservedField, FieldAt, at_with_series
from .._mesh import alone, averaged

Row = Callable[[Any, Array, Array], Array]
"""A function of (u, x, t) that returns one number."""


class Coefficients(eqx.Module):
    """Scale and offset of a correction as polynomials about one time: all that the
    derivatives by t up to some order see of them."""

    live: Float[Array, "terms 2"]
    "scale and offset: value, first derivative, ..."
    level: Float[Array, " terms"]
    pivot: Float[Array, ""]


class FrozenCorrection(eqx.Module):
    """A corrected field near one time, with given coefficients."""

    net: Callable[..., Array]
    coefficients: Coefficients
    time: Float[Array, ""]
    profile: Callable[[Array], Array] | None = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"], t: Float[Array, ""]) -> Float[Array, ""]:
        """The value at one point; right to the order of the coefficients in t."""
        c, since = self.coefficients, t - self.time
        powers = jnp.stack([since**k / math.factorial(k) for k in range(c.level.size)])
        scale, offset = powers @ c.live
        level = powers @ c.level
        phi = 1.0 if self.profile is None else self.profile(x)
        raw = self.net(x, t)
        return level * phi + scale * ((raw - c.pivot * phi) - offset * phi)


def series_at(
    u: ConservedField, t: Float[Array, ""], order: int
) -> tuple[FieldAt, Float[Array, "terms 4"]]:
    """The same as `at_with_series`, but NaN where there is nothing left to train: the
    step that finds it is undone."""
    now, series = at_with_series(u, t, order)
    return now, jnp.where(now.is_hopeless, jnp.nan, series)


def coefficients_at(u: ConservedField, t: Float[Array, ""], order: int) -> Coefficients:
    """The coefficients of a field at one time, with `order` derivatives."""

    scale, level, pivot, offset = series_at(u, t, order)[1].T
    level, pivot = jax.lax.stop_gradient((level, pivot[0]))
    return Coefficients(jnp.stack([scale, offset], 1), level, pivot)


def rows_and_derivatives(
    row: Row,
    field: Callable[[Array], Any],
    flat: Float[Array, " p"],
    x: Float[Array, "n_t n_x d"],
    t: Float[Array, " n_t"],
    order: int,
) -> tuple[Float[Array, " n"], Float[Array, "n p"]]:
    """The rows at all points and their derivatives by the parameters.

    **Arguments:**

    - `row`: of one point and time.
    - `field`: the field with given parameters.
    - `order`: of the highest derivative by t in `row`.
    """
    # A quadrature inside a row would add up what belongs to rows of other devices.
    own_row: Row = alone()(row)
    if not isinstance(field(flat), ConservedField):
        one = jax.value_and_grad(lambda flat, x, t: own_row(field(flat), x, t))
        over_x = jax.vmap(one, (None, 0, None))
        rows, slopes = jax.vmap(over_x, (None, 0, 0))(flat, x, t)
        return rows.reshape(-1), slopes.reshape(-1, flat.size)

    def at_point(
        flat: Array, live: Array, rest: Coefficients, x: Array, t: Array
    ) -> Array:
        u = field(flat)
        given = eqx.tree_at(lambda c: c.live, rest, live)
        return own_row(FrozenCorrection(u.net, given, t, u.profile), x, t)

    def at_time(x: Array, t: Array) -> tuple[Array, Array]:
        at = lambda flat: coefficients_at(field(flat), t, order)
        c, of_c = at(flat), averaged(jax.jacrev(lambda flat: at(flat).live)(flat))
        one = jax.value_and_grad(at_point, (0, 1))
        over_x = jax.vmap(one, (None, None, None, 0, None))
        rows, (own, through) = over_x(flat, c.live, c, x, t)
        n = rows.size
        return rows, own + through.reshape(n, -1) @ of_c.reshape(-1, flat.size)

    rows, slopes = jax.vmap(at_time)(x, t)
    return rows.reshape(-1), slopes.reshape(-1, flat.size)
