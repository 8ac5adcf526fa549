"""All methods on the four equations in one dimension, at equal time.

paper:    4x128, Adam with linear decay, float32, 8 x 64 random points; 10 000 plain
          steps, and fewer for the other methods by what their steps cost.
accurate: the problem's own accurate recipe, float64; each method gets the time that
          SDIFP takes.
"""

import functools

from sdifp import Problem, Recipe, problems
from sdifp.field import Subsampled
from sdifp.training import MLP, RandomPoints, recipe_for

from ._methods import (
    BASIC,
    COLUMNS,
    METHODS,
    SEEDS,
    equal_time,
    run_of,
    shorter,
    step_costs,
)
from ._study import Case, Setting, Study, Value

_PROBLEMS = ("advection", "reaction_diffusion", "wave", "kdv")


def _methods(recipe: str, problem: str) -> tuple[str, ...]:
    # Elsewhere the other methods only repeat what they show here.
    every = (recipe, problem) == ("paper", "advection")
    return tuple(METHODS) if every else BASIC


def _cases(setting: Setting) -> list[Case]:
    return [
        {"setting": recipe, "points": "random", "problem": name, "method": method}
        for recipe in ("paper", "accurate")
        for name in (("advection",) if setting == "tiny" else _PROBLEMS)
        for method in _methods(recipe, name)
    ]


@functools.cache
def _setup(name: str, kind: str, setting: Setting) -> tuple[Problem, Recipe]:
    problem: Problem = getattr(problems, name)()
    tiny = setting == "tiny"
    if kind == "paper":
        recipe = Recipe(
            MLP(8, 1) if tiny else MLP(),
            steps=10_000,
            points=RandomPoints(8, 64),
            nodes=32,
            final_nodes=128,
            gradient=Subsampled(8),
        )
    else:
        recipe = recipe_for(problem, "accurate")
        if tiny:
            recipe = recipe.replace(
                network=MLP(4, 1),
                points=RandomPoints(2, 8),
                nodes=16,
                windows=1,
            )
    return problem, shorter(recipe, setting)


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    name, kind = case["problem"], case["setting"]
    problem, recipe = _setup(name, kind, setting)
    # The steps of the first method are those of the recipe.
    first, steps = ("Plain", 10) if kind == "paper" else ("SDIFP", 1)
    names = tuple(dict.fromkeys((first, *_methods(kind, name))))
    cost = step_costs(problem, recipe, names, setting, steps)[case["method"]]
    _, found = run_of(problem, case["method"], equal_time(recipe, cost), seed)
    return found | {"cost": cost}


STUDY = Study(
    name="one-dimension",
    title="All methods in one dimension at equal time",
    text=(
        "Paper: 4x128, Adam with linear decay, float32, 10 000 plain steps. Accurate: "
        "the problem's own accurate recipe, float64, each method with the time of "
        "SDIFP."
    ),
    cases=_cases,
    measure=_measure,
    columns=COLUMNS,
    seeds=SEEDS,
    once=lambda case: case["method"] not in BASIC,
    float64=lambda case: case["setting"] == "accurate",
    seconds=30.0,
    alone=lambda case: True,
)
