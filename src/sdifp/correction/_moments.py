"""The first two moments of a field on a rule, accurate to rounding.

The residual of the values about a *pivot* is summed instead of the values
themselves, so a mean of 1e4 over a standard deviation of 1e-2 costs no digits. What
is left of the mean after the pivot is kept and subtracted as well: the recentred
two-pass algorithm. Depends on nothing but arrays.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import (
    check_finite,
    check_floating,
    check_profile,
    check_weights,
    is_concrete,
)
from .._core import Moments

# Nodes that are summed at a time: few enough for both passes to find them in the
# cache and for the extra memory to be small, enough to make the merging free.
_CHUNK = 2**16

# Up to here the sums are plain, which Taylor mode (jax.experimental.jet) needs: it
# cannot pass a custom derivative rule. (Nor a loop, which larger rules are summed by.)
_PLAIN = 2**12

_Total = Callable[[Array], Array]


def moments(
    values: Float[Array | np.ndarray, "*batch M"],
    weights: Float[Array | np.ndarray, " M"],
    profile: Float[Array | np.ndarray, " M"] | None = None,
) -> Moments:
    """The moments of a field from its values on the nodes of a rule.

    Sums run in float64 where x64 is on, whatever the dtype of the values.
    Differentiable to any order.

    Examples:
        >>> import numpy as np, sdifp
        >>> values, weights = np.array([1.0, 2.0, 6.0]), np.array([0.5, 0.25, 0.25])
        >>> got = sdifp.correction.moments(values, weights)
        >>> print(f"mean {got.mean:.4f}, variance {got.variance:.4f}")
        mean 2.5000, variance 4.2500
    """
    values, weights, profile = check_values(values, weights, profile)
    return moments_of_part(values, weights, profile)


def moments_of_part(
    values: Float[Array | np.ndarray, "*batch M"],
    weights: Float[Array | np.ndarray, " M"],
    profile: Float[Array | np.ndarray, " M"] | None = None,
) -> Moments:
    """The moments of one part of a rule, whose weights sum to less than 1.

    Join the parts with `merge_moments`. The arguments are not checked.
    """
    return _moments(jnp.asarray(values), jnp.asarray(weights), profile)


def merge_moments(first: Moments, second: Moments) -> Moments:
    """The moments of two parts of a rule together (Chan's update, about a pivot).

    Merging in one fixed order in one compiled program gives the same bits however many
    devices computed the parts.

    Examples:
        >>> import numpy as np, sdifp
        >>> values, weights = np.array([1.0, 2.0, 6.0]), np.array([0.5, 0.25, 0.25])
        >>> parts = [sdifp.correction.moments_of_part(values[s], weights[s])
        ...          for s in (slice(0, 2), slice(2, 3))]
        >>> print(f"{sdifp.correction.merge_moments(*parts).variance:.4f}")
        4.2500
    """
    square = first.profile_square + second.profile_square
    apart = second.pivot - first.pivot
    moved = first.cross + second.cross + apart * second.profile_square
    moved = moved / jnp.where(square > 0.0, square, 1.0)
    pivot = jax.lax.stop_gradient(first.pivot + moved)
    a, b = first.about(pivot), second.about(pivot)
    return Moments(pivot, *map(jnp.add, a[1:], b[1:]))


def moments_about(
    pivot: Array, values: Array, weights: Array, profile: Array | None
) -> Moments:
    """The sums of one part of a rule about a given pivot, plainly differentiable."""
    return _about_pivot(_sum, pivot, values, weights, profile)


def accumulator() -> np.dtype:
    """The dtype in which sums run: float64 where x64 is on, else float32."""
    return jax.dtypes.canonicalize_dtype(np.float64)


@jax.jit
def _moments(values: Array, weights: Array, profile: Array | None) -> Moments:
    if values.shape[-1] <= _PLAIN:
        return _two_pass(_sum, values, weights, profile)
    return _recentred(values, weights, profile)


@jax.custom_jvp
def _recentred(values: Array, weights: Array, profile: Array | None) -> Moments:
    size = values.shape[-1]
    chunk = max(_CHUNK // max(1, math.prod(values.shape[:-1])), _CHUNK // 64)

    def part(start: int | Array, length: int) -> Moments:
        cut = functools.partial(
            jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=length, axis=-1
        )
        arrays = cut(values), cut(weights), None if profile is None else cut(profile)
        return _two_pass(_pairwise, *arrays)

    def body(carry: Moments, start: Array) -> tuple[Moments, None]:
        return merge_moments(carry, part(start, chunk)), None

    full, rest = divmod(size, chunk)
    if full == 0:
        return _two_pass(_pairwise, values, weights, profile)
    out, _ = jax.lax.scan(body, part(0, chunk), jnp.arange(1, full) * chunk)
    return merge_moments(out, part(full * chunk, rest)) if rest else out


@_recentred.defjvp
def _recentred_jvp(
    primals: tuple[Array, Array, Array | None],
    tangents: tuple[Array, Array, Array | None],
) -> tuple[Moments, Moments]:
    # The derivative by plain sums about the same fixed pivot, instead of one through
    # the chunks: one vector of the rule's length in memory, not one for each step.
    out = _recentred(*primals)
    about = functools.partial(moments_about, jax.lax.stop_gradient(out.pivot))
    return out, jax.jvp(about, primals, tangents)[1]


def _two_pass(
    total: _Total, values: Array, weights: Array, profile: Array | None
) -> Moments:
    if profile is None:
        level, square = _dot(total, weights, values), _dot(total, weights)
    else:
        level = _dot(total, weights, profile, values)
        square = _dot(total, weights, profile, profile)
    # No moment depends on the pivot, so it is held fixed in derivatives: the sums
    # about it are polynomials of the values, and autodiff of them is exact and cheap.
    pivot = jax.lax.stop_gradient(level / jnp.where(square > 0.0, square, 1.0))
    return _about_pivot(total, pivot, values, weights, profile)


def _about_pivot(
    total: _Total, pivot: Array, values: Array, weights: Array, profile: Array | None
) -> Moments:
    dot = functools.partial(_dot, total)
    centred = values.astype(accumulator()) - pivot[..., None] * (
        1.0 if profile is None else _as_row(profile, values.ndim)
    )
    weight, residual = dot(weights), dot(weights, centred)
    square = dot(weights, centred, centred)
    if profile is None:
        return Moments(pivot, weight, weight, weight, residual, residual, square)
    sums = dot(weights, profile), dot(weights, profile, profile)
    cross = dot(weights, profile, centred)
    return Moments(pivot, weight, *sums, residual, cross, square)


def _as_row(array: Array, ndim: int) -> Array:
    return jnp.expand_dims(array.astype(accumulator()), tuple(range(ndim - array.ndim)))


def _dot(total: _Total, *factors: Array) -> Array:
    """The sum over the last axis of a product of arrays of shape (M,) or (..., M)."""
    ndim = max(f.ndim for f in factors)
    return total(functools.reduce(jnp.multiply, [_as_row(f, ndim) for f in factors]))


def _sum(terms: Array) -> Array:
    return jnp.sum(terms, axis=-1)


def _pairwise(terms: Array) -> Array:
    """The sum over the last axis by halves: the rounding error grows like log M, and
    each half is one vector operation, faster than XLA's own reduction."""
    size = terms.shape[-1]
    while size % 2 == 0 and size > 64:
        size //= 2
        terms = terms[..., :size] + terms[..., size:]
    return _sum(terms)


def check_values(
    values: Array | np.ndarray,
    weights: Array | np.ndarray,
    profile: Array | np.ndarray | None,
) -> tuple[Array, Array, Array | None]:
    """Values, weights and profile of matching shapes and dtypes.

    Concrete weights and profiles are looked at; values are not, because the moments
    show at no cost whether all of them are finite.
    """
    values = check_floating("values", values)
    weights = check_floating("weights", weights)
    size = values.shape[-1] if values.ndim else 0
    if size == 0:
        raise ValueError(
            f"values must have the nodes on their last axis, at least one node, got "
            f"shape {values.shape}"
        )
    if weights.shape != (size,) or is_concrete(weights):
        check_weights(weights, size)
    if profile is None:
        return _as_jax(values), _as_jax(weights), None
    profile = check_floating("profile", profile)
    if profile.shape != (size,):
        raise ValueError(
            f"profile must have shape ({size},), its values on the nodes, got "
            f"{profile.shape}"
        )
    if is_concrete(profile):
        check_finite("profile", profile)
        if is_concrete(weights):
            terms = np.asarray(weights, float) * np.asarray(profile, float)
            check_profile(terms.sum(), abs(terms).sum(), np.finfo(float).eps)
    return _as_jax(values), _as_jax(weights), _as_jax(profile)


def _as_jax(array: Array | np.ndarray) -> Array:
    """An array of JAX. Where it traces without x64, JAX remembers the single precision
    of an array of NumPy and returns it with x64 on as well: a view is another array."""
    return jnp.asarray(array.view() if isinstance(array, np.ndarray) else array)
