"""The affine correction, for all engines."""

from collections.abc import Sequence
from typing import Any, NamedTuple

Array = Any
"an array of JAX or a tensor of PyTorch"


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
    def of(coefficients: Sequence[Array], status: Array = None) -> "Correction":
        """From scale, level, pivot and offset."""
        scale, level, pivot, offset = coefficients
        return Correction(scale, level, pivot, offset, status)

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
        return Correction.of([c[k] for c in self.coefficients], self.status)

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
        own = Correction.of([c[..., None] for c in self.coefficients], self.status)
        out = own.apply(values, profile)
        is_tensor = not hasattr(out, "astype")
        return out.to(values.dtype) if is_tensor else out.astype(values.dtype)
