"""Config: all that a run is made from. Adds to its own fields those of `Recipe`, with
their types and docstrings."""

import dataclasses
import inspect
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._folder import FORMAT, read_settings
from .._nearest import nearest
from ..problems import Problem
from ..training import Method, Recipe
from ._expression import Expression, parse
from ._objects import (
    PLAIN,
    PROBLEMS,
    argument_docs,
    inner_makers,
    kind_of,
    makers,
    recipe_kinds,
)


def _option(default: Any, *, free: bool = False, **facts: Any) -> Any:
    """A field; `free` ones may change when a run is taken up again. Facts are `choices`
    of a text, `least` and `most` of a number, or the `kind` of an object."""
    return dataclasses.field(default=default, metadata={"free": free, **facts})


def _with_recipe(cls: Any) -> Any:
    """Add the fields of a recipe: numbers as they are, objects as text."""
    for name, kind in recipe_kinds().items():
        cls.__annotations__[name] = (kind if kind in PLAIN else str) | None
        setattr(cls, name, _option(None, **({} if kind in PLAIN else {"kind": kind})))
    return cls


@dataclasses.dataclass(frozen=True)
@_with_recipe
class Config:
    """The configuration of a run: the same on the command line, in `config.toml` and
    here. Besides the fields below it has those of `Recipe`; where they are None, they
    are as in the recipe of the problem. Objects are written as in the library,
    `"Adam(1e-3, Cosine())"`.

    **Arguments:**

    - `problem`: one of `sdifp list problems`, or a Python file that defines `problem`.
    - `method`: what is trained, one of `sdifp list methods`.
    - `recipe`: the settings to start from, `fast` (about a minute) or `accurate`
        (minutes).
    - `seed`: random seed.
    - `precision`: `float32`, `float64`, or `auto`, which is what the optimiser needs.
    - `check`: whether to check that initial data, targets and reference agree.
    - `every`: number of steps between two lines of metrics.
    - `checkpoint_seconds`: seconds between two checkpoints.
    - `keep`: number of checkpoints to keep.

    Examples:
        >>> import sdifp
        >>> sdifp.Config("kdv", method="post-hoc", steps=100).method
        'PostHoc()'
    """

    problem: str = _option(dataclasses.MISSING, kind=Problem)
    method: str = _option("SDIFP()", kind=Method)
    recipe: str = _option("fast", choices=("fast", "accurate"))
    # A key of JAX does not distinguish larger ones.
    seed: int = _option(0, least=0, most=2**32 - 1)
    precision: str = _option("auto", choices=("auto", "float32", "float64"))
    check: bool = _option(True)
    every: int | None = _option(None, free=True, least=1)
    checkpoint_seconds: float = _option(30.0, free=True, least=0.0)
    keep: int = _option(3, free=True, least=1)

    if TYPE_CHECKING:
        # What the fields of a recipe add.
        def __init__(self, problem: str, **fields: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(Config)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            value = _checked(field, value, kind_of(hints[field.name]))
            object.__setattr__(self, field.name, value)
            if "kind" in field.metadata and not _is_file(field.name, value):
                text = str(self.expression(field.name))
                object.__setattr__(self, field.name, text)

    def expression(self, name: str) -> Expression:
        """One of the fields that are objects."""
        kind = _FIELDS[name].metadata["kind"]
        return parse(name, getattr(self, name), makers(kind), inner_makers(kind))

    def make(self, name: str) -> Any:
        """What a field stands for: its object, or its value."""
        value, kind = getattr(self, name), _FIELDS[name].metadata.get("kind")
        if value is None or kind is None:
            return value
        found, known = self.expression(name), {**inner_makers(kind), **makers(kind)}
        try:
            return found.build(known.__getitem__)
        except TypeError as error:
            raise _refused(name, found, known[found.name], error) from None
        except Exception as error:
            raise ValueError(f"{name}: {error}") from None

    def complete_problem(self) -> Expression:
        """The problem, one of the library's, with its defaults written out."""
        found = self.expression("problem")
        maker = PROBLEMS[found.name]
        try:
            bound = inspect.signature(maker).bind(*found.args, **dict(found.kwargs))
        except TypeError as error:
            raise _refused("problem", found, maker, error) from None
        bound.apply_defaults()
        return Expression(found.name, kwargs=tuple(bound.arguments.items()))

    @property
    def problem_file(self) -> Path | None:
        """The file of the problem, where it is not one of the library's."""
        return Path(self.problem) if _is_file("problem", self.problem) else None

    def with_dimension(self, dimension: int) -> "Config":
        """The same problem in another dimension."""
        found = self.problem_file or self.expression("problem")
        if isinstance(found, Path) or found.args:
            raise ValueError(
                f"dimension can be given for a problem of the library alone, and once: "
                f"got {dimension} beside {self.problem}"
            )
        if "dimension" not in inspect.signature(PROBLEMS[found.name]).parameters:
            raise ValueError(
                f"dimension must be left out for {found.name}, which has one dimension "
                f"of its own, got {dimension}"
            )
        kwargs = dict(found.kwargs) | {"dimension": dimension}
        problem = str(found._replace(kwargs=tuple(kwargs.items())))
        return dataclasses.replace(self, problem=problem)

    def changes(self, other: "Config") -> list[str]:
        """What differs between this and another one and would change the numbers of a
        run: one sentence for each field."""
        return [
            f"{f.name} was {getattr(self, f.name)!r} and is {getattr(other, f.name)!r}"
            for f in dataclasses.fields(self)
            if not f.metadata["free"]
            and getattr(self, f.name) != getattr(other, f.name)
        ]

    @staticmethod
    def help() -> dict[str, str]:
        """One sentence for each field."""
        found = argument_docs(Config) | argument_docs(Recipe)
        return {n: f"{found[n][0].upper()}{found[n][1:]}" for n in _FIELDS}

    @staticmethod
    def read(settings: dict[str, Any]) -> "Config":
        """The configuration with some fields, which may come from another version."""
        for name in settings:
            if name not in _FIELDS:
                raise ValueError(f"unknown field {name!r}; {nearest(name, _FIELDS)}")
        if "problem" not in settings:
            raise ValueError("problem is missing")
        try:
            return Config(**settings)
        except TypeError as error:
            raise ValueError(str(error)) from None

    def to_toml(self) -> str:
        """The text of a configuration file, with a comment for each field."""
        import tomlkit

        document, help = tomlkit.document(), Config.help()
        document.add(tomlkit.comment("The version of this file's format."))
        document.add("format", tomlkit.item(FORMAT))
        for name, text in help.items():
            value = getattr(self, name)
            document.add(tomlkit.comment(text))
            if value is None:
                document.add(tomlkit.comment(f"{name} = (not used)"))
            else:
                document.add(name, tomlkit.item(value))
        return tomlkit.dumps(document)


_FIELDS = {f.name: f for f in dataclasses.fields(Config)}


def _refused(field: str, found: Expression, maker: Any, error: TypeError) -> ValueError:
    takes = ", ".join(inspect.signature(maker).parameters)
    return ValueError(
        f"{field}: {found} cannot be made ({error}); {found.name} takes {takes}"
    )


def _is_file(field: str, value: str) -> bool:
    """Whether this is a problem by the name of its file."""
    return field == "problem" and value.endswith(".py")


def _checked(field: Any, value: Any, kind: Any) -> Any:
    name, facts = field.name, field.metadata
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise TypeError(f"{name} must be {PLAIN[kind]}, got {value!r}")
    if value not in facts.get("choices", (value,)):
        choices = " or ".join(facts["choices"])
        raise ValueError(f"{name} must be {choices}, got {value!r}")
    least, most = facts.get("least"), facts.get("most", float("inf"))
    if least is not None and not (least <= value <= most and value < float("inf")):
        raise ValueError(
            f"{name} must be {PLAIN[kind]} of at least {least:g}"
            f"{f' and at most {most}' * ('most' in facts)}, got {value!r}"
        )
    if name in recipe_kinds() and "kind" not in facts:
        # It knows what it accepts.
        Recipe(**{name: value})
    return value


def load_config(file: str | Path, **changes: Any) -> Config:
    """The configuration in a TOML file.

    **Arguments:**

    - `changes`: fields that are not as in the file.
    """
    found = read_settings(Path(file)) | changes
    try:
        return Config.read(found)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
