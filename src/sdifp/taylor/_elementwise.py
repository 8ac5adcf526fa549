"""Which equations of a jaxpr act on each entry alone. Knows rules."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ._products import as_function
from ._rules import rule_of

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
    try:
        rule = _rule(eqn, places)
    except Exception:
        # It has no derivative; whoever differentiates it says why.
        return False
    return _acts_on_entries(rule, shape, order - 1)


def _rule(eqn: Any, places: list[int]) -> Any:
    """The jaxpr of an equation's value and derivative."""

    def rule(values: list[Any], tangents: list[Any]) -> Any:
        function, at = as_function(eqn, places, values)
        return jax.jvp(function, at, tuple(tangents))

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
