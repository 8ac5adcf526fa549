"""How an operator would be evaluated on a field, and what that costs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from ._apply import Applied, batch_of
from ._operator import Operator
from ._paths import Path, Step


class Plan(eqx.Module):
    """How an operator is evaluated on a field at many points."""

    steps: tuple[Step, ...] = eqx.field(static=True)
    "for each bundle of directions: path, order, directions, primitives without a rule"
    points: int = eqx.field(static=True)
    chunk: int = eqx.field(static=True)
    "points evaluated at a time"
    memory: int = eqx.field(static=True)
    "bytes of temporaries of the values"
    gradient_memory: int | None = eqx.field(static=True)
    "bytes of temporaries of their gradient by the parameters; None without parameters"

    def __str__(self) -> str:
        lines = [
            f"{s.path}: {s.directions} direction{'s' * (s.directions != 1)} of order "
            f"{s.order}"
            + (f"; nested jvp through {', '.join(s.fallbacks)}" if s.fallbacks else "")
            for s in self.steps
        ] or ["no derivatives"]
        memory = f"temporaries: {_bytes(self.memory)}"
        if self.gradient_memory is not None:
            memory += f", with gradient {_bytes(self.gradient_memory)}"
        return "\n".join(
            [*lines, f"{self.points} points, {self.chunk} at a time", memory]
        )


def _bytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def make_plan(
    operator: Operator,
    u: Any,
    x: ArrayLike,
    t: ArrayLike | None,
    path: Path,
    chunk: int | None,
) -> Plan:
    """See `Operator.plan`."""
    applied = Applied(operator, u, path, chunk)
    batch, shape = batch_of(u, x, t)
    points = batch.points.shape[0]
    size = min(points, applied.chunk_for(batch)) if shape else 1
    params, static = eqx.partition(u, eqx.is_inexact_array)

    def values(params: Any, x: Array, t: Array | None) -> Array:
        return jnp.sum(
            Applied(operator, eqx.combine(params, static), path, chunk)(x, t)
        )

    def memory(function: Any) -> int:
        given = None if t is None else jnp.asarray(t, float)
        done = jax.jit(function).lower(params, jnp.asarray(x), given).compile()
        analysis: Any = done.memory_analysis()
        return int(analysis.temp_size_in_bytes)

    gradient = memory(jax.grad(values)) if jax.tree.leaves(params) else None
    return Plan(applied.steps(batch), points, size, memory(values), gradient)
