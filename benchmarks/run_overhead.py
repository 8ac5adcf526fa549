"""What does a run folder cost? The same training in the library and in a run, with the
default intervals of reports and checkpoints; and how soon the command line answers.

python benchmarks/run_overhead.py
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax

import sdifp
from sdifp._run import Built, build


def in_library(built: Built) -> float:
    """Seconds for all steps, with metrics."""
    training = sdifp.train(
        built.problem,
        built.method,
        recipe=built.recipe,
        every=built.config.every,
        check=False,
        key=jax.random.key(0),
    )
    training.advance(0)
    began = time.perf_counter()
    for _ in training:
        if training.finished:
            break
    return time.perf_counter() - began


def in_run(built: Built, folder: Path) -> float:
    """The same in a folder."""
    (folder / "checkpoints").mkdir(parents=True)
    run = sdifp.Run(folder, built)
    run.training.advance(0)
    began = time.perf_counter()
    run.train()
    return time.perf_counter() - began


def answer(*arguments: str) -> float:
    """Seconds until the command line has answered."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "sdifp", *arguments], capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure in turns and print ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few steps: does it run?")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    settings = {
        "kdv, Levenberg-Marquardt": {"problem": "kdv", "steps": 20},
        "advection, Adam": {
            "problem": "advection",
            "optimiser": "Adam()",
            "network": "Architecture(128, 4)",
            "steps": 250,
        },
    }
    if args.quick:
        settings = {"advection, Adam": settings["advection, Adam"] | {"steps": 2}}
        settings["advection, Adam"]["network"] = "Architecture(4, 1)"
    rows = []
    rounds = 1 if args.quick else 5
    for name, given in settings.items():
        built = build(sdifp.Config(**given, precision="float64", check=False))
        ratios, seconds = [], []
        with tempfile.TemporaryDirectory() as folder:
            in_library(built)
            for k in range(rounds):
                library = in_library(built)
                ratios.append(in_run(built, Path(folder) / str(k)) / library)
                seconds.append(library)
        row = {
            "measured": name,
            "contender": "run folder over library",
            "ratio": statistics.median(ratios),
            "least": min(ratios),
            "most": max(ratios),
            "seconds": statistics.median(seconds),
        }
        rows.append(row)
        print(
            f"{name}: run folder over library {row['ratio']:.3f} "
            f"({row['least']:.3f} to {row['most']:.3f}), {row['seconds']:.1f} s"
        )
    for arguments in (["--help"], ["train", "--help"], ["train", "kvd"], ["list"]):
        times = [answer(*arguments) for _ in range(rounds)]
        words = f"sdifp {' '.join(arguments)}"
        row = {
            "measured": "seconds to answer",
            "contender": words,
            "seconds": statistics.median(times),
        }
        rows.append(row)
        print(f"{words}: {row['seconds']:.2f} s")
    print(f"{platform.machine()}, {platform.python_version()}, JAX {jax.__version__}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
