"""Advection and reaction-diffusion in two and three dimensions: error, conservation
on a tensor rule and in the continuum, and what a conserved step costs.

python validation/two_and_three_dimensions.py
"""

import functools

from _study import (
    Row,
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


def main() -> None:
    """Sweep, then print."""
    parser = options(__doc__, "two_and_three_dimensions")
    args = parser.parse_args()

    @functools.cache
    def problem(name: str, d: int) -> sdifp.Problem:
        return getattr(sdifp.problems, name)(d)

    def recipe(name: str, d: int) -> sdifp.Recipe:
        own = problem(name, d).fast
        if args.tiny:
            own = own.but(network=sdifp.Architecture(8, 1), steps=3, nodes=64)
            own = own.but(gradient=sdifp.Subsampled(8))
        return own

    @functools.cache
    def costs(name: str, d: int) -> dict[str, float]:
        rounds, steps = (1, 1) if args.tiny else (9, 10)
        return step_costs(problem(name, d), METHODS, recipe(name, d), rounds, steps)

    def measure(case: dict) -> Row:
        name, d, method = case["problem"], case["d"], METHODS[case["method"]]
        run = run_of(problem(name, d), method, recipe(name, d), case["seed"])
        return outcome(run, method) | {"cost": costs(name, d)[case["method"]]}

    cases = [
        {"problem": name, "d": d, "method": method, "seed": seed}
        for name in ("advection", "reaction_diffusion")
        for d in (2, 3)
        for seed in range(args.seeds)
        for method in METHODS
    ]
    if not args.table:
        sweep(args.out, cases, measure, args.only)
    columns = ["l2", "mass", "energy", "on_rule", "seconds", "cost"]
    print(table(load(args.out), ["problem", "d", "method"], columns))


if __name__ == "__main__":
    main()
