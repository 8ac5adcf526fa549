"""Functions that have the initial data by construction, and those in turn in time."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._domain import Box


class Ansatz(eqx.Module):
    """`u0(x) + s phi(x) net(x, t - start)` with `s = (t - start) / length`; with an
    initial velocity `u0 + (t - start) v0 + s^2 phi net`. Where the initial data are
    learnt instead (`initial` is None), `phi net`. Here phi, the `profile`, vanishes on
    Dirichlet walls."""

    net: Callable[..., Array]
    initial: Callable[[Array], Array] | None
    velocity: Callable[[Array], Array] | None
    start: Float[Array, ""]
    length: float = eqx.field(static=True)
    profile: Callable[[Array], Array] | None = eqx.field(static=True, default=None)

    def with_net(self, net: Callable[..., Array]) -> "Ansatz":
        """The same with another network."""
        return dataclasses.replace(self, net=net)

    def __call__(
        self, x: Float[Array, " d"], t: Float[Array, ""]
    ) -> Float[Array, "..."]:
        """The value at one point and time."""
        since = t - self.start
        out = self.net(x, since)
        if self.profile is not None:
            out = self.profile(x) * out
        if self.initial is None:
            return out
        passed = since / self.length
        if self.velocity is None:
            return self.initial(x) + passed * out
        return self.initial(x) + since * self.velocity(x) + passed**2 * out


class SteadyAnsatz(eqx.Module):
    """`phi(x) net(x)` for a problem without time. It holds at no time, so it must not
    take one."""

    net: Callable[..., Array]
    profile: Callable[[Array], Array] | None = eqx.field(static=True, default=None)

    def with_net(self, net: Callable[..., Array]) -> "SteadyAnsatz":
        """The same with another network."""
        return dataclasses.replace(self, net=net)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, "..."]:
        """The value at one point."""
        out = self.net(x)
        return out if self.profile is None else self.profile(x) * out


class PiecewiseInTime(eqx.Module):
    """One function of x and t after the other, each until its time is over."""

    functions: tuple[Callable[..., Array], ...]
    ends: tuple[float, ...] = eqx.field(static=True)
    "the times at which all but the last hand over"

    def __call__(
        self, x: Float[Array, " d"], t: Float[Array, ""]
    ) -> Float[Array, "..."]:
        """The value at one point and time."""
        ends = jnp.asarray(self.ends, t.dtype)
        turn = jnp.sum(jnp.asarray(t >= ends, jnp.int32))
        # A branch must be hashable, which a module with arrays is not.
        branches = [lambda x, t, f=f: f(x, t) for f in self.functions]
        return jax.lax.switch(turn, branches, x, t)


@eqx.filter_jit
def _values(function: Callable[[Array], Array], points: Array) -> Array:
    return jax.vmap(function)(points)


class Series(eqx.Module):
    """A function on an interval as a trigonometric series: of all harmonics on a
    periodic one, of cosines on a Neumann one. Exact for what the grid resolves."""

    cosines: Float[Array, "k ..."]
    sines: Float[Array, "k ..."] | None
    box: Box

    @staticmethod
    def fit(function: Callable[[Array], Array], box: Box, n: int = 256) -> "Series":
        """The series through the values on `n` equidistant points."""
        periodic = bool(box.periodic[0])
        unit = (np.arange(n) + (0.0 if periodic else 0.5)) / n
        points = jnp.asarray(box.lower + box.width * unit[:, None])
        values = np.asarray(_values(function, points), np.float64)
        if periodic:
            modes = np.fft.rfft(values, axis=0) / n
            modes[1:] *= 2.0
            # Without the highest, whose phase the grid does not tell.
            modes = modes[: n // 2]
            cosines, sines = jnp.asarray(modes.real), jnp.asarray(-modes.imag)
        else:
            angles = np.pi * np.arange(n)[:, None] * unit
            even = 2.0 * np.cos(angles) @ values / n
            even[0] /= 2.0
            cosines, sines = jnp.asarray(even[: n // 2]), None
        return Series(cosines, sines, box)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, "..."]:
        """The value at one point."""
        unit = (x[0] - self.box.lower[0]) / self.box.width[0]
        turn = np.pi if self.sines is None else 2.0 * np.pi
        angles = turn * unit * jnp.arange(len(self.cosines), dtype=x.dtype)
        out = jnp.cos(angles) @ self.cosines.astype(x.dtype)
        if self.sines is not None:
            out = out + jnp.sin(angles) @ self.sines.astype(x.dtype)
        return out
