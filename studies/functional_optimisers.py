"""Optimisers of functionals, with the constraint, at equal time.

The recipe of the problem with its Levenberg-Marquardt, a natural gradient of the
energy, against L-BFGS and Adam with a cosine decay and three rates; each has the time
that the first one takes.
"""

import functools

import jax

from sdifp import Problem, Recipe, problems, train
from sdifp._timing import interleaved
from sdifp.training import (
    LBFGS,
    MLP,
    Adam,
    Cosine,
    LevenbergMarquardt,
    Optimiser,
    Training,
    TrainingDiverged,
    recipe_for,
)

from ._methods import COLUMNS, equal_time, shorter
from ._study import Case, Setting, Study, Value

_PROBLEMS = {
    "gross_pitaevskii(1)": problems.gross_pitaevskii,
    "gross_pitaevskii(2)": lambda: problems.gross_pitaevskii(2),
    "droplet()": problems.droplet,
    "linear_schroedinger(5)": lambda: problems.linear_schroedinger(5),
}
_OPTIMISERS: dict[str, Optimiser] = {
    "LevenbergMarquardt()": LevenbergMarquardt(),
    "LBFGS()": LBFGS(),
    "Adam(1e-2, Cosine())": Adam(1e-2, Cosine()),
    "Adam(3e-3, Cosine())": Adam(3e-3, Cosine()),
    "Adam(1e-3, Cosine())": Adam(1e-3, Cosine()),
}


def _cases(setting: Setting) -> list[Case]:
    names = list(_PROBLEMS) if setting == "full" else ["droplet()"]
    return [{"problem": p, "optimiser": o} for p in names for o in _OPTIMISERS]


@functools.cache
def _setup(name: str, setting: Setting) -> tuple[Problem, Recipe]:
    problem: Problem = _PROBLEMS[name]()
    recipe = recipe_for(problem)
    if setting == "tiny":
        recipe = shorter(recipe.replace(network=MLP(8, 1), nodes=24), setting)
    return problem, recipe


def _with(recipe: Recipe, name: str) -> Recipe:
    # The first one keeps the damping of its recipe.
    if name == next(iter(_OPTIMISERS)):
        return recipe
    return recipe.replace(optimiser=_OPTIMISERS[name])


@functools.cache
def _costs(name: str, setting: Setting) -> dict[str, float]:
    """The time of a step of each optimiser over that of the first."""
    problem, recipe = _setup(name, setting)
    rounds, steps = (1, 1) if setting == "tiny" else (5, 4)
    recipe = recipe.replace(steps=max(recipe.steps, (rounds + 1) * steps))
    runs = {
        one: Training(
            problem, recipe=_with(recipe, one), check=False, key=jax.random.key(0)
        )
        for one in _OPTIMISERS
    }
    steppers = {one: functools.partial(run.advance, steps) for one, run in runs.items()}
    found = interleaved(rounds, steppers)
    return {one: time / next(iter(found.values())) for one, time in found.items()}


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    name = case["problem"]
    problem, recipe = _setup(name, setting)
    cost = _costs(name, setting)[case["optimiser"]]
    recipe = equal_time(_with(recipe, case["optimiser"]), cost)
    found: dict[str, Value] = {"cost": cost, "steps": recipe.steps}
    run = train(
        problem,
        recipe=recipe,
        every=recipe.steps,
        check=False,
        key=jax.random.key(seed),
    )
    try:
        trained = run.result()
    except TrainingDiverged:
        return found | {"l2": None}
    assert trained.functional is not None
    assert problem.minimum is not None
    off = trained.functional.value - problem.minimum
    return found | {
        "l2": trained.metrics.l2_error,
        "functional": abs(off / problem.minimum),
        "seconds": run.step / run.speed if run.speed else None,
    }


STUDY = Study(
    name="functional-optimisers",
    title="Optimisers of functionals at equal time",
    text=(
        "The recipe of each problem, the norm or the volume prescribed, float64; as "
        "many steps as take the time of Levenberg-Marquardt's."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "l2": COLUMNS["l2"],
        "functional": "functional, relative error",
        "steps": COLUMNS["steps"],
        "cost": COLUMNS["cost"],
        "seconds": COLUMNS["seconds"],
    },
    seeds={"tiny": 1, "quick": 1, "full": 3},
    seconds=20.0,
    alone=lambda case: True,
)
