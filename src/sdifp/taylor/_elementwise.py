"""Which equations of a jaxpr act on each entry alone. Depends on JAX alone."""

from typing import Any

import jax

from ._products import evaluate

CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}

# fmt: off
ELEMENTWISE = {
    "abs", "acos", "acosh", "add", "add_any", "asin", "asinh", "atan", "atan2", "atanh",
    "cbrt", "clamp", "convert_element_type", "copy", "copy_p", "cos", "cosh",
    "digamma", "div", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1",
    "integer_pow", "lgamma", "log", "log1p", "logistic", "max", "min", "mul", "neg",
    "nextafter", "polygamma", "pow", "reduce_precision", "rem", "rsqrt",
    "select_n", "sin", "sinh", "sqrt", "square", "sub", "tan",
    "tanh",
}
# fmt: on

CONSTANT = {"ceil", "floor", "round", "sign", "stop_gradient"}

# Elementwise too, inside functions that have a derivative rule of their own.
_LOGIC = {"and", "eq", "ge", "gt", "is_finite", "le", "lt", "ne", "not", "or", "xor"}

_ALL = ELEMENTWISE | CONSTANT | _LOGIC


def is_elementwise(eqn: Any, places: list[int], order: int) -> bool:
    """Whether an equation and its derivatives act on each entry alone.

    A function with a derivative rule of its own (`jax.custom_jvp`) may be elementwise
    while its rule is not, so the rule is traced, and the rules of such functions in it
    for the next derivative.

    **Arguments:**

    - `places`: of the arguments that are differentiated.
    - `order`: of the highest derivative that is taken.
    """
    if eqn.primitive.name in ELEMENTWISE:
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
    try:
        rule = _rule(eqn, places)
    except Exception:
        # It has no derivative; whoever differentiates it says why.
        return False
    return _acts_on_entries(rule, shape, order - 1)


def _rule(eqn: Any, places: list[int]) -> Any:
    """The jaxpr of an equation's value and derivative."""

    def rule(values: list[Any], tangents: list[Any]) -> Any:
        def function(*parts: Any) -> Any:
            full = list(values)
            for k, part in zip(places, parts, strict=True):
                full[k] = part
            return evaluate(eqn, full)

        return jax.jvp(function, tuple(values[k] for k in places), tuple(tangents))

    values = [
        jax.ShapeDtypeStruct(a.aval.shape, a.aval.dtype, weak_type=a.aval.weak_type)
        for a in eqn.invars
    ]
    return jax.make_jaxpr(rule)(values, [values[k] for k in places]).jaxpr


def _acts_on_entries(jaxpr: Any, shape: tuple[int, ...], order: int) -> bool:
    """Whether all values have a shape or are scalars, no entry meets another one, and
    the same holds for the derivatives up to an order."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if any(v.aval.shape not in (shape, ()) for v in eqn.outvars):
            return False
        if name in CALLS:
            inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
            if not _acts_on_entries(getattr(inner, "jaxpr", inner), shape, order):
                return False
        elif name == "custom_jvp_call":
            if not is_elementwise(eqn, _floating(eqn), order):
                return False
        elif name == "broadcast_in_dim":
            if eqn.invars[0].aval.shape != ():
                return False
        elif name not in _ALL:
            return False
    return True


def _floating(eqn: Any) -> list[int]:
    """The places of the arguments that have derivatives."""
    return [
        k
        for k, a in enumerate(eqn.invars)
        if jax.numpy.issubdtype(a.aval.dtype, jax.numpy.inexact)
    ]
