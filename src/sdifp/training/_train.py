"""train: a problem, a method and a recipe, to a field with prescribed integrals."""

from collections.abc import Callable, Generator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._mesh import device_count, messages
from ..problems import Problem
from ._loop import Loop
from ._methods import SDIFP, Method
from ._metrics import TIMES, Metrics
from ._recipe import Recipe
from ._trained import Trained


class Training:
    """A training under way; made by `train`.

    Iterate over it for metrics, call `result()` to run to the end.
    """

    def __init__(self, loop: Loop):
        self._loop = loop
        self._result: Trained | None = None

    @property
    def step(self) -> int:
        """Steps done, in all windows."""
        return self._loop.step

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self._loop.steps

    @property
    def seconds(self) -> float:
        """Wall time so far, as in `Metrics`."""
        return self._loop.seconds

    @property
    def compile_seconds(self) -> float | None:
        """The time that the first compilation of the step took; None before it."""
        return self._loop.compile_seconds

    @property
    def speed(self) -> float | None:
        """Steps per second, without compilation and measurements; None before the
        first step in this process."""
        return self._loop.speed

    @property
    def field(self) -> Any:
        """What is trained in this window, as it is now."""
        return self._loop.field

    def __iter__(self) -> Generator[Metrics, None, Trained]:
        """Train, with metrics every so many steps."""
        while not self._loop.finished:
            found = self._loop.go_on()
            if found is not None:
                yield found
        return self.result()

    def result(self) -> Trained:
        """Train to the end."""
        while not self._loop.finished:
            self._loop.go_on()
        if self._result is None:
            self._loop.check()
            self._result = self._loop.so_far()
        return self._result

    def measure(self, field: Callable[..., Array]) -> Metrics:
        """The metrics of any function of x and t, measured as those of the result are:
        of the same network without its correction, for one."""
        times = jnp.linspace(0.0, self._loop.problem.duration, TIMES)
        return self._loop.measure(field, times)

    def memory(self) -> int:
        """Bytes of temporaries of the compiled step, on each device."""
        return int(self._loop.program().memory_analysis().temp_size_in_bytes)

    def messages(self) -> dict[str, int]:
        """Bytes that devices exchange in a step, for each kind of message, from the
        compiled program; what a line search or the trials of a step repeat is counted
        once. Empty on one device."""
        return messages(self._loop.program().as_text(), device_count())

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that a training of the same problem, method, recipe and key needs to go
        on from here, see `restore`."""
        return self._loop.snapshot()

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from where a snapshot was taken; the numbers are those of a training
        that was never interrupted, to the last bit."""
        self._loop.restore(arrays)
        self._result = None


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
    - `recipe`: the settings; by default `sdifp.training.recipe_for(problem)`. One with
        `LevenbergMarquardt()`, the default up to three dimensions, needs float64.
    - `network`: a function of one point, shape (d,), and one time that begins at 0; it
        returns one number. By default the one of the recipe.
    - `every`: how many steps lie between metrics; by default a twentieth of all. The
        first ones come after the first step.
    - `check`: whether data, targets and reference must agree, as `Problem.check` says.
        Noisy data, for one, need not have the integrals that they should.
    - `key`: for the network, the points, and all other randomness.
    """
    loop = Loop(
        problem,
        method,
        recipe=recipe,
        network=network,
        every=every,
        check=check,
        key=key,
    )
    return Training(loop)
