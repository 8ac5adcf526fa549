"""The devices that share a computation: one axis of a mesh of JAX's.

Where a mesh with the axis `sdifp` is set (`jax.set_mesh`), quadrature nodes and
collocation points are divided among its devices and everything else is on all of them.
Without one, nothing here does anything. Depends on nothing but JAX.
"""

import contextlib
import contextvars
import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec
from jaxtyping import Array

AXIS = "sdifp"

EVERYWHERE = PartitionSpec()


def mesh(devices: int | None = None) -> Mesh:
    """A mesh of so many devices, over which nodes and points are divided: set it with
    `jax.set_mesh` around what is to be computed.

    **Arguments:**

    - `devices`: how many, of all processes together; by default all that there are.

    Examples:
        >>> import jax, sdifp
        >>> key, box = jax.random.key(0), sdifp.Box.cube(8)
        >>> rule = sdifp.quadrature.sobol(box, 2**14, key=key)
        >>> with jax.set_mesh(sdifp.training.mesh()):
        ...     print(f"{rule.mean(lambda x: x[0]):.3f}")
        0.500
    """
    by_process: dict[int, list[jax.Device]] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    processes, there = len(by_process), jax.device_count()
    # Each process takes part with as many as the others.
    most = processes * min(map(len, by_process.values()))
    wanted = there if devices is None else devices
    if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer):
        raise TypeError(f"devices must be a whole number, got {wanted!r}")
    if not 1 <= wanted <= most or wanted % processes:
        kind = jax.devices()[0].platform
        each = f", a multiple of the {processes} processes" if processes > 1 else ""
        advice = ""
        if kind == "cpu" and wanted > there and processes == 1:
            flag = f"--xla_force_host_platform_device_count={wanted}"
            advice = f"; XLA_FLAGS={flag} makes as many of a CPU"
        raise ValueError(
            f"devices must be between 1 and the {most} that JAX sees ({kind}){each}, "
            f"got {wanted}{advice}"
        )
    share = wanted // processes
    chosen = [d for _, own in sorted(by_process.items()) for d in own[:share]]
    return Mesh(np.asarray(chosen), (AXIS,), axis_types=(AxisType.Auto,))


_DEVICE_LOCAL = contextvars.ContextVar("device_local", default=False)
_DIVIDED = contextvars.ContextVar("divided", default=False)


@contextlib.contextmanager
def _switched_on(flag: contextvars.ContextVar[bool]) -> Iterator[None]:
    before = flag.set(True)
    try:
        yield
    finally:
        flag.reset(before)


# Inside, each device computes by itself although it is one of several: for what is
# evaluated at the device's own points and may contain an integral.
device_local = functools.partial(_switched_on, _DEVICE_LOCAL)


def device_count() -> int:
    """How many devices share what is computed here."""
    here = jax.sharding.get_abstract_mesh()
    if AXIS not in here.axis_names or _DEVICE_LOCAL.get():
        return 1
    # One of a user's own `shard_map`: the others may compute something else.
    foreign = AXIS in here.manual_axes and not _DIVIDED.get()
    return 1 if foreign else here.shape[AXIS]


def is_divided() -> bool:
    """Whether this is traced for one device of several, which sees its part alone."""
    return device_count() > 1 and _DIVIDED.get()


def on_each(function: Callable[..., Any], *args: Any, specs: Any = EVERYWHERE) -> Any:
    """Call a function on each device, with its part of the arguments. The arrays that
    it returns must be the same on all of them.

    **Arguments:**

    - `args`: all traced arrays that the function needs: those that it closes over are
        not of the type of this device's own, and some operations refuse them.
    - `specs`: how they are divided; by default not at all.
    """
    if device_count() == 1 or is_divided():
        return function(*args)
    arrays, static = eqx.partition(args, eqx.is_array)

    @_switched_on(_DIVIDED)
    def of_one(*arrays: Any) -> Any:
        return function(*eqx.combine(arrays, static))

    # The types that check which values differ between devices do not know that a sum
    # in fixed order is the same on all.
    each = jax.shard_map(of_one, in_specs=specs, out_specs=EVERYWHERE, check_vma=False)
    return each(*arrays)


def along(axis: int) -> PartitionSpec:
    """Divided along one axis."""
    return PartitionSpec(*[None] * axis, AXIS)


def divided(array: Array, axis: int) -> Array:
    """The same array with a part of it on each device, from where it was made."""
    if device_count() == 1:
        return array
    return jax.lax.with_sharding_constraint(array, along(axis))


def gathered(array: Array, axis: int = 0) -> Array:
    """The parts of all devices, joined along an axis, on each."""
    if not is_divided():
        return array
    return jax.lax.all_gather(array, AXIS, axis=axis, tiled=True)


def summed(tree: Any) -> Any:
    """The sum over the devices, on each."""
    return jax.lax.psum(tree, AXIS) if is_divided() else tree


def averaged(tree: Any) -> Any:
    """The mean over the devices, on each."""
    return jax.lax.pmean(tree, AXIS) if is_divided() else tree


def share_of(count: int, least: int = 1) -> Array:
    """The numbers below `count` that are this device's; as many on each, `least` or
    more, so that on the last ones there may be numbers from `count` on."""
    if not is_divided():
        return jnp.arange(count)
    share = max(least, -(-count // device_count()))
    return jax.lax.axis_index(AXIS) * share + jnp.arange(share)


_COLLECTIVE = re.compile(
    r" = (.*?) (all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|"
    r"collective-permute|collective-broadcast)(-start)?\("
)
_ARRAY = re.compile(r"\b(?:pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")


def messages(program: str, devices: int) -> dict[str, int]:
    """What devices send each other in a compiled program: bytes of the arrays that each
    kind of operation joins, those inside a loop counted once.

    **Arguments:**

    - `program`: the text of the optimised HLO.
    """
    found: dict[str, int] = {}
    for shapes, kind, started in _COLLECTIVE.findall(program):
        arrays = _ARRAY.findall(shapes)
        if started and kind != "all-reduce":
            # Operands before results, and then some numbers of the library's own.
            arrays = [(bits, dims) for bits, dims in arrays if dims]
            arrays = arrays[len(arrays) // 2 :]
        size = sum(
            int(bits or 8) * math.prod(int(n) for n in dims.split(",") if n) // 8
            for bits, dims in arrays
        )
        # The result of a reduce-scatter is the part of one device.
        size *= devices if kind == "reduce-scatter" else 1
        found[kind] = found.get(kind, 0) + size
    return found
