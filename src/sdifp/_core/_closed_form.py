"""The closed form: scale and shift from the moments of a field and its targets.

One definition for all engines, as `_scale` is.
"""

from typing import Any, NamedTuple

from ._scale import (
    AbsoluteFloor,
    Array,
    Parts,
    RelativeFloor,
    namespace,
    scale_alone,
    scale_of,
    shift_status,
)


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

    @property
    def sums(self) -> tuple[Array, Array, Array]:
        """Those that depend on the field, linear in the weights."""
        return self.residual, self.cross, self.square

    def with_sums(self, sums: tuple[Array, Array, Array]) -> "Moments":
        """The same with other such sums."""
        residual, cross, square = sums
        return self._replace(residual=residual, cross=cross, square=square)

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
    xp, shape = namespace(moments.square), (rounding, floor, nearest, field)
    if mean is None:
        assert second_moment is not None
        zero, whole = xp.zeros_like(moments.square), moments.second_moment
        finite = xp.isfinite(moments.square) & xp.isfinite(moments.pivot)
        scale, status = scale_alone(whole, second_moment, finite, *shape)
        return Correction(scale, zero, zero, zero, status)
    plain = moments.profile is None
    level = mean if plain else mean * (moments.weight / moments.profile)
    pivot, offset = moments.pivot, moments.offset
    if second_moment is None and variance is None:
        return Correction(
            xp.ones_like(level),
            level,
            pivot,
            offset,
            shift_status(level, pivot, offset, field),
        )
    if variance is not None:
        varied = moments.profile_variance
        fixed = xp.where(varied > 0.0, level * level * varied, 0.0)
        # A positive variance is meant, however small; a negative one may be
        # the rounding of `s - m^2`.
        free, size, size_below = variance - fixed, fixed, level * level
    else:
        assert second_moment is not None
        ratio = 1.0 if plain else moments.profile_square / moments.weight
        free, size = second_moment - level * level * ratio, xp.abs(second_moment)
        size_below = 0.0
    parts = Parts(
        raw=moments.spread,
        whole=moments.second_moment,
        along=level * moments.overlap,
        beyond=moments.level * moments.overlap,
        free=free,
        size=size,
        size_below=size_below,
        level=level,
        finite=xp.isfinite(moments.square) & xp.isfinite(moments.pivot),
    )
    scale, status = scale_of(parts, *shape)
    return Correction(scale, level, pivot, offset, status)
