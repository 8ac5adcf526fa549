"""All methods on the four equations in one dimension, at equal time.

paper:    4x128, Adam with linear decay, float32, 8 x 64 random points; a budget of
          --steps plain steps, and fewer for the others by what their steps cost.
accurate: the problem's own accurate recipe, float64; each method gets the time that
          SDIFP takes.

python validation/one_dimension.py paper
python validation/one_dimension.py accurate
"""

import functools

import jax
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

PROBLEMS = ("advection", "reaction_diffusion", "wave", "kdv")
METHODS = {
    "Plain": sdifp.Plain(),
    "Soft": sdifp.Soft(10.0),
    "AugmentedLagrangian": sdifp.AugmentedLagrangian(10.0, 0.1),
    "GridProjection": sdifp.GridProjection(),
    "PostHoc": sdifp.PostHoc(),
    "SDIFP": sdifp.SDIFP(),
}
# With a converged optimiser the others only show what they show in the first setting.
ACCURATE = ("Plain", "PostHoc", "SDIFP")


def main() -> None:
    """Sweep, then print."""
    parser = options(__doc__, "one_dimension")
    parser.add_argument("setting", choices=["paper", "accurate"])
    parser.add_argument(
        "--steps", type=int, default=10_000, help="plain steps, paper (%(default)s)"
    )
    parser.add_argument(
        "--grid", action="store_true", help="a fixed grid of points instead"
    )
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=None, help="these alone"
    )
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", args.setting == "accurate")
    names = args.methods or (METHODS if args.setting == "paper" else ACCURATE)

    @functools.cache
    def problem(name: str) -> sdifp.Problem:
        return getattr(sdifp.problems, name)()

    def recipe(name: str) -> sdifp.Recipe:
        if args.setting == "accurate":
            found = problem(name).accurate
            if args.tiny:
                found = found.but(
                    network=sdifp.Architecture(4, 1),
                    points=sdifp.RandomPoints(2, 8),
                    nodes=16,
                    steps=3,
                    windows=1,
                )
            return found
        points = sdifp.GridPoints(8, 64) if args.grid else sdifp.RandomPoints(8, 64)
        return sdifp.Recipe(
            sdifp.Architecture(8, 1) if args.tiny else sdifp.Architecture(),
            steps=10 if args.tiny else args.steps,
            points=points,
            nodes=32,
            final_nodes=128,
            gradient=sdifp.Subsampled(8),
        )

    @functools.cache
    def costs(name: str) -> dict[str, float]:
        """The time of a step, over that of the method whose steps are given."""
        first = "Plain" if args.setting == "paper" else "SDIFP"
        methods = {k: METHODS[k] for k in dict.fromkeys((first, "Plain", *names))}
        rounds, steps = (1, 1) if args.tiny else (9, 10)
        if args.setting == "accurate":
            steps = 1
        return step_costs(problem(name), methods, recipe(name), rounds, steps)

    def measure(case: dict) -> Row:
        name, method = case["problem"], METHODS[case["method"]]
        cost = costs(name)[case["method"]]
        settings = recipe(name)
        settings = settings.but(steps=equal_steps(settings, cost))
        run = run_of(problem(name), method, settings, case["seed"])
        return outcome(run, method) | {"cost": cost}

    cases = [
        {
            "setting": args.setting,
            "points": "grid" if args.grid else "random",
            "problem": name,
            "method": method,
            "seed": seed,
        }
        for name in PROBLEMS
        for seed in range(args.seeds)
        for method in names
    ]
    if not args.table:
        sweep(args.out, cases, measure, args.only)
    rows = [r for r in load(args.out) if r["case"]["setting"] == args.setting]
    columns = ["l2", "mass", "energy", "on_rule", "steps", "seconds"]
    print(table(rows, ["points", "problem", "method"], columns))


if __name__ == "__main__":
    main()
