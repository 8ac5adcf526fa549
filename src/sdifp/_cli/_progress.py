"""What is seen while a run goes on: a bar on a terminal, lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
)
from rich.text import Text

from .._folder import clock


class Bar:
    """Shows a training; to be called with it and with metrics where they are new."""

    def __init__(self, console: Console, name: str):
        self.console, self.name = console, name
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            console=console,
        )
        self.began = time.monotonic()
        self.compiled = False
        self.metrics = Text()
        self.task: Any = None

    def __call__(self, training: Any, metrics: Any) -> None:
        """Show how far it is."""
        step, left = training.step, training.steps - training.step
        if not self.compiled and training.compile_seconds is not None:
            self.compiled = True
            self._print(f"compiled in {training.compile_seconds:.0f} s")
        if metrics is not None:
            self.metrics.plain = metrics.numbers
        if self.console.is_terminal:
            if self.task is None:
                self.task = self.progress.add_task(
                    self.name, total=training.steps, completed=step, speed=""
                )
            self.progress.update(self.task, completed=step, speed=_pace(left, training))
        elif metrics is not None:
            self._print(
                f"step {step}/{training.steps}: {metrics.numbers}, "
                f"{_pace(left, training)}"
            )

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def __rich__(self) -> Group:
        """The bar, and the metrics below it; drawn again and again."""
        if self.compiled:
            return Group(self.progress, self.metrics)
        waited = time.monotonic() - self.began
        return Group(
            self.progress, Text(f"compiling the step ... {waited:.0f} s", style="dim")
        )


def _pace(left: int, training: Any) -> str:
    """The wall time so far, the speed, and the time that the steps left will take."""
    speed = training.speed
    if not speed:
        return ""
    rate = f"{speed:.0f}" if speed >= 10.0 else f"{speed:.2g}"
    passed, to_come = clock(training.seconds), clock(left / speed)
    return f"{passed}, {rate} steps/s, {to_come} left"


@contextmanager
def shown(console: Console, name: str) -> Iterator[Bar]:
    """A bar that is taken away at the end."""
    bar = Bar(console, name)
    if not console.is_terminal:
        console.print(f"{name}: compiling the step ...", highlight=False, markup=False)
        yield bar
        return
    with Live(bar, console=console, refresh_per_second=4):
        yield bar
