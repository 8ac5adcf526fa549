"""From a configuration to the objects that it names, and back."""

import dataclasses
import inspect
import sys
import traceback
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .._config import PARTS, Config, Expression
from ..problems import DEFAULT_NAME, Problem
from ..training import Method, Recipe, recipe_for, recipe_of


class Made(NamedTuple):
    """A problem, and what its file says about training."""

    problem: Problem
    recipes: Mapping[str, Recipe] = types.MappingProxyType({})
    "those that the file calls `recipes`, by the names `fast` and `accurate`"
    source: bytes | None = None
    "the file as it was executed; None for a problem of the library"
    float64: bool = False
    "whether JAX was at float64 when the file ended"
    sets_float64: bool = False
    "whether that is the work of the file"


class Built(NamedTuple):
    """What a configuration stands for."""

    config: Config
    "complete: nothing is left to the recipe of the problem"
    made: Made
    method: Method
    recipe: Recipe

    @property
    def problem(self) -> Problem:
        """The problem."""
        return self.made.problem

    @property
    def precision(self) -> str:
        """As the configuration says, as the user's problem file sets it, or as the
        optimiser needs."""
        if self.config.precision != "auto":
            return self.config.precision
        wanted = self.made.sets_float64 or self.recipe.optimiser.uses_rows
        return "float64" if wanted else "float32"


def build(config: Config, copy: Path | None = None) -> Built:
    """The objects of a configuration, with arrays in the precision of JAX; a copy of
    the user's problem file is executed instead of it, where there is one."""
    file = config.problem_file
    if file is None:
        made = Made(config.make("problem"), float64=precision_now() == "float64")
    else:
        made = _executed(file, copy)
    method = config.make("method")
    recipe = made.recipes.get(config.recipe) or recipe_for(made.problem, config.recipe)
    names = [f.name for f in dataclasses.fields(Recipe)]
    given = {name: config.make(name) for name in names}
    recipe = recipe.replace(**{k: v for k, v in given.items() if v is not None})
    known = {name: describe(getattr(recipe, name)) for name in names}
    known["final_nodes"] = recipe.final_nodes or recipe.nodes
    known["every"] = config.every or max(1, recipe.steps * recipe.windows // 20)
    known["method"] = describe(method)
    known["problem"] = str(file.resolve()) if file else str(config.complete_problem())
    return Built(dataclasses.replace(config, **known), made, method, recipe)


def precision_for(config: Config) -> str | None:
    """`float32` or `float64` where it is known before the problem is made, as it must
    be before its arrays are; None where the problem has to be made to know it: that of
    a user's file, one without time, or one with a dimension of its own."""
    if config.precision != "auto":
        return config.precision
    file = config.problem_file
    if config.optimiser is not None:
        optimiser = config.make("optimiser")
    elif file is None:
        found = config.complete_problem()
        known = dict(found.kwargs)
        d = known.get("dimension")
        if "duration" not in known or type(d) is not int or d < 1:
            # Without time the recipe depends on the equation; or the problem refuses d.
            return None
        name = f"{found.name.replace('_', '-')}-{d}d"
        optimiser = recipe_of(name, d, False, config.recipe).optimiser
    else:
        return None
    if optimiser.uses_rows:
        return "float64"
    return "float32" if file is None else None


def devices_for(built: Built) -> int:
    """How many devices are used where nobody says: one CPU, or as many of all that
    there are as divide the points of a batch. A functional is computed whole on each
    device, so more of them do not help."""
    processes = jax.process_count()
    if jax.default_backend() == "cpu" and processes == 1:
        return 1
    problem = built.problem
    if problem.functional is not None:
        return processes
    points = built.recipe.points.at_each_time(problem.domain, problem.is_steady)
    counts = range(processes, jax.device_count() + 1, processes)
    return max((n for n in counts if points % n == 0), default=processes)


def precision_now() -> str:
    """That of JAX."""
    return "float64" if jax.config.read("jax_enable_x64") else "float32"


def describe(value: Any) -> Any:
    """A value as a configuration has it: an object is written as text."""
    found = _expression(value)
    return str(found) if isinstance(found, Expression) else found


def _expression(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return tuple(map(_expression, value))
    name = type(value).__name__
    if not any(getattr(part, name, None) is type(value) for part in PARTS):
        raise ValueError(f"{value!r} cannot be written into a configuration")
    names = inspect.signature(type(value)).parameters
    arguments = tuple((key, _expression(getattr(value, key))) for key in names)
    return Expression(name, kwargs=arguments)


def load_problem(file: Path) -> Problem:
    """The problem in a Python file: what is called `problem` there, a `Problem` or a
    function without arguments that returns one."""
    return _executed(file, None).problem


# The lines of the problem files that were loaded, to show those that fail.
_LINES: dict[str, list[str]] = {}


def _executed(file: Path, copy: Path | None) -> Made:
    """What a file defines; the precision of JAX is left as it was. With a copy the file
    need not be there; if it is, it is where data and modules beside it are looked
    for."""
    path = file.resolve()
    try:
        source = (copy if copy and copy.is_file() else path).read_bytes()
    except OSError as error:
        raise ValueError(f"problem: {file}: {error.strerror}") from None
    module = types.ModuleType("sdifp_problem_of_the_user")
    module.__file__ = str(path)
    _LINES[str(path)] = source.decode(errors="replace").splitlines()
    # Where dataclasses look for the names of annotations.
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.parent))
    before = bool(jax.config.read("jax_enable_x64"))
    try:
        exec(compile(source, str(path), "exec"), vars(module))
        found = vars(module).get("problem")
        if callable(found):
            found = found()
        after = bool(jax.config.read("jax_enable_x64"))
    # SystemExit: of `sys.exit` in the file.
    except (Exception, SystemExit) as error:
        raise ValueError(f"problem: {where(error) or str(error)}") from error
    finally:
        jax.config.update("jax_enable_x64", before)
        sys.path.remove(str(path.parent))
    if not isinstance(found, Problem):
        got = "nothing" if found is None else repr(found)
        raise ValueError(
            f"problem: {file} must define `problem`, an sdifp.Problem or a function "
            f"that returns one, got {got}"
        )
    if found.name == DEFAULT_NAME:
        found = dataclasses.replace(found, name=path.stem)
    recipes = vars(module).get("recipes", {})
    if not isinstance(recipes, dict) or any(
        name not in ("fast", "accurate") or not isinstance(recipe, Recipe)
        for name, recipe in recipes.items()
    ):
        raise ValueError(
            f"recipes: {file} must define `recipes` as a dict from fast and accurate "
            f"to sdifp.Recipe, if at all, got {recipes!r}"
        )
    return Made(found, recipes, source, after, after and not before)


def where(error: BaseException) -> str | None:
    """What went wrong in a problem file of the user, with its last line that took part;
    None if none took part."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    # The first cause knows best.
    for one in reversed(chain):
        found = traceback.extract_tb(one.__traceback__)
        places = [(frame.filename, frame.lineno) for frame in found]
        if isinstance(one, SyntaxError):
            places.append((one.filename or "", one.lineno))
        for file, number in reversed(places):
            if file in _LINES and number is not None:
                what = f"{type(one).__name__}: {(str(one).splitlines() or [''])[0]}"
                line = "".join(_LINES[file][number - 1 : number]).strip()
                return f"{file}, line {number}: {what}: {line}"
    return None
