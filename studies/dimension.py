"""Memory of grids, errors of the integrals and time of the constraint against d."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from sdifp import Recipe, conserve
from sdifp._timing import interleaved
from sdifp.estimators import Independent
from sdifp.field import Subsampled
from sdifp.quadrature import monte_carlo
from sdifp.training import (
    MLP,
    SDIFP,
    Adam,
    GridProjection,
    Method,
    Plain,
    PostHoc,
    RandomPoints,
    Soft,
)

from ._fields import EQUATIONS, network, problem_of
from ._study import (
    CONDITION,
    CONFIRMED,
    NOT,
    Case,
    Claim,
    Rows,
    Setting,
    Study,
    Value,
)
from ._style import BLUE, CYCLE, GREY, ORANGE, ZERO, new_figure, plain
from ._trained import TIMES, outcome, run_of

_METHODS: dict[str, Method] = {
    "Plain": Plain(),
    "PINN-SC": Soft(10.0),
    "PostHoc": PostHoc(),
    "SDIFP": SDIFP(),
}
# Nodes on an axis of the grids.
_PER_AXIS = 16
_MEMORY: dict[Setting, int] = {"tiny": 2, "quick": 8, "full": 8}
_GRIDS: dict[Setting, int] = {"tiny": 2, "quick": 4, "full": 4}
_DIMENSIONS: dict[Setting, tuple[int, ...]] = {
    "tiny": (5,),
    "quick": (2, 10, 100, 1000),
    "full": (2, 10, 100, 1000),
}
_NODES: dict[Setting, int] = {"tiny": 64, "quick": 4096, "full": 4096}
_STEPS: dict[Setting, int] = {"tiny": 2, "quick": 40, "full": 40}


def _cases(setting: Setting) -> list[Case]:
    equations = ["advection"] if setting == "tiny" else list(EQUATIONS)
    dimensions = _DIMENSIONS[setting]
    return [
        *({"panel": "memory", "d": d} for d in range(1, _MEMORY[setting] + 1)),
        *(
            {"panel": "time", "points": "grid", "equation": e, "d": d}
            for e in equations
            for d in range(1, _GRIDS[setting] + 1)
        ),
        *(
            {"panel": "time", "points": "random", "equation": e, "d": d}
            for e in equations
            for d in dimensions
        ),
        *(
            {"panel": "error", "equation": e, "method": m, "d": d}
            for d in dimensions
            for e in equations
            for m in _METHODS
        ),
    ]


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    parts = {"memory": _memory, "time": _time, "error": _error}
    return parts[case["panel"]](case, seed, setting)


def _memory(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    """Of a gradient through the moments on a whole grid, as the compiler plans it:
    nothing is run."""
    d = case["d"]
    nodes = _PER_AXIS**d
    net = network("advection", d, seed)
    params, static = eqx.partition(net, eqx.is_inexact_array)

    def moments(params: Any, x: Array) -> Array:
        net = eqx.combine(params, static)
        values = jax.vmap(lambda x: net(x, jnp.asarray(0.3)))(x)
        return jnp.mean(values) + jnp.mean(values**2)

    x = jax.ShapeDtypeStruct((nodes, d), jnp.result_type(float))
    compiled: Any = jax.jit(jax.grad(moments)).lower(params, x).compile()
    plan = compiled.memory_analysis()
    used = plan.temp_size_in_bytes + plan.argument_size_in_bytes
    return {"nodes": float(nodes), "GiB": used / 2**30}


def _time_of(equation: str, d: int, points: str, nodes: int, seed: int) -> float:
    """Seconds to find scale and shift at one time."""
    problem = problem_of(equation, d)
    net = network(equation, d, seed)
    if points == "grid":
        rule = GridProjection().training_rule(problem, _PER_AXIS**d, jax.random.key(0))
    else:
        rule = monte_carlo(problem.domain, nodes, key=jax.random.key(seed))
    u = conserve(net, rule, invariants=problem.invariants)

    @eqx.filter_jit
    def run(u: Any, t: Array) -> tuple[Array, Array]:
        now = u.at(t)
        return now.scale, now.shift

    t = jnp.asarray(0.5 * problem.duration)
    return interleaved(5, {"it": lambda: run(u, t)})["it"]


def _time(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    nodes = _NODES[setting]
    seconds = _time_of(case["equation"], case["d"], case["points"], nodes, seed)
    return {"ms": 1e3 * seconds}


def _error(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    d = case["d"]
    problem = problem_of(case["equation"], d)
    recipe = Recipe(
        MLP(32, 2),
        Adam(),
        steps=_STEPS[setting],
        points=RandomPoints(2, 16),
        nodes=64 if setting == "tiny" else 512,
        final_nodes=_NODES[setting],
        gradient=Subsampled(32),
        # The paper's way; |I| = |J| = 100 would be all terms up to d = 100.
        estimator=Independent(min(d, 10)),
    )
    run = run_of(problem, _METHODS[case["method"]], recipe, seed)
    # A thousand coordinates at many nodes take longer than the training.
    found = outcome(run, 0, seed, TIMES if d <= 100 else 5)
    names = ("c1_rule", "c2_rule", "c1_continuum", "c2_continuum")
    return {name: found[name] for name in names}


def _draw(rows: Rows) -> Figure:
    figure = new_figure(11.0, 9.0)
    parts: Any = figure.subfigures(3, 1)
    top, middle, bottom = parts
    left, right = top.subplots(1, 2)
    x, y = rows.line("d", "GiB", panel="memory")
    left.semilogy(x, y, "-o", color=ORANGE, label=f"grid, {_PER_AXIS} nodes an axis")
    for size, words in ((24.0, "24 GiB"), (80.0, "80 GiB")):
        left.axhline(size, color=GREY, lw=0.8, ls="--")
        left.annotate(words, (1.0, size), fontsize=7, va="bottom", color=GREY)
    plain(left, "Memory of a gradient on a whole grid", "dimension d", "GiB")
    left.legend(fontsize=8, frameon=False)
    methods, markers = rows.known("method"), ("o", "s", "^", "D")
    styles = list(zip(methods, markers, CYCLE, strict=False))
    for name, marker, colour in styles:
        dimensions, medians = [], []
        for d in sorted({r["case"]["d"] for r in rows.where("c2_rule", method=name)}):
            dimensions.append(d)
            medians.append(np.median(rows.values("c2_rule", method=name, d=d)))
        right.loglog(
            dimensions,
            np.maximum(medians, ZERO),
            "-",
            marker=marker,
            color=colour,
            label=name,
        )
    plain(right, "Error of c2 on the rule, median of equations", "dimension d")
    right.legend(fontsize=8, frameon=False)
    grid = middle.subplots(1, 4, sharey=True)
    for axes, equation in zip(grid, rows.known("equation"), strict=False):
        for name, marker, colour in styles:
            for kind, dash, fill in (
                ("continuum", "-", "full"),
                ("rule", ":", "none"),
            ):
                x, y = rows.line("d", f"c2_{kind}", method=name, equation=equation)
                axes.loglog(
                    x,
                    np.maximum(y, ZERO),
                    dash,
                    marker=marker,
                    ms=4,
                    color=colour,
                    fillstyle=fill,
                )
        plain(axes, f"{equation}: error of c2", "dimension d")
    grid[0].set_ylabel("continuum (filled), rule (empty)", fontsize=8)
    grid = bottom.subplots(1, 4, sharey=True)
    for axes, equation in zip(grid, rows.known("equation"), strict=False):
        for points, colour, marker in (("grid", ORANGE, "s"), ("random", BLUE, "o")):
            x, y = rows.line("d", "ms", panel="time", points=points, equation=equation)
            axes.loglog(x, y, "-", marker=marker, ms=4, color=colour, label=points)
        plain(axes, f"{equation}: time", "dimension d")
    grid[0].set_ylabel("ms", fontsize=9)
    grid[0].legend(fontsize=8, frameon=False)
    return figure


def _claims(rows: Rows) -> list[Claim]:
    x, memory = rows.line("d", "GiB", panel="memory")
    first = next((d for d, m in zip(x, memory, strict=True) if m > 80.0), None)
    factor = memory[-1] / memory[-2]
    dimensions = sorted({r["case"]["d"] for r in rows.where("c2_rule")})
    worst = max(rows.values("c2_rule", method="SDIFP"))
    soft = [
        float(np.median(rows.values("c2_rule", method="PINN-SC", d=d)))
        for d in (dimensions[0], dimensions[-1])
    ]
    off = float(
        np.median(rows.values("c2_continuum", method="SDIFP", d=dimensions[-1]))
    )
    after = float(
        np.median(rows.values("c2_continuum", method="PostHoc", d=dimensions[-1]))
    )
    flat = off < 10.0 * max(
        np.median(rows.values("c2_continuum", method="SDIFP", d=dimensions[0])), 1e-3
    )
    grows = soft[1] > 3.0 * soft[0]
    times, grids = (
        [
            (d, float(np.median(rows.values("ms", panel="time", points=points, d=d))))
            for d in sorted(rows.where("ms", points=points).known("d"))
        ]
        for points in ("random", "grid")
    )
    slope = times[-1][1] / times[0][1]
    return [
        Claim(
            "The memory of tensor grids grows exponentially and passes that of a GPU "
            "near d = 7.",
            (CONFIRMED if first in (6, 7, 8) else CONDITION) if factor > 8.0 else NOT,
            f"{factor:.0f} times with each axis, as a grid of {_PER_AXIS} nodes an "
            f"axis must; "
            + (
                f"above 80 GiB from d = {first} on." if first else "80 GiB not reached."
            ),
        ),
        Claim(
            "Up to d = 1000 the error of SDIFP stays flat, that of the others grows.",
            (CONFIRMED if flat and grows else CONDITION) if worst < 1e-12 else NOT,
            f"On the rule {worst:.0e} at worst; PINN-SC has {soft[0]:.1e} at d = "
            f"{dimensions[0]} and {soft[1]:.1e} at d = {dimensions[-1]}. On an "
            f"independent rule SDIFP is off by {off:.0e} at d = {dimensions[-1]} and "
            f"PostHoc by {after:.0e}: that is the noise of so many nodes, of the rule "
            f"and of the one that measures.",
        ),
        Claim(
            "The time of enforcing the constraint grows sharply for the others and "
            "stays flat for SDIFP.",
            (CONFIRMED if slope < 2.0 else CONDITION) if slope < 10.0 else NOT,
            f"On random nodes {times[0][1]:.2g} ms at d = {times[0][0]} and "
            f"{times[-1][1]:.2g} ms at d = {times[-1][0]}, {slope:.1f} times: the "
            f"first layer of the network has d inputs. On a grid {grids[0][1]:.2g} ms "
            f"at d = {grids[0][0]} and {grids[-1][1]:.2g} ms at d = {grids[-1][0]}.",
        ),
    ]


STUDY = Study(
    name="dimension",
    title="Memory, error and time against the dimension",
    labels=(
        "fig:highd_fg_mc_scaling",
        "fig:highd_mc_error_compare",
        "fig:highd_timing_compare",
    ),
    text=(
        f"Memory: the gradient of the moments of a network on a grid of {_PER_AXIS} "
        "nodes an axis, planned by the compiler and not run. Errors: short trainings "
        "on random points with sampled terms of the operator, then the error of the "
        "integrals on the rule and on an independent one. PINN-proj has no grid "
        "beyond d = 6 and is left out. Time: scale and shift at one time, on a grid "
        "and on random nodes. The full setting has three seeds; its trainings are as "
        "short as those of the quick one: 40 steps of a network with two layers of 32."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "nodes": "nodes of the grid",
        "GiB": "GiB",
        "ms": "ms",
        "c1_rule": "c1, on the rule",
        "c2_rule": "c2, on the rule",
        "c1_continuum": "c1, independent rule",
        "c2_continuum": "c2, independent rule",
    },
    draw=_draw,
    alt="Memory of grids, errors of the integrals and times against the dimension",
    claims=_claims,
    seeds={"tiny": 1, "quick": 1, "full": 3},
    once=lambda case: case["panel"] == "memory",
    seconds=6.0,
    alone=lambda case: case["panel"] == "time",
)
