"""The closed form: scale and shift from the moments of a field and its targets."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._moments import Moments, accumulator
from ._status import Status

Target = Float[Array | np.ndarray, "..."] | float | np.floating


@dataclasses.dataclass(frozen=True)
class RelativeFloor:
    """Keep the variance above `fraction` of the field's mean square.

    The default fraction is the square of the unit roundoff: a standard deviation
    below that is rounding noise, and nothing above it is changed.
    """

    fraction: float | None = None

    def __post_init__(self) -> None:
        if self.fraction is not None and not 0.0 <= self.fraction < np.inf:
            raise ValueError(
                f"fraction must be finite and not negative, got {self.fraction}"
            )

    def value(self, second_moment: Array) -> Array:
        """The least variance for a field of this mean square."""
        eps = float(jnp.finfo(second_moment.dtype).eps)
        fraction = eps * eps if self.fraction is None else self.fraction
        return fraction * second_moment


@dataclasses.dataclass(frozen=True)
class AbsoluteFloor:
    """Keep the variance above a fixed number; the paper takes 1e-8, which breaks the
    second moment of any field whose standard deviation is below 1e-4."""

    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if not 0.0 <= self.epsilon < np.inf:
            raise ValueError(
                f"epsilon must be finite and not negative, got {self.epsilon}"
            )

    def value(self, second_moment: Array) -> Array:
        """The least variance, the same for every field."""
        return jnp.full_like(second_moment, self.epsilon)


class Correction(eqx.Module):
    """The affine map `u = scale * f + shift * phi` of a field with one profile phi.

    It is applied as `level * phi + scale * ((f - pivot * phi) - offset * phi)`, which
    loses no digits where the mean of f is large beside its variation.
    """

    scale: Float[Array, "*batch"]
    level: Float[Array, "*batch"]
    "the multiple of the profile in the corrected field: the target mean where phi = 1"
    pivot: Float[Array, "*batch"]
    offset: Float[Array, "*batch"]
    status: Int[Array, "*batch"]
    "a `Status`"

    @property
    def shift(self) -> Float[Array, "*batch"]:
        """`level - scale * (pivot + offset)`: beta in the paper."""
        return self.level - self.scale * (self.pivot + self.offset)

    @staticmethod
    def of(coefficients: Float[Array, "*batch 4"]) -> "Correction":
        """A correction with these `coefficients`, which meets its targets."""
        scale, level, pivot, offset = jnp.moveaxis(coefficients, -1, 0)
        status = jnp.full(scale.shape, Status.REGULAR, jnp.int32)
        return Correction(scale, level, pivot, offset, status)

    @property
    def coefficients(self) -> Float[Array, "*batch 4"]:
        """Scale, level, pivot and offset."""
        return jnp.stack([self.scale, self.level, self.pivot, self.offset], -1)

    def __call__(
        self,
        values: Float[Array, "*batch M"],
        profile: Float[Array, " M"] | None = None,
    ) -> Float[Array, "*batch M"]:
        """Correct values of the field at any points, in the dtype of the values."""
        dtype = values.dtype
        values = values.astype(accumulator())
        scale, level, pivot, offset = (
            c[..., None] for c in (self.scale, self.level, self.pivot, self.offset)
        )
        if profile is None:
            corrected = level + scale * ((values - pivot) - offset)
        else:
            phi = profile.astype(accumulator())
            phi = jnp.expand_dims(phi, tuple(range(values.ndim - 1)))
            corrected = level * phi + scale * ((values - pivot * phi) - offset * phi)
        return corrected.astype(dtype)


def correct(
    moments: Moments,
    *,
    mean: Target | None = None,
    second_moment: Target | None = None,
    variance: Target | None = None,
    floor: RelativeFloor | AbsoluteFloor = RelativeFloor(),
    nearest: bool = True,
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
    shape of the moments.
    """
    check_combination(mean, second_moment, variance)
    dtype = moments.spread.dtype
    # Below this the smallest numbers have lost digits of their own.
    tiny = float(jnp.finfo(dtype).tiny / jnp.finfo(dtype).eps)
    sign = 1.0 if nearest else -1.0

    if mean is None:
        # u = a f: the only denominator is Q[f^2], which has no size to be relative to.
        raw, noise = moments.second_moment, jnp.full(moments.spread.shape, tiny, dtype)
        least = jnp.maximum(floor.value(jnp.zeros_like(raw)), tiny)
        wanted = _target(second_moment, raw)
        constant, infeasible = wanted == 0.0, wanted < 0.0
        level = pivot = offset = centre = jnp.zeros_like(raw)
        towards_raw = raw
    else:
        level = _target(mean, moments.spread) * (moments.weight / moments.profile)
        pivot, offset = moments.pivot, moments.offset
        if second_moment is None and variance is None:
            scale = jnp.ones_like(level)
            finite = jnp.isfinite(level) & jnp.isfinite(pivot + offset)
            status = jnp.where(finite, Status.REGULAR, Status.NOT_FINITE)
            return Correction(scale, level, pivot, offset, status.astype(jnp.int32))
        raw = moments.spread
        noise = jnp.maximum(RelativeFloor().value(moments.second_moment), tiny)
        least = jnp.maximum(floor.value(moments.second_moment), tiny)
        # In a field without variance, what is left of it is noise: leave it out.
        overlap = jnp.where(raw <= noise, 0.0, moments.overlap)
        kept = jnp.where(raw <= noise, 1.0, jnp.maximum(raw, least))
        centre = -level * overlap / kept
        gain = (level * overlap) ** 2 / kept
        eps = max(_rounding(t, dtype) for t in (mean, second_moment, variance))
        if variance is not None:
            varied = moments.profile_variance
            fixed = jnp.where(varied > 0.0, level * level * varied, 0.0)
            wanted = _target(variance, raw) - fixed + gain
            # A positive variance is meant, however small; a negative one may be
            # the rounding of `s - m^2`.
            size = jnp.where(wanted < 0.0, level * level, 0.0) + fixed
        else:
            target = _target(second_moment, raw)
            ratio = moments.profile_square / moments.weight
            wanted = target - level * level * ratio + gain
            size = jnp.abs(target)
        # A difference of rounded numbers this small is zero.
        constant = jnp.abs(wanted) <= 4.0 * eps * size
        infeasible = (wanted < 0.0) & ~constant
        wanted = jnp.where(constant, 0.0, wanted)
        towards_raw = raw + moments.level * overlap

    degenerate, floored = raw <= noise, raw < least
    # Without a floor of the user's there is nothing to divide by: the scale is 0, with
    # derivatives 0, and the status says so.
    dead = degenerate & (least <= noise)
    kept = jnp.where(dead, 1.0, jnp.maximum(raw, least))
    branch = jnp.where(towards_raw < 0.0, -sign, sign)
    scale = centre + branch * _safe_sqrt(jnp.where(dead, 0.0, wanted) / kept)

    finite = jnp.isfinite(moments.square) & jnp.isfinite(scale) & jnp.isfinite(level)
    finite = finite & jnp.isfinite(moments.pivot) & jnp.isfinite(wanted)
    status = jnp.full(finite.shape, Status.REGULAR, jnp.int32)
    for holds, outcome in (
        (floored, Status.FLOORED),
        (degenerate, Status.DEGENERATE),
        (constant, Status.CONSTANT),
        (infeasible, Status.INFEASIBLE),
        (~finite, Status.NOT_FINITE),
    ):
        status = jnp.where(holds, jnp.int32(outcome), status)
    return Correction(scale, level, pivot, offset, status)


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


def _target(target: Target | None, like: Array) -> Array:
    assert target is not None
    return jnp.broadcast_to(jnp.asarray(target, like.dtype), like.shape)


def _safe_sqrt(x: Array) -> Array:
    """The square root, zero with zero derivative where x is not positive."""
    positive = x > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)
