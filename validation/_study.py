"""A study: measure one case, sweep and skip what is measured, print from saved data.

Rows are lines of JSON, appended as they come, so that a sweep that was interrupted goes
on where it was."""

import argparse
import dataclasses
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax

import sdifp

DATA = Path(__file__).parent / "data"

Case = dict[str, Any]
Row = dict[str, Any]


def options(description: str | None, name: str) -> argparse.ArgumentParser:
    """The options that all studies share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, default=DATA / f"{name}.jsonl", help="rows (%(default)s)")
    add("--seeds", type=int, default=3, help="how many seeds (%(default)s)")
    add("--only", default="", help="cases whose description contains this")
    add("--tiny", action="store_true", help="a few steps: does it run?")
    add("--table", action="store_true", help="print the table of saved rows, no runs")
    return parser


def load(file: Path) -> list[Row]:
    """The saved rows; a last line that was cut off is left out."""
    rows = []
    for line in file.read_text().splitlines() if file.exists() else []:
        if not line:
            continue
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{file}: skipped a line that was cut off", file=sys.stderr)
    return rows


def sweep(
    file: Path, cases: Iterable[Case], measure: Callable[[Case], Row], only: str = ""
) -> None:
    """Measure the cases that are not in the file."""
    done = {_name(row["case"]) for row in load(file)}
    todo = [c for c in cases if only in _name(c) and _name(c) not in done]
    print(f"{len(done)} measured, {len(todo)} to do", flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    for k, case in enumerate(todo):
        began = time.time()
        row = {"case": case} | measure(case)
        row |= {
            "took": round(time.time() - began, 1),
            "machine": f"{platform.machine()}, jax {jax.__version__}",
            "version": sdifp.__version__,
        }
        with file.open("a") as stream:
            # Begins with a new line, in case that the last one was cut off.
            stream.write("\n" + json.dumps(row))
        short = {k: v for k, v in row.items() if isinstance(v, float)}
        figures = ", ".join(f"{k} {v:.2e}" for k, v in short.items())
        print(f"[{k + 1}/{len(todo)}] {_name(case)}: {figures}", flush=True)


def _name(case: Case) -> str:
    return " ".join(f"{k}={v}" for k, v in case.items())


_plain: dict[tuple[Any, ...], sdifp.Training] = {}


def run_of(
    problem: sdifp.Problem,
    method: sdifp.Method,
    recipe: sdifp.Recipe,
    seed: int,
    **options: Any,
) -> sdifp.Training:
    """A training, done. One serves the plain method and the one that corrects its
    result afterwards."""
    make = lambda method: sdifp.train(
        problem,
        method,
        recipe=recipe,
        key=jax.random.key(seed),
        every=recipe.steps,
        **options,
    )
    if not isinstance(method, sdifp.Plain | sdifp.PostHoc):
        return make(method)
    key = (problem, recipe.steps, recipe.points, seed)
    if key not in _plain:
        _plain.clear()
        _plain[key] = make(sdifp.PostHoc())
    return _plain[key]


def outcome(run: sdifp.Training, method: sdifp.Method) -> Row:
    """What a study keeps of a training."""
    trained = run.result()
    found, certificate = trained.metrics, trained.certificate
    if isinstance(method, sdifp.Plain):
        found, certificate = run.measure(trained.net), None
    metrics = dataclasses.asdict(found)
    rows = certificate.rows if certificate else ()
    return {
        "l2": metrics["l2_error"],
        "mass": metrics["mass_error"],
        "energy": metrics["energy_error"],
        "on_rule": max((r.on_rule for r in rows), default=None),
        # From independent randomisations: the error itself, not that of one more rule.
        "continuum": max((abs(r.continuum) for r in rows), default=None),
        "loss": metrics["loss"],
        "steps": metrics["steps"],
        # In steps alone: what the methods are given equal shares of.
        "seconds": run.step / run.speed,
        "scale": metrics["scale"],
    }


def step_costs(
    problem: sdifp.Problem,
    methods: dict[str, sdifp.Method],
    recipe: sdifp.Recipe,
    rounds: int,
    steps: int,
) -> dict[str, float]:
    """The time of a step of each method over that of the first, interleaved."""
    # Correcting afterwards takes no time in training.
    runs = {
        name: sdifp.train(
            problem, method, recipe=recipe, key=jax.random.key(0), check=False
        )
        for name, method in methods.items()
        if name != "PostHoc"
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run.advance(1)
    for _ in range(rounds):
        for name, run in runs.items():
            before = run.seconds
            run.advance(steps)
            times[name].append(run.seconds - before)
    keep = max(1, rounds // 3)
    best = {k: statistics.median(sorted(v)[:keep]) for k, v in times.items()}
    best["PostHoc"] = best["Plain"]
    first = best[next(iter(methods))]
    return {name: seconds / first for name, seconds in best.items()}


def equal_steps(recipe: sdifp.Recipe, cost: float) -> int:
    """The steps that take as long as those of the recipe, where each costs more."""
    return max(1, round(recipe.steps / cost))


def over_seeds(rows: Sequence[Row], name: str) -> str:
    """Median and range of one figure."""
    found = sorted(row[name] for row in rows if row.get(name) is not None)
    if not found:
        return ""
    middle = statistics.median(found)
    if len(found) == 1 or max(found) < 1e-13:
        return f"{middle:.1e}"
    return f"{middle:.1e} ({found[0]:.1e} to {found[-1]:.1e})"


# The title of a column, and whether it shows the median alone.
COLUMNS = {
    "l2": ("relative L2", False),
    "mass": ("mass, independent rule", False),
    "energy": ("energy, independent rule", False),
    "on_rule": ("on the rule", False),
    "continuum": ("continuum", False),
    "steps": ("steps", True),
    "seconds": ("seconds", True),
    "cost": ("step over plain", True),
    "memory": ("temporaries, MiB", True),
}


def table(rows: Sequence[Row], by: Sequence[str], columns: Sequence[str]) -> str:
    """A Markdown table: a line for each group of seeds, in the order measured first."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row["case"].get(k) for k in by), []).append(row)
    lines = [[*by, *(COLUMNS[c][0] for c in columns)]]
    lines.append(["---"] * len(lines[0]))
    for names, group in groups.items():
        cells = [
            _median(group, c) if COLUMNS[c][1] else over_seeds(group, c)
            for c in columns
        ]
        lines.append([*("" if n is None else str(n) for n in names), *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _median(rows: Sequence[Row], name: str) -> str:
    found = [row[name] for row in rows if row.get(name) is not None]
    if not found:
        return ""
    middle = statistics.median(found)
    return f"{middle:.0f}" if middle >= 10.0 else f"{middle:.2f}"
