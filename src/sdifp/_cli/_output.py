"""What the commands print. Needs no JAX."""

import contextlib
import os
import sys
from typing import Any

import click

from .._folder import printable


def say(*lines: object, err: bool = False) -> None:
    """Print lines. What was read from a file cannot command the terminal."""
    text = "".join(f"{printable(str(line))}\n" for line in lines)
    click.echo(text, file=_stream(err), nl=False)


def console(*, err: bool = False, **options: Any) -> Any:
    """A console of rich, for bars and tables."""
    from rich.console import Console

    return Console(file=_stream(err), **options)


def _stream(err: bool) -> Any:
    stream = sys.stderr if err else sys.stdout
    return None if stream is None else Unread(stream, err)


class Unread:
    """A standard stream that goes on in silence once nobody reads it: a pipe or a
    terminal that was closed does not fail what is computed."""

    def __init__(self, stream: Any, err: bool):
        self._stream = stream
        # A full disk loses what is printed for a program, but no more than progress.
        self._expected = OSError if err else BrokenPipeError

    def write(self, text: str) -> int:
        """Write, if there is a reader."""
        with self._unless_unread():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, if there is a reader."""
        with self._unless_unread():
            self._stream.flush()

    @contextlib.contextmanager
    def _unless_unread(self) -> Any:
        try:
            yield
        except self._expected:
            # What is left in the buffer would fail again when Python ends.
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
