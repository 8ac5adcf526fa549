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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from .._folder import checkpoint_files, step_of
from ._answer import answered

# What JAX, Gloo and gRPC write on the way; a fatal one is followed by a stack.
_NOISE = re.compile(rb"\[Gloo\]|[IWE]\d{4} \d\d:|WARNING: All log messages before absl")
_FATAL = re.compile(rb"F\d{4} \d\d:")


class Processes(NamedTuple):
    """How processes find each other."""

    coordinator: str
    "`host:port` of the first one, or `auto`"
    process_id: int | None
    num_processes: int | None
    timeout: int

    @property
    def options(self) -> str:
        """As they were given."""
        given = [f"--coordinator {shlex.quote(self.coordinator)}"]
        if self.process_id is not None:
            given.append(f"--process-id {self.process_id}")
        if self.num_processes is not None:
            given.append(f"--num-processes {self.num_processes}")
        return " ".join(given)

    def join(self) -> None:
        """Find the others, before JAX computes anything."""
        import jax

        # One that falls silent for so long is taken for lost. At the end nobody waits
        # long for one that has told why it cannot go on.
        limits: dict[str, Any] = {
            "initialization_timeout": self.timeout,
            "heartbeat_timeout_seconds": self.timeout,
            "shutdown_timeout_seconds": self.timeout,
        }
        if self.coordinator == "auto":
            try:
                jax.distributed.initialize(**limits)
            except ValueError as error:
                raise ValueError(
                    f"coordinator is auto, and nothing here tells of other processes "
                    f"as Slurm or Open MPI do ({error}); give host:port, process-id "
                    f"and num-processes"
                ) from None
            return
        jax.distributed.initialize(
            self.coordinator,
            self.num_processes,
            self.process_id,
            cluster_detection_method="deactivate",
            **limits,
        )


def process_options(command: Any) -> Any:
    """Devices, and the processes that share a run."""
    for option in reversed(
        (
            click.option(
                "--devices",
                type=int,
                default=None,
                show_default="all, but 1 of a CPU",
                help="Devices that share the work, of all processes together.",
            ),
            click.option(
                "--coordinator",
                envvar="JAX_COORDINATOR_ADDRESS",
                default=None,
                help="Several processes train together: host:port of the first one, "
                "or auto, as Slurm or Open MPI say.  [env: JAX_COORDINATOR_ADDRESS]",
            ),
            click.option(
                "--process-id",
                envvar="JAX_PROCESS_ID",
                type=int,
                default=None,
                help="Which of them this is, from 0.  [env: JAX_PROCESS_ID]",
            ),
            click.option(
                "--num-processes",
                envvar="JAX_NUM_PROCESSES",
                type=int,
                default=None,
                help="How many they are.  [env: JAX_NUM_PROCESSES]",
            ),
            click.option(
                "--timeout",
                type=click.IntRange(min=1),
                default=60,
                help="Seconds that one of them may be silent.",
            ),
        )
    ):
        command = option(command)
    return command


def processes_from(
    coordinator: str | None,
    process_id: int | None,
    num_processes: int | None,
    timeout: int,
) -> Processes | None:
    """What the options say; None if there is one process."""
    if coordinator is None:
        for name, value in (
            ("process-id", process_id),
            ("num-processes", num_processes),
        ):
            if value is not None:
                raise click.UsageError(
                    f"--{name} {value} needs --coordinator host:port, the first process"
                )
        return None
    if coordinator != "auto":
        host, colon, port = coordinator.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 2**16):
            raise click.UsageError(
                f"--coordinator must be host:port or auto, got {coordinator!r}"
            )
        if process_id is None or num_processes is None:
            raise click.UsageError(
                f"--coordinator {coordinator} needs --process-id and --num-processes"
            )
        if not 0 <= process_id < num_processes:
            raise click.UsageError(
                f"--process-id must be from 0 to {num_processes - 1} for "
                f"--num-processes {num_processes}, got {process_id}"
            )
    return Processes(coordinator, process_id, num_processes, timeout)


class Lost(BaseException):
    """A message to or from another process failed."""


@contextlib.contextmanager
def losses() -> Iterator[None]:
    """Where several processes compute together, an error of JAX's is a loss."""
    import jax

    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        raise Lost(str(error).splitlines()[0]) from None


def watched(processes: Processes, work: Callable[[], int], folder: Path) -> int:
    """Do the work in a child process, and say what became of it; returns the exit code.

    **Arguments:**

    - `work`: what to do once the others are found.
    """
    text, text_end = os.pipe()
    events, events_end = os.pipe()
    parent = os.getpid()
    # Nothing has been computed yet: there are no threads.
    child = os.fork()
    if child == 0:
        os.close(text)
        os.close(events)
        _work(processes, work, parent, text_end, events_end)
    os.close(text_end)
    os.close(events_end)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: _pass_on(child, number))
    fatal = _relay(text)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(events) as stream:
        happened = dict(line.split(" ", 1) for line in stream.read().splitlines())
    if "ended" in happened:
        return int(happened["ended"])
    if "joined" not in happened:
        what = _not_joined(processes)
    elif code == -signal.SIGABRT or "lost" in happened:
        what = f"another process of the run was lost ({happened.get('lost', fatal)})"
        what += _way_on(processes, folder)
    else:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        what = f"the process was ended {how}{_way_on(processes, folder)}"
    click.echo(f"sdifp: {what}", err=True)
    return 1


def _work(
    processes: Processes,
    work: Callable[[], int],
    parent: int,
    text: int,
    events: int,
) -> NoReturn:
    """The child."""
    # What libraries print must not get between what is printed for a program to read.
    sys.stdout = os.fdopen(os.dup(1), "w")
    for descriptor in (1, 2):
        os.dup2(text, descriptor)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    tell = lambda *words: os.write(events, f"{' '.join(map(str, words))}\n".encode())

    def joined() -> int:
        processes.join()
        tell("joined", "")
        with losses():
            return work()

    try:
        code = answered(joined)
    except Lost as lost:
        tell("lost", lost)
        os._exit(1)
    tell("ended", code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    import jax

    # Waits for the others; where one does not come JAX may end this one by force, which
    # is no news by now.
    with contextlib.suppress(Exception):
        jax.distributed.shutdown()
    os._exit(code)


def _follow(parent: int) -> None:
    """End with the parent, however that ends."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _pass_on(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _relay(descriptor: int) -> str:
    """Pass on what the child says, without noise; returns the last words of JAX."""
    fatal, everything = b"", "SDIFP_TRACEBACK" in os.environ
    with open(descriptor, "rb") as stream:
        for line in stream:
            if not fatal and _FATAL.match(line):
                fatal = line
            if everything or not (fatal or _NOISE.match(line)):
                with contextlib.suppress(OSError):
                    sys.stderr.buffer.write(line)
                    sys.stderr.buffer.flush()
    return fatal.decode(errors="replace").partition("absl::Status: ")[2].strip(" :\n")


def _not_joined(processes: Processes) -> str:
    where, seconds = processes.coordinator, processes.timeout
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
    files = checkpoint_files(folder / "checkpoints")
    if not files:
        return "; there is no checkpoint yet"
    return (
        f"; the last checkpoint is of step {step_of(files[-1])}; go on with: sdifp "
        f"resume {shlex.quote(str(folder))} {processes.options}, or without these "
        f"options on one process"
    )
