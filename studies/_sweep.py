"""Measure what is not measured yet, here or in other processes."""

import ast
import contextlib
import fcntl
import functools
import hashlib
import importlib.metadata
import multiprocessing
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import jax

import sdifp

from ._data import Data, Key, key_of
from ._names import load_study
from ._study import Case, Setting, Study, Value

# What is measured within so many seconds may be lost to a process that is killed.
_SAVE_EVERY = 2.0

# A training compiles programs of its own, which take some 300 memory mappings, and
# Linux grants a process 65 530: from here on they are let go of.
_MOST_MAPPINGS = 20_000

# These measure nothing.
_DRAWING = ("__init__", "__main__", "_draw", "_names", "_page", "_style")


class Failure(NamedTuple):
    """Why a measurement gave no number."""

    text: str
    lasting: bool
    "whether it would be the same again"


class Task(NamedTuple):
    """One measurement to make."""

    study: Study
    case: Case
    seed: int
    setting: Setting
    folder: Path
    "of all data"

    @property
    def alone(self) -> bool:
        """Whether nothing may run beside it."""
        return self.study.alone(self.case)

    @property
    def checkpoint(self) -> Path:
        """The file that this version of the code goes on from, if it is there."""
        key = f"{key_of(self.case, self.seed)} {code_of(self.study.name)}"
        name = hashlib.sha256(key.encode()).hexdigest()[:12]
        here = file_of(self.folder, self.setting, self.study).parent
        return here / f"checkpoint-{name}.npz"

    @property
    def name(self) -> str:
        """In words."""
        case = ", ".join(f"{k} {v}" for k, v in self.case.items())
        return f"{self.study.name}: {case}, seed {self.seed}"


def file_of(folder: Path, setting: Setting, study: Study) -> Path:
    """Where the data of a study are."""
    return folder / setting / (study.source or study.name) / "data.json"


def is_complete(study: Study, folder: Path, setting: Setting) -> bool:
    """Whether all of a study is measured."""
    file = file_of(folder, setting, study)
    done = Data(file).measured() if file.exists() else {}
    return bool(done) and all(k in done for k in _keys(study, setting))


def _keys(study: Study, setting: Setting) -> dict[Key, tuple[Case, int]]:
    """All measurements: the first seed of all cases before the second one."""
    return {
        key_of(case, seed): (case, seed)
        for seed in range(study.seeds[setting])
        for case in study.cases(setting)
        if seed == 0 or not study.once(case)
    }


def tasks_for(
    study: Study, folder: Path, setting: Setting, again: bool = False
) -> list[Task]:
    """What is left to measure."""
    done = {} if again else Data(file_of(folder, setting, study)).measured()
    return [
        Task(study, case, seed, setting, folder)
        for key, (case, seed) in _keys(study, setting).items()
        if key not in done
    ]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One sweep at a time measures into a folder; `ValueError` for the second."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"{folder} is in use: another sweep measures there"
            ) from None
        yield


@functools.cache
def code_of(name: str) -> str:
    """The version of the code that measures a study: a digest of the library, of what
    all studies share, and of the study itself, without docstrings and comments."""
    here = Path(__file__).parent
    shared = [f for f in here.glob("_*.py") if f.stem not in _DRAWING]
    files = [*Path(sdifp.__file__).parent.rglob("*.py"), *shared]
    files += [here / f"{name.replace('-', '_')}.py"]
    digest = hashlib.sha256()
    for file in sorted(files):
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                first = node.body[0] if node.body else None
                if isinstance(first, ast.Expr) and isinstance(
                    first.value, ast.Constant
                ):
                    del node.body[0]
        digest.update(f"{file.name} {ast.dump(tree)}".encode())
    return digest.hexdigest()[:12]


def sweep(
    tasks: Sequence[Task],
    jobs: int,
    report: Callable[[Task, Failure | None], None],
    stop: Callable[[], bool] = lambda: False,
) -> list[Task]:
    """Measure, and save what comes. Returns what failed; a failure stops nothing
    else."""
    files: dict[Path, Data] = {}
    failed, done = [], list[Path]()
    saved = time.monotonic()
    try:
        for task, found in _measured(tasks, jobs, stop):
            study = task.study
            failure = found if isinstance(found, Failure) else None
            if isinstance(found, Failure):
                failed.append(task)
                # What came out of the measurement itself stays: no number.
                found = dict.fromkeys(study.columns) if found.lasting else {}
            if found:
                done.append(task.checkpoint)
                file = file_of(task.folder, task.setting, study)
                if file not in files:
                    files[file] = Data(file)
                where, code = origin(study, task.setting), code_of(study.name)
                files[file].add(study, task.case, task.seed, found, where, code)
            report(task, failure)
            # What takes long is saved at once.
            now = time.monotonic()
            if study.seconds >= 1.0 or now > saved + _SAVE_EVERY:
                _save(files, tasks, done)
                saved = now
    finally:
        _save(files, tasks, done)
    return failed


def _save(
    files: dict[Path, Data], tasks: Sequence[Task], checkpoints: list[Path]
) -> None:
    orders = {task.study.name: task for task in tasks}
    for data in files.values():
        task = orders[data.file.parent.name]
        data.save([key_of(c, 0)[0] for c in task.study.cases(task.setting)])
    while checkpoints:
        checkpoints.pop().unlink(missing_ok=True)


Found = dict[str, Value] | Failure


def _measured(
    tasks: Sequence[Task], jobs: int, stop: Callable[[], bool]
) -> Iterator[tuple[Task, Found]]:
    """Each task with its outcome, as they come: those that measure times one after the
    other, when all others are done."""
    beside = [t for t in tasks if not t.alone] if jobs > 1 else []
    while beside and not stop():
        try:
            for task, found in _in_processes(beside, jobs, stop):
                beside.remove(task)
                yield task, found
        except BrokenProcessPool:
            # Those that were handed to it are lost with it; the others go on.
            for task in beside[: 2 * jobs]:
                yield task, Failure("a process died (out of memory?)", lasting=False)
            del beside[: 2 * jobs]
    for task in tasks:
        if stop():
            return
        if jobs == 1 or task.alone:
            yield task, measure(*_names_of(task))


def _in_processes(
    tasks: Sequence[Task], jobs: int, stop: Callable[[], bool]
) -> Iterator[tuple[Task, Found]]:
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    allowed = (
        sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    )
    for k in range(jobs):
        cores.put(allowed[k % len(allowed) :: jobs] if allowed else [])
    with ProcessPoolExecutor(jobs, context, _begin, (cores,)) as pool:
        waiting: dict[Future[Found], Task] = {}
        left = list(reversed(tasks))
        while left or waiting:
            while left and len(waiting) < 2 * jobs and not stop():
                task = left.pop()
                waiting[pool.submit(measure, *_names_of(task))] = task
            if stop():
                # What is in work is finished, and saved; the rest is left.
                left = []
                for future in [f for f in waiting if f.cancel()]:
                    del waiting[future]
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()


def _begin(cores: Any) -> None:
    """A process has cores of its own, and leaves signals to the first one."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    own = cores.get()
    if own:
        os.sched_setaffinity(0, own)


def _names_of(task: Task) -> tuple[str, Case, int, Setting, Path]:
    return task.study.name, task.case, task.seed, task.setting, task.folder


def measure(name: str, case: Case, seed: int, setting: Setting, folder: Path) -> Found:
    """One measurement. A failure is returned in words, which can be sent to another
    process."""
    study = load_study(name)
    given: list[Any] = [case, seed, setting]
    if study.checkpoints:
        given.append(Task(study, case, seed, setting, folder).checkpoint)
    try:
        with jax.enable_x64(study.float64(case)):
            return study.measure(*given)
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        # A training that diverges does so again.
        lasting = isinstance(error, ArithmeticError)
        return Failure(f"{type(error).__name__}: {first}", lasting)
    finally:
        if _mappings() > _MOST_MAPPINGS:
            jax.clear_caches()


def _mappings() -> int:
    """The memory mappings of this process; none where they are not counted."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


def origin(study: Study, setting: Setting) -> dict[str, str]:
    """Where a number comes from."""
    names = ("sdifp", "jax", "equinox", "numpy", "scipy")
    versions = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in names)
    flag = "" if setting == "quick" else f" --{setting}"
    return {
        "command": f"python -m studies {study.name}{flag}",
        "versions": f"{versions}, Python {platform.python_version()}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, "
        + jax.default_backend(),
    }
