"""Plane waves on a torus of period 2 pi, travelling at one speed, and their sums."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Wave vectors and amplitudes, by dimension: no two vectors are the same or opposite, so
# that squares add up, and the waves travel both ways, in two dimensions obliquely.
_VECTORS = {
    1: np.array([[1.0], [-2.0], [3.0]]),
    2: np.array([[1.0, 0.0], [-1.0, 1.0], [1.0, 2.0]]),
}
_AMPLITUDES = np.array([1.0, 0.5, 0.3])
_PHASES = np.array([0.3, 1.1, 2.0])


class PlaneWaves(NamedTuple):
    """Waves `a cos(k . x - c |k| t + p)`, an entry or a row each."""

    vectors: Float[np.ndarray, "n d"]
    amplitudes: Float[np.ndarray, " n"]
    speed: float

    @property
    def frequencies(self) -> Float[np.ndarray, " n"]:
        """`c |k|`."""
        return self.speed * np.linalg.norm(self.vectors, axis=1)

    @property
    def directions(self) -> Float[np.ndarray, "n d"]:
        """`k / |k|`."""
        return self.vectors / np.linalg.norm(self.vectors, axis=1, keepdims=True)

    def angles(self, x: Float[Array, " d"], t: Array | float) -> Float[Array, " n"]:
        """`k . x - c |k| t + p`."""
        vectors, frequencies, phases = (
            jnp.asarray(a, x.dtype) for a in (self.vectors, self.frequencies, _PHASES)
        )
        return vectors @ x - frequencies * t + phases


def plane_waves(dimension: int, speed: float) -> PlaneWaves:
    """Three of them, in one dimension or two."""
    if dimension not in _VECTORS:
        raise ValueError(f"dimension must be 1 or 2, got {dimension}")
    if not 0.0 < speed < float("inf"):
        raise ValueError(f"speed must be positive and finite, got {speed}")
    return PlaneWaves(_VECTORS[dimension], _AMPLITUDES, float(speed))
