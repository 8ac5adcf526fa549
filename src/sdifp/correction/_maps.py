"""Maps of numbers to positive ones, by way of logarithms where those are stable."""

import abc
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array


class PositiveMap(abc.ABC):
    """A function f of a number z that is not negative."""

    has_powers: ClassVar[bool] = True
    "whether all powers of f are smooth"

    @abc.abstractmethod
    def __call__(self, z: Array) -> Array:
        """`f(z)`."""

    @abc.abstractmethod
    def log(self, z: Array) -> Array:
        """`log f(z)`."""

    @abc.abstractmethod
    def times(self, z: Array, exponent: Array | float, pivot: Array | float) -> Array:
        """`f(z) e^(exponent - pivot)`, where the pivot is about the size of `log f`."""


@dataclasses.dataclass(frozen=True)
class Given(PositiveMap):
    """`f = z`, for numbers that are positive already."""

    def __call__(self, z: Array) -> Array:
        return z

    def log(self, z: Array) -> Array:
        return jnp.log(z)

    def times(self, z: Array, exponent: Array | float, pivot: Array | float) -> Array:
        return jnp.exp((jnp.log(z) - pivot) + exponent)


@dataclasses.dataclass(frozen=True)
class Exp(PositiveMap):
    """`f = e^z`."""

    def __call__(self, z: Array) -> Array:
        return jnp.exp(z)

    def log(self, z: Array) -> Array:
        return z

    def times(self, z: Array, exponent: Array | float, pivot: Array | float) -> Array:
        return jnp.exp((z - pivot) + exponent)


@dataclasses.dataclass(frozen=True)
class Softplus(PositiveMap):
    """`f = log(1 + e^z)`."""

    def __call__(self, z: Array) -> Array:
        return jax.nn.softplus(z)

    def log(self, z: Array) -> Array:
        # Below, `log f = z - e^z / 2` is z to rounding.
        least = jnp.log(jnp.finfo(z.dtype).eps).astype(z.dtype)
        above = z > least
        return jnp.where(above, jnp.log(self(jnp.where(above, z, least))), z)

    def times(self, z: Array, exponent: Array | float, pivot: Array | float) -> Array:
        return jnp.exp((self.log(z) - pivot) + exponent)


@dataclasses.dataclass(frozen=True)
class Square(PositiveMap):
    """`f = z^2`, which is smooth where z vanishes; most of its powers are not."""

    has_powers: ClassVar[bool] = False

    def __call__(self, z: Array) -> Array:
        return z * z

    def log(self, z: Array) -> Array:
        return 2.0 * jnp.log(jnp.abs(z))

    def times(self, z: Array, exponent: Array | float, pivot: Array | float) -> Array:
        # Half of it on each factor: the square of a large z would overflow.
        return jnp.square(z * jnp.exp(0.5 * (exponent - pivot)))
