"""train: a problem, a method and a recipe, to a field with prescribed integrals."""

import dataclasses
import time
from collections.abc import Callable, Generator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._checks import check_count
from .._field import Certificate, ConservedField
from .._methods import SDIFP, Method
from .._networks import Ansatz, InTurn, Series
from ..problems import Problem, Recipe
from ._metrics import TIMES, Metrics, independent_rule, measure
from ._objective import StepObjective, Window, with_net

# Points of the series that hold the initial data of later windows in one dimension.
_SERIES = 512


class TrainingDiverged(ArithmeticError):
    """The loss is no longer finite. `trained` is the last good state."""

    def __init__(self, message: str, trained: "Trained"):
        super().__init__(message)
        self.trained = trained


class State(eqx.Module):
    """All that changes from step to step."""

    net: Any
    optimiser: Any
    multipliers: Float[Array, "n_t n"]
    step: Int[Array, ""]
    "in this window"


@dataclasses.dataclass(frozen=True)
class Trained:
    """What comes out of a training."""

    field: Any
    "a function of one point and one time; a `ConservedField` where integrals hold"
    net: Any
    "the raw network with its initial data, before any correction"
    parameters: Any
    "the network alone, of the last window: begin another training from it"
    certificate: Certificate | None
    "what holds of the integrals; None for methods that correct nothing"
    metrics: Metrics
    "of the whole duration"


class Training:
    """A training that is under way; made by `train`.

    Iterate over it for metrics, call `result()` to run to the end.
    """

    def __init__(
        self,
        problem: Problem,
        method: Method,
        recipe: Recipe,
        key: Array,
        network: Callable[..., Array] | None,
        every: int,
        check: bool,
    ):
        method.check(problem)
        recipe.points.check(problem.box)
        # The method may have an estimator of its own: refuse it where a recipe would.
        recipe.but(estimator=method.estimator(recipe))
        for_check, for_net, for_rule, self._key = jax.random.split(key, 4)
        if check:
            problem.check(for_check)
        self.problem, self.method, self.recipe = problem, method, recipe
        self.every = every
        self.length = problem.duration / recipe.windows
        if network is None:
            network = recipe.network.build(
                problem.box, self.length, neumann=problem.neumann, key=for_net
            )
        _check_network(network, problem)
        self._rule_key, self._measure_key = jax.random.split(for_rule)
        self._rule = method.rule(problem, recipe.nodes, self._rule_key)
        self._final_rule = method.rule(
            problem, recipe.final_nodes or recipe.nodes, self._rule_key
        )
        self._independent = independent_rule(problem, self._measure_key)
        self._done: list[Any] = []
        self.seconds = 0.0
        self._result: Trained | None = None
        self._metrics: list[Metrics] = []
        self.window = self._window(problem.initial, problem.velocity, 0)
        self.state = self._start(network)
        self._compiled = False

    def _start(self, net: Any) -> State:
        multipliers = self.method.multipliers(self.problem)
        tiled = jnp.tile(multipliers[None], (self.recipe.points.n_t, 1))
        optimiser = self.recipe.optimiser.start(net, self.recipe.steps)
        return State(net, optimiser, tiled, jnp.zeros((), int))

    def _window(self, initial: Any, velocity: Any, number: int) -> Window:
        """The stretch of time that begins with some data."""
        problem, recipe = self.problem, self.recipe
        start = jnp.asarray(number * self.length, float)
        box = problem.box
        smooth = box.dimension == 1 and (box.periodic[0] or np.all(problem.neumann))
        if recipe.windows > 1 and smooth:
            # Every window then has data of one kind, and one program serves them all.
            initial, velocity = (
                None if f is None else Series.fit(f, box, _SERIES)
                for f in (initial, velocity)
            )
        # The network itself is put in at each step: any function stands in for it here.
        ansatz = Ansatz(
            _zero,
            initial if recipe.hard_initial else None,
            velocity if recipe.hard_initial else None,
            start,
            self.length,
            problem.profile,
        )
        return Window(
            self.method.field(problem, ansatz, self._rule, recipe),
            self.method.finish(problem, ansatz, self._final_rule),
            self._rule,
            initial,
            velocity,
            start,
        )

    def __iter__(self) -> Generator[Metrics, None, Trained]:
        """Train, with metrics every so many steps."""
        steps = self.recipe.steps
        while len(self._done) < self.recipe.windows:
            while int(self.state.step) < steps:
                loss = self.advance(self.every)
                self._metrics.append(self._measure(loss))
                yield self._metrics[-1]
            self._close_window()
        return self.result()

    def result(self) -> Trained:
        """Train to the end."""
        if self._result is None:
            while len(self._done) < self.recipe.windows:
                for _ in self:
                    pass
        # The loop asks for the result itself when it comes to its end.
        if self._result is None:
            self._result = self._finish()
        return self._result

    def advance(self, count: int) -> float:
        """Take `count` steps, or as many as the window in training has left; returns
        their mean loss."""
        count = min(count, self.recipe.steps - int(self.state.step))
        if not self._compiled:
            _advance(*self._arguments(0))
            self._compiled = True
        before, began = int(self.state.step), time.perf_counter()
        self.state, summed, healthy = _advance(*self._arguments(count))
        total = float(summed)
        self.seconds += time.perf_counter() - began
        if not healthy:
            at = len(self._done) * self.recipe.steps + int(self.state.step)
            raise TrainingDiverged(
                f"the loss or a parameter was not finite at step {at + 1}; the state "
                f"before it is kept. Try a lower rate, Adam(clip=1.0), float64, or a "
                f"smaller network",
                self._finish(),
            )
        return total / max(1, int(self.state.step) - before)

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

    def memory(self) -> int:
        """Bytes of temporaries of the compiled step."""
        lowered = _advance.lower(*self._arguments(1))  # type: ignore[attr-defined]
        return int(lowered.compile().compiled.memory_analysis().temp_size_in_bytes)

    def measure(self, field: Callable[..., Array]) -> Metrics:
        """The metrics of any function of x and t, measured as those of the result are:
        of the same network without its correction, for one."""
        times = jnp.linspace(0.0, self.problem.duration, TIMES)
        return self._metrics_of(field, times, self._loss)

    @property
    def _loss(self) -> float:
        return self._metrics[-1].loss if self._metrics else float("nan")

    def _measure(self, loss: float) -> Metrics:
        """The metrics of the window in training."""
        times = self.window.start + self.length * jnp.linspace(0.0, 1.0, TIMES)
        field = with_net(self.window.final, self.state.net)
        return self._metrics_of(field, times, loss)

    def _metrics_of(self, field: Any, times: Array, loss: float) -> Metrics:
        found = measure(self.problem, field, self._independent, times)
        errors = iter(np.asarray(found.errors).tolist())
        mass, energy = (
            None if target is None else next(errors)
            for target in (self.problem.mass, self.problem.energy)
        )
        scale = found.scale
        steps, done = self.recipe.steps, len(self._done)
        return Metrics(
            step=min(done, self.recipe.windows - 1) * steps + int(self.state.step),
            steps=self.recipe.windows * steps,
            seconds=self.seconds,
            loss=loss,
            mass_error=mass,
            energy_error=energy,
            l2_error=None if found.l2_error is None else float(found.l2_error),
            scale=None if scale is None else (float(scale[0]), float(scale[1])),
            window=min(done, self.recipe.windows - 1),
        )

    def _close_window(self) -> None:
        """Keep the network of this window, and begin the next one with the end of the
        field that was trained: one that is corrected afterwards goes on uncorrected."""
        field = with_net(self.window.field, self.state.net)
        self._done.append(_raw(field))
        if len(self._done) == self.recipe.windows:
            return
        end = jnp.asarray(len(self._done) * self.length, float)
        initial: Any = (
            field.at(end) if isinstance(field, ConservedField) else _At(field, end)
        )
        velocity = None
        if self.problem.velocity is not None:
            velocity = _Rate(field, end)
        self.window = self._window(initial, velocity, len(self._done))
        self.state = self._start(self.state.net)

    def _finish(self) -> Trained:
        """The field of the whole duration, measured."""
        windows = list(self._done)
        if len(windows) < self.recipe.windows:
            # Stopped in the middle: the window in training is the last one.
            windows.append(_raw(with_net(self.window.final, self.state.net)))
        ends = tuple(k * self.length for k in range(1, len(windows)))
        net = windows[0] if len(windows) == 1 else InTurn(tuple(windows), ends)
        field = self.method.finish(self.problem, net, self._final_rule)
        last = len(windows) * self.length
        times = jnp.linspace(0.0, last, TIMES)
        certificate = None
        if isinstance(field, ConservedField):
            key = jax.random.fold_in(self._measure_key, 1)
            certificate = field.certificate(np.linspace(0.0, last, 5), key=key)
        metrics = self._metrics_of(field, times, self._loss)
        return Trained(field, net, self.state.net, certificate, metrics)


class _At(eqx.Module):
    """A function of x and t at one time."""

    function: Any
    time: Array

    def __call__(self, x: Array) -> Array:
        return self.function(x, self.time)


class _Rate(eqx.Module):
    """The derivative by t of a function of x and t at one time."""

    function: Any
    time: Array

    def __call__(self, x: Array) -> Array:
        at = lambda t: self.function(x, t)
        return jax.jvp(at, (self.time,), (jnp.ones_like(self.time),))[1]


def _zero(x: Array, t: Array) -> Array:
    # By name, so that it is the same one in every window and so is their program.
    return jnp.zeros((), x.dtype)


def _raw(field: Any) -> Any:
    return field.net if isinstance(field, ConservedField) else field


@eqx.filter_jit
def _advance(
    problem: Problem,
    method: Method,
    recipe: Recipe,
    window: Window,
    state: State,
    key: Array,
    count: Int[Array, ""],
) -> tuple[State, Float[Array, ""], Bool[Array, ""]]:
    """Up to `count` steps; returns the state, the sum of the losses, and whether all is
    finite. A step after which something is not is undone, and ends the loop."""
    last = state.step + count
    arrays, static = eqx.partition(state, eqx.is_array)

    def one(carry: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        arrays, total, _ = carry
        state = eqx.combine(arrays, static)
        new, loss = _step(problem, method, recipe, window, state, key)
        leaves = jax.tree.leaves(eqx.filter(new.net, eqx.is_inexact_array))
        healthy = jnp.isfinite(loss) & jnp.all(
            jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves])
        )
        kept = jax.tree.map(
            lambda new, old: jnp.where(healthy, new, old),
            eqx.filter(new, eqx.is_array),
            arrays,
        )
        return kept, total + jnp.where(healthy, loss, 0.0), healthy

    def go_on(carry: tuple[Any, Array, Array]) -> Array:
        return (carry[0].step < last) & carry[2]

    begin = (arrays, jnp.zeros(()), jnp.asarray(True))
    arrays, total, healthy = jax.lax.while_loop(go_on, one, begin)
    return eqx.combine(arrays, static), total, healthy


def _step(
    problem: Problem,
    method: Method,
    recipe: Recipe,
    window: Window,
    state: State,
    key: Array,
) -> tuple[State, Array]:
    """One step: fresh points, one step of the optimiser, the method's own state."""
    optimiser = recipe.optimiser
    for_points, for_step = jax.random.split(
        jax.random.fold_in(key, state.step // optimiser.refresh)
    )
    length = problem.duration / recipe.windows
    x, t = recipe.points.draw(for_points, problem.box, window.start, length)
    objective = StepObjective(
        window, x, t, state.multipliers, for_step, problem, method, recipe
    )
    net, inner, loss = optimiser.step(
        state.net, state.optimiser, objective, recipe.steps
    )
    multipliers = objective.updated_multipliers(net)
    return State(net, inner, multipliers, state.step + 1), loss


def _check_network(net: Any, problem: Problem) -> None:
    d = problem.box.dimension
    dtype = jnp.result_type(float)
    x, t = jax.ShapeDtypeStruct((d,), dtype), jax.ShapeDtypeStruct((), dtype)
    if not jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)):
        raise ValueError(
            "network has no parameters to train: they must be its leaves, as those of "
            "an Equinox module or of jax.tree_util.Partial(apply, parameters) are"
        )
    try:
        shape = getattr(eqx.filter_eval_shape(net, x, t), "shape", None)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        raise ValueError(
            f"network cannot be evaluated at a point of shape ({d},) and a time, which "
            f"{problem.name} needs ({reason})"
        ) from None
    if shape != ():
        raise ValueError(
            f"network must return one number for one point and time, got shape {shape}"
        )


def train(
    problem: Problem,
    method: Method = SDIFP(),
    *,
    recipe: Recipe | None = None,
    network: Callable[..., Array] | None = None,
    every: int | None = None,
    check: bool = True,
    key: Array,
) -> Training:
    """Train a network on a problem.

    Iterate over what is returned for `Metrics` while the training goes on; `result()`
    runs it to the end and returns the field with its certificate. The same key gives
    the same numbers.

    **Arguments:**

    - `problem`: one of `sdifp.problems`, or a `Problem` of your own.
    - `method`: `SDIFP()`, `PostHoc()`, `Plain()`, `Soft(weight)`,
        `AugmentedLagrangian()` or `GridProjection()`.
    - `recipe`: the settings; by default `problem.fast`.
    - `network`: a function of one point, shape (d,), and one time that begins at 0; it
        returns one number. By default the one of the recipe.
    - `every`: how many steps lie between metrics; by default a twentieth of all.
    - `check`: whether data, targets and reference must agree, as `Problem.check` says.
        Noisy data, for one, need not have the integrals that they should.
    - `key`: for the network, the points, and all other randomness.
    """
    recipe = problem.fast if recipe is None else recipe
    if every is None:
        every = max(1, recipe.steps * recipe.windows // 20)
    return Training(
        problem, method, recipe, key, network, check_count("every", every), check
    )
