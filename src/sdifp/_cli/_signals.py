"""Signals that ask a program to stop. Needs no JAX."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# `timeout` and launchers may send a signal twice: to the process and to its group.
_ECHO = 0.5


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that ask to stop: Ctrl-C, SIGTERM, and SIGHUP, which a terminal sends
    when it is closed, unless `nohup` has it ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *(() if ignored else (signal.SIGHUP,)))


class Signals:
    """Signals that ask to stop as a wish; a second Ctrl-C or SIGTERM stops at once."""

    def __init__(self) -> None:
        self.number = 0
        self.since = 0.0

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.number != 0

    def _take(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self.number, self.since = number, time.monotonic()
        # The shell and the kernel each send a SIGHUP when a terminal is closed.
        elif number != signal.SIGHUP and time.monotonic() - self.since > _ECHO:
            raise KeyboardInterrupt

    @contextmanager
    def taken(self) -> Iterator[None]:
        """While a run goes on."""
        before = {n: signal.signal(n, self._take) for n in stop_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
