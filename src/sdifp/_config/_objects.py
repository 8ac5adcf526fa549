"""What a configuration may name, read off the library: its public classes by their base
class, its public functions by the type that they return, and their docstrings."""

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import sdifp.estimators as estimators

# Absolute: `from .. import training` would ask the package for all of its names.
import sdifp.field as field
import sdifp.operators as operators
import sdifp.problems as problems
import sdifp.quadrature as quadrature
import sdifp.taylor as taylor
import sdifp.training as training

from ..problems import Problem
from ..quadrature import QuadratureRule
from ..training import Method, Recipe

PARTS = (training, problems, field, estimators, operators, taylor)
"""Where objects are looked up by name."""

Makers = Mapping[str, Callable[..., Any]]

PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
"""The types of values that are written as they are, in words."""


def kind_of(hint: Any) -> Any:
    """The type in a hint that may also be None."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next(k for k in kinds if k is not type(None))


def recipe_kinds() -> dict[str, Any]:
    """The fields of a recipe and their types."""
    hints = typing.get_type_hints(Recipe)
    return {f.name: kind_of(hints[f.name]) for f in dataclasses.fields(Recipe)}


@functools.cache
def makers(kind: Any) -> Makers:
    """What makes an object of a type, by name: the public classes and functions whose
    arguments can be written as text."""
    found = {}
    for part in PARTS:
        for name, value in vars(part).items():
            is_class = inspect.isclass(value) and issubclass(value, kind)
            is_base = inspect.isabstract(value) or (
                value is kind and kind.__subclasses__()
            )
            makes = _makes(value, kind) or (is_class and not is_base)
            if makes and name[0] != "_" and _is_text(value):
                found[name] = value
    return dict(sorted(found.items()))


def _makes(function: Any, kind: Any) -> bool:
    """Whether this is a function that returns a type."""
    if not inspect.isfunction(function):
        return False
    made = inspect.signature(function).return_annotation
    return inspect.isclass(made) and issubclass(made, kind)


def _is_text(maker: Callable[..., Any]) -> bool:
    """Whether what must be given can be written: a transformation of Optax cannot."""
    return all(
        kind_of(p.annotation) in PLAIN or _is_own(kind_of(p.annotation))
        for p in inspect.signature(maker).parameters.values()
        if p.default is p.empty
    )


def _is_own(kind: Any) -> bool:
    """Whether this is a class of the library whose objects may be written."""
    name = getattr(kind, "__name__", "")
    return any(getattr(part, name, None) is kind for part in PARTS)


@functools.cache
def inner_makers(kind: Any) -> Makers:
    """What makes the arguments of objects of a type, and their own arguments."""
    found: dict[str, Callable[..., Any]] = {}
    left = list(makers(kind).values())
    while left:
        for parameter in inspect.signature(left.pop()).parameters.values():
            asked = kind_of(parameter.annotation)
            if _is_own(asked):
                new = {n: m for n, m in makers(asked).items() if n not in found}
                found |= new
                left += new.values()
    return found


PROBLEMS = makers(Problem)
"""The problems of the library."""


def listed() -> dict[str, dict[str, str]]:
    """All names by their kind, each with the first sentence of its docstring."""
    kinds = {"problems": PROBLEMS, "methods": makers(Method)}
    for name, kind in recipe_kinds().items():
        if kind not in PLAIN:
            kinds[name if name.endswith("s") else f"{name}s"] = makers(kind)
    # Not named in a configuration.
    rules = {n: f for n, f in vars(quadrature).items() if _makes(f, QuadratureRule)}
    kinds["rules"] = dict(sorted(rules.items()))
    return {
        title: {name: first_sentence(maker) for name, maker in found.items()}
        for title, found in kinds.items()
    }


def first_sentence(documented: Any) -> str:
    """The first sentence of a docstring, without its full stop."""
    text = " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())
    return re.split(r"\.(?= |$)", text)[0]


def argument_docs(documented: Any) -> dict[str, str]:
    """The texts of the arguments in a docstring."""
    text = (inspect.getdoc(documented) or "").partition("**Arguments:**")[2]
    items = re.findall(r"^- `(\w+)`: (.*(?:\n +\S.*)*)", text, re.MULTILINE)
    return {name: " ".join(doc.split()) for name, doc in items}
