"""Config: all that a run is made from."""

import dataclasses
import tomllib
import types
import typing
from pathlib import Path
from typing import Any

from ._expression import Expression, parse
from ._names import NAMES, nearest

# The names that each field may begin with.
KINDS = {
    "problem": "problems",
    "method": "methods",
    "network": "networks",
    "optimiser": "optimisers",
    "points": "points",
    "gradient": "gradients",
    "estimator": "estimators",
}
_INNER = {
    name: line
    for kind in ("gradients", "estimators", "decays", "samplers", "paths")
    for name, line in NAMES[kind].items()
}
_CHOICES = {
    "recipe": ("fast", "accurate"),
    "precision": ("auto", "float32", "float64"),
}
# Where it is said otherwise, the least that a number may be.
_LEAST = {"seed": 0, "initial_weight": 0.0, "causal": 0.0, "checkpoint_seconds": 0.0}
# More than that a key of JAX does not tell apart.
_MOST_SEED = 2**32 - 1
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _option(default: Any, help: str, *, free: bool = False) -> Any:
    """A field; `free` ones may change when a run is taken up again."""
    return dataclasses.field(default=default, metadata={"help": help, "free": free})


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration of a run: the same on the command line, in `config.toml` and
    here. Its fields are the options that `sdifp train --help` tells. Objects are
    written as in the library, `"Adam(1e-3, Cosine())"`; what is None is as the recipe
    of the problem has it.

    Examples:
        >>> import sdifp
        >>> sdifp.Config("kdv", method="post-hoc", steps=100).method
        'PostHoc()'
    """

    problem: str = _option(
        dataclasses.MISSING, "one of `sdifp list`, or a file with a problem of your own"
    )
    method: str = _option("SDIFP()", "what is trained: Plain, PostHoc, Soft(10), SDIFP")
    recipe: str = _option("fast", "the problem's own settings: fast or accurate")
    seed: int = _option(0, "of all randomness")
    precision: str = _option(
        "auto", "of numbers: float32, float64, or auto, what the optimiser needs"
    )
    network: str | None = _option(None, "as Architecture(width, depth)")
    optimiser: str | None = _option(
        None, "one of Adam(rate, decay, clip), LBFGS(), LevenbergMarquardt()"
    )
    steps: int | None = _option(None, "steps, in each window")
    points: str | None = _option(None, "RandomPoints(n_t, n_x) or GridPoints(n_t, n_x)")
    nodes: int | None = _option(None, "nodes of the rule in training")
    final_nodes: int | None = _option(None, "nodes of the rule afterwards")
    gradient: str | None = _option(None, "how SDIFP differentiates the moments")
    estimator: str | None = _option(None, "how the residual is estimated")
    windows: int | None = _option(None, "equal parts of time, trained in turn")
    hard_initial: bool | None = _option(None, "initial data by construction")
    initial_weight: float | None = _option(None, "their weight where they are learnt")
    causal: float | None = _option(None, "rate of the causal weights")
    check: bool = _option(
        True, "whether data, targets and reference must agree before it begins"
    )
    every: int | None = _option(None, "steps between two reports", free=True)
    checkpoint_seconds: float = _option(
        30.0, "seconds between two checkpoints", free=True
    )
    keep: int = _option(3, "checkpoints that are kept", free=True)

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(Config)
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            kind, optional = kind_of(hints[name])
            if value is None and optional:
                continue
            value = _checked(name, value, kind)
            if name in KINDS and not (name == "problem" and is_file(value)):
                value = str(self._parsed(name, value))
            object.__setattr__(self, name, value)

    def _parsed(self, name: str, text: str) -> Expression:
        return parse(name, text, NAMES[KINDS[name]], _INNER)

    def expression(self, name: str) -> Expression:
        """One of the fields that are objects."""
        return self._parsed(name, getattr(self, name))

    @property
    def problem_file(self) -> Path | None:
        """The file of the problem, where it is not one of the library's."""
        return Path(self.problem) if is_file(self.problem) else None

    def with_dimension(self, dimension: int) -> "Config":
        """The same problem in another dimension."""
        if self.problem_file is not None:
            raise ValueError(
                f"dimension cannot be given for a problem of your own, {self.problem}"
            )
        found = self.expression("problem")
        if found.args:
            raise ValueError(
                f"dimension is given twice: {dimension}, and in {self.problem}"
            )
        problem = str(found.but(dimension=dimension))
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

    def to_toml(self) -> str:
        """The text of a configuration file, with a comment for each field."""
        import tomlkit

        document = tomlkit.document()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            document.add(tomlkit.comment(field.metadata["help"]))
            if value is None:
                document.add(tomlkit.comment(f"{field.name} = (not used)"))
            else:
                document.add(field.name, tomlkit.item(value))
        return tomlkit.dumps(document)


def kind_of(hint: Any) -> tuple[type, bool]:
    """The type of a field, and whether it may be None."""
    if isinstance(hint, types.UnionType):
        kinds = [k for k in typing.get_args(hint) if k is not type(None)]
        return kinds[0], True
    return hint, False


def is_file(problem: str) -> bool:
    """Whether a problem is the name of a file."""
    return problem.endswith(".py")


def _checked(name: str, value: Any, kind: Any) -> Any:
    if kind is float and type(value) is int:
        value = float(value)
    found: Any = type(value)
    if found is not kind:
        raise TypeError(f"{name} must be {_WORDS[kind]}, got {value!r}")
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ValueError(
            f"{name} must be {' or '.join(_CHOICES[name])}, got {value!r}; "
            f"{nearest(value, _CHOICES[name])}"
        )
    if name == "seed" and value > _MOST_SEED:
        raise ValueError(f"seed must be at most {_MOST_SEED}, got {value}")
    if kind in (int, float):
        least = _LEAST.get(name, 1)
        if not least <= value < float("inf"):
            raise ValueError(
                f"{name} must be {_WORDS[kind]} of at least {least:g}, got {value!r}"
            )
    return value


def load_config(file: str | Path, **changes: Any) -> Config:
    """The configuration in a TOML file.

    **Arguments:**

    - `changes`: fields that are not as in the file.
    """
    path = Path(file)
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    names = [f.name for f in dataclasses.fields(Config)]
    for name in found:
        if name not in names:
            raise ValueError(f"{path}: unknown field {name!r}; {nearest(name, names)}")
    found |= changes
    if "problem" not in found:
        raise ValueError(f"{path}: problem is missing")
    try:
        return Config(**found)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
