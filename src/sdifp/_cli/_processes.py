"""Several processes of one run: their options, and how they find each other."""

import contextlib
import ipaddress
import os
import re
import signal
import socket
import sys
from typing import Any, NamedTuple

import click

# JAX reads them too. They count only if all three are set.
_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES")

# JAX's variable for the address and port on which the first process listens.
_BIND = "JAX_COORDINATOR_BIND_ADDRESS"


class Processes(NamedTuple):
    """How the processes of a run find each other."""

    coordinator: str
    "`host:port` of the first one, or `auto`"
    process_id: int | None
    num_processes: int | None
    timeout: int
    "seconds without a heartbeat after which a process is lost"

    def join(self) -> None:
        """Call `jax.distributed.initialize`. From here on JAX ends this process if
        another one is lost."""
        import jax

        _keep_stdout()
        # The preemption service would handle SIGTERM, with which a run is stopped.
        jax.config.update("jax_enable_preemption_service", False)
        given: dict[str, Any] = {
            "initialization_timeout": self.timeout,
            "heartbeat_timeout_seconds": self.timeout,
            "shutdown_timeout_seconds": self.timeout,
        }
        if self.coordinator != "auto":
            given |= {
                "coordinator_address": self.coordinator,
                "num_processes": self.num_processes,
                "process_id": self.process_id,
                "cluster_detection_method": "deactivate",
            }
            if self.process_id == 0:
                given["coordinator_bind_address"] = _bind_address(self.coordinator)
        # Python's own handler of Ctrl-C would not run while JAX waits.
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            jax.distributed.initialize(**given)
        except ValueError as error:
            if self.coordinator != "auto":
                raise
            raise ValueError(
                f"coordinator is auto, but no launcher such as Slurm or Open MPI was "
                f"found ({error}); give host:port, process-id and num-processes"
            ) from None
        finally:
            signal.signal(signal.SIGINT, before)


def _keep_stdout() -> None:
    """Send what libraries print (Gloo does) to the standard error, so that the output
    of `--json` can be read by a program."""
    if sys.stdout is None:
        return
    # OSError: a closed standard error.
    with contextlib.suppress(OSError):
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        sys.stdout = os.fdopen(os.dup(1), "w", 1, encoding, errors)
        os.dup2(2, 1)


def _bind_address(coordinator: str) -> str:
    """The address and port on which the coordinator listens: those given, where JAX
    would listen on all interfaces. Raises `ValueError` where JAX would crash."""
    address = os.environ.get(_BIND) or coordinator
    host, _, port = address.rpartition(":")
    host, found = host.strip("[]"), set[str]()
    why: str | None = None
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        places, why = [], error.strerror
    for family, *_, place in places:
        try:
            socket.create_server(place, family=family).close()
            found.add(str(place[0]).partition("%")[0])
        except OSError as error:
            why = error.strerror
    if not found:
        raise ValueError(
            f"the coordinator cannot listen on {address} ({why}): choose a free port "
            f"and an address of this machine, or set {_BIND} to address:port"
        )
    # Names for which /etc/hosts has an address that only this machine knows.
    is_name = host not in found and "localhost" not in host.lower()
    is_local = all(ipaddress.ip_address(one).is_loopback for one in found)
    if is_name and is_local and address == coordinator:
        raise ValueError(
            f"the coordinator's host {host} is {', '.join(sorted(found))} on this "
            f"machine, which other machines cannot reach: give its address in the "
            f"network instead of its name, or set {_BIND} to address:port"
        )
    return address


_COUNT = click.IntRange(min=1)
# The options for devices, and for the processes that share a run.
process_options = (
    click.option(
        "--devices",
        type=int,
        show_default="all, but 1 of a CPU",
        help="Number of devices, of all processes together.",
    ),
    click.option(
        "--coordinator",
        help="Train with several processes: host:port of the first one, or auto under "
        f"Slurm or Open MPI.  [env: {', '.join(_VARIABLES)}]",
    ),
    click.option("--process-id", type=int, help="Number of this process, from 0."),
    click.option("--num-processes", type=_COUNT, help="Number of processes."),
    click.option(
        "--timeout", type=_COUNT, default=60, help="Heartbeat timeout in seconds."
    ),
)


def processes_from(
    coordinator: str | None,
    process_id: int | None,
    num_processes: int | None,
    timeout: int,
) -> Processes | None:
    """The processes of the options or of the environment; None for a single process."""
    found = [os.environ.get(name, "") for name in _VARIABLES]
    given = (coordinator, process_id, num_processes)
    if given == (None, None, None) and not all(found):
        return None
    if given == (None, None, None):
        try:
            coordinator, process_id, num_processes = found[0], *map(int, found[1:])
        except ValueError:
            raise click.UsageError(
                f"{_VARIABLES[1]} and {_VARIABLES[2]} must be whole numbers, got "
                f"{found[1]!r} and {found[2]!r}"
            ) from None
    if process_id is None or num_processes is None:
        right = coordinator == "auto" and process_id is num_processes is None
    else:
        is_address = re.fullmatch(r".+:[1-9]\d{0,4}", coordinator or "")
        right = is_address is not None and 0 <= process_id < num_processes
    if coordinator is None or not right:
        raise click.UsageError(
            f"several processes need --coordinator auto alone, or host:port with "
            f"--process-id from 0 and below --num-processes, got --coordinator "
            f"{coordinator}, --process-id {process_id}, --num-processes {num_processes}"
        )
    return Processes(coordinator, process_id, num_processes, timeout)
