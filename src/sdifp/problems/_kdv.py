"""u_t + 6 u u_x + u_xxx = 0 on a circle, and along the diagonal of a torus."""

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.integrate
from jaxtyping import Array, Float

from .._domain import Box, check_dimension
from ..operators import Residual, third_derivatives, time_derivative
from ._conditions import Initial
from ._data import (
    cube_in_words,
    mass_of_gaussian,
    squared_norm_of_gaussian,
    wrapped_gaussian,
)
from ._problem import Problem
from ._spectral import chebyshev

_LOWER, _PERIOD = -9.0, 20.0
# Points in space, pieces in time and polynomials on each, of the spectral solution.
_GRID, _PIECES, _DEGREE = 256, 32, 24


def kdv(dimension: int = 1, *, duration: float = 0.5) -> Problem:
    """The Korteweg-de Vries equation, `u_t + 6 u u_x + u_xxx = 0` on [-9, 11].

    Periodic, from `u0 = exp(-(x - 1)^2)`, wrapped. In d dimensions
    `u_t + (6/d) u sum_k du/dx_k + (1/d) sum_k d^3u/dx_k^3 = 0` on the torus
    [-9, 11]^d: the same equation along the diagonal, from the same data of `sum_k x_k`.
    Both integrals are constant. The reference is a spectral solution.

    **Arguments:**

    - `dimension`: d.
    - `duration`: the last time.
    """
    d = check_dimension(dimension)

    def initial(x: Array) -> Array:
        return wrapped_gaussian(jnp.sum(x), 1.0, 1.0, _PERIOD)

    volume = _PERIOD if d > 1 else 1.0
    box = cube_in_words(_LOWER, _LOWER + _PERIOD, d)
    description = (
        f"The Korteweg-de Vries equation, u_t + 6 u u_x + u_xxx = 0 on {box}, periodic."
    )
    if d > 1:
        description = (
            f"The Korteweg-de Vries equation along the diagonal, u_t + (6/d) u "
            f"sum_k du/dx_k + (1/d) sum_k d^3u/dx_k^3 = 0 on {box}, periodic, with "
            f"d = {d}."
        )
    return Problem(
        domain=Box.cube(d, _LOWER, _LOWER + _PERIOD, periodic=True, normalised=d > 1),
        equation=Residual(
            time_derivative() + (1.0 / d) * third_derivatives(),
            lambda u, grad, x, t: (6.0 / d) * u * jnp.sum(grad),
        ),
        conditions=[Initial(initial)],
        interval=(0.0, duration),
        mass=float(mass_of_gaussian(1.0)) / volume,
        squared_norm=float(squared_norm_of_gaussian(1.0, _PERIOD)) / volume,
        reference=_solution(float(duration)),
        name=f"kdv-{d}d",
        description=description,
    )


class Spectral(eqx.Module):
    """A function of `sum_k x_k` and t: Fourier modes in space, each a Chebyshev series
    in time on equal pieces of the duration."""

    cosines: Float[np.ndarray, "pieces degree modes"]
    sines: Float[np.ndarray, "pieces degree modes"]
    duration: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"], t: Float[Array, ""]) -> Float[Array, ""]:
        """The value at one point and time."""
        pieces, degree, size = self.cosines.shape
        place = pieces * jnp.asarray(t, x.dtype) / self.duration
        piece = jnp.clip(jnp.floor(place).astype(int), 0, pieces - 1)
        in_time = chebyshev(2.0 * (place - piece) - 1.0, degree)
        cosines, sines = (
            in_time @ jnp.asarray(part, x.dtype)[piece]
            for part in (self.cosines, self.sines)
        )
        angles = (jnp.sum(x) - _LOWER) * jnp.asarray(_wave_numbers(size), x.dtype)
        return jnp.cos(angles) @ cosines + jnp.sin(angles) @ sines


def _wave_numbers(size: int) -> np.ndarray:
    return 2.0 * np.pi / _PERIOD * np.arange(size)


@functools.cache
def _solution(duration: float) -> Spectral:
    grid = _LOWER + _PERIOD * np.arange(_GRID) / _GRID
    return solve(np.exp(-((grid - 1.0) ** 2)), duration)


def solve(start: Float[np.ndarray, " n"], duration: float) -> Spectral:
    """The solution from values on equidistant points of the circle, by a high-order
    Runge-Kutta method for the Fourier modes without their free rotation."""
    n = start.size
    k = _wave_numbers(n // 2 + 1)
    # The highest third would come back as lower ones from the product.
    kept = np.arange(k.size) < n // 3

    def rate(t: float, modes: np.ndarray) -> np.ndarray:
        rotation = np.exp(1j * k**3 * t)
        u = np.fft.irfft(modes.view(complex) * rotation)
        return (-3j * k * kept * np.fft.rfft(u * u) / rotation).view(float)

    # Nodes in (-1, 1), and the matrix from values there to Chebyshev coefficients.
    angles = np.pi * (np.arange(_DEGREE)[::-1] + 0.5) / _DEGREE
    nodes = np.cos(angles)
    fit = 2.0 * np.cos(np.arange(_DEGREE)[:, None] * angles) / _DEGREE
    fit[0] /= 2.0
    times = (np.arange(_PIECES)[:, None] + 0.5 * (nodes + 1.0)) / _PIECES * duration
    done = scipy.integrate.solve_ivp(
        rate,
        (0.0, duration),
        np.fft.rfft(start).view(float),
        method="DOP853",
        t_eval=times.ravel(),
        rtol=1e-12,
        atol=1e-12,
    )
    modes = done.y.T.copy().view(complex) * np.exp(1j * k**3 * times.reshape(-1, 1))
    modes = modes[:, : n // 2].reshape(_PIECES, _DEGREE, -1) / n
    modes[..., 1:] *= 2.0
    fitted = fit @ modes
    return Spectral(fitted.real, -fitted.imag, duration)
