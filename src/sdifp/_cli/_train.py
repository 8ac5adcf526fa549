"""train and resume."""

import contextlib
import dataclasses
import hashlib
import shlex
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click

from .._config import Config
from .._folder import PROBLEM_COPY, check_free, checkpoint_files, printable
from ._options import (
    accept_option,
    checked_config,
    config_from,
    config_options,
    json_option,
    open_run,
    print_json,
    problem_options,
    run_argument,
    set_precision,
)
from ._output import console, say
from ._processes import Processes, process_options, processes_from
from ._signals import Signals
from ._watched import watched


def _train_options(command: Any) -> Any:
    tensorboard = click.option(
        "--tensorboard", is_flag=True, help="Write metrics for TensorBoard, too."
    )
    report = click.option(
        "--report/--no-report", default=True, help="Write report.html at the end."
    )
    quiet = click.option("--quiet", "-q", is_flag=True, help="No progress.")
    return process_options(tensorboard(report(quiet(json_option(command)))))


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
    devices: int | None,
    coordinator: str | None,
    process_id: int | None,
    num_processes: int | None,
    timeout: int,
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
    processes = processes_from(coordinator, process_id, num_processes, timeout, devices)
    if processes is None:
        check_free(folder)
    # The configuration of a run stands for the problem as it was then.
    source = None if problem or file is None else file.parent / PROBLEM_COPY
    if source is not None and not source.is_file():
        source = None

    def make(config: Config) -> Any:
        from .._run import Run

        return Run.create(folder, config, source=source)

    wanted = Wanted(folder, devices, tensorboard, report, quiet, as_json)
    return _go(wanted, processes, lambda: config, source, make)


@click.command("resume")
@run_argument
@accept_option
@_train_options
def resume_command(
    run: Path,
    accept_changed_problem: bool,
    devices: int | None,
    coordinator: str | None,
    process_id: int | None,
    num_processes: int | None,
    timeout: int,
    tensorboard: bool,
    report: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Go on with a run that was stopped, from its last checkpoint.

    It ends with the same numbers as if it had never been stopped, on another number of
    devices to rounding.
    """
    processes = processes_from(coordinator, process_id, num_processes, timeout, devices)
    wanted = Wanted(run, devices, tensorboard, report, quiet, as_json)
    read = lambda: checked_config(run, accept_changed_problem)
    make = lambda config: _opened(run, accept_changed_problem)
    return _go(wanted, processes, read, run / PROBLEM_COPY, make)


def _opened(folder: Path, accept_changed_problem: bool) -> Any:
    from .._mesh import device_count
    from .._run import is_first

    run, now = open_run(folder, accept_changed_problem), device_count()
    if run.devices_before not in (None, now) and is_first():
        _tell(
            f"note: the devices were {run.devices_before} and are {now}: the last bits "
            f"may differ"
        )
    return run


class Wanted(NamedTuple):
    """How to train a run, and what to make of it."""

    folder: Path
    devices: int | None
    tensorboard: bool
    report: bool
    quiet: bool
    as_json: bool


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
    wanted: Wanted,
    processes: Processes | None,
    read: Callable[[], Config],
    source: Path | None,
    make: Callable[[Config], Any],
) -> int:
    """Train a run to its end, measure it and write its report; in a process of its own
    where there are others."""
    _check_tensorboard(wanted.tensorboard)

    def work() -> int:
        config = _same_everywhere(read, source, wanted, processes)
        with _on_devices(wanted.devices, config, source):
            return _train(wanted, lambda: make(config))

    return work() if processes is None else watched(processes, work, wanted.folder)


def _same_everywhere(
    read: Callable[[], Config],
    source: Path | None,
    wanted: Wanted,
    processes: Processes | None,
) -> Config:
    """The configuration with its precision, which must be that of all processes."""
    if processes is None:
        return set_precision(read(), source)
    import jax

    from .._run import build, check_alike, sketch, versions

    found: list[Config] = []

    def settings() -> dict[str, Any]:
        config = set_precision(read(), source)
        found.append(config)
        fields = dataclasses.asdict(config)
        file = config.problem_file
        if file is not None:
            copy = source if source is not None and source.is_file() else file
            digest = hashlib.sha256(copy.read_bytes()).hexdigest()[:16]
            fields["problem"] = f"a file with the digest {digest}"
        checkpoints = checkpoint_files(wanted.folder / "checkpoints")
        return {
            **versions(),
            **fields,
            "devices": wanted.devices,
            "kind of device": jax.devices()[0].device_kind,
            "num-processes": processes.num_processes,
            "out": wanted.folder.name,
            "checkpoint": checkpoints[-1].name if checkpoints else None,
            # Of data and modules beside the file, too.
            **sketch(build(config, source).problem),
        }

    check_alike(settings)
    return found[0]


@contextlib.contextmanager
def _on_devices(
    wanted: int | None, config: Config, source: Path | None
) -> Iterator[None]:
    """Where the work is shared among devices."""
    import jax

    from .._mesh import mesh
    from .._run import devices_for, is_first

    devices = devices_for(config, source) if wanted is None else wanted
    if wanted is None and 1 < devices < jax.device_count() and is_first():
        _tell(f"note: {devices} of {jax.device_count()} devices divide the points")
    if devices == 1 and jax.process_count() == 1:
        yield
        return
    with jax.set_mesh(mesh(devices)):
        yield


def _train(wanted: Wanted, make: Callable[[], Any]) -> int:
    from .._run import by_first, is_first
    from .._training import TrainingDiverged
    from ._progress import shown

    folder, first = wanted.folder, is_first()
    quiet = wanted.quiet or not first
    tell = _tell if first else lambda text: None
    signals = Signals()
    with signals.taken():
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", UserWarning)
            run = make()
        for one in warned:
            tell(f"note: {one.message}")
        watches: list[Any] = []
        with ExitStack() as stack:
            if wanted.tensorboard and first:
                from .._run import TensorBoard

                watches.append(stack.enter_context(TensorBoard(folder)))
            method = type(run.training.method).__name__
            name = printable(f"{run.problem.name}, {method}")
            watches.append(
                stack.enter_context(shown(console(err=True, quiet=quiet), name))
            )

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
        # Another process may have been the one that was told to stop.
        return 128 + (signals.number or signal.SIGTERM)
    if not quiet:
        _tell("measuring the field ...")
    result = run.evaluate()
    page = None
    if wanted.report:
        from .._report import write_report

        # The others wait: who leaves first is missed.
        page = by_first(lambda: write_report(folder))
    # A promise that was not kept is no success.
    code = 1 if result["holds"] is False else 0
    if not first:
        return code
    if wanted.as_json:
        print_json({"run": str(folder), **result})
        return code
    from .._folder import Saved
    from .._report import verdict

    say(verdict(Saved.read(folder)), f"Look at {page or folder}")
    return code


def _tell(text: str) -> None:
    """To the standard error."""
    say(text, err=True)


def _check_tensorboard(wanted: bool) -> None:
    import importlib.util

    if wanted and importlib.util.find_spec("tensorboard") is None:
        raise click.UsageError(
            "--tensorboard needs a package more: pip install 'sdifp[tensorboard]'"
        )
