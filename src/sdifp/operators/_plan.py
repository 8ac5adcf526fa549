"""How an operator would be evaluated on a field, and what that costs."""

import equinox as eqx

from ..taylor import Step


class Plan(eqx.Module):
    """How an operator is evaluated on a field at many points."""

    steps: tuple[Step, ...] = eqx.field(static=True)
    "for each set of directions: path, order, directions, primitives without a rule"
    points: int = eqx.field(static=True)
    chunk: int = eqx.field(static=True)
    "points evaluated at a time"
    memory: int = eqx.field(static=True)
    "bytes of temporaries of the values"
    gradient_memory: int | None = eqx.field(static=True)
    "the same for the gradient with respect to the parameters, if there are any"

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
