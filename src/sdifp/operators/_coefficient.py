"""Coefficients of operators: numbers, arrays, or functions of (x, t)."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from .._checks import check_finite, is_concrete

CoefficientLike = ArrayLike | Sequence[Any] | Callable[..., Array]
"""A number, an array, or a function of (x, t), of x alone where there is no time."""


def call(function: Callable[..., Array], x: Array, t: Array | None) -> Array:
    """A function of (x, t), or of x where there is no time."""
    return function(x) if t is None else function(x, t)


def one_number(name: str, value: Any) -> Array:
    """What a user's function returned at one point. Raises unless it is a number."""
    got = "None" if value is None else f"shape {jnp.shape(value)}"
    if value is None or jnp.shape(value) != ():
        raise ValueError(f"{name} must return one number for one point, got {got}")
    value = jnp.asarray(value)
    if jnp.iscomplexobj(value):
        raise TypeError(f"{name} must return a real number, got {value.dtype}")
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
        wrong = f"{name} must be numbers or a function of (x, t), got {value!r}"
        if isinstance(value, bool | str) or value is None:
            raise TypeError(wrong)
        try:
            array = jnp.asarray(value)
        except TypeError:
            raise TypeError(wrong) from None
        if jnp.issubdtype(array.dtype, jnp.integer):
            array = array.astype(float)
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(f"{name} must be real numbers, got {array.dtype}")
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
        name, what = self.name, f"{self.name} must be"
        if self.varies:
            try:
                out = jnp.asarray(call(self.value, x, t))
            except TypeError as error:
                arguments = "(x)" if t is None else "(x, t)"
                raise ValueError(
                    f"{name} cannot be evaluated as {name}{arguments} at a point of "
                    f"shape {x.shape}: {str(error).splitlines()[0]}"
                ) from error
            what = f"{name} must return"
        else:
            out = jnp.asarray(self.value)
        d = x.shape[0]
        if out.ndim not in self.ranks or any(n != d for n in out.shape):
            raise ValueError(
                f"{what} {_shapes(self.ranks, d)} at a point of dimension {d}, got "
                f"shape {out.shape}"
            )
        return out.astype(x.dtype)


def _shapes(ranks: tuple[int, ...], d: int | None = None) -> str:
    one, two = ("(d,)", "(d, d)") if d is None else (f"({d},)", f"({d}, {d})")
    words = {0: "one number", 1: f"an array of shape {one}", 2: f"of shape {two}"}
    return " or ".join(words[r] for r in ranks)
