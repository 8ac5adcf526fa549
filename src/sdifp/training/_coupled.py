"""Derivatives of the residuals of a corrected field, point by point.

The correction couples all points, but only through a few numbers at each time: its
coefficients, such as the scale, and their derivatives by t. With those frozen as c,
every residual depends on the parameters through its own point alone, and

    J = dr/dtheta (c frozen) + dr/dc dc/dtheta.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._mesh import averaged, device_local
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


def expansion_at(u: Any, t: Float[Array, ""], order: int) -> Expansion | None:
    """The expansion of a field, with NaN where there is nothing left to train: the step
    that finds it is undone. None for a field without coefficients."""
    found = as_field(u).expand(t, order)
    if found is None:
        return None
    hopeless = found.now.is_hopeless
    kept = jax.tree.map(lambda c: jnp.where(hopeless, jnp.nan, c), found.series)
    return Expansion(found.now, kept)


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

    # The coefficients at each time, and their derivatives.
    family = field(flat).family
    coefficients, slopes_of = _coefficients(field, flat, order)

    def at_point(flat: Array, live: list[Array], c: Any, x: Array, t: Array) -> Array:
        return own_row(field(flat).near(eqx.tree_at(family.live, c, live), t), x, t)

    def at_time(x: Array, t: Array) -> tuple[Array, Array]:
        c = jax.lax.stop_gradient(coefficients(t))
        one = jax.value_and_grad(at_point, (0, 1))
        over_x = jax.vmap(one, (None, None, None, 0, None))
        rows, (own, through) = over_x(flat, list(family.live(c)), c, x, t)
        return rows, own + jax.vmap(_flat)(through) @ slopes_of(t)

    rows, slopes = jax.vmap(at_time)(x, t)
    return rows.reshape(-1), slopes.reshape(-1, flat.size)


def _flat(arrays: Sequence[Array]) -> Float[Array, " n"]:
    """Some arrays as one."""
    return jnp.concatenate([array.reshape(-1) for array in arrays])


def _coefficients(
    field: Callable[[Array], Any], flat: Float[Array, " p"], order: int
) -> tuple[Callable[[Array], Any], Callable[[Array], Array]]:
    """The coefficients of a field as a function of time, and the derivatives of those
    that depend on the parameters, a row each."""
    u = field(flat)

    def coefficients(u: Any, t: Array) -> Any:
        found = expansion_at(u, t, order)
        assert found is not None
        return found.series

    live = lambda u, t: _flat(u.family.live(coefficients(u, t)))

    mode = u.gradient
    if not isinstance(mode, Interpolated) or mode.table is None:
        of = lambda flat, t: live(field(flat), t)
        slopes = lambda t: averaged(jax.jacrev(of)(flat, t))
        return lambda t: coefficients(field(flat), t), slopes

    # They depend on the parameters through the sums at the times of the table alone.
    over = (mode.table.start, mode.table.length)
    known = moments_over(u.with_gradient(mode.gradient), *over, mode.times)

    def sums_at(flat: Array, t: Array) -> Any:
        return field(flat).with_gradient(mode.gradient).at(t).moments.sums

    sums, unravel = ravel_pytree(known.sums)

    def through(sums: Array, t: Array) -> Array:
        table = MomentTable.through(known.with_sums(unravel(sums)), *over)
        return live(u.with_gradient(mode.keep(table)), t)

    times = chebyshev_times(*over, mode.times)
    of_sums = averaged(jax.vmap(jax.jacrev(sums_at), (None, 0))(flat, times))
    # A row for each of the flat sums.
    rows = jax.tree.map(lambda a: a.reshape(-1, flat.size), of_sums)
    of_sums = jnp.concatenate(jax.tree.leaves(rows))

    def slopes_of(t: Array) -> Array:
        return jax.jacrev(through)(sums, t) @ of_sums

    return lambda t: coefficients(u, t), slopes_of
