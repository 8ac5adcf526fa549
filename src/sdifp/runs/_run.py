"""Run: a training in a folder, which survives what happens to its process."""

import dataclasses
import datetime
import fcntl
import functools
import io
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._config import Config
from .._folder import (
    DISK_FULL,
    PROBLEM_COPY,
    check_free,
    checkpoint_files,
    finite,
    printable,
    read_metrics,
    step_of,
    write_whole,
)
from .._mesh import device_count
from ..problems import Problem
from ..training import Metrics, Trained, Training, TrainingDiverged
from ._build import Built, build, precision_now
from ._checkpoint import (
    Unchanged,
    check_same,
    digest_of,
    prune_checkpoints,
    read_unchanged,
    write_checkpoint,
)
from ._evaluation import integrals_of, measured, picture_of
from ._processes import RunError, allgather_json, on_primary

# Seconds between two looks at the clock, at signals and at the progress bar. Each
# costs about 20 ms: the compiled loop is entered again, with fresh memory.
_PAUSE = 1.0

Warn = Callable[[str], None]
Watch = Callable[[Training, Metrics | None], None]
"""Called again and again: with the training, and with metrics where there are new ones.
"""


class Run:
    """A training in a folder: `config.toml`, `metrics.jsonl`, `checkpoints/`, and at
    the end `certificate.json`, `result.json` and `solution.npz`, from which the report
    is drawn. Made by `Run.create` and `Run.open`.

    A process that is killed loses the steps since its last checkpoint, and the run ends
    with the same numbers as if it had not been, to the last bit.

    Examples:
        >>> import sdifp, tempfile
        >>> config = sdifp.Config(
        ...     "advection", steps=2, network="MLP(4, 1)",
        ...     optimiser="Adam", points="RandomPoints(2, 4)",
        ... )
        >>> run = sdifp.Run.create(tempfile.mkdtemp() + "/first", config)
        >>> run.train()
        True
        >>> run.training.step
        2
    """

    def __init__(self, folder: Path, built: Built):
        self.folder = folder
        source = built.made.source
        self._problem_digest = None if source is None else digest_of(source)
        self.config = built.config
        self.problem = built.problem
        self.training = Training(
            built.problem,
            built.method,
            recipe=built.recipe,
            every=built.config.every,
            check=built.config.check,
            key=jax.random.key(built.config.seed),
        )
        self._saved_step = -1
        self._resumed = False
        self._damaged: list[Path] = []

    @staticmethod
    def create(
        folder: str | Path, config: Config, *, source: Path | None = None
    ) -> "Run":
        """Begin a run in a new folder. `precision` must be that of JAX, or auto.

        **Arguments:**

        - `source`: a copy of the user's problem file to be used instead of it, as
            runs keep one.
        """
        folder = Path(folder)
        on_primary(lambda: check_free(folder))
        if config.precision == "auto":
            config = dataclasses.replace(config, precision=precision_now())
        _check_precision(config)
        return Run.begin(folder, build(config, source))

    @staticmethod
    def begin(folder: Path, built: Built) -> "Run":
        """Begin a run of objects that are built, with JAX at their precision."""
        run = Run(folder, built)

        def write() -> None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueError(f"{folder} cannot be made: {error.strerror}") from None
            with run._locked(), _written(folder):
                # Another run may have been faster.
                check_free(folder)
                if built.made.source is not None:
                    write_whole(folder / PROBLEM_COPY, built.made.source)
                # Left by a run that died here.
                for old in (folder / "checkpoints").glob("*"):
                    old.unlink()
                run._write_checkpoint()
                # From here on it is a run that can be taken up.
                write_whole(folder / "config.toml", run.config.to_toml().encode())

        on_primary(write)
        run._saved_step = 0
        return run

    @staticmethod
    def open(
        folder: str | Path,
        warn: Warn = lambda text: print(printable(text)),
        *,
        accept_changed_problem: bool = False,
    ) -> "Run":
        """The run in a folder, at its last checkpoint. Changes nothing there. Executes
        the copy of the user's problem file in the folder, if there is one.

        **Arguments:**

        - `warn`: told of damaged checkpoints and metrics.
        - `accept_changed_problem`: whether the problem file may have been changed since
            the last checkpoint.
        """
        unchanged = read_unchanged(Path(folder), warn, accept_changed_problem)
        _check_precision(unchanged.config)
        built = build(unchanged.config, unchanged.copy)
        return Run.take_up(unchanged, built, warn)

    @staticmethod
    def take_up(unchanged: Unchanged, built: Built, warn: Warn) -> "Run":
        """Go on with a run whose objects are built, with JAX at their precision."""
        folder, found = unchanged.folder, unchanged.found
        run = Run(folder, built)
        check_same(folder, unchanged.before, run.config)
        read_metrics(folder, warn)
        before = found.info["versions"] | {"devices": found.info.get("devices", 1)}
        here = versions() | {"devices": device_count()}
        if before != here:
            was, now = (
                ", ".join(f"{name} {value}" for name, value in named.items())
                for named in (before, here)
            )
            warn(
                f"the checkpoint was written with {was}; resuming with {now}: the last "
                f"bits may differ"
            )
        run.training.restore(found.arrays)
        run._saved_step, run._damaged = run.training.step, found.damaged
        run._resumed = run.training.step > 0
        return run

    def train(
        self,
        watch: Watch = lambda training, metrics: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Train to the end; returns False if it was stopped before.

        **Arguments:**

        - `watch`: called about once a second.
        - `stop`: asked as often whether to stop; there is a checkpoint then.
        """
        training = self.training
        with ExitStack() as stack:
            on_primary(lambda: stack.enter_context(self._locked()))
            on_primary(self._own_folder)
            saved = time.monotonic()
            watch(training, None)
            while not training.finished:
                due = time.monotonic() - saved >= self.config.checkpoint_seconds
                # Clocks and signals differ between processes; their steps must not.
                wishes = allgather_json(
                    [bool(stop()), due, training.steps_within(_PAUSE)]
                )
                stopped, (_, due, count) = any(wish[0] for wish in wishes), wishes[0]
                if due or stopped:
                    self.save()
                    saved = time.monotonic()
                if stopped:
                    return False
                try:
                    metrics = training.go_on(count)
                except TrainingDiverged:
                    # Back to the last good state, which later checkpoints are not.
                    on_primary(lambda: self._remove_after(training.step))
                    self._saved_step = min(self._saved_step, training.step - 1)
                    self.save()
                    raise
                if metrics is not None:
                    on_primary(functools.partial(self._report, metrics))
                watch(training, metrics)
            self.save()
            training.check()
        return True

    def _own_folder(self) -> None:
        """Make the folder that of this state: the lock is held from here on."""
        folder = self.folder / "checkpoints"
        with _written(self.folder):
            for file in self._damaged:
                if file.exists():
                    file.replace(file.with_suffix(".damaged"))
            self._damaged = []
            files = checkpoint_files(folder)
            if files and step_of(files[-1]) > max(self._saved_step, 0):
                raise RunError(
                    f"{self.folder} was trained by another process in the meantime: "
                    f"open it again"
                )
            file = self.folder / "metrics.jsonl"
            if file.exists():
                # Reports after the checkpoint will come again.
                lines = read_metrics(self.folder)
                kept = [m for m in lines if m["step"] <= self.training.step]
                text = "".join(json.dumps(line) + "\n" for line in kept)
                write_whole(file, text.encode())

    def _remove_after(self, step: int) -> None:
        with _written(self.folder):
            for file in checkpoint_files(self.folder / "checkpoints"):
                if step_of(file) > step:
                    file.unlink()

    def _report(self, metrics: Metrics) -> None:
        line = json.dumps(finite(dataclasses.asdict(metrics)), allow_nan=False)
        with _written(self.folder), (self.folder / "metrics.jsonl").open("a") as stream:
            stream.write(line + "\n")

    def save(self) -> None:
        """Write a checkpoint, unless there is one of this step."""
        if self._saved_step == self.training.step:
            return
        on_primary(self._write_checkpoint)
        self._saved_step = self.training.step

    def _write_checkpoint(self) -> None:
        training, folder = self.training, self.folder / "checkpoints"
        info = {
            "config": dataclasses.asdict(self.config),
            "problem_digest": self._problem_digest,
            "versions": versions(),
            "devices": device_count(),
        }
        with _written(self.folder):
            folder.mkdir(exist_ok=True)
            write_checkpoint(folder, training.step, training.snapshot(), info)
            prune_checkpoints(folder, self.config.keep)

    def result(self) -> Trained:
        """The trained field; trains to the end first."""
        if not self.training.finished:
            self.train()
        return self.training.result()

    def outside(self, table: np.ndarray) -> int:
        """How many points, with their time last if there is one, lie outside of what
        was trained."""
        box, end = self.problem.domain, self.training.until
        x = table[:, : box.dimension]
        off = np.any(~box.periodic & ((x < box.lower) | (x > box.upper)), axis=1)
        if end is not None:
            off |= (table[:, -1] < 0.0) | (table[:, -1] > end)
        return int(np.sum(off))

    def evaluate(self) -> dict[str, Any]:
        """Measure the field as it is, and write what the report is drawn from; returns
        what is in `result.json`."""
        training, problem = self.training, self.problem
        for_certificate, for_picture = jax.random.split(
            jax.random.fold_in(jax.random.key(self.config.seed), 1)
        )
        end, rule = training.until, training.independent_rule
        trained = measured(training, for_certificate)
        certificate = trained.certificate
        result = finite(
            {
                "problem": problem.name,
                "description": problem.description,
                "dimension": problem.domain.dimension,
                "normalised": problem.domain.normalised,
                "components": list(problem.components),
                "units": list(problem.units),
                "method": type(training.method).__name__,
                "finished": training.finished,
                "until": end,
                "has_reference": problem.reference is not None,
                "evaluated": datetime.datetime.now(datetime.UTC).isoformat(
                    timespec="seconds"
                ),
                # Those of the processes before are not known.
                "compile_seconds": (
                    None if self._resumed else training.compile_seconds
                ),
                "metrics": dataclasses.asdict(trained.metrics),
                "functional": _functional_of(problem, trained),
                "integrals": integrals_of(trained, problem, rule, end),
                "certificate": None if certificate is None else certificate.verdict,
                "holds": None if certificate is None else certificate.holds,
                "versions": versions(),
                "machine": machine(),
            }
        )
        picture = io.BytesIO()
        numbers = picture_of(trained, problem, end, for_picture)
        np.savez_compressed(picture, allow_pickle=False, **numbers)
        text = json.dumps(result, indent=1, allow_nan=False) + "\n"
        files = {"solution.npz": picture.getvalue(), "result.json": text.encode()}
        if certificate is not None:
            own = f"{certificate.to_json()}\n".encode()
            files = {"certificate.json": own, **files}

        def write() -> None:
            with _written(self.folder):
                for name, data in files.items():
                    write_whole(self.folder / name, data)

        on_primary(write)
        return result

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process trains at a time."""
        with _written(self.folder):
            stream = (self.folder / ".lock").open("w")
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(
                    f"{self.folder} is in use: another process trains it"
                ) from None
            yield


def _functional_of(problem: Problem, trained: Trained) -> dict[str, Any] | None:
    """The functional of a problem, measured, and its known minimum."""
    found = trained.functional
    if problem.functional is None or found is None:
        return None
    known = {"name": problem.functional.name, "minimum": problem.minimum}
    return known | dataclasses.asdict(found)


def versions() -> dict[str, str]:
    """Of what the last bits of a run depend on."""
    from .. import __version__

    return {"sdifp": __version__, "jax": jax.__version__, "numpy": np.__version__}


def machine() -> str:
    """What it ran on."""
    count, kind = device_count(), jax.devices()[0].device_kind
    text = f"{platform.machine()}, {os.cpu_count()} cores, {count} x {kind}"
    processes = jax.process_count()
    return text if processes == 1 else f"{text}, {processes} processes"


def _check_precision(config: Config) -> None:
    now = precision_now()
    if config.precision != now:
        wanted = config.precision == "float64"
        raise ValueError(
            f"precision is {config.precision}, but JAX is at {now}: call "
            f'jax.config.update("jax_enable_x64", {wanted}) first'
        )


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Say in one sentence what the disk refused."""
    try:
        yield
    except OSError as error:
        file = folder if error.filename is None else error.filename
        advice = (
            f"; what was saved before is kept, and `sdifp resume {folder}` goes on "
            f"from there"
            if error.errno in DISK_FULL
            else ""
        )
        raise RunError(f"{file} cannot be written: {error.strerror}{advice}") from error
