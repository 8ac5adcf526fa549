"""Where training with the correction pays, beside a correction after plain training.

Each regime makes one thing harder:
duration:  advection over 1, 2 and 4 time units;
points:    advection with 8 x 64, 8 x 16 and 8 x 4 points in a batch;
noise:     advection from initial data with 0, 5 and 20 % of noise; the integrals are
           those of the clean data;
growth:    reaction-diffusion with a rate of 0.5, 2 and 4: targets that move by a
           factor of 1.6, 7 and 55 in mass;
steps:     reaction-diffusion with 250, 1000 and 4000 steps of plain training.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from sdifp import Initial, Problem, Recipe
from sdifp.field import Subsampled
from sdifp.problems import advection, reaction_diffusion
from sdifp.training import MLP, RandomPoints

from ._fields import targets
from ._methods import BASIC, COLUMNS, SEEDS, equal_time, run_of, shorter, step_costs
from ._study import Case, Setting, Study, Value

_REGIMES: dict[str, tuple[float, ...]] = {
    "duration": (1.0, 2.0, 4.0),
    "points": (64, 16, 4),
    "noise": (0.0, 0.05, 0.2),
    "growth": (0.5, 2.0, 4.0),
    "steps": (250, 1000, 4000),
}
# The noise is a sum of this many waves.
_WAVES = 12


def _cases(setting: Setting) -> list[Case]:
    return [
        {"regime": regime, "value": value, "method": method}
        for regime, values in _REGIMES.items()
        for value in (values[1:2] if setting == "tiny" else values)
        for method in BASIC
    ]


def _noisy(problem: Problem, size: float) -> Problem:
    """The problem with noise in its initial data; reference and targets stay clean."""
    if size == 0.0:
        return problem
    k = jnp.arange(1, _WAVES + 1) * jnp.pi
    phases = jax.random.uniform(jax.random.key(9), (_WAVES,)) * 2.0 * jnp.pi
    rms = size * targets(problem, 0.0)[1] ** 0.5
    factor = rms / (_WAVES / 2) ** 0.5
    noise = lambda x: factor * jnp.sum(jnp.sin(k * x[0] + phases))
    initial = problem.initial
    assert initial is not None
    data = Initial(lambda x: initial(x) + noise(x))
    return dataclasses.replace(problem, conditions=(data,))


@functools.cache
def _setup(regime: str, value: float, setting: Setting) -> tuple[Problem, Recipe]:
    recipe = Recipe(
        MLP(8, 1) if setting == "tiny" else MLP(64, 3),
        steps=int(value) if regime == "steps" else 2000,
        nodes=32,
        final_nodes=128,
        gradient=Subsampled(8),
    )
    recipe = shorter(recipe, setting)
    if regime == "duration":
        return advection(duration=value), recipe
    if regime == "points":
        return advection(), recipe.replace(points=RandomPoints(8, int(value)))
    if regime == "noise":
        return _noisy(advection(), value), recipe
    if regime == "growth":
        return reaction_diffusion(rate=value), recipe
    return reaction_diffusion(), recipe


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    problem, recipe = _setup(case["regime"], case["value"], setting)
    cost = step_costs(problem, recipe, BASIC, setting, 10)[case["method"]]
    recipe = equal_time(recipe, cost)
    _, found = run_of(problem, case["method"], recipe, seed, check=False)
    return found | {"cost": cost}


STUDY = Study(
    name="where-it-pays",
    title="Where training with the correction pays",
    text="3x64, Adam, float32, 2000 plain steps, equal time.",
    cases=_cases,
    measure=_measure,
    columns={name: COLUMNS[name] for name in ("l2", "mass", "cost")},
    seeds=SEEDS,
    float64=lambda case: False,
    seconds=10.0,
    alone=lambda case: True,
)
