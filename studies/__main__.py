"""`python -m studies`: measure what is missing, then draw from the saved data."""

import contextlib
import importlib.util
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from . import _page
from ._data import Data, write_whole
from ._draw import draw
from ._names import load_study, study_names
from ._study import Setting, Study
from ._sweep import (
    Failure,
    Task,
    code_of,
    file_of,
    is_complete,
    locked,
    sweep,
    tasks_for,
)

# Seconds between two lines where there is no progress bar.
_LINE_EVERY = 15.0

_STOPPING = (
    b"\nStopping: measurements that are running are finished and saved first; press "
    b"Ctrl-C again to stop at once.\n"
)


@click.command(context_settings={"show_default": True, "max_content_width": 100})
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--full", is_flag=True, help="The full budgets: hours, or a GPU.")
@click.option("--tiny", is_flag=True, help="The least budgets: does it run?")
@click.option("--only", default="", help="Only cases whose name contains this text.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=None,
    show_default="one per core, at most 4; 1 on an accelerator",
    help="Number of processes; cases that measure times run alone.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("out/studies"),
    help="Folder of the data, tables and figures.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    show_default="reproduction.md in the folder",
    help="The page with the verdict on each claim of the paper.",
)
@click.option("--draw", "only_draw", is_flag=True, help="Draw from saved data only.")
@click.option("--again", is_flag=True, help="Measure again what is measured.")
def main(
    names: tuple[str, ...],
    full: bool,
    tiny: bool,
    only: str,
    jobs: int | None,
    out: Path,
    page: Path | None,
    only_draw: bool,
    again: bool,
) -> None:
    """Measure studies and draw their tables and figures. NAME is the name of a study,
    `paper` for those of the paper's tables and figures, or `all`; without a name, the
    studies are listed.

    What is measured already is skipped, so the same command continues a sweep that was
    interrupted.

    \b
    python -m studies weighted-metric
    python -m studies paper --jobs 2
    """
    if not names:
        for name, line in study_names().items():
            click.echo(f"{name:<26}{line}")
        return
    if only_draw and again:
        raise click.UsageError("--draw measures nothing, so --again has no effect")
    if full and tiny:
        raise click.UsageError("--full and --tiny exclude each other")
    setting: Setting = "tiny" if tiny else "full" if full else "quick"
    try:
        studies = [load_study(name) for name in _chosen(names)]
        failed = []
        if not only_draw:
            studies = [s for s in studies if _available(s, len(studies) == 1)]
            with locked(out):
                failed = _measure(
                    studies, out, setting, only, jobs or _processes(), again
                )
        _draw(studies, out, setting, page)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if failed:
        raise click.ClickException(
            f"{len(failed)} measurements failed, the first: {failed[0].name}"
        )


def _processes() -> int:
    if jax.default_backend() != "cpu":
        return 1
    own = getattr(os, "sched_getaffinity", None)
    return min(4, len(own(0)) if own else os.cpu_count() or 1)


def _chosen(names: Sequence[str]) -> list[str]:
    groups = {"all": list(study_names()), "paper": list(_page.PAPER)}
    return list(dict.fromkeys(n for name in names for n in groups.get(name, [name])))


def _available(study: Study, needed: bool) -> bool:
    if study.needs is None:
        return True
    module, command = study.needs
    if importlib.util.find_spec(module) is not None:
        return True
    text = f"{study.name} needs the package {module}: {command}"
    if needed:
        raise click.UsageError(text)
    click.echo(f"Left out: {text}")
    return False


def _draw(studies: list[Study], out: Path, setting: Setting, page: Path | None) -> None:
    drawn = []
    for study in studies:
        if not is_complete(study, out, setting):
            click.echo(f"{study.name}: not all cases are measured yet")
            continue
        drawn.append(study.name)
        click.echo(f"{study.name}: {draw(study, out, setting) / 'table.md'}")
    if set(drawn) & set(_page.PAPER):
        page = page or out / "reproduction.md"
        write_whole(page, _page.page_text(out, page))
        click.echo(f"Look at {page}")


def _measure(
    studies: list[Study], out: Path, setting: Setting, only: str, jobs: int, again: bool
) -> list[Task]:
    """Measure what is left; returns what failed."""
    # Two studies that draw the same measurements make them once.
    sources = dict.fromkeys(s.source or s.name for s in studies)
    tasks = [
        task
        for name in sources
        for task in tasks_for(load_study(name), out, setting, again)
        if only in task.name
    ]
    if not again:
        for name in sources:
            _tell_of_other_code(load_study(name), out, setting)
    if not tasks:
        click.echo("Everything is measured; --again measures it once more.")
        return []
    console, stopped = Console(), list[int]()
    bar = Progress(
        TextColumn("{task.fields[name]}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        disable=not console.is_terminal,
    )
    line = bar.add_task("", total=len(tasks), name="starting ...", left="")
    whole = sum(task.study.seconds for task in tasks)
    began = time.monotonic()
    done: list[Task] = []
    next_line = 0.0

    def report(task: Task, failure: Failure | None) -> None:
        nonlocal next_line
        done.append(task)
        weight = sum(task.study.seconds for task in done)
        spent = time.monotonic() - began
        left = "..."
        # The first ones pay for what all of them need.
        if weight > 0.02 * whole or spent > 60.0:
            left = _clock(spent * (whole - weight) / weight)
        bar.update(line, completed=len(done), name=task.study.name, left=left)
        if failure is not None:
            console.print(f"failed: {task.name}: {failure.text}", markup=False)
        elif not console.is_terminal and spent >= next_line:
            click.echo(f"{len(done)}/{len(tasks)}: {task.study.name}, {left}")
            next_line = spent + _LINE_EVERY

    with _signals(stopped), bar:
        failed = sweep(tasks, jobs, report, lambda: bool(stopped))
    if stopped:
        raise click.ClickException(
            f"stopped after {len(done)} of {len(tasks)} measurements, which are saved; "
            f"the same command continues"
        )
    return failed


def _tell_of_other_code(study: Study, out: Path, setting: Setting) -> None:
    old = Data(file_of(out, setting, study)).of_other_code(code_of(study.name))
    if old:
        click.echo(
            f"{study.name}: {len(old)} saved measurements were made with another "
            f"version of the code; they are kept, and --again measures them once more"
        )


@contextlib.contextmanager
def _signals(stopped: list[int]) -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or SIGHUP is noted, the second one stops at once."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {int(n): signal.getsignal(n) for n in numbers}

    def note(number: int, frame: object) -> None:
        stopped.append(number)
        signal.signal(number, before[number])
        # Not through a stream, which may be in the middle of a line.
        os.write(2, _STOPPING)

    for number, handler in before.items():
        # Under nohup SIGHUP stays ignored.
        if handler is not signal.SIG_IGN:
            signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s left"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s left"
    return f"{whole // 3600} h {whole % 3600 // 60} min left"


if __name__ == "__main__":
    main(prog_name="python -m studies")
