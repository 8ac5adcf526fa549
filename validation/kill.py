"""Does a run survive? Kill it at random moments, also in the middle of a checkpoint,
take it up again each time, and compare with the run that was never interrupted: its
network, optimiser, metrics, certificate and solution must be the same, to the last bit.

python validation/kill.py
"""

import itertools
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

# Problem and flags: each keeps another kind of state.
CASES = {
    "windows, Levenberg-Marquardt": [
        *("kdv", "--windows", "3", "--steps", "120", "--nodes", "64"),
        *("--network", "Architecture(16, 2, harmonics=8)"),
        *("--points", "RandomPoints(8, 32)"),
    ],
    "L-BFGS": [
        *("advection", "--optimiser", "LBFGS(memory=10, refresh=20)"),
        *("--steps", "2000", "--network", "Architecture(32, 2)"),
    ],
    "Adam, multipliers": [
        *("wave", "--method", "AugmentedLagrangian()", "--optimiser", "Adam()"),
        *("--steps", "20000", "--network", "Architecture(32, 2)"),
    ],
}
# Seconds of training between two kills, at the most.
_TRAINED = 2.0
TINY = [
    *("advection", "--optimiser", "Adam()", "--steps", "20000", "--no-check"),
    *("--network", "Architecture(8, 1)", "--points", "RandomPoints(2, 8)"),
    *("--nodes", "16"),
]


def start(*arguments: object) -> subprocess.Popen:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "sdifp", *map(str, arguments), "--quiet"]
    return subprocess.Popen(
        [*command, "--no-report"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def wait(process: subprocess.Popen) -> None:
    """To its end, which must be a good one."""
    _, said = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(said.decode())


def kill(process: subprocess.Popen, folder: Path, moment: float, writing: bool) -> str:
    """Kill after some seconds, or then in the middle of the next checkpoint; returns
    how it was found."""
    deadline = time.monotonic() + moment
    # Those of earlier kills lie there until the next checkpoint is written.
    old = partials(folder)
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    found = "between"
    while writing and process.poll() is None:
        if partials(folder) - old:
            found = "while a checkpoint was written"
            break
    if process.poll() is not None:
        wait(process)
        return "finished before"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    if partials(folder) - old:
        found = "left a checkpoint half written"
    return found


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


def main() -> None:
    """Kill, take up, compare."""
    parser = options(__doc__, "kill")
    parser.add_argument("--kills", type=int, default=20, help="%(default)s")
    parser.add_argument("--folder", type=Path, default=Path("out/kill"), help="of runs")
    args = parser.parse_args()
    cases = {"tiny": TINY} if args.tiny else CASES

    def measure(case: Row) -> Row:
        flags = [*cases[case["case"]], "--checkpoint-seconds", "0"]
        base = args.folder / case["case"].replace(", ", "-").replace(" ", "-")
        for k in itertools.count():
            folder = base.with_name(f"{base.name}-{k}")
            if not folder.exists():
                break
        whole, killed = folder / "whole", folder / "killed"
        process, began = start("train", *flags, "--out", whole), time.monotonic()
        while not names(whole / "checkpoints") and process.poll() is None:
            time.sleep(0.01)
        # Moments are from the start of the program to some checkpoints.
        duration = time.monotonic() - began + _TRAINED
        wait(process)
        draw = random.Random(case["seed"])
        hows: list[str] = []
        while len(hows) < case["kills"]:
            there = (killed / "config.toml").exists()
            process = (
                start("resume", killed)
                if there
                else start("train", *flags, "--out", killed)
            )
            moment = draw.uniform(0.0, duration)
            how = kill(process, killed, moment, writing=len(hows) % 2 == 1)
            print(f"  {case['case']}: {moment:.1f} s, {how}", flush=True)
            if how == "finished before":
                break
            hows.append(how)
        wait(start("resume", killed))
        one, other = contents(whole), contents(killed)
        different = [k for k in one.keys() | other.keys() if one.get(k) != other.get(k)]
        return {
            "identical": not different,
            "different": different,
            "killed": len(hows),
            "while_writing": sum("checkpoint" in h for h in hows),
            "numbers": len(one),
        }

    share = -(-args.kills // len(cases))
    sweep(
        args.out,
        [{"case": name, "kills": share, "seed": 0} for name in cases],
        measure,
        args.only,
    )
    bad = 0
    for row in load(args.out):
        bad += not row["identical"]
        print(
            f"{row['case']['case']}: killed {row['killed']} times, "
            f"{row['while_writing']} of them while a checkpoint was written: "
            + ("identical" if row["identical"] else f"DIFFERENT: {row['different']}")
        )
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
