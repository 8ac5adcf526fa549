"""Measure what is not measured yet, here or in other processes."""

import importlib.metadata
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from ._data import Data, Key, key_of
from ._experiment import Case, Experiment, Setting, Value
from ._names import load_experiment

# What is measured within so many seconds may be lost to a process that is killed.
_SAVE_EVERY = 2.0


class Task(NamedTuple):
    """One measurement to make."""

    experiment: Experiment
    case: Case
    seed: int
    setting: Setting

    @property
    def alone(self) -> bool:
        """Whether nothing may run beside it."""
        return self.experiment.alone(self.case)

    @property
    def name(self) -> str:
        """In words."""
        case = ", ".join(f"{k} {v}" for k, v in self.case.items())
        return f"{self.experiment.name}: {case}, seed {self.seed}"


def file_of(folder: Path, setting: Setting, name: str) -> Path:
    """Where the data of an experiment are."""
    return folder / setting / name / "data.json"


def is_complete(experiment: Experiment, folder: Path, setting: Setting) -> bool:
    """Whether all of an experiment is measured."""
    file = file_of(folder, setting, experiment.name)
    done = Data(file).measured() if file.exists() else {}
    return bool(done) and all(k in done for k in _keys(experiment, setting))


def _keys(experiment: Experiment, setting: Setting) -> dict[Key, tuple[Case, int]]:
    """All measurements: the first seed of all cases before the second one."""
    return {
        key_of(case, seed): (case, seed)
        for seed in range(experiment.seeds[setting])
        for case in experiment.cases(setting)
    }


def tasks_for(
    experiment: Experiment, folder: Path, setting: Setting, again: bool = False
) -> list[Task]:
    """What is left to measure; what another experiment has measured is taken over."""
    data = Data(file_of(folder, setting, experiment.name))
    done = {} if again else data.measured()
    taken: dict[Key, dict[str, Value]] = {}
    for other in () if again else experiment.shares:
        taken |= Data(file_of(folder, setting, other)).measured()
    left, changed = [], False
    for key, (case, seed) in _keys(experiment, setting).items():
        if key in done:
            continue
        if key in taken:
            data.add(experiment, case, seed, taken[key], origin(experiment, setting))
            changed = True
        else:
            left.append(Task(experiment, case, seed, setting))
    if changed:
        data.save()
    return left


def sweep(
    tasks: Sequence[Task],
    folder: Path,
    jobs: int,
    report: Callable[[Task, Exception | None], None],
    stop: Callable[[], bool] = lambda: False,
) -> list[Task]:
    """Measure, and save what comes. Returns what failed; a failure stops nothing
    else."""
    files: dict[str, Data] = {}
    failed = []
    saved = time.monotonic()
    try:
        for task, found, error in _measured(tasks, jobs, stop):
            if error is None:
                name = task.experiment.name
                if name not in files:
                    files[name] = Data(file_of(folder, task.setting, name))
                files[name].add(
                    task.experiment,
                    task.case,
                    task.seed,
                    found,
                    origin(task.experiment, task.setting),
                )
            else:
                failed.append(task)
            report(task, error)
            if time.monotonic() > saved + _SAVE_EVERY:
                _save(files)
                saved = time.monotonic()
            if stop():
                break
    finally:
        _save(files)
    return failed


def _save(files: dict[str, Data]) -> None:
    for data in files.values():
        data.save()
    files.clear()


Outcome = tuple[Task, dict[str, Value], Exception | None]


def _measured(
    tasks: Sequence[Task], jobs: int, stop: Callable[[], bool]
) -> Iterator[Outcome]:
    """Each task with its outcome, as they come: those that measure times one after the
    other, when all others are done."""
    beside = [t for t in tasks if not t.alone] if jobs > 1 else []
    if beside:
        yield from _in_processes(beside, jobs, stop)
    for task in tasks:
        if stop():
            return
        if jobs > 1 and not task.alone:
            continue
        try:
            found, error = measure(*_names_of(task)), None
        except Exception as caught:
            found, error = {}, caught
        yield task, found, error


def _in_processes(
    tasks: Sequence[Task], jobs: int, stop: Callable[[], bool]
) -> Iterator[Outcome]:
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    allowed = (
        sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    )
    for k in range(jobs):
        cores.put(allowed[k % len(allowed) :: jobs] if allowed else [])
    with ProcessPoolExecutor(jobs, context, _begin, (cores,)) as pool:
        waiting: dict[Future[Any], Task] = {}
        left = list(reversed(tasks))
        while left or waiting:
            while left and len(waiting) < 2 * jobs and not stop():
                task = left.pop()
                waiting[pool.submit(measure, *_names_of(task))] = task
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                task, error = waiting.pop(future), future.exception()
                if error is None:
                    yield task, future.result(), None
                elif isinstance(error, Exception):
                    yield task, {}, error


def _begin(cores: Any) -> None:
    """A process has cores of its own, and leaves signals to the first one."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own = cores.get()
    if own:
        os.sched_setaffinity(0, own)


def _names_of(task: Task) -> tuple[str, Case, int, Setting]:
    return task.experiment.name, task.case, task.seed, task.setting


def measure(name: str, case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    """One measurement, in float64."""
    import jax

    before = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", True)
    try:
        return load_experiment(name).measure(case, seed, setting)
    finally:
        jax.config.update("jax_enable_x64", before)


def origin(experiment: Experiment, setting: Setting) -> dict[str, str]:
    """Where a number comes from."""
    names = ("sdifp", "jax", "equinox", "numpy", "scipy")
    versions = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in names)
    quick = "" if setting == "full" else f" --{setting}"
    return {
        "command": f"sdifp reproduce {experiment.name}{quick}",
        "versions": f"{versions}, Python {platform.python_version()}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {_device()}",
    }


def _device() -> str:
    import jax

    return str(jax.default_backend())
