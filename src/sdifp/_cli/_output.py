"""What the commands print. Needs no JAX."""

import contextlib
from typing import Any, TextIO


class Unread:
    """A stream that goes on in silence where nobody reads it any more: a pipe or a
    terminal that is closed does not end a training."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, if that is possible."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, if that is possible."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
