"""A tanh network that is periodic, even across the walls, or neither, axis by axis."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import check_count
from ..._domain import Box


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Embedding:
    """Coordinates as a network sees them: on a periodic axis the first harmonics,
    `cos(2 pi k x / L) / k` and `sin(2 pi k x / L) / k`; on a Neumann axis
    `cos(pi k x / L) / k`, which is even across both walls; else x between -1 and 1.
    `neumann` is one bool for all axes, or one per axis; periodic ones ignore it.
    """

    box: Box
    harmonics: int = 1
    neumann: bool | tuple[bool, ...] = False

    @property
    def size(self) -> int:
        """How many numbers a point becomes."""
        periodic, even, plain = (len(axes) for axes in self._axes)
        return self.harmonics * (2 * periodic + even) + plain

    @property
    def _axes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        periodic = self.box.periodic
        even = np.broadcast_to(self.neumann, periodic.shape) & ~periodic
        kinds = (periodic, even, ~periodic & ~even)
        return tuple(np.flatnonzero(kind) for kind in kinds)  # type: ignore[return-value]

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " size"]:
        """The features of one point."""
        if x.shape != self.box.lower.shape:
            # One coordinate would be taken for all of them.
            raise ValueError(
                f"x must have shape ({self.box.dimension},), one number for each axis "
                f"of the network's box, got {x.shape}"
            )
        lower, width = (
            jnp.asarray(b, x.dtype) for b in (self.box.lower, self.box.width)
        )
        unit = (x - lower) / width
        periodic, even, plain = (
            # All axes alike is the usual case, and needs no gather.
            unit if len(axes) == x.size else unit[axes] if len(axes) else None
            for axes in self._axes
        )
        features = []
        for k in range(1, self.harmonics + 1):
            if periodic is not None:
                wave = (2.0 * np.pi * k) * periodic
                features += [jnp.cos(wave) / k, jnp.sin(wave) / k]
            if even is not None:
                features.append(jnp.cos((np.pi * k) * even) / k)
        if plain is not None:
            features.append(2.0 * plain - 1.0)
        return jnp.concatenate(features)


class Apart(eqx.Module):
    """A network of its own for each component."""

    networks: tuple[eqx.nn.MLP, ...]

    def __call__(self, features: Float[Array, " size"]) -> Float[Array, " n"]:
        """The values of the components."""
        return jnp.stack([network(features) for network in self.networks])


class Network(eqx.Module):
    """A tanh network `f(x, t)`, or `f(x)` for a steady problem, of embedded
    coordinates; made by `MLP`."""

    bottleneck: eqx.nn.Linear | None
    layers: eqx.nn.MLP | Apart
    embedding: Embedding
    duration: float | None = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, " d"], t: Float[Array, ""] | None = None
    ) -> Float[Array, "..."]:
        """The value at one point and time."""
        if (t is None) != (self.duration is None):
            need = (
                "be left out: the network has no time" if t is not None else "be given"
            )
            raise ValueError(f"t must {need}, got {t}")
        features = self.embedding(x)
        if self.bottleneck is not None:
            features = self.bottleneck(features)
        if self.duration is None or t is None:
            return self.layers(features)
        time = 2.0 * jnp.asarray(t, features.dtype) / self.duration - 1.0
        return self.layers(jnp.concatenate([features, time[None]]))


@dataclasses.dataclass(frozen=True)
class MLP:
    """A tanh network of embedded coordinates.

    **Arguments:**

    - `width`, `depth`: units of a hidden layer, and how many such layers.
    - `harmonics`: of the embedding of periodic and Neumann axes.
    - `bottleneck`: the width of a linear layer before the first hidden one, if any:
        in high dimension it makes the exact Laplacian cheap.
    - `separate`: whether each component of a system has a network of its own, behind a
        common bottleneck; by default one network has an output for each.
    """

    width: int = 128
    depth: int = 4
    harmonics: int = 1
    bottleneck: int | None = None
    separate: bool = False

    def __post_init__(self) -> None:
        for name in ("width", "depth", "harmonics"):
            check_count(name, getattr(self, name))
        if self.bottleneck is not None:
            check_count("bottleneck", self.bottleneck)

    def build(
        self,
        box: Box,
        duration: float | None,
        *,
        neumann: bool | Sequence[bool] | np.ndarray = False,
        components: int | None = None,
        key: Array,
    ) -> Network:
        """A network with random parameters on a box, for times from 0 to `duration`, or
        without time; it returns one number, or a vector of so many components."""
        even = bool(neumann) if np.ndim(neumann) == 0 else tuple(map(bool, neumann))  # type: ignore[arg-type]
        embedding = Embedding(box, self.harmonics, even)
        for_first, for_rest = jax.random.split(key)
        size, first = embedding.size, None
        if self.bottleneck is not None:
            first = eqx.nn.Linear(size, self.bottleneck, key=for_first)
            size = self.bottleneck
        size += duration is not None
        shape = (self.width, self.depth, jnp.tanh)
        rest: eqx.nn.MLP | Apart
        if components is None:
            rest = eqx.nn.MLP(size, "scalar", *shape, key=for_rest)
        elif self.separate:
            keys = jax.random.split(for_rest, components)
            rest = Apart(tuple(eqx.nn.MLP(size, "scalar", *shape, key=k) for k in keys))
        else:
            rest = eqx.nn.MLP(size, components, *shape, key=for_rest)
        known = None if duration is None else float(duration)
        return Network(first, rest, embedding, known)
