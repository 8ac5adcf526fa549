"""reproduce: every table and figure of the paper, measured."""

import importlib.util
import os
import time
from pathlib import Path
from typing import Any

import click

from .._config import nearest
from .._folder import printable
from .._reproduce._names import EXPERIMENTS
from ._output import console, say
from ._signals import Signals

# Seconds between two lines where there is no bar.
_TELL_EVERY = 15.0


@click.command("reproduce")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--quick", is_flag=True, help="Smaller budgets: all in half an hour.")
@click.option("--tiny", is_flag=True, hidden=True, help="Does it run?")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=None,
    show_default="one a core, 4 at most; 1 on an accelerator",
    help="Processes; times are measured by one alone.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reproduction"),
    help="Folder of all data.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    show_default="reproduction.md in the folder",
    help="The page of all verdicts.",
)
@click.option("--draw", is_flag=True, help="Draw from saved data, measure nothing.")
@click.option("--again", is_flag=True, help="Measure again what is measured.")
def reproduce_command(
    names: tuple[str, ...],
    quick: bool,
    tiny: bool,
    jobs: int | None,
    out: Path,
    page: Path | None,
    draw: bool,
    again: bool,
) -> None:
    """Measure the paper's tables and figures; NAME is one of `sdifp list experiments`,
    or all.

    What is measured already is skipped: an interrupted sweep goes on where it was.

    \b
    sdifp reproduce all --quick --jobs 2
    """
    chosen = _chosen(names)
    if draw and again:
        raise click.UsageError("--draw measures nothing, so --again makes no sense")
    setting: Any = "tiny" if tiny else "quick" if quick else "full"
    from .. import _reproduce as reproduce

    experiments = [reproduce.load_experiment(name) for name in chosen]
    failed: list[Any] = []
    if not draw:
        experiments = [e for e in experiments if _available(e, len(chosen) == 1)]
        failed = _measure(experiments, out, setting, jobs or _processes(), again)
    drawn = []
    for experiment in experiments:
        if not reproduce.is_complete(experiment, out, setting):
            say(f"{experiment.name}: not all of it is measured yet")
            continue
        drawn.append(reproduce.draw(experiment, out, setting))
        say(f"{experiment.name}: {drawn[-1]}")
    if drawn:
        found = reproduce.write_page(out, page or out / "reproduction.md")
        say(f"Look at {found}")
    if failed:
        raise click.ClickException(
            f"{len(failed)} measurements failed and are left out, the first: "
            f"{failed[0].name}"
        )


def _processes() -> int:
    import jax

    if jax.default_backend() != "cpu":
        return 1
    own = getattr(os, "sched_getaffinity", None)
    return min(4, len(own(0)) if own else os.cpu_count() or 1)


def _chosen(names: tuple[str, ...]) -> list[str]:
    known = [*EXPERIMENTS, "all"]
    for name in names:
        if name not in known:
            raise click.UsageError(
                f"unknown experiment {name!r}; {nearest(name, known)}"
            )
    return list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))


def _available(experiment: Any, needed: bool) -> bool:
    if experiment.needs is None:
        return True
    module, command = experiment.needs
    if importlib.util.find_spec(module) is not None:
        return True
    text = f"{experiment.name} needs the package of {module}: {command}"
    if needed:
        raise click.UsageError(text)
    say(f"Left out: {text}")
    return False


def _measure(
    experiments: list[Any], out: Path, setting: Any, jobs: int, again: bool
) -> list[Any]:
    """Measure what is left."""
    from .. import _reproduce as reproduce

    # Two that draw the same measurements make them once.
    sources = dict.fromkeys(e.source or e.name for e in experiments)
    tasks = [
        task
        for name in sources
        for task in reproduce.tasks_for(
            reproduce.load_experiment(name), out, setting, again
        )
    ]
    if not tasks:
        say("Everything is measured; --again measures it once more.")
        return []
    return _sweep(tasks, out, jobs)


def _sweep(tasks: list[Any], out: Path, jobs: int) -> list[Any]:
    """All of it, under one bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from .. import _reproduce as reproduce

    shown, signals = console(), Signals()
    bar = Progress(
        TextColumn("{task.fields[name]}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        console=shown,
    )
    whole = sum(task.experiment.seconds for task in tasks)
    began = time.monotonic()
    state: dict[str, Any] = {"done": 0, "weight": 0.0, "told": 0.0}
    line = bar.add_task("", total=len(tasks), name="begins ...", left="")

    def report(task: Any, failure: Any) -> None:
        state["done"] += 1
        state["weight"] += task.experiment.seconds
        spent = time.monotonic() - began
        left = "..."
        # The first ones pay for what all of them need.
        if state["weight"] > 0.02 * whole or spent > 60.0:
            left = _clock(spent * (whole - state["weight"]) / state["weight"])
        bar.update(line, completed=state["done"], name=task.experiment.name, left=left)
        if failure is not None:
            bar.console.print(
                printable(f"failed: {task.name}: {failure.text}"), markup=False
            )
        elif not shown.is_terminal and spent > state["told"]:
            say(f"{state['done']}/{len(tasks)}: {task.experiment.name}, {left}")
            state["told"] = spent + _TELL_EVERY

    with signals.taken():
        if shown.is_terminal:
            with bar:
                failed = reproduce.sweep(tasks, out, jobs, report, signals)
        else:
            failed = reproduce.sweep(tasks, out, jobs, report, signals)
    if signals():
        raise click.ClickException(
            f"stopped after {state['done']} of {len(tasks)} measurements, which are "
            f"saved; the same command goes on"
        )
    return list(failed)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s left"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s left"
    return f"{whole // 3600} h {whole % 3600 // 60} min left"
