"""Several processes of one run: how they are told of each other, and meet."""

import errno
import ipaddress
import os
import shlex
import socket
import time
from typing import Any, NamedTuple

import click

# JAX takes them from others, too: what is there may not be meant for us unless all are.
_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES")

# JAX's own, of the address and port at which the first process listens.
_BIND = "JAX_COORDINATOR_BIND_ADDRESS"


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
            self._check_coordinator()
            bind = self._listens_at() if self.process_id == 0 else None
            try:
                jax.distributed.initialize(
                    self.coordinator,
                    self.num_processes,
                    self.process_id,
                    cluster_detection_method="deactivate",
                    coordinator_bind_address=bind,
                    **limits,
                )
            except (jax.errors.JaxRuntimeError, ValueError) as error:
                raise ValueError(
                    f"the processes cannot meet at {self.coordinator}: "
                    f"{str(error).strip()}"
                ) from None
        from .._run import check_devices

        check_devices()

    def _check_coordinator(self) -> None:
        """Raise `ValueError` if its host is not known, for which JAX would wait."""
        host, _, port = self.coordinator.rpartition(":")
        until = time.monotonic() + self.timeout
        while True:
            try:
                socket.getaddrinfo(host.strip("[]"), int(port))
                break
            except socket.gaierror as error:
                # Names of hosts that have just been started may come later.
                if time.monotonic() > until:
                    raise ValueError(
                        f"the coordinator's host {host} was not known within "
                        f"{self.timeout} seconds ({error.strerror})"
                    ) from None
                time.sleep(0.5)

    def _listens_at(self) -> str:
        """The address and port at which this process, the first one, is to listen: as
        given, for JAX would listen on all interfaces. Raises `ValueError` if it cannot.
        """
        given = os.environ.get(_BIND)
        host, port = _host_and_port(given or self.coordinator)
        try:
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise ValueError(
                f"the coordinator cannot listen at {host}: {error.strerror}"
            ) from None
        for family, *_, place in places:
            address = str(place[0])
            try:
                # JAX's own server may crash where it cannot listen.
                socket.create_server(place, family=family).close()
            except OSError as error:
                if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue
                why = (
                    error.strerror if error.errno is None else os.strerror(error.errno)
                )
                raise ValueError(
                    f"the coordinator cannot listen on port {port}: {why}; choose one "
                    f"that is free"
                ) from None
            if not given and _is_alias(host, address):
                raise ValueError(
                    f"the coordinator's host {host} is {address} on this machine, "
                    f"where others cannot reach it: give its address in their network "
                    f"instead of its name, or set {_BIND}"
                )
            return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        raise ValueError(
            f"the coordinator cannot listen at {host}, which is not an address of this "
            f"machine; where a network translates addresses, set {_BIND} to the one to "
            f"listen at, such as 0.0.0.0:{port} for all"
        )


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError(f"{_BIND} must be address:port, got {text!r}")
    return host.strip("[]"), int(port)


def _is_alias(host: str, address: str) -> bool:
    """Whether a name of a machine stands for the machine itself only here, as
    /etc/hosts often has it."""
    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "localhost" not in host.lower()
    return False


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
