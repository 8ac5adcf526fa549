"""Optimisers that need the gradient of the loss, from Optax."""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ..._checks import check_count, check_positive
from ._optimiser import Objective, Optimiser


@dataclasses.dataclass(frozen=True)
class Decay(abc.ABC):
    """How the rate falls over a run."""

    @abc.abstractmethod
    def schedule(self, rate: float, steps: int) -> optax.Schedule:
        """The rate at each step, beginning with `rate`."""


@dataclasses.dataclass(frozen=True)
class Constant(Decay):
    """The same rate always."""

    def schedule(self, rate: float, steps: int) -> optax.Schedule:
        return optax.constant_schedule(rate)


@dataclasses.dataclass(frozen=True)
class Linear(Decay):
    """Linear to zero, as in the paper."""

    def schedule(self, rate: float, steps: int) -> optax.Schedule:
        return optax.linear_schedule(rate, 0.0, steps)


@dataclasses.dataclass(frozen=True)
class Cosine(Decay):
    """Half a cosine to zero.

    **Arguments:**

    - `warmup`: the part of the run in which the rate first grows from zero.
    """

    warmup: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.warmup < 1.0:
            raise ValueError(
                f"warmup must be a part of the run, at least 0 and below 1, got "
                f"{self.warmup}"
            )

    def schedule(self, rate: float, steps: int) -> optax.Schedule:
        if self.warmup == 0.0:
            return optax.cosine_decay_schedule(rate, steps)
        # At least one step of each kind, however short the run is.
        steps = max(steps, 2)
        first = min(max(1, round(self.warmup * steps)), steps - 1)
        return optax.warmup_cosine_decay_schedule(0.0, rate, first, steps)


class _Gradient(Optimiser):
    """Follows the gradient by a transformation of Optax."""

    uses_rows = False

    @abc.abstractmethod
    def transformation(self, steps: int) -> optax.GradientTransformation:
        """What makes a step of a gradient."""

    def start(self, net: Any, steps: int) -> Any:
        return self.transformation(steps).init(eqx.filter(net, eqx.is_inexact_array))

    def step(
        self, net: Any, state: Any, objective: Objective, steps: int
    ) -> tuple[Any, Any, Array]:
        params, static = eqx.partition(net, eqx.is_inexact_array)
        loss_of = lambda params: objective.loss(eqx.combine(params, static))
        # Not the value that a line search left behind: the batch may be another.
        loss, gradient = jax.value_and_grad(loss_of)(params)
        # Those without a line search ignore what it needs.
        rule = optax.with_extra_args_support(self.transformation(steps))
        updates, state = rule.update(
            gradient, state, params, value=loss, grad=gradient, value_fn=loss_of
        )
        return eqx.apply_updates(net, updates), state, loss


class Adam(_Gradient):
    """Adam, with a learning rate that decays.

    **Arguments:**

    - `rate`: the learning rate at the beginning.
    - `decay`: how it falls: `Linear()`, `Cosine(warmup)`, `Constant()`.
    - `clip`: the largest norm of the gradient; longer ones are cut to it.
    """

    rate: float = eqx.field(static=True, default=1e-3)
    decay: Decay = eqx.field(static=True, default=Linear())
    clip: float | None = eqx.field(static=True, default=None)

    refresh = 1

    def __check_init__(self) -> None:
        check_positive("rate", self.rate)
        if self.clip is not None:
            check_positive("clip", self.clip)

    def transformation(self, steps: int) -> optax.GradientTransformation:
        schedule = self.decay.schedule(self.rate, steps)
        # Of a whole number it would be in float32, in double precision, too.
        adam = optax.adam(lambda count: schedule(jnp.asarray(count, float)))
        if self.clip is None:
            return adam
        return optax.chain(optax.clip_by_global_norm(self.clip), adam)


class Optax(_Gradient):
    """Any transformation of Optax, with its own schedule.

    Examples:
        >>> import optax, sdifp
        >>> rule = optax.chain(optax.clip(1.0), optax.lion(1e-4))
        >>> optimiser = sdifp.training.Optax(rule)
    """

    given: optax.GradientTransformation = eqx.field(static=True)

    refresh = 1

    def transformation(self, steps: int) -> optax.GradientTransformation:
        return self.given


class LBFGS(_Gradient):
    """L-BFGS with a line search, on batches that stay the same for a while.

    **Arguments:**

    - `memory`: how many past steps the curvature is estimated from.
    - `refresh`: how many steps share one batch of points. The memory is kept when the
        batch changes.
    - `trials`: the most evaluations of one line search.
    """

    memory: int = eqx.field(static=True, default=20)
    refresh: int = eqx.field(static=True, default=100)
    trials: int = eqx.field(static=True, default=20)

    def __check_init__(self) -> None:
        for name in ("memory", "refresh", "trials"):
            check_count(name, getattr(self, name))

    def transformation(self, steps: int) -> optax.GradientTransformation:
        # From a full step, which is right near a minimum; the last one's length is not.
        search = optax.scale_by_zoom_linesearch(
            max_linesearch_steps=self.trials, initial_guess_strategy="one"
        )
        return optax.lbfgs(memory_size=self.memory, linesearch=search)
