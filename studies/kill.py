"""Kill training runs at random moments, and compare each with an uninterrupted run.

A run is killed several times by SIGKILL, SIGTERM, SIGHUP and SIGINT, at a random moment
and in the middle of a checkpoint write, and resumed after each. At the end its network,
optimiser state, metrics, certificate and solution must have the same bits as those of a
run that was never interrupted.

Every run is a process of its own: `sdifp train` and `sdifp resume`. The runs that are
killed share JAX's compilation cache, the one that is not killed compiles for itself.
"""

import atexit
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from ._study import CONFIRMED, NOT, Case, Claim, Rows, Setting, Study, Value

_SIGNALS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")
# The moment of a kill.
START, TRAINING, WRITING = "from the start on", "while training", "inside a write"
# What is counted in each run.
_COUNTS = (
    *("kills", START, TRAINING, WRITING, *_SIGNALS),
    *(f"{name}, {WRITING}" for name in _SIGNALS),
)
_KILLS: dict[Setting, int] = {"tiny": 3, "quick": 9, "full": 9}
# Problem and flags of each optimiser, and its steps, which take longer than all kills.
_CASES: dict[str, tuple[list[str], int]] = {
    "Adam": (
        [
            *("wave", "--method", "AugmentedLagrangian()", "--optimiser", "Adam()"),
            *("--network", "MLP(16, 2)", "--points", "RandomPoints(4, 16)"),
            *("--nodes", "32", "--no-check"),
        ],
        48_000,
    ),
    "L-BFGS": (
        [
            *("advection", "--optimiser", "LBFGS(memory=10, refresh=20)"),
            *("--network", "MLP(16, 2)", "--points", "RandomPoints(4, 16)"),
            *("--nodes", "32", "--no-check"),
        ],
        6_000,
    ),
    "Levenberg-Marquardt": (
        [
            *("kdv", "--network", "MLP(8, 1, harmonics=4)"),
            *("--points", "RandomPoints(8, 24)", "--nodes", "64", "--no-check"),
        ],
        1_500,
    ),
}
_TINY: dict[str, tuple[list[str], int]] = {
    "Adam": (
        [
            *("advection", "--optimiser", "Adam()", "--network", "MLP(4, 1)"),
            *("--points", "RandomPoints(2, 4)", "--nodes", "16", "--no-check"),
        ],
        100_000,
    )
}
# Seconds of training until a kill, at the most; from the start on also of loading.
_TRAINED, _LOADED = 1.0, 6.0


def _cases(setting: Setting) -> list[Case]:
    return [
        {"optimiser": name, "windows": windows}
        for windows in ((1, 3) if setting == "full" else (1,))
        for name in (_TINY if setting == "tiny" else _CASES)
    ]


def _flags(optimiser: str, windows: int, setting: Setting) -> list[str]:
    flags, steps = (_TINY if setting == "tiny" else _CASES)[optimiser]
    return [
        *(*flags, "--steps", str(steps // windows), "--windows", str(windows)),
        *("--checkpoint-seconds", "0"),
    ]


@functools.cache
def _folder() -> Path:
    """Of all runs, removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="sdifp-kill-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def _whole(optimiser: str, windows: int, setting: Setting) -> Path:
    """A run that is not interrupted."""
    folder = _folder() / f"{optimiser}-{windows}-whole"
    _wait(_start("train", *_flags(optimiser, windows, setting), "--out", folder), 0)
    return folder


def _start(*arguments: object, cache: Path | None = None) -> subprocess.Popen[bytes]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "sdifp", *map(str, arguments), "--quiet"]
    shared = (
        {}
        if cache is None
        else {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
    )
    return subprocess.Popen(
        [*command, "--no-report"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **shared},
    )


def _wait(process: subprocess.Popen[bytes], *codes: int) -> None:
    """Wait for the end of a process, whose exit code must be one of these."""
    _, said = process.communicate()
    if process.returncode not in codes:
        raise RuntimeError(f"exit code {process.returncode}: {said.decode()}")


def _kill(
    process: subprocess.Popen[bytes],
    folder: Path,
    number: int,
    moment: str,
    seconds: float,
) -> bool:
    """Kill a process after some seconds; returns False if it was finished before."""
    running = lambda: process.poll() is None
    before = set(_names(folder / "checkpoints"))
    if moment != START:
        while running() and set(_names(folder / "checkpoints")) <= before:
            time.sleep(0.01)
    until = time.monotonic() + seconds
    while running() and time.monotonic() < until:
        time.sleep(0.01)
    if moment == WRITING:
        _stop_writing(process, folder)
    if not running():
        _wait(process, 0)
        return False
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    # By its own handler, before that is there, or not at all: with its last step done.
    _wait(process, 128 + number, -number, 0)
    return process.returncode != 0


def _stop_writing(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Stop a process in the middle of its next checkpoint write, unless it ends."""
    # Those of earlier kills lie there until the next checkpoint is written.
    old = _partials(folder)
    while process.poll() is None:
        if _partials(folder) - old:
            process.send_signal(signal.SIGSTOP)
            while process.poll() is None and not _is_stopped(process):
                time.sleep(0.001)
            if _partials(folder) - old:
                return
            process.send_signal(signal.SIGCONT)


def _is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process does nothing more until it is told to."""
    text = Path(f"/proc/{process.pid}/stat").read_text()
    return text.rpartition(")")[2].split()[0] in "TZ"


def _partials(folder: Path) -> set[str]:
    """Checkpoints that are half written."""
    return {f for f in _names(folder / "checkpoints") if f.endswith(".partial")}


def _names(folder: Path) -> list[str]:
    """The files of a folder, if it is there."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _contents(folder: Path) -> dict[str, object]:
    """All numbers of a finished run but the times that it took."""
    newest = max((folder / "checkpoints").glob("step-*.npz"))
    out: dict[str, object] = {}
    for file in (newest, folder / "solution.npz"):
        with np.load(file, allow_pickle=False) as archive:
            for name in archive.files:
                if name not in ("known", "info"):
                    out[f"{file.name[:4]}/{name}"] = archive[name].tobytes()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    out["metrics"] = [json.loads(k) | {"seconds": 0} for k in lines]
    for name in ("certificate.json", "config.toml"):
        if (folder / name).exists():
            out[name] = (folder / name).read_text()
    return out


def _kills(draw: random.Random, count: int) -> list[tuple[int, str]]:
    """Signals and moments: each signal while training and while writing, in any order,
    and one of them from the start of the program on."""
    out = [(int(signal.Signals[n]), m) for n in _SIGNALS for m in (TRAINING, WRITING)]
    draw.shuffle(out)
    out.insert(
        draw.randrange(len(out)), (int(signal.Signals[draw.choice(_SIGNALS)]), START)
    )
    return out[:count]


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # Ignored here, under nohup, but not by the programs that are killed.
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    optimiser, windows = case["optimiser"], case["windows"]
    cache = _folder() / "cache"
    killed = Path(tempfile.mkdtemp(prefix=f"killed-{seed}-", dir=_folder())) / "run"
    draw = random.Random(f"{optimiser}-{windows} {seed}")
    # How many there were of each.
    done: Counter[str] = Counter()
    for number, moment in _kills(draw, _KILLS[setting]):
        there = (killed / "config.toml").exists()
        arguments = (
            ["resume", killed]
            if there
            else ["train", *_flags(optimiser, windows, setting), "--out", killed]
        )
        process = _start(*arguments, cache=cache)
        seconds = draw.uniform(0.0, _LOADED if moment == START else _TRAINED)
        if not _kill(process, killed, number, moment, seconds):
            break
        done["kills"] += 1
        done[moment] += 1
        name = signal.Signals(number).name
        done[name] += 1
        done[f"{name}, {WRITING}"] += moment == WRITING
    _wait(_start("resume", killed, cache=cache), 0)
    one, other = _contents(_whole(optimiser, windows, setting)), _contents(killed)
    different = [k for k in one.keys() | other.keys() if one.get(k) != other.get(k)]
    if different:
        print(f"{case}, seed {seed}, differs in {sorted(different)}", file=sys.stderr)
    counts = {name: done[name] for name in _COUNTS}
    return {**counts, "compared": len(one), "different": len(different)}


def _claims(rows: Rows) -> list[Claim]:
    total = lambda name: round(sum(v for r in rows.where(name) for v in r["values"]))
    runs = [v for row in rows.where("different") for v in row["values"]]
    same = sum(v == 0.0 for v in runs)
    return [
        Claim(
            "A run that is killed and resumed ends bit-identical to one that is not.",
            CONFIRMED if same == len(runs) else NOT,
            f"{same} of {len(runs)} runs, killed {total('kills')} times, "
            f"{total(WRITING)} of them inside the write of a checkpoint.",
        )
    ]


STUDY = Study(
    name="kill",
    title="Runs that are killed and resumed",
    text=(
        "Each run is killed by SIGKILL, SIGTERM, SIGHUP and SIGINT, at a random moment "
        "and in the middle of a checkpoint write, and resumed after each. Adam trains "
        "with multipliers (`AugmentedLagrangian`), the others with `SDIFP`."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "kills": "kills",
        **{name: name for name in _SIGNALS},
        WRITING: WRITING,
        "compared": "values compared",
        "different": "different",
    },
    claims=_claims,
    seeds={"tiny": 1, "quick": 1, "full": 2},
    seconds=200.0,
    alone=lambda case: True,
)
