"""One of several processes of a run: watched by a parent that knows no JAX.

JAX ends a process by force where another one is lost or cannot be reached. The parent
is what is left then: it says in a sentence what happened and how to go on.
"""

import contextlib
import os
import re
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

from .._folder import checkpoint_files, step_of
from ._answer import answered
from ._output import say
from ._processes import Processes
from ._signals import stop_signals

# What JAX, Gloo and gRPC write on the way; a fatal line is followed by a stack.
_NOISE = re.compile(
    rb"\[Gloo\] Rank |connected to \d+ peer ranks|"
    rb"^[IWE]\d{4} \d\d:\S+ +\d+ \S+\.(cc|h):\d+\]"
)
_FATAL = re.compile(rb"F\d{4} \d\d:\S+ +\d+ \S+\.(cc|h):\d+\] ")
# In errors of JAX's that come of another process: a status, of theirs or of a message.
_OF_OTHERS = re.compile(
    r"(UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED): |"
    r"[A-Z_]+: .*(Gloo|NCCL|[Cc]oordination)"
)
# Seconds that a process which has failed waits for the others to fail likewise.
_PATIENCE = 5.0


class Lost(BaseException):
    """A message to or from another process failed."""


@contextlib.contextmanager
def losses() -> Iterator[None]:
    """Where several processes compute together, an error of JAX's may be a loss."""
    import jax

    try:
        yield
    # A small message that fails at once is a ValueError.
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        text = str(error).strip()
        if jax.process_count() == 1 or not _OF_OTHERS.match(text):
            raise
        raise Lost(text.splitlines()[0]) from None


def watched(processes: Processes, work: Callable[[], int], folder: Path) -> int:
    """Do the work in a child process, and say what became of it; returns the exit code.

    **Arguments:**

    - `work`: what to do once the others are found.
    """
    _open_standard_streams()
    text, text_end = os.pipe()
    events, events_end = os.pipe()
    caught: list[int] = []
    children: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)

    # Taken before there is a child, so that none is left behind.
    for number in stop_signals():
        signal.signal(number, pass_on)
    parent = os.getpid()
    # Nothing has been computed yet: there are no threads.
    child = os.fork()
    if child == 0:
        os.close(text)
        os.close(events)
        _work(processes, work, parent, text_end, events_end)
    children.append(child)
    for early in list(caught):
        os.kill(child, early)
    os.close(text_end)
    os.close(events_end)
    fatal = _relay(text)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(events) as stream:
        happened = dict(line.split(" ", 1) for line in stream.read().splitlines())
    if "ended" in happened:
        return int(happened["ended"])
    end = 1
    of_others = "JAX distributed service" in fatal
    status = fatal.partition("absl::Status: ")[2].strip()
    if "joined" not in happened and caught:
        what, end = "interrupted while it waited for the others", 128 + caught[0]
    elif "joined" not in happened and of_others:
        what = _not_joined(processes, status)
    elif "lost" in happened or of_others:
        reason = happened.get("lost", status).strip(" :")
        what = f"another process of the run was lost ({reason})"
        what += _way_on(processes, folder)
    elif -code in caught:
        what, end = f"interrupted{_way_on(processes, folder)}", 128 - code
    else:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        what = f"the process was ended {how}{f' ({fatal})' if fatal else ''}"
        what += _way_on(processes, folder)
    say(f"sdifp: {what}", err=True)
    return end


def _work(
    processes: Processes,
    work: Callable[[], int],
    parent: int,
    text: int,
    events: int,
) -> NoReturn:
    """The child."""
    # What libraries print must not get between what is printed for a program to read.
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    sys.stdout = os.fdopen(os.dup(1), "w", 1, encoding, errors)
    for descriptor in (1, 2):
        os.dup2(text, descriptor)
    # At once, while there is nothing to keep.
    for number in stop_signals():
        signal.signal(number, signal.SIG_DFL)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    tell = lambda *words: os.write(events, f"{' '.join(map(str, words))}\n".encode())

    def joined() -> int:
        processes.join()
        tell("joined", "")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with losses():
            return work()

    try:
        code = answered(joined)
    except Lost as lost:
        _flush()
        tell("lost", lost)
        os._exit(1)
    except KeyboardInterrupt:
        say("sdifp: interrupted", err=True)
        code = 130
    except BaseException as error:
        # Asked for by SDIFP_TRACEBACK, or something like `sys.exit` of the user's.
        if "SDIFP_TRACEBACK" in os.environ:
            traceback.print_exc()
        else:
            say(f"sdifp: {type(error).__name__}: {error}", err=True)
        code = 1
    _flush()
    tell("ended", code)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if code != 0:
        # The others may have failed, too, or wait for a message that does not come.
        timer = threading.Timer(_PATIENCE, os._exit, (code,))
        timer.daemon = True
        timer.start()
    # Waits for the others. Where one does not come JAX ends this process by force; all
    # has been said by now.
    if "jax" in sys.modules:
        with contextlib.suppress(Exception):
            sys.modules["jax"].distributed.shutdown()
    os._exit(code)


def _open_standard_streams() -> None:
    """Closed ones, whose numbers pipes would be given."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _follow(parent: int) -> None:
    """End with the parent, however that ends."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _relay(descriptor: int) -> str:
    """Pass on what the child says, without noise; returns a fatal line of JAX's."""
    fatal, everything = b"", "SDIFP_TRACEBACK" in os.environ
    with open(descriptor, "rb") as stream:
        for line in stream:
            if not fatal and _FATAL.match(line):
                fatal = line
            own = line.startswith(b"sdifp: ")
            if everything or own or not (fatal or _NOISE.search(line)):
                with contextlib.suppress(OSError):
                    sys.stderr.buffer.write(line)
                    sys.stderr.buffer.flush()
    return _FATAL.sub(b"", fatal).decode(errors="replace").strip()


def _not_joined(processes: Processes, status: str) -> str:
    where, seconds = processes.coordinator, processes.timeout
    if not status.startswith("DEADLINE_EXCEEDED"):
        return (
            f"the processes cannot meet at {where} ({status}): each needs a process-id "
            f"of its own, and the same num-processes"
        )
    if where == "auto":
        return f"not all of the processes met within {seconds} seconds"
    if processes.process_id == 0:
        return (
            f"not all of the {processes.num_processes} processes came to {where} "
            f"within {seconds} seconds"
        )
    return (
        f"no coordinator answered at {where} within {seconds} seconds, or not all "
        f"processes came there"
    )


def _way_on(processes: Processes, folder: Path) -> str:
    if not (folder / "config.toml").is_file():
        return ""
    files = checkpoint_files(folder / "checkpoints")
    last = f"is of step {step_of(files[-1])}" if files else "has not been written yet"
    return (
        f"; the last checkpoint {last}; go on with: sdifp resume "
        f"{shlex.quote(str(folder))} {processes.options}, or without these options on "
        f"one process"
    )
