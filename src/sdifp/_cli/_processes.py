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
from typing import Any, NamedTuple, NoReturn

import click

from .._folder import checkpoint_files, step_of
from ._answer import answered

# What JAX, Gloo and gRPC write on the way; a fatal line is followed by a stack.
_NOISE = re.compile(rb"\[Gloo\] Rank |[IWE]\d{4} \d\d:\S+ +\d+ \S+\.(cc|h):\d+\]")
_FATAL = re.compile(rb"F\d{4} \d\d:\S+ +\d+ \S+\.(cc|h):\d+\] ")
# In errors of JAX's that come of another process.
_OF_OTHERS = re.compile(
    r"UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED|Gloo|NCCL|[Cc]oordination"
)
# JAX takes them from others, too: what is there may not be meant for us unless all are.
_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES")


class Processes(NamedTuple):
    """How processes find each other."""

    coordinator: str
    "`host:port` of the first one, or `auto`"
    process_id: int | None
    num_processes: int | None
    timeout: int
    devices: int | None

    @property
    def options(self) -> str:
        """As they were given."""
        given = {
            "coordinator": shlex.quote(self.coordinator),
            "process-id": self.process_id,
            "num-processes": self.num_processes,
            "timeout": self.timeout,
            "devices": self.devices,
        }
        return " ".join(f"--{k} {v}" for k, v in given.items() if v is not None)

    def join(self) -> None:
        """Find the others, before JAX computes anything."""
        import jax

        # It would take SIGTERM for itself.
        jax.config.update("jax_enable_preemption_service", False)
        # One that falls silent for so long is taken for lost.
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
        else:
            try:
                jax.distributed.initialize(
                    self.coordinator,
                    self.num_processes,
                    self.process_id,
                    cluster_detection_method="deactivate",
                    **limits,
                )
            except jax.errors.JaxRuntimeError as error:
                raise ValueError(
                    f"the processes cannot meet at {self.coordinator}: the port may be "
                    f"in use ({str(error).strip()})"
                ) from None
        from .._run import check_devices

        check_devices()


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
                default=None,
                help="Several processes train together: host:port of the first one, "
                f"or auto, as Slurm or Open MPI say.  [env: {', '.join(_VARIABLES)}]",
            ),
            click.option(
                "--process-id",
                type=int,
                default=None,
                help="Which of them this is, from 0.",
            ),
            click.option(
                "--num-processes",
                type=click.IntRange(min=1),
                default=None,
                help="How many they are.",
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
    devices: int | None,
) -> Processes | None:
    """What the options say, or the environment; None if there is one process."""
    found = [os.environ.get(name, "") for name in _VARIABLES]
    given = {"process-id": process_id, "num-processes": num_processes}
    if coordinator is None and all(found) and set(given.values()) == {None}:
        try:
            coordinator, process_id, num_processes = found[0], *map(int, found[1:])
        except ValueError:
            raise click.UsageError(
                f"{_VARIABLES[1]} and {_VARIABLES[2]} must be whole numbers, got "
                f"{found[1]!r} and {found[2]!r}"
            ) from None
    if coordinator is None:
        for name, value in given.items():
            if value is not None:
                raise click.UsageError(
                    f"--{name} {value} needs --coordinator host:port, the first process"
                )
        return None
    if coordinator == "auto":
        for name, value in (
            ("process-id", process_id),
            ("num-processes", num_processes),
        ):
            if value is not None:
                raise click.UsageError(
                    f"--{name} {value} cannot be given with --coordinator auto"
                )
    else:
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
    return Processes(coordinator, process_id, num_processes, timeout, devices)


class Lost(BaseException):
    """A message to or from another process failed."""


@contextlib.contextmanager
def losses() -> Iterator[None]:
    """Where several processes compute together, an error of JAX's may be a loss."""
    import jax

    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        text = str(error).strip()
        if jax.process_count() == 1 or not _OF_OTHERS.search(text):
            raise
        raise Lost(text.splitlines()[0]) from None


def watched(processes: Processes, work: Callable[[], int], folder: Path) -> int:
    """Do the work in a child process, and say what became of it; returns the exit code.

    **Arguments:**

    - `work`: what to do once the others are found.
    """
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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    parent = os.getpid()
    # Nothing has been computed yet: there are no threads.
    child = os.fork()
    if child == 0:
        os.close(text)
        os.close(events)
        _work(processes, work, parent, text_end, events_end)
    children.append(child)
    for number in list(caught):
        os.kill(child, number)
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
    if "joined" not in happened and caught:
        what, end = "interrupted while it waited for the others", 128 + caught[0]
    elif "joined" not in happened and of_others:
        what = _not_joined(processes)
    elif "lost" in happened or of_others:
        reason = happened.get("lost", fatal.partition("absl::Status: ")[2]).strip(" :")
        what = f"another process of the run was lost ({reason})"
        what += _way_on(processes, folder)
    else:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        what = f"the process was ended {how}{f' ({fatal})' if fatal else ''}"
        what += _way_on(processes, folder)
    click.echo(f"sdifp: {what}", err=True)
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
    for number in (signal.SIGTERM, signal.SIGINT):
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
        click.echo("sdifp: interrupted", err=True)
        code = 130
    except BaseException:
        # Asked for by SDIFP_TRACEBACK, or something like `sys.exit` of the user's.
        traceback.print_exc()
        code = 1
    _flush()
    tell("ended", code)
    import jax

    # Waits for the others, which end, too, or are told of what happened here. Where one
    # does not come JAX ends this process by force; all has been said by now.
    with contextlib.suppress(Exception):
        jax.distributed.shutdown()
    os._exit(code)


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
            if everything or not (fatal or _NOISE.match(line)):
                with contextlib.suppress(OSError):
                    sys.stderr.buffer.write(line)
                    sys.stderr.buffer.flush()
    return _FATAL.sub(b"", fatal).decode(errors="replace").strip()


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
    if not (folder / "config.toml").is_file():
        return ""
    files = checkpoint_files(folder / "checkpoints")
    last = f"is of step {step_of(files[-1])}" if files else "has not been written yet"
    return (
        f"; the last checkpoint {last}; go on with: sdifp resume "
        f"{shlex.quote(str(folder))} {processes.options}, or without these options on "
        f"one process"
    )
