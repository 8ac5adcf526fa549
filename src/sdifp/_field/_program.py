"""A network as a list of elementary operations that NumPy can carry out."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Points that a saved program takes at a time.
BLOCK = 256

# Names of primitives that the reader knows; it has one line of NumPy for each.
_PLAIN = frozenset(
    [
        "neg",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "exp",
        "exp2",
        "log",
        "log1p",
        "expm1",
        "sqrt",
        "rsqrt",
        "cbrt",
        "abs",
        "sign",
        "floor",
        "ceil",
        "round",
        "logistic",
        "erf",
        "square",
        "not",
        "is_finite",
        "copy",
        "copy_p",
        "add",
        "add_any",
        "sub",
        "mul",
        "div",
        "max",
        "min",
        "pow",
        "rem",
        "atan2",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and",
        "or",
        "clamp",
        "select_n",
    ]
)
_STRUCTURED = {
    "integer_pow": ("y",),
    "broadcast_in_dim": ("shape", "broadcast_dimensions"),
    "reshape": ("new_sizes",),
    "squeeze": ("dimensions",),
    "transpose": ("permutation",),
    "concatenate": ("dimension",),
    "slice": ("start_indices", "limit_indices", "strides"),
    "dot_general": ("dimension_numbers",),
    "convert_element_type": ("new_dtype",),
    "reduce_sum": ("axes",),
    "reduce_max": ("axes",),
    "reduce_min": ("axes",),
    "reduce_prod": ("axes",),
    "iota": ("shape", "dimension", "dtype"),
}


class Unsupported(Exception):
    """A primitive that the NumPy reader does not know."""


def record(
    function: Callable[..., jax.Array], *examples: jax.ShapeDtypeStruct
) -> tuple[str, list[np.ndarray]]:
    """The operations of a function as JSON, and its constants.

    Values are numbered: constants first, then arguments, then results in order. Calls
    are inlined. Raises `Unsupported` with the name of a primitive without a rule.
    """
    closed = jax.make_jaxpr(function)(*examples)
    constants: list[np.ndarray] = []
    operations: list[dict[str, Any]] = []
    names: dict[Any, str] = {}

    def constant(value: Any) -> str:
        constants.append(np.asarray(value))
        return f"c{len(constants) - 1}"

    def walk(jaxpr: Any, consts: list[Any], arguments: list[str]) -> list[str]:
        for variable, value in zip(jaxpr.constvars, consts, strict=True):
            names[variable] = value if isinstance(value, str) else constant(value)
        for variable, name in zip(jaxpr.invars, arguments, strict=True):
            names[variable] = name

        def read(atom: Any) -> str:
            literal = hasattr(atom, "val")
            return constant(atom.val) if literal else names[atom]

        for equation in jaxpr.eqns:
            inputs = [read(atom) for atom in equation.invars]
            inner = _called(equation.params)
            if inner is not None:
                outputs = walk(*inner, inputs)
            else:
                outputs = [f"v{len(operations)}"]
                operations.append(_operation(equation, inputs))
            for variable, name in zip(equation.outvars, outputs, strict=True):
                names[variable] = name
        return [read(atom) for atom in jaxpr.outvars]

    arguments = [f"x{k}" for k in range(len(examples))]
    (result,) = walk(closed.jaxpr, list(closed.consts), arguments)
    return json.dumps({"operations": operations, "result": result}), constants


def _called(params: dict[str, Any]) -> tuple[Any, list[Any]] | None:
    """The jaxpr that an equation calls, and its constants."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = params.get(name)
        if inner is not None:
            closed = hasattr(inner, "consts")
            return (inner.jaxpr, list(inner.consts)) if closed else (inner, [])
    return None


def _operation(equation: Any, inputs: list[str]) -> dict[str, Any]:
    name = equation.primitive.name
    if name in _PLAIN:
        keys: tuple[str, ...] = ()
    elif name in _STRUCTURED:
        keys = _STRUCTURED[name]
    else:
        raise Unsupported(name)
    if len(equation.outvars) != 1:
        raise Unsupported(name)
    params = {key: _plain(equation.params[key]) for key in keys}
    return {"op": name, "in": inputs, **params}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, np.integer):
        return int(value)
    return np.dtype(value).name


def programs(
    net: Callable[..., jax.Array],
    profile: Callable[[jax.Array], jax.Array] | None,
    dimension: int,
    has_time: bool,
) -> Iterator[tuple[str, np.ndarray]]:
    """Named arrays that hold the network, and the profile, for the NumPy reader."""
    dtype = jnp.result_type(float)
    points = jax.ShapeDtypeStruct((BLOCK, dimension), dtype)
    time = jax.ShapeDtypeStruct((), dtype)
    jobs: dict[str, tuple[Callable[..., jax.Array], tuple[Any, ...]]]
    if has_time:
        jobs = {"net": (lambda x, t: jax.vmap(lambda p: net(p, t))(x), (points, time))}
    else:
        jobs = {"net": (lambda x: jax.vmap(net)(x), (points,))}
    if profile is not None:
        jobs["profile"] = (lambda x: jax.vmap(profile)(x), (points,))
    for name, (function, examples) in jobs.items():
        try:
            text, constants = record(function, *examples)
        except Unsupported as error:
            text, constants = json.dumps({"unsupported": str(error)}), []
        yield f"{name}_program", np.array(text)
        for k, value in enumerate(constants):
            yield f"{name}_constant_{k:04d}", value
