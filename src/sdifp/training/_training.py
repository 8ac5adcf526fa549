"""A training under way: its state, windows and clock."""

import dataclasses
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_count
from .._mesh import device_count, messages
from ..estimators import WarmUp
from ..field import as_field
from ..problems import Problem
from ._energy import EnergyObjective
from ._lower_bound import why_lost
from ._methods import SDIFP, Method
from ._metrics import (
    TIMES,
    Metrics,
    Trained,
    TrainingDiverged,
    drift_over,
    independent_rule,
    interpolation_error,
    measure,
    value_of_functional,
)
from ._networks import PiecewiseInTime
from ._notes import (
    interpolation_note,
    warn_of_interpolation,
    warn_of_precision,
    why_unmet,
)
from ._points import check_devices
from ._recipe import Recipe, recipe_for
from ._step import State, advance, from_arrays, is_due, objective_of, to_arrays
from ._weights import measured_weights
from ._window import Window, begin_window, check_functions, with_net

# A loss that is so many times that of the first report of its window has no way back.
_DIVERGED = 1e4
# A functional that is so many times that below zero is looked at more closely.
_FALLEN = 10.0
_ADVICE = "Try a lower rate, Adam(clip=1.0), float64, or a smaller network"


class Training:
    """A training under way; made by `train`, whose arguments it takes.

    Iterate over it for metrics, call `result()` to run to the end.
    """

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
        warn_of_precision(recipe)
        if every is None:
            every = max(1, recipe.steps * recipe.windows // 20)
        self.every = check_count("every", every)
        method.check(problem)
        recipe.points.check(problem.domain)
        steady = problem.is_steady
        # Every device has all nodes of a functional.
        self._points: int | None = None
        if problem.functional is None:
            self._points = recipe.points.at_each_time(problem.domain, steady)
            check_devices(self._points, steady)
        # The method may have an estimator of its own: refuse it where a recipe would.
        estimator = method.estimator or recipe.estimator
        recipe.replace(estimator=estimator).check(problem)
        for_check, for_net, for_rule, self._key = jax.random.split(key, 4)
        if check:
            problem.check(for_check)
        self.problem, self.method, self.recipe = problem, method, recipe
        self.length = None if steady else problem.duration / recipe.windows
        "the duration of one window; None without time"
        rule_key, self._measure_key = jax.random.split(for_rule)
        final_nodes = recipe.final_nodes or recipe.nodes
        self._rule = method.training_rule(problem, recipe.nodes, rule_key)
        self.final_rule = method.training_rule(problem, final_nodes, rule_key)
        "the rule of the method's integrals after the training"
        if network is None:
            network = recipe.network.build(
                problem.domain,
                self.length,
                neumann=problem.neumann,
                components=problem.shape[0] if problem.shape else None,
                key=for_net,
            )
        check_functions(network, problem)
        self.independent_rule = independent_rule(problem, self._measure_key)
        self._nets: list[Any] = []
        self._done: list[Any] = []
        self._before = 0.0
        self._since: float | None = None
        self.compile_seconds: float | None = None
        "The time that the first compilation of the step took; None before it."
        # Of this process alone, and without compilation.
        self._timed_steps, self._step_seconds = 0, 0.0
        self._loss = self._first_loss = float("nan")
        self._begin = network
        self.weights: Array | None = None
        "Of the squares of the residuals of a system in the loss; None without any."
        self.window = self._window()
        warn_of_interpolation(self.window)
        # As it was at the last report.
        self.state = self._good = State.start(self.window, network)
        self.weights = measured_weights(self.window, self.state, self._key)
        if self.weights is not None:
            self.window = dataclasses.replace(self.window, weights=self.weights)
        # Where it was compiled for.
        self._devices: int | None = None
        self._result: Trained | None = None

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
        running = 0.0 if self._since is None else time.perf_counter() - self._since
        return self._before + running

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the wall time of what happens inside."""
        self._since = time.perf_counter()
        try:
            yield
        finally:
            self._before, self._since = self.seconds, None

    @property
    def speed(self) -> float | None:
        """Steps per second, without compilation and measurements; None before the
        first step in this process."""
        if not self._step_seconds:
            return None
        return self._timed_steps / self._step_seconds

    @property
    def until(self) -> float | None:
        """The end of the window in training: later times are not trained yet. None
        without time."""
        return None if self.length is None else (self._number + 1) * self.length

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step == self.steps

    @property
    def field(self) -> Any:
        """What is trained in this window, as it is now."""
        return with_net(self.window.field, self.state.net)

    @property
    def final_field(self) -> Any:
        """What comes out of the training as it is now, on the rule of the end."""
        net = self._net_so_far()
        return self.method.trained_field(self.problem, net, self.final_rule)

    def __iter__(self) -> Generator[Metrics, None, Trained]:
        """Train, with metrics every so many steps."""
        while not self.finished:
            found = self.go_on()
            if found is not None:
                yield found
        return self.result()

    def result(self) -> Trained:
        """Train to the end."""
        while not self.finished:
            self.go_on()
        if self._result is None:
            self.check()
            self._result = self.so_far()
        return self._result

    def go_on(self, most: int | None = None) -> Metrics | None:
        """Train until metrics are due and return them, or for `most` steps and return
        None. Where it is interrupted does not change any number."""
        if self.finished:
            return None
        with self._timed():
            if not self._left:
                self.check()
                self._next_window()
            # The first report comes after the first step, so that a user need not wait
            # to see that it works; the others at the multiples of `every`.
            due = self.every - int(self.state.step) % self.every
            left = 1 if self.step == 0 else min(due, self._left)
            count = left if most is None else min(left, most)
            self._advance(count)
            return self._report() if count == left else None

    def _report(self) -> Metrics:
        loss = float(self.state.total) / int(self.state.counted)
        if self.problem.functional is not None and loss < 0.0:
            self._check_fall(loss)
        elif abs(loss) > _DIVERGED * self._first_loss:
            grown = f"the loss has grown from {self._first_loss:.1e} to {loss:.1e}"
            self._give_up(grown, _ADVICE)
        self._loss = loss
        self.state = self.state.reported()
        estimator = self.window.estimator
        undecided = not bool(self.state.switched)
        if isinstance(estimator, WarmUp) and estimator.steps is None and undecided:
            late = is_due(*self._arguments(1)[:-1])
            self.state = eqx.tree_at(lambda s: s.switched, self.state, late)
        self._good = self.state
        found = self.measure(*self._final_and_times())
        if math.isnan(self._first_loss):
            # A functional may begin near zero, and not be there after a step.
            sizes = [abs(v) for v in (loss, *found.functional.values())]
            self._first_loss = max(filter(math.isfinite, sizes)) or math.nan
        return dataclasses.replace(found, interpolation=self._interpolation())

    def _check_fall(self, loss: float) -> None:
        """Give up a functional that falls and has no lower bound."""
        if not loss < -_FALLEN * self._first_loss:
            return
        objective = objective_of(*self._arguments(1)[:-1])
        assert isinstance(objective, EnergyObjective)
        why = why_lost(objective, self.state.net)
        if why is None and loss < -(_DIVERGED**2) * self._first_loss:
            why = f"{objective.functional.name} seems to have no lower bound"
        if why is not None:
            self._give_up(f"the loss has fallen to {loss:.1e}", f"{why}.")

    def _give_up(self, what: str, why: str) -> NoReturn:
        """Raise, with the state of the last report."""
        at, self.state = self.step, self._good
        kept = f"the state of step {self.step} is kept"
        raise TrainingDiverged(f"{what} by step {at}; {kept}. {why}", self.so_far())

    def _interpolation(self) -> float | None:
        """As in `Metrics`."""
        window = self.window
        if window.start is None or window.length is None:
            return None
        error = interpolation_error(
            self.problem, self.field, window.start, window.length
        )
        return None if error is None else float(error)

    def _final_and_times(self) -> tuple[Any, Array | None]:
        """What comes out of the window in training, and nine times of it."""
        final = with_net(self.window.final, self.state.net)
        if self.window.start is None or self.length is None:
            return final, None
        times = self.window.start + self.length * jnp.linspace(0.0, 1.0, TIMES)
        return final, times

    def steps_within(self, seconds: float) -> int:
        """About how many steps take so long, one at the least."""
        if self.speed is None:
            return 1
        return max(1, min(self.steps, int(seconds * self.speed)))

    def advance(self, count: int) -> None:
        """Take `count` steps, or as many as the window in training has left."""
        with self._timed():
            self._advance(min(count, self._left))

    @property
    def _left(self) -> int:
        """Steps that the window in training has left."""
        return self.recipe.steps - int(self.state.step)

    def _advance(self, count: int) -> None:
        if self._points is not None:
            check_devices(self._points, self.problem.is_steady)
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
            # Why the next step cannot meet its targets, if it is that which fails.
            objective = objective_of(*self._arguments(1)[:-1]).renewed(self.state.net)
            times = getattr(objective, "t", None)
            why = why_unmet(objective.field(self.state.net), times)
            if why is None and isinstance(objective, EnergyObjective):
                why = why_lost(objective, self.state.net)
            raise TrainingDiverged(
                f"{why}; the state of step {self.step} is kept"
                if why
                else f"the loss or a parameter was not finite at step {self.step + 1}; "
                f"the state before it is kept. {_ADVICE}",
                self.so_far(),
            )

    def _arguments(self, count: int) -> tuple[Window, State, Array, Array]:
        """Those of `advance`."""
        key = jax.random.fold_in(self._key, len(self._done))
        return self.window, self.state, key, jnp.asarray(count, int)

    def check(self) -> None:
        """Raise `TrainingDiverged` if the field of the window in training, as it is
        now, does not meet its targets at one of nine times."""
        unmet = why_unmet(*self._final_and_times())
        if unmet:
            at = int(self.state.step)
            raise TrainingDiverged(f"{unmet}, after {at} steps", self.so_far())

    def so_far(self, count: int = 5, key: Array | None = None) -> Trained:
        """The field as it is now, up to the end of the window in training, measured,
        with a certificate at `count` times."""
        field, end = self.final_field, self.until
        key = jax.random.fold_in(self._measure_key, 1) if key is None else key
        few = None if end is None else np.linspace(0.0, end, count)
        found = as_field(field).certificate(few, key=key)
        many = None if end is None else jnp.linspace(0.0, end, TIMES)
        metrics = self.measure(field, many)
        error = self._interpolation()
        if found is not None and error is not None:
            metrics = dataclasses.replace(metrics, interpolation=error)
            note = interpolation_note(self.field.gradient.times, error)
            found = dataclasses.replace(found, training=note)
        value = value_of_functional(self.problem, field, jax.random.fold_in(key, 1))
        net = self._net_so_far()
        return Trained(field, net, self.state.net, found, metrics, value)

    def measure(
        self, field: Callable[..., Array], times: Array | None = None
    ) -> Metrics:
        """The metrics of any function of x and t, measured as those of the result are:
        of the same network without its correction, for one. By default at nine times
        of the whole duration."""
        if times is None and not self.problem.is_steady:
            times = jnp.linspace(0.0, self.problem.duration, TIMES)
        errors, measured, l2, ranges, value = measure(
            self.problem, field, self.independent_rule, times
        )
        functional = self.problem.functional
        scale, shift = (
            None if pair is None else (float(pair[0]), float(pair[1]))
            for pair in ranges
        )
        names = [invariant.name for invariant in self.problem.prescribed]
        joint, each = (None, ()) if l2 is None else l2
        own = zip(self.problem.components, each, strict=False)
        found = zip(self.problem.measured, measured, strict=True)
        return Metrics(
            step=self.step,
            steps=self.steps,
            seconds=self.seconds,
            loss=self._loss,
            errors=dict(zip(names, np.asarray(errors).tolist(), strict=True)),
            l2_error=None if joint is None else float(joint),
            scale=scale,
            shift=shift,
            window=self._number,
            measured={one.name: drift_over(own) for one, own in found},
            functional={} if functional is None else {functional.name: float(value)},
            l2_errors={name: float(e) for name, e in own if math.isfinite(e)},
        )

    def memory(self) -> int:
        """Bytes of temporaries of the compiled step, on each device."""
        return int(self._program().memory_analysis().temp_size_in_bytes)

    def messages(self) -> dict[str, int]:
        """Bytes that devices exchange in a step, for each kind of message, from the
        compiled program; what a line search or the trials of a step repeat is counted
        once. Empty on one device."""
        return messages(self._program().as_text(), device_count())

    def _program(self) -> Any:
        lowered = advance.lower(*self._arguments(1))  # type: ignore[attr-defined]
        return lowered.compile().compiled

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
        numbers = [int(n.split("/")[1]) for n in arrays if n.startswith("windows/")]
        template = {
            "windows": [self._begin] * (1 + max(numbers, default=-1)),
            "state": State.start(self.window, self._begin),
            "known": np.zeros(3),
        }
        found = from_arrays(template, arrays)
        self._nets, self._done = [], []
        self.window = self._window()
        for net in found["windows"]:
            self.state = eqx.tree_at(lambda s: s.net, self.state, net)
            self._next_window()
        self.state = self._good = found["state"]
        self._before, self._loss, self._first_loss = found["known"].tolist()
        self._result = None

    @property
    def _number(self) -> int:
        """Of the window in training."""
        return min(len(self._done), self.recipe.windows - 1)

    def _window(self, before: Any = None) -> Window:
        """The first window, or the one after the field of the one before."""
        number, rules = len(self._done), (self._rule, self.final_rule)
        given = (self.problem, self.method, self.recipe)
        return begin_window(*given, *rules, number, before, self.weights)

    def _next_window(self) -> None:
        """Keep the network of this window, and begin the next one with its end."""
        field = self.field
        self._nets.append(self.state.net)
        self._done.append(field.net)
        self.window = self._window(field)
        self.state = self._good = State.start(self.window, self.state.net)
        self._first_loss = float("nan")

    def _net_so_far(self) -> Any:
        """The raw network with its initial data, of all windows."""
        last = with_net(self.window.final, self.state.net).net
        windows = (*self._done, last)
        if self.length is None or len(windows) == 1:
            return last
        ends = tuple(k * self.length for k in range(1, len(windows)))
        return PiecewiseInTime(windows, ends)
