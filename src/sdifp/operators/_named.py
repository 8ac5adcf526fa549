"""The operators that users make: powers of derivatives, mixed ones, in time."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._checks import check_count
from ._coefficient import Coefficient, CoefficientLike
from ._operator import Operator
from ._term import Term
from ._terms import (
    Biharmonic,
    Diffusion,
    Drift,
    Mixed,
    MixedPair,
    Power,
    Reaction,
    TimeDerivative,
)


def _check_order(order: Any, most: int, hint: str = "") -> int:
    whole = isinstance(order, int | np.integer) and not isinstance(order, bool)
    if not whole or not 1 <= order <= most:
        raise ValueError(f"order must be from 1 to {most}, got {order!r}{hint}")
    return int(order)


def derivative(
    order: int,
    axis: int | Sequence[int] | None = None,
    coefficient: CoefficientLike = 1.0,
) -> Operator:
    """`sum_k c_k d^p u / dx_k^p`.

    **Arguments:**

    - `order`: p, from 1 to 4.
    - `axis`: the coordinate k, or several; by default all.
    - `coefficient`: one number, one for each coordinate of x, or a function of (x, t)
        (of x alone where there is no time) that returns either.
    """
    order, axes = _check_order(order, 4, "; for order 0 use reaction()"), None
    if axis is not None:
        several = tuple(axis) if isinstance(axis, Sequence) else (axis,)
        axes = tuple(check_count("axis", k, 0) for k in several)
        if not axes or len(set(axes)) < len(axes):
            raise ValueError(
                f"axis must name a coordinate, or several different ones, got {axis!r}"
            )
    return Operator(
        (Power(order, Coefficient("coefficient", coefficient, 0, 1), axes),)
    )


def laplacian(coefficient: CoefficientLike = 1.0) -> Operator:
    """`sum_k c_k d^2 u / dx_k^2`; see `derivative` for the coefficient."""
    return derivative(2, None, coefficient)


def advection(velocity: CoefficientLike) -> Operator:
    """`sum_k c_k du / dx_k`.

    **Arguments:**

    - `velocity`: c: one number for all coordinates, one for each, or a function of
        (x, t) that returns either.
    """
    return Operator((Power(1, Coefficient("velocity", velocity, 0, 1)),))


def third_derivatives(coefficient: CoefficientLike = 1.0) -> Operator:
    """`sum_k c_k d^3 u / dx_k^3`; see `derivative` for the coefficient."""
    return derivative(3, None, coefficient)


def reaction(coefficient: CoefficientLike) -> Operator:
    """`c u`, of order zero: a shift of u enters it.

    **Arguments:**

    - `coefficient`: one number, or a function of (x, t) that returns one.
    """
    return Operator((Reaction(Coefficient("coefficient", coefficient, 0)),))


def time_derivative(order: int = 1) -> Operator:
    """`du / dt`, or `d^2 u / dt^2`. Never sampled; the first derivative costs next to
    nothing beside others, for all come from one pass through the network.

    **Arguments:**

    - `order`: 1 or 2.

    Examples:
        >>> import jax.numpy as jnp, sdifp
        >>> heat = sdifp.time_derivative() - sdifp.laplacian()
        >>> u = lambda x, t: jnp.exp(-2.0 * t) * jnp.sin(x[0]) * jnp.cos(x[1])
        >>> print(f"{abs(heat(u)(jnp.array([0.3, 0.4]), 0.5)):.5f}")
        0.00000
    """
    hint = "; write time_derivative()(u)" if callable(order) else ""
    return Operator((TimeDerivative(_check_order(order, 2, hint)),))


def mixed_derivative(j: int, k: int, coefficient: CoefficientLike = 1.0) -> Operator:
    """`c d^2 u / dx_j dx_k`, for one pair of coordinates."""
    j, k = check_count("j", j, 0), check_count("k", k, 0)
    return Operator((MixedPair(j, k, Coefficient("coefficient", coefficient, 0)),))


def mixed_derivatives(coefficient: CoefficientLike) -> Operator:
    """`sum_jk c_jk d^2 u / dx_j dx_k`, over all d^2 pairs.

    **Arguments:**

    - `coefficient`: an array of shape (d, d), or a function of (x, t) that returns one.
    """
    return Operator((Mixed(Coefficient("coefficient", coefficient, 2)),))


def biharmonic(coefficient: CoefficientLike = 1.0) -> Operator:
    """`c sum_jk d^4 u / dx_j^2 dx_k^2`, over all d^2 pairs.

    **Arguments:**

    - `coefficient`: one number, or a function of (x, t) that returns one.
    """
    return Operator((Biharmonic(Coefficient("coefficient", coefficient, 0)),))


def fokker_planck(drift: CoefficientLike, diffusion: CoefficientLike) -> Operator:
    """`- sum_k d(b_k u)/dx_k + sum_jk d^2(D_jk u)/dx_j dx_k`.

    The probability density of `dX = b dt + s dW` has `D = s s^T / 2`. The derivatives
    of b and D are taken by autodiff.

    **Arguments:**

    - `drift`: b: an array of shape (d,), or a function of (x, t) that returns one.
    - `diffusion`: D: one number, a diagonal of shape (d,), a matrix of shape (d, d), or
        a function of (x, t) that returns any of them.
    """
    c = Coefficient("diffusion", diffusion, 0, 1, 2)
    second: Term
    if c.varies:
        second = Diffusion(c)
    else:
        second = Mixed(c) if jnp.ndim(c.value) == 2 else Power(2, c)
    return Operator((Drift(Coefficient("drift", drift, 1)), second))
