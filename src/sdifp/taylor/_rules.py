"""What is known of each primitive, and which equations of a jaxpr act on each entry
alone. Depends on jets alone."""

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ._jet import Collapse, Jet, compose, multiply
from ._products import as_function

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


_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}


def called(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    """The jaxpr and the constants of the function that an equation calls, if it only
    does that."""
    if eqn.primitive.name not in _CALLS:
        return None
    inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    return getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())


# Elementwise too, inside functions that have a derivative rule of their own.
_LOGIC = {"and", "eq", "ge", "gt", "is_finite", "le", "lt", "ne", "not", "or", "xor"}


def is_elementwise(eqn: Any, places: list[int], order: int) -> bool:
    """Whether an equation and its derivatives act on each entry alone.

    A function with a derivative rule of its own (`jax.custom_jvp`) may be elementwise
    while its rule is not, so the rule is traced, and the rules of such functions in it
    for the next derivative.

    **Arguments:**

    - `places`: of the arguments that are differentiated.
    - `order`: of the highest derivative that is taken.
    """
    if rule_of(eqn).elementwise:
        return True
    if eqn.primitive.name != "custom_jvp_call" or len(eqn.outvars) != 1:
        return False
    if eqn.params["symbolic_zeros"]:
        # Its rule may be another one for each choice of arguments.
        return False
    shape = eqn.outvars[0].aval.shape
    if any(a.aval.shape not in (shape, ()) for a in eqn.invars):
        return False
    # Differentiated by its own rule, whatever functions it calls.
    if not _acts_on_entries(eqn.params["call_jaxpr"].jaxpr, shape, 0):
        return False
    if order == 0:
        return True

    def rule(values: list[Any], tangents: list[Any]) -> Any:
        function, at = as_function(eqn, places, values)
        return jax.jvp(function, at, tuple(tangents))

    values = [
        jax.ShapeDtypeStruct(a.aval.shape, a.aval.dtype, weak_type=a.aval.weak_type)
        for a in eqn.invars
    ]
    try:
        closed = jax.make_jaxpr(rule)(values, [values[k] for k in places])
    except Exception:
        # It has no derivative; whoever differentiates it says why.
        return False
    return _acts_on_entries(closed.jaxpr, shape, order - 1)


def _acts_on_entries(jaxpr: Any, shape: tuple[int, ...], order: int) -> bool:
    """Whether all values have a shape or are scalars, no entry meets another one, and
    the same holds for the derivatives up to an order."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if any(v.aval.shape not in (shape, ()) for v in eqn.outvars):
            return False
        inner = called(eqn)
        if inner is not None:
            if not _acts_on_entries(inner[0], shape, order):
                return False
        elif name == "custom_jvp_call":
            floating = [k for k, a in enumerate(eqn.invars) if is_floating(a)]
            if not is_elementwise(eqn, floating, order):
                return False
        elif name == "broadcast_in_dim":
            if eqn.invars[0].aval.shape != ():
                return False
        elif not (name in _LOGIC or rule_of(eqn).elementwise or rule_of(eqn).constant):
            return False
    return True


def is_floating(var: Any) -> bool:
    """Whether a variable of a jaxpr has derivatives."""
    dtype = getattr(var.aval, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.inexact))
