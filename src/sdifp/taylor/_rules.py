"""What is known of each primitive. Depends on jets alone."""

from collections.abc import Callable, Container
from typing import Any, NamedTuple

import jax.numpy as jnp

from ._jet import Collapse, Jet, compose, multiply

ALL = range(2**31)
"""The arguments of a primitive that is linear in all of them."""


class Rule(NamedTuple):
    """How a primitive acts on Taylor coefficients; see `register_rule`."""

    elementwise: bool = False
    constant: bool = False
    linear: Container[int] = ()
    bilinear: bool = False
    jets: Callable[..., Jet] | None = None

    def is_linear(self, places: list[int]) -> bool:
        """Whether it is affine in the arguments at these places, jointly."""
        if self.bilinear:
            return len(places) == 1
        return all(k in self.linear for k in places)


def register_rule(
    primitive: str,
    *,
    elementwise: bool = False,
    constant: bool = False,
    linear: Container[int] = (),
    bilinear: bool = False,
    jets: Callable[..., Jet] | None = None,
) -> None:
    """Tell Taylor mode how a primitive acts, in place of what it knew before. Several
    properties may hold at once; the cheapest one that applies is used, and nested
    `jax.jvp` where none does.

    **Arguments:**

    - `primitive`: its name, as a jaxpr prints it.
    - `elementwise`: it acts on each entry alone, its arguments have the shape of its
        value or are scalars, and `jax.jvp` can differentiate it as often as needed.
    - `constant`: its derivative is zero.
    - `linear`: the arguments, counted from zero, in which it is affine jointly.
    - `bilinear`: it is linear in each of its two arguments.
    - `jets`: a function `jets(arguments, collapse, **params)` that returns the `Jet` of
        the value from the dense `Jet`s of all arguments. Used where it is not linear in
        those that vary.

    Examples:
        >>> from sdifp import taylor
        >>> taylor.register_rule("my_activation", elementwise=True)
    """
    RULES[primitive] = Rule(elementwise, constant, linear, bilinear, jets)


def _multiply(arguments: list[Jet], collapse: Collapse, **params: Any) -> Jet:
    a, b = arguments
    # Unlike the primitive, this broadcasts the value of one to the rows of the other.
    return multiply(a, b, collapse, jnp.multiply)


def _divide(arguments: list[Jet], collapse: Collapse, **params: Any) -> Jet:
    a, b = arguments
    inverse = compose(lambda x, take: 1.0 / x, b, collapse)
    return multiply(a, inverse, collapse, jnp.multiply)


# fmt: off
_ELEMENTWISE = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "clamp",
    "cos", "cosh", "digamma", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1",
    "integer_pow", "lgamma", "log", "log1p", "logistic", "max", "min", "nextafter",
    "polygamma", "pow", "rem", "rsqrt", "sin", "sinh", "sqrt", "square", "tan", "tanh",
]
_BOTH = [
    "add", "add_any", "convert_element_type", "copy", "copy_p", "neg",
    "reduce_precision", "sub",
]
_LINEAR = [
    "broadcast_in_dim", "concatenate", "cumsum", "expand_dims", "fft", "imag", "real",
    "reduce_sum", "reduce_window_sum", "reshape", "rev", "slice", "split", "squeeze",
    "transpose",
]
# fmt: on

RULES: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, Rule(elementwise=True)),
    **dict.fromkeys(_BOTH, Rule(elementwise=True, linear=ALL)),
    **dict.fromkeys(_LINEAR, Rule(linear=ALL)),
    **dict.fromkeys(["ceil", "floor", "round", "sign"], Rule(constant=True)),
    "stop_gradient": Rule(constant=True),
    "select_n": Rule(elementwise=True, linear=ALL[1:]),
    "dynamic_slice": Rule(linear={0}),
    "dynamic_update_slice": Rule(linear={0, 1}),
    "gather": Rule(linear={0}),
    "pad": Rule(linear={0, 1}),
    "mul": Rule(elementwise=True, bilinear=True, jets=_multiply),
    "div": Rule(elementwise=True, linear={0}, jets=_divide),
    "dot_general": Rule(bilinear=True),
    "conv_general_dilated": Rule(bilinear=True),
}

_UNKNOWN = Rule()


def rule_of(eqn: Any) -> Rule:
    """What is known of the primitive of an equation."""
    return RULES.get(eqn.primitive.name, _UNKNOWN)
