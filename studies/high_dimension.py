"""100 and 1000 dimensions: error, conservation, cost, and the paper's sampled operator.

recipe:      the problem's own recipe (cosine and sine features, a linear bottleneck,
             the exact Laplacian, resampled nodes), conserved and plain;
independent, shared, full: a 4x128 network on the same features with |I| = |J| = d/10
             sampled terms, independent or shared, and with the full operator;
no training: the initial data at all times, corrected: what conservation alone gives.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from sdifp import Problem, Recipe, conserve, problems
from sdifp.estimators import Full, Independent, Shared
from sdifp.taylor import ByDirections
from sdifp.training import MLP, Adam, recipe_for

from ._methods import BASIC, COLUMNS, SEEDS, run_of, shorter, step_costs
from ._study import Case, Setting, Study, Value

_NODES = 2**14
_SAMPLED_STEPS = 500


def _cases(setting: Setting) -> list[Case]:
    dimensions = {"tiny": (8,), "quick": (100,), "full": (100, 1000)}[setting]
    return [
        {"problem": name, "d": d, "way": way, "method": method}
        for name in ("manufactured", "reaction_diffusion")
        for d in dimensions
        for way, method in (
            *(("recipe", method) for method in BASIC),
            *((way, "SDIFP") for way in ("independent", "shared", "full")),
            ("no training", "PostHoc"),
        )
        if name == "manufactured" or way in ("recipe", "no training")
        # At d = 1000 the full operator takes too long.
        if way != "full" or d <= 100
    ]


def _once(case: Case) -> bool:
    slow = (case["problem"], case["d"]) == ("reaction_diffusion", 1000)
    return slow or case["way"] != "recipe"


@functools.cache
def _problem(name: str, d: int) -> Problem:
    found: Problem = getattr(problems, name)(d)
    return found


def _recipe(name: str, d: int, way: str, setting: Setting) -> Recipe:
    problem, tiny = _problem(name, d), setting == "tiny"
    # At d = 1000 the minute of the fast recipe is short.
    own = recipe_for(problem, "accurate" if d > 300 else "fast")
    if tiny:
        own = own.replace(nodes=64, final_nodes=128)
    if way == "recipe":
        return shorter(own, setting)
    n = max(1, d // 10)
    estimators = {
        "independent": Independent(n),
        "shared": Shared(n),
        "full": Full(ByDirections()),
    }
    return shorter(
        own.replace(
            network=MLP(8 if tiny else 128, 4),
            optimiser=Adam(),
            steps=_SAMPLED_STEPS,
            estimator=estimators[way],
        ),
        setting,
    )


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    name, d, way, method = (case[k] for k in ("problem", "d", "way", "method"))
    problem = _problem(name, d)
    if way == "no training":
        return {"l2": _untrained(problem, setting)}
    recipe = _recipe(name, d, way, setting)
    run, found = run_of(problem, method, recipe, seed)
    if way == "recipe":
        found["cost"] = step_costs(problem, recipe, BASIC, setting, 5)[method]
    else:
        found["memory"] = run.memory() / 2**20
    return found


def _untrained(problem: Problem, setting: Setting) -> float:
    rule = problem.rule(128 if setting == "tiny" else _NODES, jax.random.key(0))
    initial = problem.initial
    assert initial is not None
    u = conserve(
        lambda x, t: initial(x) + 0.0 * t,
        rule,
        invariants=problem.invariants,
    )
    points = problem.domain.sample(jax.random.key(1), 4096)

    @eqx.filter_jit
    def squares(t: Array) -> Array:
        now, (reference,) = u.at(t), problem.references
        exact = jax.vmap(lambda x: reference(x, t))(points)
        return jnp.stack(
            [jnp.mean((jax.vmap(now)(points) - exact) ** 2), jnp.mean(exact**2)]
        )

    times = jnp.linspace(0.0, problem.duration, 9)
    off, size = jnp.sum(jnp.stack([squares(t) for t in times]), 0)
    return float(jnp.sqrt(off / size))


STUDY = Study(
    name="high-dimension",
    title="One hundred and one thousand dimensions",
    text=(
        "The problems' own recipes (fast, and accurate at d = 1000), float32; a 4x128 "
        f"network with sampled terms for {_SAMPLED_STEPS} steps; and the initial data "
        "with the correction alone."
    ),
    cases=_cases,
    measure=_measure,
    columns=COLUMNS | {"memory": "temporaries, MiB"},
    seeds=SEEDS,
    once=_once,
    float64=lambda case: False,
    seconds=60.0,
    alone=lambda case: True,
)
