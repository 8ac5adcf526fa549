"""A hundred dimensions and a thousand: error, conservation, cost, and the paper's own
way to sample the operator beside it.

recipe:  the problem's own recipe (cosine and sine features, a linear bottleneck, the
         exact Laplacian, redrawn nodes), conserved and plain; and the field that comes
         out of the correction of the initial data alone, as the floor of meaning.
sampled: a 4x128 network on the same features with |I| = |J| = d/10 sampled terms,
         independent and shared, and with the full operator.

python validation/high_dimension.py
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
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
NODES = 2**14


def main() -> None:
    """Sweep, then print."""
    parser = options(__doc__, "high_dimension")
    parser.add_argument(
        "--dimensions", type=int, nargs="+", default=[100, 1000], help="%(default)s"
    )
    parser.add_argument(
        "--sampled-steps", type=int, default=500, help="of the paper's way"
    )
    args = parser.parse_args()
    dimensions = [8] if args.tiny else args.dimensions

    @functools.cache
    def problem(name: str, d: int) -> sdifp.Problem:
        return getattr(sdifp.problems, name)(d)

    def recipe(name: str, d: int, way: str) -> sdifp.Recipe:
        # In a thousand dimensions a minute is short.
        own = problem(name, d).accurate if d > 300 else problem(name, d).fast
        if args.tiny:
            own = own.but(steps=3, nodes=64, final_nodes=128)
        if way == "recipe":
            return own
        n = max(1, d // 10)
        estimators = {
            "independent": sdifp.Independent(n),
            "shared": sdifp.Shared(n),
            "full": sdifp.Full(sdifp.ByDirections()),
        }
        return own.but(
            network=sdifp.Architecture(8 if args.tiny else 128, 4),
            optimiser=sdifp.Adam(),
            steps=3 if args.tiny else args.sampled_steps,
            estimator=estimators[way],
        )

    @functools.cache
    def costs(name: str, d: int) -> dict[str, float]:
        rounds, steps = (1, 1) if args.tiny else (9, 5)
        return step_costs(
            problem(name, d), METHODS, recipe(name, d, "recipe"), rounds, steps
        )

    def measure(case: dict) -> Row:
        name, d, way = case["problem"], case["d"], case["way"]
        if way == "no training":
            return untrained(problem(name, d), args.tiny)
        method = METHODS[case["method"]]
        run = run_of(problem(name, d), method, recipe(name, d, way), case["seed"])
        row = outcome(run, method)
        if way == "recipe":
            row["cost"] = costs(name, d)[case["method"]]
        else:
            row["memory"] = run.memory() / 2**20
        return row

    ways = [("recipe", m) for m in METHODS]
    ways += [(w, "SDIFP") for w in ("independent", "shared", "full")]
    ways += [("no training", "PostHoc")]
    cases = [
        {"problem": name, "d": d, "way": way, "method": method, "seed": seed}
        for name in ("manufactured", "reaction_diffusion")
        for d in dimensions
        for seed in range(args.seeds)
        for way, method in ways
        if seed == 0 or way == "recipe"
    ]
    if not args.table:
        sweep(args.out, cases, measure, args.only)
    columns = ["l2", "mass", "energy", "on_rule", "seconds", "cost", "memory"]
    print(table(load(args.out), ["problem", "d", "way", "method"], columns))


def untrained(problem: sdifp.Problem, tiny: bool) -> Row:
    """The initial data at all times, corrected: what conservation alone gives."""
    key = jax.random.key(0)
    rule = problem.rule(128 if tiny else NODES, key)
    u = sdifp.conserve(
        lambda x, t: problem.initial(x) + 0.0 * t,
        rule,
        problem.mass,
        problem.energy,
        normalised=problem.normalised,
    )
    points = problem.box.sample(jax.random.key(1), 4096)

    @eqx.filter_jit
    def squares(t):
        now = u.at(t)
        exact = jax.vmap(lambda x: problem.reference(x, t))(points)
        return jnp.stack(
            [jnp.mean((jax.vmap(now)(points) - exact) ** 2), jnp.mean(exact**2)]
        )

    found = sum(squares(t) for t in jnp.linspace(0.0, problem.duration, 9))
    return {"l2": float(jnp.sqrt(found[0] / found[1]))}


if __name__ == "__main__":
    main()
