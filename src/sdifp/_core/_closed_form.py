"""The closed form: scale and shift from the moments of a field and its targets.

One definition for all engines: operators, and the few functions that `jax.numpy` and
`torch` both have under one name.
"""

import dataclasses
import enum
import sys
from typing import Any, NamedTuple

import numpy as np

Array = Any
"an array of JAX or a tensor of PyTorch"

# A square that is so many times the smallest number still has digits to sum up.
_KEPT = 1024.0


class Status(enum.IntEnum):
    """The outcome of a correction, from best to worst (paper, corollary on moment
    feasibility).

    - `REGULAR`: both targets hold on the rule.
    - `CONSTANT`: the targets leave no freedom (target variance 0): the corrected
        field is the target mean (times the profile). Both targets hold.
    - `FLOORED`: the variance floor acted: the mean holds, the second moment does not.
    - `DEGENERATE`: the raw field has no variance on the rule (it is constant, or a
        multiple of the profile) and the targets ask for some: the mean holds alone.
    - `UNDERFLOW`: the raw field, or the one that is asked for, is so small that its
        square underflows the dtype. The mean holds alone. In a certificate also where
        the variation that is asked for is lost in the rounding of targets or values.
    - `INFEASIBLE`: no field has these moments, or none of the form asked for. The
        mean holds, with the least second moment that is possible.
    - `NOT_FINITE`: a value, a target or a sum is NaN or infinite, or the result
        overflows the dtype of the values. Nothing holds.
    - `UNNORMALISED`: the weights do not sum to 1 (seen by `project` inside `jit`;
        outside it is an error). The moments hold for the weights over their sum.

    Where only the second moment is prescribed, "the mean holds" is void.
    """

    REGULAR = 0
    CONSTANT = 1
    FLOORED = 2
    DEGENERATE = 3
    UNDERFLOW = 4
    INFEASIBLE = 5
    NOT_FINITE = 6
    UNNORMALISED = 7


def namespace(array: Array) -> Any:
    """The module whose functions take this array: `jax.numpy` or `torch`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch
    return array.__array_namespace__()


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
        eps = float(namespace(second_moment).finfo(second_moment.dtype).eps)
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
        return namespace(second_moment).full_like(second_moment, self.epsilon)


class Correction(NamedTuple):
    """The affine map `u = scale * f + shift * phi` of a field with one profile phi.

    It is applied as `level * phi + scale * ((f - pivot * phi) - offset * phi)`, which
    loses no digits where the mean of f is large beside its variation.
    """

    scale: Array
    "alpha in the paper"
    level: Array
    "the multiple of the profile in the corrected field: the target mean where phi = 1"
    pivot: Array
    offset: Array
    status: Array = None
    "a `Status`; None where it is known from elsewhere"

    @staticmethod
    def identity(like: Array) -> "Correction":
        """The one that changes nothing, for a component without targets."""
        xp = namespace(like)
        zero = xp.zeros_like(like)
        status = xp.zeros_like(like, dtype=xp.int32)
        return Correction(xp.ones_like(like), zero, zero, zero, status)

    @property
    def shift(self) -> Array:
        """`level - scale * (pivot + offset)`: beta in the paper."""
        return self.level - self.scale * (self.pivot + self.offset)

    @property
    def coefficients(self) -> tuple[Array, Array, Array, Array]:
        """Scale, level, pivot and offset."""
        return self[:4]

    def term(self, k: int) -> "Correction":
        """The k-th derivative in time, of coefficients that have these on their first
        axis."""
        return Correction(*(c[k] for c in self.coefficients))

    def apply(self, values: Array, profile: Array | None = None) -> Array:
        """Correct values of shapes that broadcast, in the precision of the
        coefficients."""
        scale, level, pivot, offset = self.coefficients
        if profile is None:
            return level + scale * ((values - pivot) - offset)
        centred = (values - pivot * profile) - offset * profile
        return level * profile + scale * centred

    def __call__(self, values: Array, profile: Array | None = None) -> Array:
        """Correct values at any points, points on the last axis, in the dtype of the
        values."""
        if profile is not None:
            profile = profile[(None,) * (values.ndim - 1)]
        own = Correction(*(c[..., None] for c in self.coefficients))
        out = own.apply(values, profile)
        is_tensor = not hasattr(out, "astype")
        return out.to(values.dtype) if is_tensor else out.astype(values.dtype)


class Moments(NamedTuple):
    """Weighted sums of `g = f - pivot * phi`, where phi is the shift profile (1 unless
    given). They determine the moments of f, and do so without cancellation.

    The pivot is a constant of the representation: no moment depends on it, and no
    derivative flows through it. Where phi = 1 its sums may be None: the formulas are
    shorter then.
    """

    pivot: Array
    weight: Array
    "`sum w`"
    profile: Array
    "`sum w phi`"
    profile_square: Array
    "`sum w phi^2`"
    residual: Array
    "`sum w g`"
    cross: Array
    "`sum w phi g`"
    square: Array
    "`sum w g^2`"

    @property
    def offset(self) -> Array:
        """What the pivot lacks: `f - (pivot + offset) phi` has mean zero."""
        return self.residual / (self.weight if self.profile is None else self.profile)

    @property
    def level(self) -> Array:
        """`Q[f] / Q[phi]`, which is `pivot + offset`: the multiple of the profile with
        the mean of f."""
        return self.pivot + self.offset

    @property
    def spread(self) -> Array:
        """`Q[(f - level phi)^2]`: the variance of f where phi = 1."""
        offset = self.offset
        if self.profile is None:
            square = self.square - offset * self.residual
        else:
            square = self.square - 2.0 * offset * self.cross
            square = square + offset * offset * self.profile_square
        return (square / self.weight).clip(min=0.0)

    @property
    def overlap(self) -> Array:
        """`Q[(f - level phi) phi]`: zero where phi = 1."""
        if self.profile is None:
            return namespace(self.pivot).zeros_like(self.pivot)
        return (self.cross - self.offset * self.profile_square) / self.weight

    @property
    def mean(self) -> Array:
        """`Q[f]`."""
        ratio = 1.0 if self.profile is None else self.profile / self.weight
        return self.level * ratio

    @property
    def variance(self) -> Array:
        """`Q[(f - Q[f])^2]`: accurate to rounding where phi = 1, to the rounding of
        the second moment with a profile."""
        if self.profile is None:
            return self.spread
        level, varied = self.level, self.profile_variance
        return self.spread + 2.0 * level * self.overlap + level**2 * varied

    @property
    def second_moment(self) -> Array:
        """`Q[f^2]`, which is `variance + mean^2`."""
        return self.variance + self.mean**2

    @property
    def profile_variance(self) -> Array:
        """`Q[phi^2] - Q[phi]^2`: zero where phi = 1."""
        if self.profile is None:
            return namespace(self.pivot).zeros_like(self.pivot)
        mean = self.profile / self.weight
        return (self.profile_square / self.weight - mean * mean).clip(min=0.0)

    def component(self, k: int) -> "Moments":
        """The moments of one component, which are on the last axis."""
        own = {n: getattr(self, n) for n in ("pivot", "residual", "cross", "square")}
        return self._replace(**{n: a[..., k] for n, a in own.items()})

    def about(self, pivot: Array) -> "Moments":
        """The same moments, represented about another pivot."""
        step = self.pivot - pivot
        return self._replace(
            pivot=pivot,
            residual=self.residual + step * self.profile,
            cross=self.cross + step * self.profile_square,
            square=self.square + step * (2.0 * self.cross + step * self.profile_square),
        )


def solve(
    moments: Moments,
    *,
    mean: Array | None = None,
    second_moment: Array | None = None,
    variance: Array | None = None,
    rounding: float,
    floor: RelativeFloor | AbsoluteFloor,
    nearest: bool = True,
    field: Any,
) -> Correction:
    """The correction; see `sdifp.correction.correct` for the formulas.

    The targets are arrays of the shape and dtype of the moments, at least one of them
    given; `rounding` is their relative rounding error, and `field` the `finfo` of the
    dtype of the field.
    """
    like = moments.spread
    xp = namespace(like)
    limits = xp.finfo(like.dtype)
    # Below this the smallest numbers have lost digits of their own.
    tiny = float(limits.tiny) / float(limits.eps)
    sign, largest = 1.0 if nearest else -1.0, float(field.max)

    if mean is None:
        # u = a f: the only denominator is Q[f^2], which has no size to be relative to.
        assert second_moment is not None
        raw = second = moments.second_moment
        noise = xp.full_like(like, tiny)
        least = floor.value(xp.zeros_like(raw)).clip(min=tiny)
        wanted = second_moment
        constant, infeasible = wanted == 0.0, wanted < 0.0
        level = pivot = offset = centre = xp.zeros_like(raw)
        towards_raw = raw
    else:
        plain = moments.profile is None
        level = mean if plain else mean * (moments.weight / moments.profile)
        pivot, offset = moments.pivot, moments.offset
        if second_moment is None and variance is None:
            finite = (xp.abs(level) <= largest) & xp.isfinite(pivot + offset)
            status = _status(finite, [(~finite, Status.NOT_FINITE)])
            return Correction(xp.ones_like(level), level, pivot, offset, status)
        raw, second = like, moments.second_moment
        noise = RelativeFloor().value(second).clip(min=tiny)
        least = floor.value(second).clip(min=tiny)
        # In a field without variance, what is left of it is noise: leave it out.
        overlap = xp.where(raw <= noise, 0.0, moments.overlap)
        kept = xp.where(raw <= noise, 1.0, xp.maximum(raw, least))
        centre = -level * overlap / kept
        gain = (level * overlap) ** 2 / kept
        if variance is not None:
            varied = moments.profile_variance
            fixed = xp.where(varied > 0.0, level * level * varied, 0.0)
            wanted = variance - fixed + gain
            # A positive variance is meant, however small; a negative one may be
            # the rounding of `s - m^2`.
            size = xp.where(wanted < 0.0, level * level, 0.0) + fixed
        else:
            assert second_moment is not None
            ratio = 1.0 if plain else moments.profile_square / moments.weight
            wanted = second_moment - level * level * ratio + gain
            size = xp.abs(second_moment)
        # A difference of rounded numbers this small is zero.
        constant = xp.abs(wanted) <= 4.0 * rounding * size
        infeasible = (wanted < 0.0) & ~constant
        wanted = xp.where(constant, 0.0, wanted)
        towards_raw = raw + moments.level * overlap

    degenerate, floored = raw <= noise, raw < least
    # Squares that are lost, of the raw field or of the corrected one. Beside a mean
    # they are nothing.
    least_square = max(_KEPT * float(limits.tiny), float(field.tiny) ** 2)
    lost = (wanted > 0.0) & (wanted <= least_square)
    small = wanted <= (float(field.eps) * level) ** 2
    constant = constant | (lost & small)
    underflow = degenerate & (raw > RelativeFloor().value(second))
    underflow = underflow | (lost & ~small)
    wanted = xp.where(lost & small, 0.0, wanted)
    # Without a floor of the user's there is nothing to divide by: the scale is 0, with
    # derivatives 0, and the status says so.
    dead = degenerate & (least <= noise)
    kept = xp.where(dead, 1.0, xp.maximum(raw, least))
    branch = xp.where(towards_raw < 0.0, -sign, sign)
    scale = centre + branch * _safe_sqrt(xp.where(dead, 0.0, wanted) / kept)

    finite = xp.isfinite(moments.square) & xp.isfinite(scale)
    # At some node the field is larger than its root mean square.
    finite = finite & (xp.abs(level) <= largest)
    finite = finite & (xp.abs(scale) * _safe_sqrt(raw) <= largest)
    finite = finite & xp.isfinite(moments.pivot) & xp.isfinite(wanted)
    status = _status(
        finite,
        [
            (floored, Status.FLOORED),
            (degenerate, Status.DEGENERATE),
            (underflow, Status.UNDERFLOW),
            (constant, Status.CONSTANT),
            (infeasible, Status.INFEASIBLE),
            (~finite, Status.NOT_FINITE),
        ],
    )
    return Correction(scale, level, pivot, offset, status)


def _status(like: Array, outcomes: list[tuple[Array, Status]]) -> Array:
    """The last outcome that holds, else regular."""
    xp = namespace(like)
    status = xp.full_like(like, int(Status.REGULAR), dtype=xp.int32)
    for holds, outcome in outcomes:
        status = xp.where(holds, xp.full_like(status, int(outcome)), status)
    return status


def _safe_sqrt(x: Array) -> Array:
    """The square root, zero with zero derivative where x is not positive."""
    xp = namespace(x)
    positive = x > 0.0
    return xp.where(positive, xp.sqrt(xp.where(positive, x, 1.0)), 0.0)
