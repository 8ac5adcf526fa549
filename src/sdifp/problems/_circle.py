"""Solutions on a circle, spectral in space and time, of equations
`u_t = L u + N(u)` with a linear part L that is diagonal in the Fourier modes."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from ._spectral import chebyshev

Modes = Complex[np.ndarray, "degree components modes"]

# The polynomials on one piece of time, and the least and most points and pieces.
_DEGREE = 16
_POINTS, _MOST_POINTS = 64, 1024
_PIECES, _MOST_PIECES = 8, 1024
# Of the iteration on one piece: its limit, and a change that is rounding.
_ITERATIONS, _SMALL = 60, 1e-14
# The last of the coefficients relative to the largest: those of the neglected terms.
_RESOLVED = 1e-11


class CircleSolution(eqx.Module):
    """A function of one point and time: Fourier modes in space, each a Chebyshev series
    in time on equal pieces of the duration."""

    cosines: Float[np.ndarray, "pieces degree components modes"]
    sines: Float[np.ndarray, "pieces degree components modes"]
    lower: float = eqx.field(static=True)
    period: float = eqx.field(static=True)
    duration: float = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, "1"], t: Float[Array, ""]
    ) -> Float[Array, "..."]:
        """The value at one point and time: one number, or one for each component."""
        cosines, sines = (
            series_at(part, t, self.duration, x.dtype)
            for part in (self.cosines, self.sines)
        )
        k = jnp.asarray(wave_numbers(cosines.shape[-1], self.period), x.dtype)
        angles = k * (x[0] - self.lower)
        values = cosines @ jnp.cos(angles) + sines @ jnp.sin(angles)
        return values[0] if len(values) == 1 else values


def wave_numbers(size: int, period: float) -> Float[np.ndarray, " size"]:
    """Those of the first modes of a circle."""
    return 2.0 * np.pi / period * np.arange(size)


def series_at(
    coefficients: Array | np.ndarray,
    t: Float[Array, ""],
    duration: float,
    dtype: np.dtype,
) -> Float[Array, "..."]:
    """Chebyshev series on equal pieces of the duration, at one time. Their coefficients
    have the shape (pieces, degree, ...)."""
    pieces, degree, *_ = coefficients.shape
    place = pieces * jnp.asarray(t, dtype) / duration
    piece = jnp.clip(jnp.floor(place).astype(int), 0, pieces - 1)
    polynomials = chebyshev(2.0 * (place - piece) - 1.0, degree)
    return jnp.tensordot(polynomials, jnp.asarray(coefficients, dtype)[piece], 1)


def solve(
    start: Callable[[np.ndarray], np.ndarray],
    linear: Callable[[np.ndarray], np.ndarray],
    nonlinear: Callable[[Modes, np.ndarray], Modes],
    *,
    lower: float,
    period: float,
    duration: float,
    shown: Callable[[Modes, np.ndarray], Modes] | None = None,
) -> CircleSolution:
    """The solution, with as many points and pieces of time as resolve it. On each piece
    it is a polynomial in time that solves the equation at Chebyshev points.

    Raises `ValueError` if the largest numbers of them do not.

    **Arguments:**

    - `start`: initial data, from points of shape (n,) to (components, n).
    - `linear`: L, from the wave numbers to (components, modes).
    - `nonlinear`: N, from the modes of u and the wave numbers to modes, as those of
        `numpy.fft.rfft`.
    - `shown`: the modes of the field, from those of u; by default u itself.
    """
    points, pieces = _POINTS, _PIECES
    while points <= _MOST_POINTS and pieces <= _MOST_PIECES:
        grid = lower + period * np.arange(points) / points
        values = np.asarray(start(grid))
        k = wave_numbers(points // 2 + 1, period)
        found = _march(np.fft.rfft(values), linear(k), nonlinear, k, duration / pieces)
        modes = _pieces_of(found, pieces)
        if modes is None:
            pieces *= 2
            continue
        if shown is not None:
            modes = np.stack([shown(piece, k) for piece in modes])
        fitted = np.einsum("ij,pj...->pi...", lobatto(_DEGREE)[1], modes) / points
        size = np.abs(fitted)
        in_space = size[..., -(points // 16) :].max() / size.max()
        in_time = size[:, -2:].max() / size.max()
        if max(in_space, in_time) <= _RESOLVED:
            fitted[..., 1:] *= 2.0
            kept = fitted[..., : points // 2]
            return CircleSolution(kept.real, -kept.imag, lower, period, duration)
        points *= 2 if in_space > _RESOLVED else 1
        pieces *= 2 if in_time > _RESOLVED else 1
    raise ValueError(
        f"the solution must be smooth enough for {_MOST_POINTS} points in space and "
        f"{_MOST_PIECES} pieces of the duration {duration:g}"
    )


def lobatto(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """The Chebyshev points from -1 to 1, and the matrix from values there to
    coefficients."""
    angles = np.pi * np.arange(degree)[::-1] / (degree - 1)
    return np.cos(angles), np.linalg.inv(np.cos(angles[:, None] * np.arange(degree)))


def _slopes() -> np.ndarray:
    """The matrix from values at the Chebyshev points to derivatives there."""
    points, fit = lobatto(_DEGREE)
    kinds = [np.polynomial.chebyshev.Chebyshev.basis(j) for j in range(_DEGREE)]
    return np.stack([kind.deriv()(points) for kind in kinds], 1) @ fit


def _march(
    start: Complex[np.ndarray, "components modes"],
    linear: np.ndarray,
    nonlinear: Callable[[Modes, np.ndarray], Modes],
    k: np.ndarray,
    length: float,
) -> Callable[[Modes | None], Modes | None]:
    """What finds the modes on the next piece of a length, from those on the last; None
    where the iteration does not converge."""
    slopes = 2.0 / length * _slopes()
    # One small system of equations for each mode, the first point being known.
    systems = slopes[1:, 1:] - linear[..., None, None] * np.eye(_DEGREE - 1)
    inverses = np.linalg.inv(systems)

    def piece(last: Modes | None) -> Modes | None:
        first = start if last is None else last[-1]
        modes = np.broadcast_to(first, (_DEGREE, *first.shape)).copy()
        size = np.abs(first).max()
        for _ in range(_ITERATIONS):
            right = nonlinear(modes, k)[1:] - slopes[1:, 0, None, None] * first
            by_mode = np.moveaxis(right, 0, -1)[..., None]
            new = np.moveaxis((inverses @ by_mode)[..., 0], -1, 0)
            change = np.abs(new - modes[1:]).max()
            modes[1:] = new
            if not change < 1e3 * size:
                return None
            if change < _SMALL * size:
                return modes
        # Rounding of high modes may keep it from becoming smaller.
        return modes if change < 1e2 * _SMALL * size else None

    return piece


def _pieces_of(
    march: Callable[[Modes | None], Modes | None], pieces: int
) -> Complex[np.ndarray, "pieces degree components modes"] | None:
    found: list[Modes] = []
    for _ in range(pieces):
        new = march(found[-1] if found else None)
        if new is None:
            return None
        found.append(new)
    return np.stack(found)
