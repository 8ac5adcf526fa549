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
from collections.abc import Callable
from pathlib import Path

import jax

import sdifp
from sdifp._timing import samples
from sdifp.runs import Built, build
from sdifp.training import Training


def in_library(built: Built, count: int) -> Callable[[], None]:
    """All steps, with metrics, of one of `count` trainings, which are compiled."""

    def begun() -> Training:
        loop = Training(
            built.problem,
            built.method,
            recipe=built.recipe,
            every=built.config.every,
            check=False,
            key=jax.random.key(0),
        )
        loop.advance(0)
        return loop

    left = [begun() for _ in range(count)]

    def run() -> None:
        loop = left.pop()
        while not loop.finished:
            loop.go_on()

    return run


def in_run(built: Built, folder: Path, count: int) -> Callable[[], None]:
    """The same in folders."""

    def begun(here: Path) -> sdifp.Run:
        (here / "checkpoints").mkdir(parents=True)
        run = sdifp.Run(here, built)
        run.training.advance(0)
        return run

    left = [begun(folder / str(k)) for k in range(count)]
    return lambda: left.pop().train()


def answer(*arguments: str) -> Callable[[], object]:
    """The command line, until it has answered."""
    command = [sys.executable, "-m", "sdifp", *arguments]
    return lambda: subprocess.run(command, capture_output=True)


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
            "network": "MLP(128, 4)",
            "steps": 250,
        },
    }
    if args.quick:
        settings = {"advection, Adam": settings["advection, Adam"] | {"steps": 2}}
        settings["advection, Adam"]["network"] = "MLP(4, 1)"
    rows = []
    rounds = 1 if args.quick else 5
    for name, given in settings.items():
        built = build(sdifp.Config(**given, precision="float64", check=False))
        with tempfile.TemporaryDirectory() as folder:
            contenders = {
                "library": in_library(built, rounds + 1),
                "run": in_run(built, Path(folder), rounds + 1),
            }
            found = samples(rounds, contenders)
        pairs = zip(found["run"], found["library"], strict=True)
        ratios = [run / library for run, library in pairs]
        row = {
            "measured": name,
            "contender": "run folder over library",
            "ratio": statistics.median(ratios),
            "least": min(ratios),
            "most": max(ratios),
            "seconds": statistics.median(found["library"]),
        }
        rows.append(row)
        print(
            f"{name}: run folder over library {row['ratio']:.3f} "
            f"({row['least']:.3f} to {row['most']:.3f}), {row['seconds']:.1f} s"
        )
    commands = (["--help"], ["train", "--help"], ["train", "kvd"], ["list"])
    answers = {f"sdifp {' '.join(words)}": answer(*words) for words in commands}
    for words, times in samples(rounds, answers).items():
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
