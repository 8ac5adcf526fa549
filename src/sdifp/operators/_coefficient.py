"""Coefficients of operators: numbers, arrays, or functions of (x, t)."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from .._checks import check_finite, is_concrete

CoefficientLike = ArrayLike | Sequence[Any] | Callable[..., Array]
"""A number, an array, or a function of (x, t), of x alone where there is no time."""


def call(
    name: str,
    function: Callable[..., Any],
    by_name: Mapping[str, Any] = MappingProxyType({}),
    **arguments: Any,
) -> Any:
    """What a user's function gives at one point, of (x, t), or of x where the time is
    None. Raises a sentence that names it where it cannot be called like that.

    **Arguments:**

    - `by_name`: arguments that are given by their names.
    """
    given = {k: a for k, a in arguments.items() if k != "t" or a is not None}
    try:
        return function(*given.values(), **by_name)
    except TypeError as error:
        every = ", ".join([*given, *(f"{k}={k}" for k in by_name)])
        raise ValueError(
            f"{name} cannot be evaluated as {name}({every}) at a point of "
            f"shape {arguments['x'].shape}: {str(error).splitlines()[0]}"
        ) from error


def one_number(name: str, value: Any) -> Array:
    """What a user's function returned at one point. Raises unless it is a number."""
    if value is None or jnp.shape(value) != ():
        got = "None" if value is None else f"shape {jnp.shape(value)}"
        raise ValueError(f"{name} must return one number for one point, got {got}")
    return _real(name, jnp.asarray(value))


def numbers(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """What a user's function returned at one point. Raises unless it is a number, or a
    vector of so many."""
    if not shape:
        return one_number(name, value)
    try:
        found = jnp.asarray(value)
    except (TypeError, ValueError):
        found = None
    if value is None or found is None or found.shape != shape:
        got = f"a {type(value).__name__}" if found is None else f"shape {found.shape}"
        got = "None" if value is None else got
        raise ValueError(
            f"{name} must return an array of {shape[0]} numbers for one point, one for "
            f"each residual, got {got}; jnp.stack makes one of a list of numbers"
        )
    return _real(name, found)


def _real(name: str, value: Array) -> Array:
    if jnp.iscomplexobj(value):
        raise TypeError(
            f"{name} must return real numbers, got {value.dtype}: write a complex "
            f"field as two real components, its real and its imaginary part"
        )
    return value


class Coefficient(eqx.Module):
    """A coefficient, checked where it is given and where it is evaluated.

    **Arguments:**

    - `name`: of the argument, for errors.
    - `value`: as the user gives it.
    - `ranks`: 0 for one number, 1 for one for each coordinate, 2 for a matrix.
    """

    name: str = eqx.field(static=True)
    value: Any
    ranks: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, name: str, value: Any, *ranks: int):
        self.name, self.ranks = name, ranks
        self.value = value if callable(value) else self._array(value)

    def _array(self, value: Any) -> Array:
        name, ranks = self.name, self.ranks
        try:
            array = jnp.asarray(value)
        except (TypeError, ValueError):
            array = jnp.asarray(False)
        if jnp.issubdtype(array.dtype, jnp.integer):
            array = array.astype(float)
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(
                f"{name} must be real numbers or a function of (x, t), got {value!r}"
            )
        if array.ndim not in ranks:
            what = _shapes(ranks)
            raise ValueError(f"{name} must be {what}, got shape {array.shape}")
        if is_concrete(array):
            check_finite(name, array)
        return array

    @property
    def varies(self) -> bool:
        """Whether it is a function."""
        return callable(self.value)

    def __call__(self, x: Array, t: Array | None) -> Array:
        """Its value at a point, whose shape is checked against the dimension."""
        value, verb, d = self.value, "be", x.shape[0]
        if self.varies:
            value, verb = call(self.name, value, x=x, t=t), "return"
        out = jnp.asarray(value)
        if out.ndim not in self.ranks or any(n != d for n in out.shape):
            raise ValueError(
                f"{self.name} must {verb} {_shapes(self.ranks, d)} at a point of "
                f"dimension {d}, got shape {out.shape}"
            )
        return out.astype(x.dtype)


def _shapes(ranks: tuple[int, ...], d: int | None = None) -> str:
    one, two = ("(d,)", "(d, d)") if d is None else (f"({d},)", f"({d}, {d})")
    words = {0: "one number", 1: f"an array of shape {one}", 2: f"of shape {two}"}
    return " or ".join(words[r] for r in ranks)
