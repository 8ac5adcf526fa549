"""train and resume."""

import contextlib
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from .._config import Config
from .._folder import PROBLEM_COPY, check_free
from ._options import (
    config_from,
    config_options,
    json_option,
    open_run,
    print_json,
    problem_options,
    run_argument,
    set_precision,
)


def _train_options(command: Any) -> Any:
    tensorboard = click.option(
        "--tensorboard", is_flag=True, help="Write metrics for TensorBoard, too."
    )
    report = click.option(
        "--report/--no-report", default=True, help="Write report.html at the end."
    )
    quiet = click.option("--quiet", "-q", is_flag=True, help="No progress.")
    return tensorboard(report(quiet(json_option(command))))


@click.command("train")
@problem_options
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    show_default="runs/PROBLEM-METHOD",
    help="The folder of the run.",
)
@config_options
@_train_options
def train_command(
    problem: str | None,
    dimension: int | None,
    file: Path | None,
    out: Path | None,
    tensorboard: bool,
    report: bool,
    quiet: bool,
    as_json: bool,
    **fields: Any,
) -> int:
    """Train a network on PROBLEM, in a folder that survives.

    PROBLEM is a name of `sdifp list`, or a Python file that defines `problem`, an
    sdifp.Problem. Objects are written as in the library: --method "Soft(10)",
    --optimiser "Adam(1e-3, Cosine(warmup=0.1))".

    \b
    sdifp train kdv
    sdifp train reaction-diffusion -d 2 --method post-hoc --seed 1
    sdifp train my_problem.py --steps 500 --out runs/mine
    """
    config = config_from(problem, dimension, file, fields)
    folder = out or _default_folder(config)
    check_free(folder)
    _check_tensorboard(tensorboard)
    from .._run import Run

    # The configuration of a run stands for the problem as it was then.
    source = None if problem or file is None else file.parent / PROBLEM_COPY
    if source is not None and not source.is_file():
        source = None
    config = set_precision(config, source)
    make = lambda: Run.create(folder, config, source=source)
    return _go(make, folder, tensorboard, report, quiet, as_json)


@click.command("resume")
@run_argument
@_train_options
def resume_command(
    run: Path, tensorboard: bool, report: bool, quiet: bool, as_json: bool
) -> int:
    """Go on with a run that was stopped, from its last checkpoint.

    It ends with the same numbers as if it had never been stopped.
    """
    _check_tensorboard(tensorboard)
    return _go(lambda: open_run(run), run, tensorboard, report, quiet, as_json)


def _default_folder(config: Config) -> Path:
    file = config.problem_file
    if file is not None:
        name = file.stem
    else:
        found = config.expression("problem")
        d = dict(found.kwargs).get("dimension", found.args[0] if found.args else 1)
        name = found.name.replace("_", "-") + ("" if d == 1 else f"-{d}d")
    method = config.expression("method").name.lower()
    recipe = "" if config.recipe == "fast" else f"-{config.recipe}"
    seed = "" if config.seed == 0 else f"-{config.seed}"
    return Path("runs") / f"{name}-{method}{recipe}{seed}"


def _go(
    make: Callable[[], Any],
    folder: Path,
    tensorboard: bool,
    report: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Train a run to its end, measure it and write its report."""
    from rich.console import Console

    from .._training import TrainingDiverged
    from ._progress import Signals, shown

    console = Console(stderr=True, quiet=quiet)
    signals = Signals()
    with signals.taken():
        run = make()
        watches: list[Any] = []
        with ExitStack() as stack:
            if tensorboard:
                from .._run import TensorBoard

                watches.append(stack.enter_context(TensorBoard(folder)))
            name = f"{run.problem.name}, {type(run.training.method).__name__}"
            watches.append(stack.enter_context(shown(console, name)))

            def watch(training: Any, metrics: Any) -> None:
                for one in list(watches):
                    try:
                        one(training, metrics)
                    except OSError:
                        # Whoever read it has had enough; the training goes on.
                        watches.remove(one)

            try:
                done = run.train(watch, signals)
            except TrainingDiverged as error:
                stack.close()
                _say(
                    f"sdifp: {error}. The newest checkpoint is the last good state; "
                    f"`sdifp evaluate {shlex.quote(str(folder))}` measures it"
                )
                return 1
    if not done:
        _say(
            f"stopped at step {run.training.step} of {run.training.steps}; "
            f"go on with: sdifp resume {shlex.quote(str(folder))}"
        )
        return 128 + signals.number
    if not quiet:
        _say("measuring the field ...")
    result = run.evaluate()
    page = None
    if report:
        from .._report import write_report

        page = write_report(folder)
    if as_json:
        print_json({"run": str(folder), **result})
        return 0
    from .._folder import Saved
    from .._report import verdict

    click.echo(verdict(Saved.read(folder)))
    click.echo(f"Look at {page or folder}")
    sys.stdout.flush()
    return 0


def _say(text: str) -> None:
    """To the standard error, if anyone still reads it."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def _check_tensorboard(wanted: bool) -> None:
    import importlib.util

    if wanted and importlib.util.find_spec("tensorboard") is None:
        raise click.UsageError(
            "--tensorboard needs a package more: pip install 'sdifp[tensorboard]'"
        )
