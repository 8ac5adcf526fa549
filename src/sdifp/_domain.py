"""Box: where a field lives. Depends on nothing else in the package."""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

MOST_AXES = 2**22
"""Rules make their nodes in blocks of so many numbers: a point must fit into one."""


def check_dimension(dimension: object) -> int:
    """A positive integer, small enough for points of that dimension to be computed."""
    try:
        found = operator.index(dimension)  # type: ignore[arg-type]
    except TypeError:
        found = 0
    if isinstance(dimension, bool) or found < 1:
        raise ValueError(f"dimension must be a positive integer, got {dimension!r}")
    if found > MOST_AXES:
        # Integer arithmetic: the number may be too large for a float.
        raise ValueError(
            f"dimension must be at most {MOST_AXES}, for a point of {found} numbers "
            f"takes {found * 8 // 2**20} MiB, and thousands are evaluated at a time"
        )
    return found


@jax.tree_util.register_static
class Box:
    """An axis-aligned box in any dimension, each axis periodic or not.

    A box is a constant: it has no array leaves, compares by value, and its volume
    is a plain float inside `jit` too.

    **Arguments:**

    - `lower`, `upper`: the bounds, one finite number per axis, `lower < upper`; up to
        2^22 axes.
    - `periodic`: one bool for all axes, or one per axis.
    - `normalised`: integrals over the box are means: its volume counts as 1. Needed
        where the volume overflows, in very high dimension.

    Examples:
        >>> box = Box([0.0, -1.0], [2.0, 1.0], periodic=[True, False])
        >>> box.dimension, box.volume
        (2, 4.0)
    """

    def __init__(
        self,
        lower: Sequence[float] | np.ndarray,
        upper: Sequence[float] | np.ndarray,
        periodic: bool | Sequence[bool] = False,
        normalised: bool = False,
    ) -> None:
        self.lower = _bounds("lower", lower)
        self.upper = _bounds("upper", upper)
        check_dimension(self.lower.size)
        if self.lower.shape != self.upper.shape:
            raise ValueError(
                f"lower and upper must have one number per axis, got "
                f"{self.lower.size} and {self.upper.size}"
            )
        bad = np.flatnonzero(~(self.lower < self.upper))
        if bad.size:
            k = int(bad[0])
            raise ValueError(
                f"lower must be below upper on every axis, got lower[{k}] = "
                f"{self.lower[k]} and upper[{k}] = {self.upper[k]}"
            )
        flags = np.array(periodic)
        if flags.dtype != np.bool_ or flags.shape not in ((), self.lower.shape):
            raise ValueError(
                f"periodic must be one bool, or one bool for each of the "
                f"{self.lower.size} axes, got {periodic!r}"
            )
        self.periodic = np.broadcast_to(flags, self.lower.shape)
        if not isinstance(normalised, bool):
            raise ValueError(f"normalised must be True or False, got {normalised!r}")
        self.normalised = normalised
        if not np.all(np.isfinite(self.width)):
            raise ValueError(f"upper - lower must be finite, got {self.width.tolist()}")
        for array in (self.lower, self.upper):
            array.flags.writeable = False

    @staticmethod
    def cube(
        dimension: int,
        lower: float = 0.0,
        upper: float = 1.0,
        periodic: bool | Sequence[bool] = False,
        normalised: bool = False,
    ) -> "Box":
        """The box with the same bounds on every one of `dimension` axes.

        Examples:
            >>> Box.cube(3, -1.0, 1.0).volume
            8.0
        """
        d = check_dimension(dimension)
        return Box([lower] * d, [upper] * d, periodic, normalised)

    @property
    def dimension(self) -> int:
        """The number of axes."""
        return self.lower.size

    @property
    def width(self) -> np.ndarray:
        """The length of each axis."""
        with np.errstate(over="ignore"):
            return self.upper - self.lower

    @functools.cached_property
    def log_volume(self) -> float:
        """The natural logarithm of the volume: finite in any dimension."""
        if self.normalised:
            return 0.0
        return math.fsum(np.log(self.width))

    @functools.cached_property
    def volume(self) -> float:
        """The volume, 1 for a normalised box. Raises `OverflowError` where float64
        cannot hold it."""
        if self.normalised:
            return 1.0
        # Mantissas and exponents apart, so that no order of the axes overflows.
        mantissas, exponents = np.frexp(self.width)
        mantissa, exponent = 1.0, int(exponents.sum())
        for factor in mantissas.tolist():
            mantissa, step = math.frexp(mantissa * factor)
            exponent += step
        with np.errstate(over="ignore"):
            volume = float(np.ldexp(mantissa, exponent))
        if not 0.0 < volume < math.inf:
            raise OverflowError(
                f"the volume of this {self.dimension}-dimensional box is "
                f"exp({self.log_volume:.6g}), beyond float64: use means instead of "
                f"integrals, with Box(..., normalised=True) or rule.mean"
            )
        return volume

    def sample(self, key: Array, n: int) -> Float[Array, "n d"]:
        """`n` independent points, uniform on the box."""
        return self.from_unit(jax.random.uniform(key, (n, self.dimension)))

    def contains(
        self, points: Float[Array | np.ndarray, "*batch d"]
    ) -> Bool[Array, "*batch"]:
        """Whether each point lies in the closed box (no wrapping of periodic axes)."""
        points = jnp.asarray(points)
        if points.shape[-1] != self.dimension:
            raise ValueError(
                f"points must have {self.dimension} coordinates on their last axis, "
                f"got shape {points.shape}"
            )
        lower, upper = (
            jnp.asarray(b.reshape([1] * (points.ndim - 1) + [-1]), points.dtype)
            for b in (self.lower, self.upper)
        )
        return jnp.all((points >= lower) & (points <= upper), axis=-1)

    def from_unit(self, points: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Map points of the unit cube onto the box."""
        lower, width, upper = (
            jnp.asarray(b, points.dtype)[None, :]
            for b in (self.lower, self.width, self.upper)
        )
        # The product can round past the far wall by one unit in the last place.
        return jnp.minimum(lower + width * points, upper)

    @functools.cached_property
    def _key(self) -> tuple[bytes, int]:
        """All that makes a box, and the hash of it."""
        arrays = (self.lower, self.upper, self.periodic, np.array(self.normalised))
        data = b"".join(a.tobytes() for a in arrays)
        return data, hash(data)

    def __reduce__(self) -> tuple[type["Box"], tuple[Any, ...]]:
        # Hashes of bytes differ between processes: a copy computes its own.
        bounds = self.lower.tolist(), self.upper.tolist()
        return Box, (*bounds, self.periodic.tolist(), self.normalised)

    def __hash__(self) -> int:
        return self._key[1]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Box) and self._key == other._key)

    def __repr__(self) -> str:
        measure = ", normalised=True" if self.normalised else ""
        lower, upper, periodic = self.lower, self.upper, self.periodic
        if self.dimension <= 4:
            both = f"{lower.tolist()}, {upper.tolist()}"
            return f"Box({both}, periodic={periodic.tolist()}{measure})"
        return (
            f"Box({self.dimension} axes, lower {lower.min()} to {lower.max()}, upper "
            f"{upper.min()} to {upper.max()}, {int(periodic.sum())} periodic{measure})"
        )


def _bounds(name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    # Adding zero makes -0.0 and 0.0 the same bound.
    try:
        array = np.array(values, dtype=np.float64) + 0.0
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} must be a list of numbers, one per axis, got {values!r}"
        )
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, got {array.tolist()}")
    return array
