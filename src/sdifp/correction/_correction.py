"""The closed form: scale and shift from the moments of a field and its targets."""

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core import AbsoluteFloor, Correction, FieldLimits, RelativeFloor, solve
from ._moments import Moments

Target = Float[Array | np.ndarray, "..."] | float | np.floating


def correct(
    moments: Moments,
    *,
    mean: Target | None = None,
    second_moment: Target | None = None,
    variance: Target | None = None,
    floor: RelativeFloor | AbsoluteFloor = RelativeFloor(),
    nearest: bool = True,
    dtype: DTypeLike | None = None,
) -> Correction:
    """The correction that gives a field with these moments the target moments.

    `mean` alone is a shift, `second_moment` alone a scaling, `mean` with
    `second_moment` or `variance` the paper's affine map (theorem on the weighted
    quadrature projection)::

        u = m + a (f - Q[f]),   a = sqrt(V / Q[(f - Q[f])^2]),   V = s - m^2.

    With a profile phi, put `g = f - (Q[f]/Q[phi]) phi` and `c = m / Q[phi]`; then
    `u = c phi + a g`, and a is a root of the quadratic `Q[u^2] = s`::

        a = a0 +- sqrt((s - s_least) / Q[g^2]),   a0 = -c Q[g phi] / Q[g^2],
        s_least = c^2 (Q[phi^2] - Q[g phi]^2 / Q[g^2]).

    The root nearer to f in the rule's norm has the sign of `Q[g f]`: always plus for
    phi = 1. `nearest=False` takes the other one, which for phi = 1 is the farthest
    point of the shell.

    Nothing is raised here: look at `status`. Targets must be numbers or have the
    shape of the moments. `dtype` is that of the values that will be corrected, by
    default that of the moments.
    """
    check_combination(mean, second_moment, variance)
    like = moments.spread
    given = {"mean": mean, "second_moment": second_moment, "variance": variance}
    return solve(
        moments,
        **{k: _target(v, like) for k, v in given.items() if v is not None},
        rounding=max(_rounding(v, like.dtype) for v in given.values()),
        floor=floor,
        nearest=nearest,
        field=FieldLimits.of(jnp.finfo(like.dtype if dtype is None else dtype)),
    )


def check_combination(
    mean: Target | None, second_moment: Target | None, variance: Target | None
) -> None:
    """Which targets can be given together."""
    if mean is None and second_moment is None and variance is None:
        raise ValueError("give a target: mean, second_moment, or mean and variance")
    if second_moment is not None and variance is not None:
        raise ValueError("give second_moment or variance, not both")
    if variance is not None and mean is None:
        raise ValueError("variance needs mean as well")


def least_second_moment(moments: Moments, mean: Target) -> Float[Array, "..."]:
    """The least second moment that a field `c phi + a g` of this mean can have:
    `m^2` where phi = 1, more with a profile."""
    level = _target(mean, moments.spread) * (moments.weight / moments.profile)
    overlap, spread = moments.overlap, moments.spread
    gain = jnp.where(spread > 0.0, overlap**2 / jnp.where(spread > 0.0, spread, 1), 0.0)
    return level**2 * (moments.profile_square / moments.weight - gain)


def _rounding(target: Target | None, dtype: np.dtype) -> float:
    """The unit of rounding of a target: it may come in a shorter format."""
    given = dtype if target is None else jnp.result_type(target)
    if not jnp.issubdtype(given, jnp.floating):
        given = dtype
    return float(max(jnp.finfo(given).eps, jnp.finfo(dtype).eps))


def _target(target: Target, like: Array) -> Array:
    return jnp.broadcast_to(as_array(target, like.dtype), like.shape)


def as_array(target: Target, dtype: np.dtype) -> Array:
    """A target in a dtype. A number that underflows does not turn into the target 0."""
    if isinstance(target, float | np.floating | np.ndarray):
        given = np.asarray(target, np.float64)
        least = np.maximum(abs(given), float(jnp.finfo(dtype).tiny))
        target = np.where(given == 0.0, 0.0, np.copysign(least, given))
    return jnp.asarray(target, dtype)
