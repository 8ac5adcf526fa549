"""The scale of a field from a quadratic equation, and what can become of it.

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


class Parts(NamedTuple):
    """The quadratic in the scale a: `a^2 <g, g> + 2 a <g, l> + <l, l> = s`, where g is
    the raw field without its linear moments and l the field that has the target ones.
    """

    raw: Array
    "`<g, g>`"
    whole: Array
    "`<f, f>`"
    along: Array
    "`<g, l>`"
    beyond: Array
    "`<g, f - g>`"
    free: Array
    "`s - <l, l>`"
    size: Array
    "of the numbers whose difference `free` is"
    size_below: Array | float
    "what counts besides where the difference is negative"
    level: Array
    "the size of l"
    finite: Array
    "whether the sums are"


def scale_of(
    parts: Parts,
    rounding: float | Array,
    floor: RelativeFloor | AbsoluteFloor,
    nearest: bool,
    field: Any,
) -> tuple[Array, Array]:
    """The scale of a field whose linear moments are prescribed, too, and a `Status`."""
    raw, level = parts.raw, parts.level
    xp = namespace(raw)
    tiny = _tiny(raw)
    noise = RelativeFloor().value(parts.whole).clip(min=tiny)
    least = floor.value(parts.whole).clip(min=tiny)
    # In a field without variance, what is left of it is noise: leave it out.
    along, beyond = (
        xp.where(raw <= noise, 0.0, a) for a in (parts.along, parts.beyond)
    )
    kept = xp.where(raw <= noise, 1.0, xp.maximum(raw, least))
    wanted = parts.free + along**2 / kept
    size = xp.where(wanted < 0.0, parts.size_below, 0.0) + parts.size
    # A difference of rounded numbers this small is zero.
    constant = xp.abs(wanted) <= 4.0 * rounding * size
    infeasible = (wanted < 0.0) & ~constant
    return _finished(
        raw=raw,
        noise=noise,
        least=least,
        whole=parts.whole,
        wanted=xp.where(constant, 0.0, wanted),
        constant=constant,
        infeasible=infeasible,
        centre=-along / kept,
        towards=raw + beyond,
        level=level,
        finite=parts.finite & xp.isfinite(parts.free) & xp.isfinite(parts.size),
        nearest=nearest,
        field=field,
    )


def scale_alone(
    whole: Array,
    wanted: Array,
    finite: Array,
    rounding: float | Array,
    floor: RelativeFloor | AbsoluteFloor,
    nearest: bool,
    field: Any,
) -> tuple[Array, Array]:
    """The scale of a field of which nothing but the quadratic is prescribed, from
    `<f, f>` and the target, and a `Status`."""
    del rounding
    xp = namespace(whole)
    # The only denominator is Q[f^2], which has no size to be relative to.
    zero, tiny = xp.zeros_like(whole), _tiny(whole)
    return _finished(
        raw=whole,
        noise=xp.full_like(whole, tiny),
        least=floor.value(zero).clip(min=tiny),
        whole=whole,
        wanted=wanted,
        constant=wanted == 0.0,
        infeasible=wanted < 0.0,
        centre=zero,
        towards=whole,
        level=zero,
        finite=finite,
        nearest=nearest,
        field=field,
    )


def shift_status(level: Array, pivot: Array, offset: Array, field: Any) -> Array:
    """The `Status` where linear moments alone are prescribed."""
    xp = namespace(level)
    finite = (xp.abs(level) <= float(field.max)) & xp.isfinite(pivot + offset)
    return _status(finite, [(~finite, Status.NOT_FINITE)])


def _tiny(like: Array) -> float:
    """Below this the smallest numbers have lost digits of their own."""
    limits = namespace(like).finfo(like.dtype)
    return float(limits.tiny) / float(limits.eps)


def _finished(
    *,
    raw: Array,
    noise: Array,
    least: Array,
    whole: Array,
    wanted: Array,
    constant: Array,
    infeasible: Array,
    centre: Array,
    towards: Array,
    level: Array,
    finite: Array,
    nearest: bool,
    field: Any,
) -> tuple[Array, Array]:
    """`centre +- sqrt(wanted / raw)`, and its `Status`."""
    xp = namespace(raw)
    limits, largest = xp.finfo(raw.dtype), float(field.max)
    degenerate, floored = raw <= noise, raw < least
    # Squares that are lost, of the raw field or of the corrected one. Beside a mean
    # they are nothing.
    least_square = max(_KEPT * float(limits.tiny), float(field.tiny) ** 2)
    lost = (wanted > 0.0) & (wanted <= least_square)
    small = wanted <= (float(field.eps) * level) ** 2
    constant = constant | (lost & small)
    underflow = degenerate & (raw > RelativeFloor().value(whole))
    underflow = underflow | (lost & ~small)
    wanted = xp.where(lost & small, 0.0, wanted)
    # Without a floor of the user's there is nothing to divide by: the scale is 0, with
    # derivatives 0, and the status says so.
    dead = degenerate & (least <= noise)
    kept = xp.where(dead, 1.0, xp.maximum(raw, least))
    sign = 1.0 if nearest else -1.0
    branch = xp.where(towards < 0.0, -sign, sign)
    scale = centre + branch * _safe_sqrt(xp.where(dead, 0.0, wanted) / kept)

    finite = finite & xp.isfinite(scale) & xp.isfinite(wanted)
    # At some node the field is larger than its root mean square.
    finite = finite & (xp.abs(level) <= largest)
    finite = finite & (xp.abs(scale) * _safe_sqrt(raw) <= largest)
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
    return scale, status


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
