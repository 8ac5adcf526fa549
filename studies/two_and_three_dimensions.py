"""Advection and reaction-diffusion in two and three dimensions: error, conservation on
a tensor rule and in the continuum, and the cost of a conserved step."""

import functools

from sdifp import Problem, Recipe, problems
from sdifp.field import Subsampled
from sdifp.training import MLP, recipe_for

from ._methods import BASIC, COLUMNS, SEEDS, run_of, shorter, step_costs
from ._study import Case, Setting, Study, Value


def _cases(setting: Setting) -> list[Case]:
    return [
        {"problem": name, "d": d, "method": method}
        for name in ("advection", "reaction_diffusion")
        for d in ((2,) if setting == "tiny" else (2, 3))
        for method in BASIC
    ]


@functools.cache
def _setup(name: str, d: int, setting: Setting) -> tuple[Problem, Recipe]:
    problem: Problem = getattr(problems, name)(d)
    recipe = shorter(recipe_for(problem), setting)
    if setting == "tiny":
        recipe = recipe.replace(network=MLP(8, 1), nodes=64, gradient=Subsampled(8))
    return problem, recipe


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    problem, recipe = _setup(case["problem"], case["d"], setting)
    _, found = run_of(problem, case["method"], recipe, seed)
    return found | {
        "cost": step_costs(problem, recipe, BASIC, setting, 10)[case["method"]]
    }


STUDY = Study(
    name="two-and-three-dimensions",
    title="Two and three dimensions",
    text="The problems' own fast recipes, float32, equal steps.",
    cases=_cases,
    measure=_measure,
    columns=COLUMNS,
    seeds=SEEDS,
    float64=lambda case: False,
    seconds=15.0,
    alone=lambda case: True,
)
