"""Methods compared at equal steps or equal time, for the studies that train them."""

import functools
from collections.abc import Sequence

import jax

from sdifp import Problem, Recipe, train
from sdifp._timing import interleaved
from sdifp.training import (
    SDIFP,
    AugmentedLagrangian,
    GridProjection,
    Method,
    Plain,
    PostHoc,
    Soft,
    Training,
)

from ._study import Setting, Value

METHODS: dict[str, Method] = {
    "Plain": Plain(),
    "Soft": Soft(10.0),
    "AugmentedLagrangian": AugmentedLagrangian(10.0, 0.1),
    "GridProjection": GridProjection(),
    "PostHoc": PostHoc(),
    "SDIFP": SDIFP(),
}
BASIC = ("Plain", "PostHoc", "SDIFP")
COLUMNS = {
    "l2": "relative L2",
    "mass": "mass, independent rule",
    "squared_norm": "squared norm, independent rule",
    "on_rule": "on the rule",
    "continuum": "continuum",
    "steps": "steps",
    "seconds": "seconds",
    "cost": "relative time of a step",
}
SEEDS: dict[Setting, int] = {"tiny": 1, "quick": 1, "full": 3}


def run_of(
    problem: Problem, name: str, recipe: Recipe, seed: int, check: bool = True
) -> tuple[Training, dict[str, Value]]:
    """A training by the method of a name, and what is kept of it."""
    # One training serves the plain method and the correction of its result.
    own = _plain if name in ("Plain", "PostHoc") else _begun
    run = own(problem, "PostHoc" if own is _plain else name, recipe, seed, check)
    trained = run.result()
    metrics, certificate = trained.metrics, trained.certificate
    if name == "Plain":
        metrics, certificate = run.measure(trained.net), None
    assert run.speed is not None
    found: dict[str, Value] = {
        "l2": metrics.l2_error,
        **metrics.errors,
        "loss": metrics.loss,
        "steps": metrics.steps,
        # Of the steps alone, which is what the methods get equal shares of.
        "seconds": run.step / run.speed,
        "scale": None if metrics.scale is None else list(metrics.scale),
    }
    if certificate:
        found["on_rule"] = max(row.on_rule for row in certificate.rows)
        # From independent randomisations: the error itself, not that of one more rule.
        found["continuum"] = max(abs(row.continuum) for row in certificate.rows)
    return run, {k: v for k, v in found.items() if v is not None}


def _begun(
    problem: Problem, name: str, recipe: Recipe, seed: int, check: bool
) -> Training:
    return train(
        problem,
        METHODS[name],
        recipe=recipe,
        key=jax.random.key(seed),
        every=recipe.steps,
        check=check,
    )


_plain = functools.lru_cache(maxsize=1)(_begun)


@functools.cache
def step_costs(
    problem: Problem, recipe: Recipe, names: Sequence[str], setting: Setting, steps: int
) -> dict[str, float]:
    """The time of a step of each method over that of the first one."""
    rounds, steps = (1, 1) if setting == "tiny" else (9, steps)
    recipe = recipe.replace(steps=max(recipe.steps, (rounds + 1) * steps))
    # Correcting afterwards takes no time in training.
    runs = {
        name: Training(
            problem, METHODS[name], recipe=recipe, key=jax.random.key(0), check=False
        )
        for name in names
        if name != "PostHoc"
    }
    steppers = {
        name: functools.partial(run.advance, steps) for name, run in runs.items()
    }
    found = interleaved(rounds, steppers)
    found["PostHoc"] = found["Plain"]
    return {name: found[name] / found[names[0]] for name in names}


def equal_time(recipe: Recipe, cost: float) -> Recipe:
    """The recipe with as many steps as take the time of its own, where each costs
    more."""
    return recipe.replace(steps=max(1, round(recipe.steps / cost)))


def shorter(recipe: Recipe, setting: Setting) -> Recipe:
    """A tenth of the steps in the quick setting, three in the tiny one."""
    steps = {"tiny": 3, "quick": max(1, recipe.steps // 10), "full": recipe.steps}
    return recipe.replace(steps=steps[setting])
