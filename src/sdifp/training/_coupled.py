"""Derivatives of the residuals of a corrected field, point by point.

The correction couples all points, but only through a few numbers at each time: its
coefficients, such as the scale, and their derivatives by t. With those frozen as c,
every residual depends on the parameters through its own point alone, and

    J = dr/dtheta (c frozen) + dr/dc dc/dtheta.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
    value_and_gradient,
)

Row = Callable[..., Array]
"""A function of (u, x, t) that returns one number, or several on one axis; of integrals
of u by name as well, where there are some."""


class Known(NamedTuple):
    """Integrals of the field at the points of rows, and how they depend on the
    parameters."""

    values: dict[str, Float[Array, "n_t n_x"]]
    slopes: dict[str, Array]
    "derivatives with respect to the parameters, of shape (n_t, n_x or 1, p)"


class Coupling(NamedTuple):
    """The coefficients of a field at each of some times, and the derivatives of those
    that depend on the parameters, a row each."""

    coefficients: Any
    slopes: Float[Array, "n_t n p"]


def coupling_at(
    field: Callable[[Array], Any],
    flat: Float[Array, " p"],
    x: Float[Array, "n_t n_x d"],
    t: Float[Array, " n_t"] | None,
    order: int,
) -> Coupling | None:
    """That of a field at some times; None for one without coefficients."""
    if as_field(field(flat)).rule is None:
        return None
    coefficients, slopes_of = _coefficients(field, flat, order)

    def at(_: Array, t: Any) -> Coupling:
        return Coupling(jax.lax.stop_gradient(coefficients(t)), slopes_of(t))

    # Without times there is one all the same.
    return jax.vmap(at)(x, t)


def expansion_at(u: Any, t: Array | None, order: int) -> Expansion | None:
    """The expansion of a field, with NaN where there is nothing left to train: the step
    that finds it is undone. None for a field without coefficients."""
    found = as_field(u).expand(t, order)
    if found is None:
        return None
    hopeless = found.now.is_hopeless
    kept = jax.tree.map(lambda c: jnp.where(hopeless, jnp.nan, c), found.series)
    return Expansion(found.now, kept)


def jet_row(u: Any, x: Array, t: Array | None) -> Float[Array, " k"]:
    """The values of the components of a field and then their gradients at a point."""
    value, slope = value_and_gradient(lambda x: u(x, t), x)
    return jnp.concatenate([value.reshape(-1), slope.reshape(-1)])


def rows_and_derivatives(
    row: Row,
    field: Callable[[Array], Any],
    flat: Float[Array, " p"],
    x: Float[Array, "n_t n_x d"],
    t: Float[Array, " n_t"] | None,
    order: int,
    known: Known | None = None,
    coupling: Coupling | None = None,
) -> tuple[Float[Array, "n ..."], Float[Array, "n ... p"]]:
    """The rows at all points and their derivatives with respect to the parameters;
    `field` makes a field of these, and `order` is that of the highest derivative by t
    in `row`.

    **Arguments:**

    - `known`: integrals that `row` takes by their names.
    - `coupling`: of the field at these times, where it is known already.
    """
    # A quadrature inside a row would add up what belongs to rows of other devices.
    own_row: Row = device_local()(row)
    values = {} if known is None else known.values
    if coupling is None:
        coupling = coupling_at(field, flat, x, t, order)
    if coupling is None:
        one = _with_derivatives(
            lambda flat, values, x, t: own_row(field(flat), x, t, **values), (0, 1)
        )
        over_x = jax.vmap(one, (None, 0, 0, None))
        rows, (slopes, by_known) = jax.vmap(over_x, (None, 0, 0, 0))(flat, values, x, t)
    else:
        family = field(flat).family

        def at_point(
            flat: Array, live: list[Array], values: Any, c: Any, x: Array, t: Any
        ) -> Array:
            u = field(flat).near(eqx.tree_at(family.live, c, live), t)
            return own_row(u, x, t, **values)

        def at_time(
            values: Any, x: Array, t: Any, coupling: Coupling
        ) -> tuple[Array, Any]:
            c = coupling.coefficients
            one = _with_derivatives(at_point, (0, 1, 2))
            over_x = jax.vmap(one, (None, None, 0, None, 0, None))
            live = list(family.live(c))
            rows, found = over_x(flat, live, values, c, x, t)
            own, through, by_known = found
            through = jax.vmap(lambda a: _flat(a, rows.ndim - 1))(through)
            return rows, (own + through @ coupling.slopes, by_known)

        rows, (slopes, by_known) = jax.vmap(at_time)(values, x, t, coupling)
    if known is not None:
        for name, slope in known.slopes.items():
            several = (1,) * (rows.ndim - 2)
            slope = slope.reshape(*slope.shape[:2], *several, -1)
            slopes = slopes + by_known[name][..., None] * slope
    several = rows.shape[2:]
    return rows.reshape(-1, *several), slopes.reshape(-1, *several, flat.size)


def _with_derivatives(function: Callable[..., Array], over: tuple[int, ...]) -> Any:
    """The value of a function and its derivatives by some arguments."""

    def both(*args: Any) -> tuple[Array, Any]:
        if jax.eval_shape(function, *args).shape == ():
            return jax.value_and_grad(function, over)(*args)

        def twice(*args: Any) -> tuple[Array, Array]:
            found = function(*args)
            return found, found

        slopes, value = jax.jacrev(twice, over, has_aux=True)(*args)
        return value, slopes

    return both


def _flat(arrays: Sequence[Array], axes: int = 0) -> Array:
    """Some arrays as one, behind the axes that they have in common."""
    flat = [array.reshape(*array.shape[:axes], -1) for array in arrays]
    return jnp.concatenate(flat, -1)


def _coefficients(
    field: Callable[[Array], Any], flat: Float[Array, " p"], order: int
) -> tuple[Callable[[Any], Any], Callable[[Any], Array]]:
    """The coefficients of a field as a function of time, and the derivatives of those
    that depend on the parameters, a row each."""
    u = field(flat)

    def coefficients(u: Any, t: Array | None) -> Any:
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

    def through(sums: Array, t: Array | None) -> Array:
        table = MomentTable.through(known.with_sums(unravel(sums)), *over)
        return live(u.with_gradient(mode.keep(table)), t)

    times = chebyshev_times(*over, mode.times)
    of_sums = averaged(jax.vmap(jax.jacrev(sums_at), (None, 0))(flat, times))
    # A row for each of the flat sums.
    rows = jax.tree.map(lambda a: a.reshape(-1, flat.size), of_sums)
    of_sums = jnp.concatenate(jax.tree.leaves(rows))

    def slopes_of(t: Array | None) -> Array:
        return jax.jacrev(through)(sums, t) @ of_sums

    return lambda t: coefficients(u, t), slopes_of
