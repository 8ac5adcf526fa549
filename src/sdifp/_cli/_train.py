"""train and resume."""

import contextlib
import dataclasses
import functools
import importlib.util
import os
import shlex
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .._folder import (
    PROBLEM_COPY,
    Saved,
    check_free,
    checkpoint_files,
    printable,
    write_whole,
)
from ._options import (
    ConfigCommand,
    accept_option,
    build_at_precision,
    config_from,
    json_option,
    note,
    print_json,
    problem_options,
    read_run,
    run_argument,
)
from ._output import console, say
from ._processes import Processes, process_options, processes_from
from ._signals import Signals

if TYPE_CHECKING:
    from .._config import Config
    from ..runs import Built, Run

    # The objects of a run, and what makes it of them.
    Begun = tuple[Built, Callable[[], Run]]

# The file in the folder of a run that says how to resume it.
_RESUME = "RESUME.txt"


class Wanted(NamedTuple):
    """How to train a run, and what to make of it."""

    devices: int | None
    processes: Processes | None
    tensorboard: bool
    report: bool
    quiet: bool
    as_json: bool


def _train_options(command: Callable[..., int]) -> Any:
    """The options that train and resume share, as one argument `wanted`."""

    @functools.wraps(command)
    def with_wanted(
        devices: int | None,
        coordinator: str | None,
        process_id: int | None,
        num_processes: int | None,
        timeout: int,
        tensorboard: bool,
        report: bool,
        quiet: bool,
        as_json: bool,
        **others: Any,
    ) -> int:
        if tensorboard and importlib.util.find_spec("tensorboard") is None:
            raise click.UsageError(
                "--tensorboard needs a package more: pip install 'sdifp[tensorboard]'"
            )
        processes = processes_from(coordinator, process_id, num_processes, timeout)
        wanted = Wanted(devices, processes, tensorboard, report, quiet, as_json)
        return command(wanted=wanted, **others)

    options = [
        *process_options,
        click.option(
            "--tensorboard", is_flag=True, help="Write metrics for TensorBoard, too."
        ),
        click.option(
            "--report/--no-report", default=True, help="Write report.html at the end."
        ),
        click.option("--quiet", "-q", is_flag=True, help="No progress."),
        json_option,
    ]
    for option in reversed(options):
        with_wanted = option(with_wanted)
    return with_wanted


@click.command("train", cls=ConfigCommand)
@problem_options
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    show_default="runs/PROBLEM-METHOD",
    help="The folder of the run.",
)
@_train_options
def train_command(
    problem: str | None,
    dimension: int | None,
    file: Path | None,
    out: Path | None,
    wanted: Wanted,
    **fields: Any,
) -> int:
    """Train a network on PROBLEM, with crash-safe checkpoints.

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
    # On every process, before the first one writes: they wait for each other below.
    check_free(folder)
    # The configuration of a run stands for the problem as it was then.
    source = None if problem or file is None else file.parent / PROBLEM_COPY

    def begin() -> "Begun":
        from ..runs import Run

        built = build_at_precision(config, source)
        return built, lambda: Run.begin(folder, built)

    return _go(folder, wanted, begin)


@click.command("resume")
@run_argument
@accept_option
@_train_options
def resume_command(run: Path, accept_changed_problem: bool, wanted: Wanted) -> int:
    """Go on with a run that was stopped, from its last checkpoint.

    It ends with the same numbers as if it had never been stopped, on another number of
    devices to rounding.
    """

    def begin() -> "Begun":
        unchanged, built = read_run(run, accept_changed_problem)
        from ..runs import Run

        return built, lambda: Run.take_up(unchanged, built, note)

    return _go(run, wanted, begin)


def _default_folder(config: "Config") -> Path:
    file = config.problem_file
    if file is not None:
        name = file.stem
    else:
        found = config.complete_problem()
        d = dict(found.kwargs).get("dimension", 1)
        name = found.name.replace("_", "-") + ("" if d == 1 else f"-{d}d")
    method = config.expression("method").name.lower()
    recipe = "" if config.recipe == "fast" else f"-{config.recipe}"
    seed = "" if config.seed == 0 else f"-{config.seed}"
    return Path("runs") / f"{name}-{method}{recipe}{seed}"


def _go(folder: Path, wanted: Wanted, begin: Callable[[], "Begun"]) -> int:
    """Train a run to its end, measure it and write its report."""
    if wanted.processes is not None:
        wanted.processes.join()
    built, make = begin()
    if wanted.processes is not None:
        _check_processes(built, folder, wanted.devices)
    with _on_devices(wanted.devices, built):
        return _train(folder, wanted, make)


def _check_processes(built: "Built", folder: Path, devices: int | None) -> None:
    """Raise `ValueError` unless all processes run the same problem and version."""
    from ..runs import check_same_on_all, digest_of, fingerprint, versions

    fields = dataclasses.asdict(built.config)
    if built.made.source is not None:
        # Its path may differ between machines.
        fields["problem"] = f"a file with SHA-256 {digest_of(built.made.source)}"
    checkpoints = [file.name for file in checkpoint_files(folder / "checkpoints")]
    fields |= {"devices": devices, "checkpoint": checkpoints[-1:]}
    # The last finds differences in what the file imports or reads, too.
    check_same_on_all(versions() | fields | fingerprint(built.problem))


def _how_to_resume(folder: Path, wanted: Wanted) -> str:
    """The command that resumes a run, with the options of this one."""
    processes = wanted.processes
    command = f"sdifp resume {shlex.quote(str(folder.resolve()))}"
    options = {"devices": wanted.devices, **(processes._asdict() if processes else {})}
    words = [
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
        for name, value in options.items()
        if value is not None
    ]
    words += ["--tensorboard"] * wanted.tensorboard
    words += ["--no-report"] * (not wanted.report)
    text = "If this run is interrupted, resume it from its last checkpoint with:\n\n"
    text += f"    {' '.join([command, *words])}\n"
    if processes is not None:
        each = "" if processes.process_id is None else ", with its own --process-id"
        text += f"\non each process{each}; or with one process:\n\n    {command}\n"
    return text


@contextlib.contextmanager
def _on_devices(wanted: int | None, built: "Built") -> Iterator[None]:
    """Where the work is shared among devices."""
    import jax

    from .._mesh import mesh
    from ..runs import devices_for

    devices = devices_for(built) if wanted is None else wanted
    if wanted is None and 1 < devices < jax.device_count():
        note(f"{devices} of {jax.device_count()} devices divide the points")
    if devices == 1 and jax.process_count() == 1:
        yield
        return
    with jax.set_mesh(mesh(devices)):
        yield


def _train(folder: Path, wanted: Wanted, make: Callable[[], "Run"]) -> int:
    from ..runs import TensorBoard, is_primary, on_primary
    from ..training import TrainingDiverged
    from ._progress import shown

    first = is_primary()
    quiet = wanted.quiet or not first
    tell = lambda text: on_primary(lambda: say(text, err=True))
    signals = Signals()
    with signals.taken():
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", UserWarning)
            run = make()
        for one in warned:
            note(str(one.message))
        if first:
            text = _how_to_resume(folder, wanted)
            # A name of a folder may be any bytes.
            write_whole(folder / _RESUME, os.fsencode(text))
            if wanted.processes is not None:
                say(*text.splitlines(), err=True)
        watches: list[Any] = []
        with ExitStack() as stack:
            if wanted.tensorboard and first:
                watches.append(stack.enter_context(TensorBoard(folder)))
            method = type(run.training.method).__name__
            name = printable(f"{run.problem.name}, {method}")
            bar = shown(console(err=True, quiet=quiet), name)
            watches.append(stack.enter_context(bar))

            def watch(training: Any, metrics: Any) -> None:
                for one in list(watches):
                    try:
                        one(training, metrics)
                    except OSError:
                        # A disk that is full for TensorBoard does not end it.
                        watches.remove(one)

            try:
                done = run.train(watch, signals)
            except TrainingDiverged as error:
                stack.close()
                tell(
                    f"sdifp: {error}. The newest checkpoint has this state; "
                    f"`sdifp evaluate {shlex.quote(str(folder))}` measures it"
                )
                return 1
    if not done:
        tell(
            f"stopped at step {run.training.step} of {run.training.steps}; "
            f"go on with: sdifp resume {shlex.quote(str(folder))}"
        )
        # The signal may have been sent to another process.
        return 128 + (signals.number or signal.SIGTERM)
    if not quiet:
        tell("measuring the field ...")
    result = run.evaluate()
    from .._report import verdict, write_report

    page = on_primary(lambda: write_report(folder)) if wanted.report else None
    if first and wanted.as_json:
        print_json({"run": str(folder), **result})
    elif first:
        say(verdict(Saved.read(folder)), f"Look at {page or folder}")
    # A promise that was not kept is no success.
    return 1 if result["holds"] is False else 0
