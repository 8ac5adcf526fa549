"""The loop of a training: its state, windows and clock. Driven by `Training`, `Run` and
the studies."""

import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_count
from .._mesh import device_count
from ..field import as_field
from ..problems import Problem
from ..quadrature import QuadratureRule
from ._clock import Clock
from ._fit import check_devices, check_functions, check_network, points_at_each_time
from ._methods import SDIFP, Method
from ._metrics import TIMES, Metrics, independent_rule, measure
from ._networks import PiecewiseInTime
from ._objective import StepObjective
from ._recipe import Recipe
from ._recipes import recipe_for
from ._snapshot import from_arrays, to_arrays
from ._step import State, advance, points_of
from ._trained import Trained, TrainingDiverged
from ._window import Windows, with_net

# A loss that is so many times that of the first report of its window has no way back.
_DIVERGED = 1e4
_ADVICE = "Try a lower rate, Adam(clip=1.0), float64, or a smaller network"


class Loop:
    """A training under way, which can be advanced by any number of steps. For the
    arguments see `train`."""

    def __init__(
        self,
        problem: Problem,
        method: Method = SDIFP(),
        *,
        recipe: Recipe | None = None,
        network: Callable[..., Array] | None = None,
        every: int | None = None,
        check: bool = True,
        key: Array,
    ):
        recipe = recipe_for(problem) if recipe is None else recipe
        _check_precision(recipe)
        if every is None:
            every = max(1, recipe.steps * recipe.windows // 20)
        self.every = check_count("every", every)
        method.check(problem)
        recipe.points.check(problem.domain)
        self._points = points_at_each_time(recipe, problem)
        check_devices(self._points)
        # The method may have an estimator of its own: refuse it where a recipe would.
        recipe.replace(estimator=method.estimator or recipe.estimator)
        for_check, for_net, for_rule, self._key = jax.random.split(key, 4)
        if check:
            problem.check(for_check)
        self.problem, self.method, self.recipe = problem, method, recipe
        rule_key, self._measure_key = jax.random.split(for_rule)
        self._windows = Windows(
            problem,
            method,
            recipe,
            method.training_rule(problem, recipe.nodes, rule_key),
            method.training_rule(problem, recipe.final_nodes or recipe.nodes, rule_key),
        )
        if network is None:
            network = recipe.network.build(
                problem.domain, self.length, neumann=problem.neumann, key=for_net
            )
        check_network(network, problem)
        check_functions(network, problem)
        self.independent_rule = independent_rule(problem, self._measure_key)
        self._nets: list[Any] = []
        self._done: list[Any] = []
        self._clock = Clock()
        self.compile_seconds: float | None = None
        "that the first compilation of the step took; None before it"
        # Of this process alone, and without compilation.
        self._timed_steps, self._step_seconds = 0, 0.0
        self._loss = self._first_loss = float("nan")
        self._begin = network
        self.window = self._windows.first()
        # As it was at the last report.
        self.state = self._good = self._start(network)
        # Where it was compiled for.
        self._devices: int | None = None

    @property
    def length(self) -> float:
        """The duration of one window."""
        return self._windows.length

    @property
    def final_rule(self) -> QuadratureRule:
        """The rule of the method's integrals after the training."""
        return self._windows.final_rule

    @property
    def step(self) -> int:
        """Steps done, in all windows."""
        return self._number * self.recipe.steps + int(self.state.step)

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.recipe.windows * self.recipe.steps

    @property
    def seconds(self) -> float:
        """Wall time so far, as in `Metrics`."""
        return self._clock.seconds

    @property
    def until(self) -> float:
        """The end of the window in training: later times are not trained yet."""
        return (self._number + 1) * self.length

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step == self.steps

    @property
    def _number(self) -> int:
        """Of the window in training."""
        return min(len(self._done), self.recipe.windows - 1)

    def _start(self, net: Any) -> State:
        return State.start(self.method, self.problem, self.recipe, net)

    def check(self) -> None:
        """Raise `TrainingDiverged` if the field of the window in training, as it is
        now, does not meet its targets at one of nine times."""
        times = self.window.start + self.length * jnp.linspace(0.0, 1.0, TIMES)
        unmet = _why_unmet(with_net(self.window.final, self.state.net), times)
        if unmet:
            at = int(self.state.step)
            raise TrainingDiverged(f"{unmet}, after {at} steps", self.so_far())

    @property
    def field(self) -> Any:
        """What is trained in this window, as it is now."""
        return with_net(self.window.field, self.state.net)

    def _net_so_far(self) -> Any:
        """The raw network with its initial data, of all windows."""
        last = with_net(self.window.final, self.state.net).net
        windows = (*self._done, last)
        ends = tuple(k * self.length for k in range(1, len(windows)))
        return last if len(windows) == 1 else PiecewiseInTime(windows, ends)

    @property
    def final_field(self) -> Any:
        """What comes out of the training as it is now, on the rule of the end."""
        return self.method.trained_field(
            self.problem, self._net_so_far(), self.final_rule
        )

    def so_far(self, *, certified: bool = True) -> Trained:
        """The field as it is now, up to the end of the window in training, measured.

        **Arguments:**

        - `certified`: whether the certificate is computed.
        """
        net, field = self._net_so_far(), self.final_field
        end = (len(self._done) + 1) * self.length
        certificate = None
        if certified:
            key = jax.random.fold_in(self._measure_key, 1)
            certificate = as_field(field).certificate(np.linspace(0.0, end, 5), key=key)
        metrics = self.measure(field, jnp.linspace(0.0, end, TIMES))
        return Trained(field, net, self.state.net, certificate, metrics)

    @property
    def speed(self) -> float | None:
        """Steps per second, without compilation and measurements; None before the
        first step in this process."""
        if not self._step_seconds:
            return None
        return self._timed_steps / self._step_seconds

    def steps_within(self, seconds: float) -> int:
        """About how many steps take so long, one at the least."""
        if self.speed is None:
            return 1
        return max(1, min(self.steps, int(seconds * self.speed)))

    def go_on(self, most: int | None = None) -> Metrics | None:
        """Train until metrics are due and return them, or for `most` steps and return
        None. Where it is interrupted does not change any number."""
        if self.finished:
            return None
        with self._clock.running():
            return self._go_on(most)

    def _go_on(self, most: int | None) -> Metrics | None:
        if int(self.state.step) == self.recipe.steps:
            self.check()
            self._next_window()
        # The first report comes after the first step, so that a user need not wait to
        # see that it works; the others at the multiples of `every`.
        due = self.every - int(self.state.step) % self.every
        left = 1 if self.step == 0 else min(due, self._left)
        count = left if most is None else min(left, most)
        self.advance(count)
        if count < left:
            return None
        loss = float(self.state.total) / int(self.state.counted)
        if math.isnan(self._first_loss) and loss != 0.0:
            self._first_loss = abs(loss)
        elif abs(loss) > _DIVERGED * self._first_loss:
            at, self.state = self.step, self._good
            raise TrainingDiverged(
                f"the loss has grown from {self._first_loss:.1e} to {loss:.1e} "
                f"by step {at}; the state of step {self.step} is kept. {_ADVICE}",
                self.so_far(),
            )
        self._loss = loss
        self.state = self._good = self.state.reported()
        times = self.window.start + self.length * jnp.linspace(0.0, 1.0, TIMES)
        return self.measure(with_net(self.window.final, self.state.net), times)

    @property
    def _left(self) -> int:
        """Steps that the window in training has left."""
        return self.recipe.steps - int(self.state.step)

    def advance(self, count: int) -> None:
        """Take `count` steps, or as many as the window in training has left."""
        with self._clock.running():
            self._advance(min(count, self._left))

    def _advance(self, count: int) -> None:
        check_devices(self._points)
        if self._devices is None:
            began = time.perf_counter()
            jax.block_until_ready(advance(*self._arguments(0)))
            self.compile_seconds = time.perf_counter() - began
            self._devices = device_count()
        elif self._devices != device_count():
            raise ValueError(
                f"the training was begun on {self._devices} devices and cannot go on "
                f"on {device_count()}: restore its snapshot() in one that begins there"
            )
        began = time.perf_counter()
        self.state, good = advance(*self._arguments(count))
        healthy = bool(good)
        self._step_seconds += time.perf_counter() - began
        self._timed_steps += count
        if not healthy:
            unmet = self._unmet()
            raise TrainingDiverged(
                f"{unmet}; the state of step {self.step} is kept"
                if unmet
                else f"the loss or a parameter was not finite at step {self.step + 1}; "
                f"the state before it is kept. {_ADVICE}",
                self.so_far(),
            )

    def _unmet(self) -> str | None:
        """Why the next step cannot meet its targets, if it is that which fails."""
        key = jax.random.fold_in(self._key, len(self._done))
        state, window = self.state, self.window
        x, t, for_step = points_of(self.problem, self.recipe, window, state.step, key)
        objective = StepObjective(
            *(window, x, t, state.multipliers, for_step),
            *(self.problem, self.method, self.recipe),
        )
        return _why_unmet(objective.field(state.net), t)

    def program(self) -> Any:
        """The compiled step."""
        lowered = advance.lower(*self._arguments(1))  # type: ignore[attr-defined]
        return lowered.compile().compiled

    def _arguments(self, count: int) -> tuple[Any, ...]:
        return (
            self.problem,
            self.method,
            self.recipe,
            self.window,
            self.state,
            jax.random.fold_in(self._key, len(self._done)),
            jnp.asarray(count, int),
        )

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that a training of the same problem, method, recipe and key needs to go
        on from here, see `restore`."""
        known = [self.seconds, self._loss, self._first_loss]
        return to_arrays(
            {"windows": self._nets, "state": self.state, "known": np.asarray(known)}
        )

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from where a snapshot was taken; the numbers are those of a training
        that was never interrupted, to the last bit."""
        windows = 1 + max(
            (int(name.split("/")[1]) for name in arrays if name.startswith("windows/")),
            default=-1,
        )
        template = {
            "windows": [self._begin] * windows,
            "state": self._start(self._begin),
            "known": np.zeros(3),
        }
        found = from_arrays(template, arrays)
        self._nets, self._done = [], []
        self.window = self._windows.first()
        for net in found["windows"]:
            self.state = eqx.tree_at(lambda s: s.net, self.state, net)
            self._next_window()
        self.state = self._good = found["state"]
        seconds, self._loss, self._first_loss = found["known"].tolist()
        self._clock.set(seconds)

    def measure(self, field: Any, times: Array) -> Metrics:
        """The metrics of a function of x and t, the worst over some times."""
        found = measure(self.problem, field, self.independent_rule, times)
        names = [invariant.name for invariant in self.problem.invariants]
        errors = dict(zip(names, np.asarray(found.errors).tolist(), strict=True))
        scale = found.scale
        return Metrics(
            step=self.step,
            steps=self.steps,
            seconds=self.seconds,
            loss=self._loss,
            errors=errors,
            l2_error=None if found.l2_error is None else float(found.l2_error),
            scale=None if scale is None else (float(scale[0]), float(scale[1])),
            window=self._number,
        )

    def _next_window(self) -> None:
        """Keep the network of this window, and begin the next one with its end."""
        net = self.state.net
        self._nets.append(net)
        self._done.append(with_net(self.window.field, net).net)
        self.window = self._windows.after(self.window, net, len(self._done))
        self.state = self._good = self._start(net)
        self._first_loss = float("nan")


def _why_unmet(field: Any, times: Array) -> str | None:
    """Why a field does not meet its targets at one of some times, if so."""
    try:
        as_field(field).check(np.asarray(times))
    except ValueError as error:
        return str(error)
    return None


def _check_precision(recipe: Recipe) -> None:
    if recipe.optimiser.uses_rows and jnp.result_type(float) != jnp.float64:
        name = type(recipe.optimiser).__name__
        warnings.warn(
            f"{name} needs float64 to converge, and JAX is at float32: call "
            f'jax.config.update("jax_enable_x64", True) first, or give a recipe with '
            f"another optimiser, as "
            f"recipe_for(problem).replace(optimiser=Adam(), steps=5000)",
            stacklevel=4,
        )
