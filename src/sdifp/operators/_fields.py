"""What operators make of the field that they act on: `A[u] = sum_j c_j A[basis_j]` for
one with coefficients."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array

from ..correction import Correction
from ..field import as_field
from ..taylor import Derivatives
from ._coefficient import call

Function = Callable[[Array, Array | None], Array]


def raw_of(u: Any) -> Function:
    """The function that derivatives with respect to x run over: the network under a
    conserved field, or u itself."""
    net = as_field(u).net
    return lambda x, t: call(net, x, t)


def series_of(u: Any, t: Array | None, order: int) -> Correction | None:
    """The corrections at some times with their derivatives, one quadrature for each
    time; None for functions that have none."""
    field = as_field(u)
    if t is not None and not field.is_slice:
        return jax.vmap(lambda t: _correction(field, t, order))(t)
    now = _correction(field, None, 0)
    return None if now is None else jax.tree.map(lambda c: c[None], now)


def _correction(field: Any, t: Array | None, order: int) -> Correction | None:
    found = field.expand(t, order)
    return None if found is None else found.correction


def corrected(
    u: Any,
    raw: Derivatives,
    series: Correction,
    rate: Array | None,
    of: Callable[[Function], Derivatives],
) -> Derivatives:
    """The derivatives of a conserved field from those of its raw network.

    **Arguments:**

    - `series`: its correction, with derivatives in t on the first axis: the value, and
        the first one where `rate` is given.
    - `rate`: the coefficient of the derivative in t.
    - `of`: the derivatives of another function, for the profile of the shift.
    """
    profile = as_field(u).profile
    phi = None if profile is None else of(lambda x, t: profile(x))
    dtype, correction = raw.total.dtype, series.term(0)
    scale, shift = correction.scale.astype(dtype), correction.shift.astype(dtype)

    def affine(a: Array, b: Array | None) -> Array:
        return scale * a if b is None else scale * a + shift * b

    def value(*coefficients: Array) -> Array:
        assert raw.value is not None
        known = None if phi is None or phi.value is None else phi.value[None]
        return Correction(*coefficients)(raw.value[None], known)[0]

    total = affine(raw.total, None if phi is None else phi.total)
    gradient = raw.gradient
    if gradient is not None:
        gradient = affine(gradient, None if phi is None else phi.gradient)
    if rate is not None:
        slopes = series.term(1).coefficients
        change = jax.jvp(value, correction.coefficients, slopes)[1]
        total = total + rate * change
    now = None if raw.value is None else value(*correction.coefficients)
    return Derivatives(total, now, gradient, raw.steps)
