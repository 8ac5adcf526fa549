"""The fields of a configuration as options, and other options that commands share."""

import dataclasses
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from .._config import Config, load_config
from .._config._config import kind_of
from .._folder import PROBLEM_COPY, finite, read_config
from ._output import say

F = typing.TypeVar("F", bound=Callable[..., Any])

# None of them: not given, so that a file or the recipe decides.
_OF_RECIPE = "as the recipe"


def config_options(command: F) -> F:
    """An option for each field of a configuration but the problem."""
    hints = typing.get_type_hints(Config)
    for field in reversed(dataclasses.fields(Config)):
        if field.name == "problem":
            continue
        kind, optional = kind_of(hints[field.name])
        flag = f"--{field.name.replace('_', '-')}"
        if kind is bool:
            flag = f"{flag}/--no-{field.name.replace('_', '-')}"
        default = field.default if not optional else _OF_RECIPE
        if field.name == "every":
            default = "a twentieth of all"
        command = click.option(
            flag,
            field.name,
            type=kind,
            default=None,
            show_default=False,
            help=f"{_sentence(field.metadata['help'])}  [default: {_shown(default)}]",
        )(command)
    return command


def problem_options(command: F) -> F:
    """The problem, and where its configuration comes from."""
    command = click.option(
        "--dimension", "-d", type=int, default=None, help="Dimensions of space."
    )(command)
    command = click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        help="A configuration file; options change single fields of it.",
    )(command)
    return click.argument("problem", required=False)(command)


def config_from(
    problem: str | None, dimension: int | None, file: Path | None, fields: Any
) -> Config:
    """The configuration that some options make."""
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


accept_option = click.option(
    "--accept-changed-problem",
    is_flag=True,
    help="Execute the run's copy of a problem file though it was changed.",
)


def open_run(folder: Path, accept_changed_problem: bool = False) -> Any:
    """The run in a folder, with JAX at its precision."""
    config = checked_config(folder, accept_changed_problem)
    from .._run import Run, is_first

    def note(text: str) -> None:
        if is_first():
            say(f"note: {text}", err=True)

    set_precision(config, folder / PROBLEM_COPY)
    return Run.open(folder, note, accept_changed_problem=accept_changed_problem)


def checked_config(folder: Path, accept_changed_problem: bool) -> Config:
    """The configuration of a run whose problem may be executed."""
    # Before JAX is loaded: is it a run at all?
    read_config(folder)
    from .._run import read_unchanged

    # What there is to say is said when the run is opened.
    quiet = lambda text: None
    return read_unchanged(folder, quiet, accept_changed_problem).config


def run_argument(command: F) -> F:
    """The folder of a run."""
    return click.argument("run", type=click.Path(path_type=Path))(command)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, for a program to read."
)


def print_json(value: Any) -> None:
    """What a program may read."""
    say(*json.dumps(finite(value), indent=1, allow_nan=False).splitlines())


def set_precision(config: Config, source: Path | None = None) -> Config:
    """Load JAX at the precision of a configuration; returns it with that precision.

    **Arguments:**

    - `source`: a copy of the user's problem file to be used instead of it.
    """
    import jax

    from .._run import precision_for

    precision = precision_for(config, source)
    jax.config.update("jax_enable_x64", precision == "float64")
    return dataclasses.replace(config, precision=precision)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
