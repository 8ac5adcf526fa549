"""Kill training runs at random moments, and compare each with an uninterrupted run.

A run is killed several times by SIGKILL, SIGTERM, SIGHUP and SIGINT, at a random moment
and in the middle of a checkpoint write, and resumed after each. At the end its network,
optimiser state, metrics, certificate and solution must have the same bits as those of a
run that was never interrupted.

Every run is a process of its own. The runs that are killed share JAX's compilation
cache, the one that is not killed compiles for itself.

python validation/kill.py
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from _study import Row, load, options, sweep

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# The moment of a kill.
START, TRAINING, WRITING = "from the start on", "while training", "inside a write"
# Problem and flags of each optimiser, and its steps, which take longer than all kills.
CASES: dict[str, tuple[list[str], int]] = {
    "Adam": (
        [
            *("wave", "--method", "AugmentedLagrangian()", "--optimiser", "Adam()"),
            *("--network", "Architecture(16, 2)", "--points", "RandomPoints(4, 16)"),
            *("--nodes", "32", "--no-check"),
        ],
        48_000,
    ),
    "L-BFGS": (
        [
            *("advection", "--optimiser", "LBFGS(memory=10, refresh=20)"),
            *("--network", "Architecture(16, 2)", "--points", "RandomPoints(4, 16)"),
            *("--nodes", "32", "--no-check"),
        ],
        6_000,
    ),
    "Levenberg-Marquardt": (
        [
            *("kdv", "--network", "Architecture(8, 1, harmonics=4)"),
            *("--points", "RandomPoints(8, 24)", "--nodes", "64", "--no-check"),
        ],
        1_500,
    ),
}
TINY: dict[str, tuple[list[str], int]] = {
    "Adam": (
        [
            *("advection", "--optimiser", "Adam()", "--network", "Architecture(4, 1)"),
            *("--points", "RandomPoints(2, 4)", "--nodes", "16", "--no-check"),
        ],
        100_000,
    )
}
# Seconds of training until a kill, at the most; from the start on also of loading.
_TRAINED, _LOADED = 1.0, 6.0


def start(*arguments: object, cache: Path | None = None) -> subprocess.Popen:
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


def wait(process: subprocess.Popen, *codes: int) -> None:
    """Wait for the end of a process, whose exit code must be one of these."""
    _, said = process.communicate()
    if process.returncode not in codes:
        raise RuntimeError(f"exit code {process.returncode}: {said.decode()}")


def kill(
    process: subprocess.Popen, folder: Path, number: int, moment: str, seconds: float
) -> bool:
    """Kill a process after some seconds; returns False if it was finished before."""
    running = lambda: process.poll() is None
    before = set(names(folder / "checkpoints"))
    if moment != START:
        while running() and set(names(folder / "checkpoints")) <= before:
            time.sleep(0.01)
    until = time.monotonic() + seconds
    while running() and time.monotonic() < until:
        time.sleep(0.01)
    if moment == WRITING:
        stop_writing(process, folder)
    if not running():
        wait(process, 0)
        return False
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    # By its own handler, before that is there, or not at all: with its last step done.
    wait(process, 128 + number, -number, 0)
    return process.returncode != 0


def stop_writing(process: subprocess.Popen, folder: Path) -> None:
    """Stop a process in the middle of its next checkpoint write, unless it ends."""
    # Those of earlier kills lie there until the next checkpoint is written.
    old = partials(folder)
    while process.poll() is None:
        if partials(folder) - old:
            process.send_signal(signal.SIGSTOP)
            while process.poll() is None and not is_stopped(process):
                time.sleep(0.001)
            if partials(folder) - old:
                return
            process.send_signal(signal.SIGCONT)


def is_stopped(process: subprocess.Popen) -> bool:
    """Whether a process does nothing more until it is told to."""
    text = Path(f"/proc/{process.pid}/stat").read_text()
    return text.rpartition(")")[2].split()[0] in "TZ"


def partials(folder: Path) -> set[str]:
    """Checkpoints that are half written."""
    return {f for f in names(folder / "checkpoints") if f.endswith(".partial")}


def names(folder: Path) -> list[str]:
    """The files of a folder, if it is there."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def contents(folder: Path) -> dict[str, object]:
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


def kills_of(draw: random.Random, count: int) -> list[tuple[int, str]]:
    """Signals and moments: each signal while training and while writing, in any order,
    and one of them from the start of the program on."""
    out = [(int(n), m) for n in SIGNALS for m in (TRAINING, WRITING)]
    draw.shuffle(out)
    out.insert(draw.randrange(len(out)), (int(draw.choice(SIGNALS)), START))
    return out[:count]


def print_table(rows: list[Row]) -> None:
    """A line for each signal, optimiser and number of windows."""
    print("| signal | optimiser | windows | kills | inside a write | bit-identical |")
    print("| --- | --- | --- | --- | --- | --- |")
    cells: dict[tuple[str, str, int], list[tuple[str, bool]]] = {}
    for row in rows:
        case = row["case"]
        for number, moment in row["kills"]:
            name = signal.Signals(number).name
            key = (name, case["optimiser"], case["windows"])
            cells.setdefault(key, []).append((moment, row["identical"]))
    every: list[tuple[str, bool]] = []
    order = [s.name for s in SIGNALS]
    for key in sorted(cells, key=lambda k: (order.index(k[0]), k[1:])):
        every += cells[key]
        print(_line(*key, cells[key]))
    print(_line("all", "", "", every))


def _line(
    name: str, optimiser: str, windows: object, kills: list[tuple[str, bool]]
) -> str:
    inside = sum(moment == WRITING for moment, _ in kills)
    same = sum(identical for _, identical in kills)
    return f"| {name} | {optimiser} | {windows} | {len(kills)} | {inside} | {same} |"


def main() -> None:
    """Kill, resume, compare."""
    parser = options(__doc__, "kill")
    parser.set_defaults(seeds=2)
    parser.add_argument("--kills", type=int, default=9, help="of a run (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("out/kill"), help="of runs")
    args = parser.parse_args()
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # Ignored here, under nohup, but not by the programs that are killed.
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    cases = TINY if args.tiny else CASES

    def measure(case: Row) -> Row:
        flags, steps = cases[case["optimiser"]]
        windows, seed = case["windows"], case["seed"]
        flags = [
            *(*flags, "--steps", str(steps // windows), "--windows", str(windows)),
            *("--checkpoint-seconds", "0"),
        ]
        base = args.folder / f"{case['optimiser']}-{windows}"
        whole = base / "whole"
        if not (whole / "result.json").exists():
            there = (whole / "config.toml").exists()
            wait(
                start(
                    *(["resume", whole] if there else ["train", *flags, "--out", whole])
                ),
                0,
            )
        killed = base / f"killed-{seed}"
        while killed.exists():
            killed = killed.with_name(f"{killed.name}-again")
        draw = random.Random(f"{base.name} {seed}")
        done: list[tuple[int, str]] = []
        for number, moment in kills_of(draw, args.kills):
            there = (killed / "config.toml").exists()
            arguments = (
                ["resume", killed] if there else ["train", *flags, "--out", killed]
            )
            process = start(*arguments, cache=args.folder / "cache")
            seconds = draw.uniform(0.0, _LOADED if moment == START else _TRAINED)
            if not kill(process, killed, number, moment, seconds):
                break
            done.append((number, moment))
            print(f"  {signal.Signals(number).name} {moment}", flush=True)
        wait(start("resume", killed, cache=args.folder / "cache"), 0)
        one, other = contents(whole), contents(killed)
        different = [k for k in one.keys() | other.keys() if one.get(k) != other.get(k)]
        return {
            "identical": not different,
            "different": different,
            "kills": done,
            "numbers": len(one),
        }

    if not args.table:
        sweep(
            args.out,
            [
                {"optimiser": name, "windows": windows, "seed": seed}
                for seed in range(args.seeds)
                for windows in ((1,) if args.tiny else (1, 3))
                for name in cases
            ],
            measure,
            args.only,
        )
    rows = load(args.out)
    print_table(rows)
    for row in rows:
        if not row["identical"]:
            print(f"DIFFERENT: {row['case']}: {row['different']}")
    sys.exit(not all(row["identical"] for row in rows))


if __name__ == "__main__":
    main()
