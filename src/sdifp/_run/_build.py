"""From a configuration to the objects that it names, and back."""

import dataclasses
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from .. import _field, _methods, _networks, _operators, _optimisers, problems
from .._config import Config, Expression
from .._methods import Method
from ..problems import Problem, Recipe

# Where the names of a configuration are looked up, apart from those of problems.
_PARTS = (_methods, _optimisers, _networks, _field, _operators, problems)

# The fields of a configuration that are those of a recipe.
_OBJECTS = ("network", "optimiser", "points", "gradient", "estimator")
_NUMBERS = (
    *("steps", "nodes", "final_nodes", "windows"),
    *("hard_initial", "initial_weight", "causal"),
)


class Built(NamedTuple):
    """What a configuration stands for."""

    config: Config
    "complete: nothing is left to the recipe of the problem"
    problem: Problem
    method: Method
    recipe: Recipe


def build(config: Config, folder: Path | None = None) -> Built:
    """The objects of a configuration.

    **Arguments:**

    - `folder`: where the file of a problem of the user is, if not where it says.
    """
    problem = _problem(config, folder)
    method = _object(config, "method")
    recipe = getattr(problem, config.recipe)
    given = {name: _object(config, name) for name in _OBJECTS}
    given |= {name: getattr(config, name) for name in _NUMBERS}
    recipe = recipe.but(**{k: v for k, v in given.items() if v is not None})
    every = config.every or max(1, recipe.steps * recipe.windows // 20)
    known: dict[str, Any] = {"method": describe(method), "every": every}
    known |= {name: describe(getattr(recipe, name)) for name in _OBJECTS}
    known |= {name: getattr(recipe, name) for name in _NUMBERS}
    return Built(dataclasses.replace(config, **known), problem, method, recipe)


def precision_for(config: Config, folder: Path | None = None) -> str:
    """`float32` or `float64`, as the configuration says or its optimiser needs."""
    if config.precision != "auto":
        return config.precision
    return "float64" if build(config, folder).recipe.optimiser.uses_rows else "float32"


def precision_now() -> str:
    """That of JAX."""
    return "float64" if jax.config.read("jax_enable_x64") else "float32"


def describe(value: Any) -> str:
    """An object as a configuration writes it."""
    return str(_expression(value))


def _expression(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return tuple(map(_expression, value))
    name = type(value).__name__
    if not any(getattr(part, name, None) is type(value) for part in _PARTS):
        raise ValueError(f"{value!r} cannot be written into a configuration")
    arguments = []
    for key in inspect.signature(type(value)).parameters:
        own = vars(value)
        found = own[f"given_{key}"] if f"given_{key}" in own else getattr(value, key)
        arguments.append((key, _expression(found)))
    return Expression(name, kwargs=tuple(arguments))


def _lookup(name: str) -> Callable[..., Any]:
    return next(getattr(part, name) for part in _PARTS if hasattr(part, name))


def _object(config: Config, name: str) -> Any:
    if getattr(config, name) is None:
        return None
    return _called(name, config.expression(name), _lookup)


def _called(
    field: str, found: Expression, lookup: Callable[[str], Callable[..., Any]]
) -> Any:
    try:
        return found.build(lookup)
    except TypeError as error:
        takes = ", ".join(inspect.signature(lookup(found.name)).parameters)
        raise ValueError(
            f"{field}: {found} cannot be made ({error}); {found.name} takes {takes}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


def _problem(config: Config, folder: Path | None) -> Problem:
    file = config.problem_file
    if file is None:
        return _called(
            "problem", config.expression("problem"), lambda n: getattr(problems, n)
        )
    copy = None if folder is None else folder / "problem.py"
    if copy is not None and copy.is_file():
        return load_problem(copy, file.parent)
    return load_problem(file)


class ProblemFileError(ValueError):
    """A file with a problem of the user has an error in it."""


def load_problem(file: Path, beside: Path | None = None) -> Problem:
    """The problem in a Python file: what is called `problem` there, a `Problem` or a
    function without arguments that returns one.

    **Arguments:**

    - `beside`: the folder that the file may import from; by default its own.
    """
    if not file.is_file():
        raise ValueError(f"problem: there is no file {file}")
    spec = importlib.util.spec_from_file_location("sdifp_problem_of_the_user", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = str((beside or file.parent).resolve())
    sys.path.insert(0, path)
    try:
        spec.loader.exec_module(module)
        found = getattr(module, "problem", None)
        if callable(found):
            found = found()
    except Exception as error:
        raise ProblemFileError(f"problem: {where(error, file)}") from error
    finally:
        sys.path.remove(path)
    if not isinstance(found, Problem):
        got = "nothing" if found is None else repr(found)
        raise ValueError(
            f"problem: {file} must define `problem`, an sdifp.Problem or a function "
            f"that returns one, got {got}"
        )
    return found


def where(error: BaseException, file: Path) -> str:
    """What went wrong in a user's file, with its last line that took part."""
    what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if isinstance(error, SyntaxError) and error.filename == str(file):
        line = (error.text or "").strip()
        return f"{file}, line {error.lineno}: {what}: {line}"
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)
    ]
    if not frames:
        return f"{file}: {what}"
    return f"{file}, line {frames[-1].lineno}: {what}: {frames[-1].line}"
