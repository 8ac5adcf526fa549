"""From a configuration to the objects that it names, and back."""

import dataclasses
import inspect
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import _field, _methods, _networks, _operators, _optimisers, problems
from .._config import Config, Expression
from .._methods import Method
from .._training import points_at_each_time
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
    float64: bool
    "whether the optimiser needs it, or the user's problem file sets it"


def build(config: Config, source: Path | None = None) -> Built:
    """The objects of a configuration.

    **Arguments:**

    - `source`: a copy of the problem file of the user, to be used instead of it.
    """
    problem, wanted = _problem(config, source)
    method = _object(config, "method")
    recipe = getattr(problem, config.recipe)
    given = {name: _object(config, name) for name in _OBJECTS}
    given |= {name: getattr(config, name) for name in _NUMBERS}
    recipe = recipe.but(**{k: v for k, v in given.items() if v is not None})
    every = config.every or max(1, recipe.steps * recipe.windows // 20)
    known: dict[str, Any] = {"method": describe(method), "every": every}
    known |= {name: describe(getattr(recipe, name)) for name in _OBJECTS}
    known |= {name: getattr(recipe, name) for name in _NUMBERS}
    known["final_nodes"] = recipe.final_nodes or recipe.nodes
    if config.problem_file is None:
        known["problem"] = str(_complete(config.expression("problem")))
    complete = dataclasses.replace(config, **known)
    float64 = wanted or recipe.optimiser.uses_rows
    return Built(complete, problem, method, recipe, float64)


def _complete(found: Expression) -> Expression:
    """The same with the defaults of the problem written out."""
    bound = inspect.signature(getattr(problems, found.name)).bind(
        *found.args, **dict(found.kwargs)
    )
    bound.apply_defaults()
    return Expression(found.name, kwargs=tuple(bound.arguments.items()))


def precision_for(config: Config, source: Path | None = None) -> str:
    """`float32` or `float64`: as the configuration says, as the user's problem file
    sets it, or as the optimiser needs."""
    if config.precision != "auto":
        return config.precision
    return "float64" if build(config, source).float64 else "float32"


def devices_for(config: Config, source: Path | None = None) -> int:
    """How many devices are used where nobody says: one CPU, or as many of all that
    there are as divide the points of a batch."""
    processes = jax.process_count()
    if jax.default_backend() == "cpu" and processes == 1:
        return 1
    built = build(config, source)
    points = points_at_each_time(built.recipe, built.problem)
    counts = range(processes, jax.device_count() + 1, processes)
    return max((n for n in counts if points % n == 0), default=processes)


def precision_now() -> str:
    """That of JAX."""
    return "float64" if jax.config.read("jax_enable_x64") else "float32"


def describe(value: Any) -> str:
    """An object as a configuration writes it."""
    return str(_expression(value))


def _expression(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
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
    except Exception as error:
        raise ValueError(f"{field}: {error}") from None


def _problem(config: Config, source: Path | None) -> tuple[Problem, bool]:
    """The problem, and whether its file wants float64."""
    file = config.problem_file
    if file is None:
        lookup = lambda name: getattr(problems, name)
        return _called("problem", config.expression("problem"), lookup), False
    return _executed(file, source)


def load_problem(file: Path) -> Problem:
    """The problem in a Python file: what is called `problem` there, a `Problem` or a
    function without arguments that returns one."""
    return _executed(file, None)[0]


# The lines of the problem files that were loaded, to show those that fail.
_LINES: dict[str, list[str]] = {}


def _executed(file: Path, source: Path | None) -> tuple[Problem, bool]:
    """The problem in a file and whether that set JAX to float64, which is undone. With
    a copy as source the file need not be there; if it is, it is where data and modules
    beside it are looked for."""
    path = file.resolve()
    if source is None or not source.is_file():
        source = path
    try:
        text = source.read_text()
    except OSError as error:
        what = "there is no file" if not path.exists() else f"{error.strerror}:"
        raise ValueError(f"problem: {what} {file}") from None
    module = types.ModuleType("sdifp_problem_of_the_user")
    module.__file__ = str(path)
    _LINES[str(path)] = text.splitlines()
    # Where dataclasses look for the names of annotations.
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.parent))
    before = bool(jax.config.read("jax_enable_x64"))
    try:
        exec(compile(text, str(path), "exec"), vars(module))
        found = vars(module).get("problem")
        if callable(found):
            found = found()
        wanted = bool(jax.config.read("jax_enable_x64"))
    # SystemExit: of `sys.exit` in the file.
    except (Exception, SystemExit) as error:
        raise ProblemFileError(f"problem: {where(error) or str(error)}") from error
    finally:
        jax.config.update("jax_enable_x64", before)
        sys.path.remove(str(path.parent))
    if not isinstance(found, Problem):
        got = "nothing" if found is None else repr(found)
        raise ValueError(
            f"problem: {file} must define `problem`, an sdifp.Problem or a function "
            f"that returns one, got {got}"
        )
    if found.name == Problem.name:
        found = dataclasses.replace(found, name=path.stem)
    return found, wanted and not before


class ProblemFileError(ValueError):
    """A file with a problem of the user has an error in it."""


def where(error: BaseException) -> str | None:
    """What went wrong in a problem file of the user, with its last line that took part;
    None if none took part."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    # The first cause knows best.
    for one in reversed(chain):
        what = f"{type(one).__name__}: {(str(one).splitlines() or [''])[0]}"
        if isinstance(one, SyntaxError) and one.filename in _LINES:
            return (
                f"{one.filename}, line {one.lineno}: {what}: {one.text or ''}".strip()
            )
        frames = [
            f
            for f in traceback.extract_tb(one.__traceback__)
            if f.filename in _LINES and f.lineno is not None
        ]
        if frames:
            file, number = frames[-1].filename, frames[-1].lineno
            assert number is not None
            line = _LINES[file][number - 1].strip()
            return f"{file}, line {number}: {what}: {line}"
    return None
