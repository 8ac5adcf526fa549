"""Run: a training in a folder, which survives what happens to its process."""

import dataclasses
import errno
import fcntl
import io
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._config import Config
from .._folder import read_config, read_metrics
from .._training import Metrics, Trained, Training, TrainingDiverged, train
from ._build import Built, build, precision_now
from ._checkpoint import (
    latest_checkpoint,
    prune_checkpoints,
    write_checkpoint,
    write_whole,
)
from ._evaluation import certificate_of, integrals_of, picture_of

# Seconds between two looks at the clock, at signals and at the progress bar.
_PAUSE = 0.5

Watch = Callable[[Training, Metrics | None], None]
"""Called again and again: with the training, and with metrics where there are new ones.
"""


class RunError(RuntimeError):
    """A run cannot go on. What was computed is kept."""


class Run:
    """A training in a folder: `config.toml`, `metrics.jsonl`, `checkpoints/`, and at
    the end `certificate.json`, `result.json` and `solution.npz`, from which the report
    is drawn. Made by `Run.create` and `Run.open`.

    A process that is killed loses the steps since its last checkpoint, and the run ends
    with the same numbers as if it had not been, to the last bit.

    Examples:
        >>> import sdifp, tempfile
        >>> config = sdifp.Config(
        ...     "advection", steps=2, network="Architecture(4, 1)",
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
        self.config = built.config
        self.problem = built.problem
        self.training = train(
            built.problem,
            built.method,
            recipe=built.recipe,
            every=built.config.every,
            check=built.config.check,
            key=jax.random.key(built.config.seed),
        )
        self._saved_step: int | None = None

    @staticmethod
    def create(folder: str | Path, config: Config) -> "Run":
        """Begin a run in a new folder. `precision` must be that of JAX, or auto."""
        folder = Path(folder)
        if (folder / "config.toml").exists():
            raise ValueError(
                f"{folder} holds a run already: `sdifp resume {folder}` goes on with "
                f"it, --out names another folder"
            )
        if folder.exists() and not _is_free(folder):
            raise ValueError(f"{folder} exists and is not an empty folder")
        if config.precision == "auto":
            config = dataclasses.replace(config, precision=precision_now())
        _check_precision(config)
        run = Run(folder, build(config))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"{folder} cannot be made: {error.strerror}") from None
        with _written(folder):
            # From here on it is a run that can be taken up.
            write_whole(folder / "config.toml", run.config.to_toml().encode())
            if config.problem_file is not None:
                source = config.problem_file.read_bytes()
                write_whole(folder / "problem.py", source)
        return run

    @staticmethod
    def open(folder: str | Path, warn: Callable[[str], None] = print) -> "Run":
        """The run in a folder, at its last checkpoint.

        **Arguments:**

        - `warn`: told of damaged checkpoints.
        """
        folder = Path(folder)
        config = read_config(folder)
        _check_precision(config)
        run = Run(folder, build(config, folder))
        prune_checkpoints(folder / "checkpoints", 1 << 30)
        found = latest_checkpoint(folder / "checkpoints", warn)
        if found is None:
            return run
        arrays, info = found
        changes = Config(**info["config"]).changes(run.config)
        if changes:
            raise ValueError(
                f"{folder / 'config.toml'} has been changed since its last checkpoint: "
                f"{'; '.join(changes)}; begin a new run for that"
            )
        if info["versions"] != versions():
            warn(
                f"the run was at {_list(info['versions'])} and goes on at "
                f"{_list(versions())}: its last bits may differ"
            )
        run.training.restore(arrays)
        run._saved_step = run.training.step
        return run

    def train(
        self,
        watch: Watch = lambda training, metrics: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Train to the end; returns False if it was stopped before.

        **Arguments:**

        - `watch`: called at least about twice a second.
        - `stop`: asked as often whether to stop; there is a checkpoint then.
        """
        training, config = self.training, self.config
        with self._locked(), _written(self.folder):
            self._cut_metrics()
            saved = time.monotonic()
            watch(training, None)
            with (self.folder / "metrics.jsonl").open("a") as stream:
                while not training.finished:
                    if stop():
                        self.save()
                        return False
                    try:
                        metrics = training.go_on(_PAUSE)
                    except TrainingDiverged:
                        self.save()
                        raise
                    if metrics is not None:
                        stream.write(json.dumps(dataclasses.asdict(metrics)) + "\n")
                        stream.flush()
                    watch(training, metrics)
                    if time.monotonic() - saved >= config.checkpoint_seconds:
                        self.save()
                        saved = time.monotonic()
            self.save()
        return True

    def save(self) -> None:
        """Write a checkpoint, unless there is one of this step."""
        training = self.training
        if self._saved_step == training.step:
            return
        folder = self.folder / "checkpoints"
        folder.mkdir(exist_ok=True)
        info = {"config": dataclasses.asdict(self.config), "versions": versions()}
        write_checkpoint(folder, training.step, training.snapshot(), info)
        self._saved_step = training.step
        prune_checkpoints(folder, self.config.keep)

    def result(self) -> Trained:
        """The trained field; trains to the end first."""
        if not self.training.finished:
            self.train()
        return self.training.result()

    def outside(self, table: np.ndarray) -> int:
        """How many points with their time last lie outside of what was trained."""
        box = self.problem.box
        x, t = table[:, :-1], table[:, -1]
        walls = ~box.periodic & ((x < box.lower) | (x > box.upper))
        return int(np.sum(walls.any(1) | (t < 0.0) | (t > self.problem.duration)))

    def evaluate(self) -> dict[str, Any]:
        """Measure the field as it is, and write what the report is drawn from; returns
        what is in `result.json`."""
        training, problem = self.training, self.problem
        trained = training.result() if training.finished else training.so_far()
        for_certificate, for_picture = jax.random.split(
            jax.random.fold_in(jax.random.key(self.config.seed), 1)
        )
        certificate = certificate_of(trained, problem, for_certificate)
        metrics = dataclasses.asdict(trained.metrics)
        result = {
            "problem": problem.name,
            "dimension": problem.box.dimension,
            "volume": 1.0 if problem.normalised else problem.box.volume,
            "normalised": problem.normalised,
            "method": type(training.method).__name__,
            "finished": training.finished,
            "metrics": metrics,
            "integrals": integrals_of(trained, problem, training.independent_rule),
            "certificate": None if certificate is None else certificate.verdict,
            "versions": versions(),
            "machine": machine(),
        }
        picture = io.BytesIO()
        np.savez_compressed(
            picture, allow_pickle=False, **picture_of(trained, problem, for_picture)
        )
        with _written(self.folder):
            if certificate is not None:
                text = certificate.to_json() + "\n"
                write_whole(self.folder / "certificate.json", text.encode())
            write_whole(self.folder / "solution.npz", picture.getvalue())
            text = json.dumps(_finite(result), indent=1, allow_nan=False) + "\n"
            write_whole(self.folder / "result.json", text.encode())
        return result

    def _cut_metrics(self) -> None:
        """Remove the lines of steps after the checkpoint: they will come again."""
        file = self.folder / "metrics.jsonl"
        if not file.exists():
            return
        kept = [m for m in read_metrics(self.folder) if m["step"] <= self.training.step]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_whole(file, text.encode())

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


def _is_free(folder: Path) -> bool:
    """Whether a folder is empty, or was left by a run that died before it began."""
    left = {".config.toml.partial"}
    return folder.is_dir() and {f.name for f in folder.iterdir()} <= left


def versions() -> dict[str, str]:
    """Of what the last bits of a run depend on."""
    from .. import __version__

    return {"sdifp": __version__, "jax": jax.__version__, "numpy": np.__version__}


def machine() -> str:
    """What it ran on."""
    count, kind = jax.device_count(), jax.devices()[0].device_kind
    return f"{platform.machine()}, {os.cpu_count()} cores, {count} x {kind}"


def _list(named: dict[str, str]) -> str:
    return ", ".join(f"{k} {v}" for k, v in named.items())


def _check_precision(config: Config) -> None:
    now = precision_now()
    if config.precision != now:
        wanted = config.precision == "float64"
        raise ValueError(
            f"precision is {config.precision}, but JAX is at {now}: call "
            f'jax.config.update("jax_enable_x64", {wanted}) first'
        )


def _finite(value: Any) -> Any:
    """The same without NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            else ""
        )
        raise RunError(f"{file} cannot be written: {error.strerror}{advice}") from error
