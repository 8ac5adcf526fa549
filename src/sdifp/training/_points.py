"""Where the residual is looked at: batches of times, with points at each."""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import check_count
from .._domain import Box
from .._mesh import device_count

# A grid of four nodes an axis has 4096 nodes here.
MOST_GRID_DIMENSIONS = 6


class Points(eqx.Module):
    """A batch of `n_t` times by `n_x` points at each; points that share a time share
    its quadrature. For a steady problem there are `n_t n_x` points in all.

    **Arguments:**

    - `n_t`: how many times.
    - `n_x`: how many points at each time.
    """

    n_t: int = eqx.field(static=True, default=8)
    n_x: int = eqx.field(static=True, default=64)

    def __check_init__(self) -> None:
        check_count("n_t", self.n_t)
        check_count("n_x", self.n_x)

    @abc.abstractmethod
    def draw(
        self, key: Array, box: Box, start: Array | float, length: float
    ) -> tuple[Float[Array, "n_t n_x d"], Float[Array, " n_t"]]:
        """Points, and the times in `[start, start + length]` that they are at."""

    @abc.abstractmethod
    def check(self, box: Box) -> None:
        """Raise `ValueError` if there are no such points on a box."""

    def without_time(self) -> "Points":
        """As many in all, at one time."""
        return dataclasses.replace(self, n_t=1, n_x=self.n_t * self.n_x)

    def draw_steady(self, key: Array, box: Box) -> Float[Array, "1 n d"]:
        """Points for a problem without time."""
        return self.without_time().draw(key, box, 0.0, 1.0)[0]

    def at_each_time(self, box: Box, is_steady: bool = False) -> int:
        """How many points of a batch share a time: these are divided among devices."""
        points = self.without_time() if is_steady else self
        draw = lambda key: points.draw(key, box, 0.0, 1.0)[0]
        return jax.eval_shape(draw, jax.random.key(0)).shape[1]


class RandomPoints(Points):
    """New random points in every step, `n_x` at each of `n_t` times.

    One time is drawn from each of `n_t` equal parts of the duration; in one dimension
    one point from each of `n_x` equal parts of the interval, in more dimensions all
    points are independent."""

    def check(self, box: Box) -> None:
        """They are drawn on any box."""

    def draw(
        self, key: Array, box: Box, start: Array | float, length: float
    ) -> tuple[Float[Array, "n_t n_x d"], Float[Array, " n_t"]]:
        for_times, for_points = jax.random.split(key)
        times = _in_strata(for_times, (self.n_t,))
        if box.dimension == 1:
            unit = _in_strata(for_points, (self.n_t, self.n_x))[..., None]
        else:
            # In the shape of the batch, so that each device can make its own.
            shape = (self.n_t, self.n_x, box.dimension)
            unit = jax.random.uniform(for_points, shape)
        return jax.vmap(box.from_unit)(unit), start + length * times


class GridPoints(Points):
    """The same uniform grid in every step, about `n_x` points in all axes together."""

    def check(self, box: Box) -> None:
        check_grid("GridPoints", box)

    def draw(
        self, key: Array, box: Box, start: Array | float, length: float
    ) -> tuple[Float[Array, "n_t n_x d"], Float[Array, " n_t"]]:
        d = box.dimension
        n = max(1, round(self.n_x ** (1.0 / d)))
        axes = [(np.arange(n) + (0.0 if p else 0.5)) / n for p in box.periodic]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, d)
        points = box.from_unit(jnp.asarray(grid))
        times = (jnp.arange(self.n_t) + 0.5) / self.n_t
        return jnp.tile(points[None], (self.n_t, 1, 1)), start + length * times


def check_grid(what: str, box: Box) -> None:
    """Raise `ValueError` if a box has too many axes for a uniform grid."""
    if box.dimension > MOST_GRID_DIMENSIONS:
        raise ValueError(
            f"{what} needs a uniform grid, which has two nodes an axis at the least: "
            f"not beyond {MOST_GRID_DIMENSIONS} dimensions, got {box.dimension}"
        )


def check_devices(n: int, is_steady: bool = False) -> None:
    """Raise `ValueError` unless `n` points can be divided among the devices."""
    devices, processes = device_count(), jax.process_count()
    if n % devices:
        near = [devices * k for k in (n // devices, n // devices + 1) if k]
        fewer = [k for k in range(processes, devices, processes) if n % k == 0]
        raise ValueError(
            f"the {n} points {'(n_t n_x)' if is_steady else 'of each time'} cannot be "
            f"divided among {devices} devices: points must have "
            f"{' or '.join(map(str, near))} of them"
            + (f", or devices be {fewer[-1]}" if fewer else "")
        )


def _in_strata(key: Array, shape: tuple[int, ...]) -> Array:
    """Numbers in [0, 1), one from each of n equal parts along the last axis."""
    n = shape[-1]
    lower = jnp.broadcast_to(jnp.arange(n) / n, shape)
    return lower + jax.random.uniform(key, shape) / n
