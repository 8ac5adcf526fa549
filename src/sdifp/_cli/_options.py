"""The fields of a configuration as options, and other options that commands share."""

import dataclasses
import json
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from .._folder import finite, read_config
from ._output import say

if typing.TYPE_CHECKING:
    from .._config import Config
    from ..runs import Built, Run, Unchanged

F = typing.TypeVar("F", bound=Callable[..., Any])


class ConfigCommand(click.Command):
    """A command with an option for each field of a configuration but the problem. They
    are made when they are asked for, which loads JAX."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All of its arguments and options."""
        if not any(p.name == "method" for p in self.params):
            self.params += _config_options()
        return super().get_params(ctx)


def _config_options() -> Iterator[click.Option]:
    from .._config import Config, kind_of

    hints, help = typing.get_type_hints(Config), Config.help()
    for field in dataclasses.fields(Config):
        name, kind = field.name, kind_of(hints[field.name])
        if name == "problem":
            continue
        flag = f"--{name.replace('_', '-')}"
        if kind is bool:
            flag = f"{flag}/--no-{flag[2:]}"
        default: Any = field.default
        if default is None:
            default = "a twentieth of all" if name == "every" else "as the recipe"
        elif kind is bool:
            default = "yes" if default else "no"
        text = f"{help[name]}  [default: {default}]"
        # None where it is not given, so that a file or the recipe decides.
        yield click.Option([flag, name], type=kind, default=None, help=text)


FILE = click.Path(path_type=Path, dir_okay=False)

accept_option = click.option(
    "--accept-changed-problem",
    is_flag=True,
    help="Execute the run's copy of a problem file though it was changed.",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, for a program to read."
)

run_argument = click.argument("run", type=click.Path(path_type=Path))


def problem_options(command: F) -> F:
    """The problem, and where its configuration comes from."""
    text = "A configuration file; options change single fields of it."
    for option in (
        click.option("--dimension", "-d", type=int, help="Dimensions of space."),
        click.option("--config", "file", type=FILE, help=text),
        click.argument("problem", required=False),
    ):
        command = option(command)
    return command


def config_from(
    problem: str | None, dimension: int | None, file: Path | None, fields: Any
) -> "Config":
    """The configuration that some options make."""
    from .._config import Config, load_config

    given = {k: v for k, v in fields.items() if v is not None}
    if problem is not None:
        given["problem"] = problem
    if file is not None:
        config = load_config(file, **given)
    elif problem is None:
        raise click.UsageError(
            "a problem is needed, such as `sdifp train kdv`; `sdifp list problems` "
            "tells which there are"
        )
    else:
        config = Config(**given)
    return config if dimension is None else config.with_dimension(dimension)


def read_run(folder: Path, accept_changed_problem: bool) -> "tuple[Unchanged, Built]":
    """The run in a folder and its objects, with JAX at its precision."""
    # Before JAX is loaded: is it a run at all?
    read_config(folder)
    from ..runs import read_unchanged

    unchanged = read_unchanged(folder, note, accept_changed_problem)
    return unchanged, build_at_precision(unchanged.config, unchanged.copy)


def open_run(folder: Path, accept_changed_problem: bool = False) -> "Run":
    """The run in a folder, with JAX at its precision."""
    found = read_run(folder, accept_changed_problem)
    from ..runs import Run

    return Run.take_up(*found, note)


def note(text: str) -> None:
    """Tell something beside, once for all processes."""
    from ..runs import is_primary

    if is_primary():
        say(f"note: {text}", err=True)


def print_json(value: Any) -> None:
    """What a program may read."""
    say(*json.dumps(finite(value), indent=1, allow_nan=False).splitlines())


def build_at_precision(config: "Config", copy: Path | None = None) -> "Built":
    """The objects of a configuration, with JAX at their precision; a copy of the user's
    problem file is used instead of it.

    The precision is set before the problem is made. Only where a problem file must be
    executed to know its recipe, and that needs a precision which the file does not set
    itself, the file is executed again.
    """
    import jax

    from ..runs import build, precision_for, precision_now

    known = precision_for(config)
    if known is not None:
        jax.config.update("jax_enable_x64", known == "float64")
    built = build(config, copy)
    config = dataclasses.replace(built.config, precision=built.precision)
    if built.precision == precision_now():
        return built._replace(config=config)
    jax.config.update("jax_enable_x64", built.precision == "float64")
    if built.made.float64 == (built.precision == "float64"):
        return built._replace(config=config)
    return build(config, copy)
