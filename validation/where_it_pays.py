"""Where does training with the correction pay? SDIFP beside plain training with a
correction afterwards, at equal time, with one thing made harder at a time.

duration:  advection for 1, 2 and 4 times as long.
points:    advection with 8 x 64, 8 x 16 and 8 x 4 points in a batch.
noise:     advection from initial data with 0, 5 and 20 % of noise; the integrals are
           those of the clean data.
growth:    reaction-diffusion with a rate of 0.5, 2 and 4: targets that move by a
           factor of 1.6, 7 and 55 in mass.
steps:     reaction-diffusion with 250, 1000 and 4000 steps of plain training.

python validation/where_it_pays.py
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from _study import (
    Row,
    equal_steps,
    load,
    options,
    outcome,
    run_of,
    step_costs,
    sweep,
    table,
)

import sdifp

METHODS = {"Plain": sdifp.Plain(), "PostHoc": sdifp.PostHoc(), "SDIFP": sdifp.SDIFP()}
REGIMES = {
    "duration": (1.0, 2.0, 4.0),
    "points": (64, 16, 4),
    "noise": (0.0, 0.05, 0.2),
    "growth": (0.5, 2.0, 4.0),
    "steps": (250, 1000, 4000),
}
# Waves that the noise is made of.
_WAVES = 12


def noisy(problem: sdifp.Problem, size: float) -> sdifp.Problem:
    """The problem with noise in its initial data; reference and targets stay clean."""
    if size == 0.0:
        return problem
    k = jnp.arange(1, _WAVES + 1) * jnp.pi
    phases = jax.random.uniform(jax.random.key(9), (_WAVES,)) * 2.0 * jnp.pi
    rms = size * (problem.energy / problem.box.volume) ** 0.5
    factor = rms / (_WAVES / 2) ** 0.5
    noise = lambda x: factor * jnp.sum(jnp.sin(k * x[0] + phases))
    return dataclasses.replace(problem, initial=lambda x: problem.initial(x) + noise(x))


def main() -> None:
    """Sweep, then print."""
    parser = options(__doc__, "where_it_pays")
    parser.add_argument(
        "--steps", type=int, default=2000, help="plain steps (%(default)s)"
    )
    args = parser.parse_args()

    @functools.cache
    def setting(regime: str, value: float) -> tuple[sdifp.Problem, sdifp.Recipe]:
        advection, growth = sdifp.problems.advection, sdifp.problems.reaction_diffusion
        recipe = sdifp.Recipe(
            sdifp.Architecture(8, 1) if args.tiny else sdifp.Architecture(64, 3),
            steps=3 if args.tiny else args.steps,
            nodes=32,
            final_nodes=128,
            gradient=sdifp.Subsampled(8),
        )
        if regime == "duration":
            return advection(duration=value), recipe
        if regime == "points":
            return advection(), recipe.but(points=sdifp.RandomPoints(8, int(value)))
        if regime == "noise":
            return noisy(advection(), value), recipe
        if regime == "growth":
            return growth(rate=value), recipe
        return growth(), recipe.but(steps=3 if args.tiny else int(value))

    @functools.cache
    def costs(regime: str, value: float) -> dict[str, float]:
        problem, recipe = setting(regime, value)
        rounds, steps = (1, 1) if args.tiny else (9, 10)
        return step_costs(problem, METHODS, recipe, rounds, steps)

    def measure(case: dict) -> Row:
        problem, recipe = setting(case["regime"], case["value"])
        cost = costs(case["regime"], case["value"])[case["method"]]
        recipe = recipe.but(steps=equal_steps(recipe, cost))
        method = METHODS[case["method"]]
        run = run_of(problem, method, recipe, case["seed"], check=False)
        return outcome(run, method) | {"cost": cost}

    cases = [
        {"regime": regime, "value": value, "method": method, "seed": seed}
        for regime, values in REGIMES.items()
        for value in values
        for seed in range(args.seeds)
        for method in METHODS
    ]
    if not args.table:
        sweep(args.out, cases, measure, args.only)
    columns = ["l2", "mass", "cost"]
    print(table(load(args.out), ["regime", "value", "method"], columns))


if __name__ == "__main__":
    main()
