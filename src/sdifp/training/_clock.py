"""Wall time that adds up over the processes of a run."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Counts wall time while it runs."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """Counted so far."""
        running = 0.0 if self._since is None else time.perf_counter() - self._since
        return self._before + running

    def set(self, seconds: float) -> None:
        """Begin from what was counted before."""
        self._before = seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what happens inside; a clock that runs already goes on running."""
        if self._since is not None:
            yield
            return
        self._since = time.perf_counter()
        try:
            yield
        finally:
            self._before, self._since = self.seconds, None
