"""What the commands print: lines, and one sentence where something is wrong, with the
exit code. Needs no JAX."""

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from .._folder import DISK_FULL, printable


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


def answered(work: Callable[[], Any]) -> int:
    """Do something; errors are reported in one sentence. Returns the exit code."""
    try:
        code = work()
    except click.exceptions.Abort:
        return _told("interrupted", 130)
    except click.ClickException as error:
        return _told(error.format_message(), 2)
    except BrokenPipeError:
        # Whoever read the output has had enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if "SDIFP_TRACEBACK" in os.environ:
            raise
        return _told(*_sentence(error))
    return code if isinstance(code, int) else 0


def _sentence(error: Exception) -> tuple[str, int]:
    """What to say, and the exit code: 2 where it is the user's input, 1 else."""
    # Only where JAX is loaded can these have been raised.
    runs: Any = sys.modules.get("sdifp.runs")
    text = str(error).strip() or type(error).__name__
    code = 2
    place = None if runs is None else runs.where(error)
    if place is not None and place not in text:
        text = f"{text} ({place})" if isinstance(error, ValueError) else place
    elif isinstance(error, OSError):
        name = "" if error.filename is None else f"{error.filename}: "
        text, code = f"{name}{error.strerror}", 1 if error.errno in DISK_FULL else 2
    elif runs is not None and isinstance(error, runs.RunError):
        code = 1
    elif isinstance(error, MemoryError):
        text, code = f"there is not enough memory ({text})", 1
    elif not isinstance(error, ValueError | TypeError | ImportError):
        text = f"{type(error).__name__}: {text.splitlines()[0]}"
        text += "; set SDIFP_TRACEBACK=1 to see where"
        code = 1
    return text, code


def _told(text: str, code: int) -> int:
    say(f"sdifp: {' '.join(line.strip() for line in text.splitlines())}", err=True)
    return code
