"""What the rest of the library asks of a field.

A field is a conserved one, its slice at one time, or any function of (x, t): a network
without coefficients. No code outside this package checks which one it has.
"""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._mesh import device_local

if TYPE_CHECKING:
    from ._slice import FieldSlice

Profile = Callable[[Array], Array]


class Expansion(NamedTuple):
    """A field at one time, and the coefficients of its correction as functions of t."""

    now: "FieldSlice"
    series: Any
    "a tree of the coefficients, with their derivatives in t on the first axis"


class Field(eqx.Module):
    """A function of (x, t), or of x alone.

    Besides the methods, a field has `net`, the function that derivatives in x run over,
    `profile`, what the shift multiplies (None for 1), and `gradient`, how the
    coefficients are differentiated (None without any).

    One that has coefficients also has `is_affine`, whether it is `scale * net + shift *
    profile`, so that `A[u]` follows from `A[net]` and `A[profile]` for any operator A.
    """

    @property
    @abc.abstractmethod
    def is_slice(self) -> bool:
        """Whether the time is fixed already."""

    @abc.abstractmethod
    def time_for(self, d: int, t: ArrayLike | None) -> ArrayLike | None:
        """The time at which the field is evaluated. Raises if it, or the dimension of
        the points, does not fit the field."""

    @abc.abstractmethod
    def expand(self, t: Array | None, order: int) -> Expansion | None:
        """The coefficients at a time with their derivatives in t up to an order, from
        one quadrature; None for a field without coefficients."""

    @abc.abstractmethod
    def resample(self, key: Array, *, rule: bool | None = None) -> "Field":
        """The same with fresh randomness."""

    @abc.abstractmethod
    def with_gradient(self, gradient: Any) -> "Field":
        """The same with another gradient mode."""


class DeterministicField(Field):
    """A field without a gradient mode, in which nothing is random."""

    gradient = None

    def resample(self, key: Array, *, rule: bool | None = None) -> "Field":
        del key, rule
        return self

    def with_gradient(self, gradient: Any) -> "Field":
        del gradient
        return self


class PlainField(DeterministicField):
    """Any function of (x, t), or of x: a field without coefficients."""

    net: Callable[..., Array]

    profile = None
    rule = None
    is_slice = False

    def __call__(self, x: Float[Array, " d"], t: ArrayLike | None = None) -> Array:
        """The value at one point and time."""
        return evaluate(self.net, x, t)

    def time_for(self, d: int, t: ArrayLike | None) -> ArrayLike | None:
        del d
        return t

    def expand(self, t: Array | None, order: int) -> None:
        del t, order

    def at(self, t: Array | None = None) -> "PlainSlice":
        """The function at one time."""
        return PlainSlice(self.net, t)

    def over(self, net: Callable[..., Array]) -> "PlainField":
        """The same with another network."""
        return PlainField(net)

    def on(self, rule: Any) -> "PlainField":
        """The same: nothing is integrated."""
        del rule
        return self

    def check(self, times: Any = None) -> None:
        """Nothing is prescribed."""

    def certificate(self, times: Any = None, *, key: Array) -> None:
        """Nothing is prescribed, so nothing is certified."""


class PlainSlice(eqx.Module):
    """A function of x and t at one time."""

    function: Any
    time: Array | None

    scale = None
    shift = None

    @device_local()
    def __call__(self, x: Float[Array, " d"]) -> Array:
        """The value at one point."""
        return evaluate(self.function, x, self.time)


def as_field(u: Any) -> Any:
    """A field as it is; any other function as a field without coefficients."""
    return u if isinstance(u, Field) else PlainField(u)


def at_time(u: Any, t: Array | None) -> Any:
    """A field, or any function of x and t, at one time, with its quadrature done."""
    return as_field(u).at(t)


def over_times(function: Callable[[Any], Any], times: Array | None) -> Any:
    """What a function gives at each of some times, one after the other, on a first
    axis; without time that has one entry."""
    if times is None:
        return jax.tree.map(lambda a: jnp.asarray(a)[None], function(None))
    return jax.lax.map(function, times)


def evaluate(net: Callable[..., Array], x: Array, time: ArrayLike | None) -> Array:
    """A network at one point, and at a time if there is one."""
    return net(x) if time is None else net(x, time)
