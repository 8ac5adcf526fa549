"""Scale and shift that are kept for some steps, and how they move in a training."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from sdifp import Problem, Recipe
from sdifp._timing import interleaved
from sdifp.field import Lagged, Subsampled
from sdifp.training import MLP, SDIFP, Adam, PostHoc, RandomPoints, Training

from ._fields import nodes_of, problem_of, targets
from ._study import CONDITION, CONFIRMED, NOT, Case, Claim, Rows, Setting, Study, Value
from ._style import CYCLE, ZERO, new_figure, plain
from ._trained import begun, outcome

_SAMPLE = 32
MODES: dict[str, Any] = {
    "every step": Subsampled(_SAMPLE),
    "every step, interpolated": Lagged(1, _SAMPLE),
    "every 10 steps": Lagged(10, _SAMPLE),
    "every 100 steps": Lagged(100, _SAMPLE),
    "never (PostHoc)": None,
}
_PROBLEMS = (("advection", 1), ("KdV", 1), ("advection", 3), ("reaction-diffusion", 10))
_NODES = {1: 512, 3: 1728, 10: 2048}
_STEPS: dict[Setting, int] = {"tiny": 4, "quick": 400, "full": 2000}
# Curves have so many steps.
_CURVE = 20


def _cases(setting: Setting) -> list[Case]:
    problems = {"tiny": _PROBLEMS[:1], "quick": _PROBLEMS[::3], "full": _PROBLEMS}
    return [
        {"equation": equation, "d": d, "moments": mode}
        for equation, d in problems[setting]
        for mode in MODES
    ]


def _recipe(d: int, setting: Setting) -> Recipe:
    network = MLP(8, 1) if setting == "tiny" else MLP(64, 3, harmonics=2)
    nodes = 64 if setting == "tiny" else _NODES[d]
    return Recipe(
        network, Adam(2e-3), _STEPS[setting], points=RandomPoints(4, 32), nodes=nodes
    )


def _begin(case: Case, seed: int, setting: Setting) -> Training:
    problem = problem_of(case["equation"], case["d"])
    mode = MODES[case["moments"]]
    method = PostHoc() if mode is None else SDIFP(gradient=mode)
    return begun(problem, method, _recipe(case["d"], setting), seed)


@functools.cache
def _costs(equation: str, d: int, setting: Setting) -> dict[str, float]:
    """The time of a step in each mode, over that of a plain network."""
    count = 2 if setting == "tiny" else 100
    runs = {
        mode: _begin({"equation": equation, "d": d, "moments": mode}, 0, setting)
        for mode in MODES
    }
    steppers = {
        name: functools.partial(_some_steps, run, run.snapshot(), count)
        for name, run in runs.items()
    }
    found = interleaved(3 if setting != "tiny" else 1, steppers)
    return {name: found[name] / found["never (PostHoc)"] for name in found}


def _some_steps(run: Training, first: dict[str, np.ndarray], count: int) -> None:
    """Steps from the beginning, as many as a table may be kept for."""
    run.restore(first)
    run.advance(count)


def _now(run: Training) -> tuple[float, float, float]:
    """Scale and shift of the final field half way through time, and the error of the
    field that is trained, with the moments that it has kept."""
    problem = run.problem
    t = 0.5 * problem.duration
    final = run.final_field.at(jnp.asarray(t))
    return float(final.scale), float(final.shift), _late(run, problem, t)


def _late(run: Training, problem: Problem, t: float) -> float:
    """The error of the squared norm on the rule that lagging leaves."""
    kept = run.state.kept
    if kept is None or run.step == 0:
        return 0.0
    u = run.field
    stale = u.with_gradient(u.gradient.keep(kept)).resample(
        jax.random.key(0), rule=False
    )
    x, weights = nodes_of(u.rule)
    now = stale.at(jnp.asarray(t))
    v = np.asarray(jax.jit(jax.vmap(now))(jnp.asarray(x)))
    wanted = targets(problem, t)[1]
    return float(abs(weights @ v**2 - wanted) / wanted)


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    run = _begin(case, seed, setting)
    marks = np.linspace(0, run.steps, 1 + min(_CURVE, run.steps)).astype(int)
    curves = [_now(run)]
    for a, b in itertools.pairwise(marks):
        run.advance(int(b - a))
        curves.append(_now(run))
    scale, shift, late = (list(c) for c in zip(*curves, strict=True))
    found: Any = outcome(run, 0, seed)
    # Where nodes are drawn in every step, those of the table are gone.
    known: dict[str, Value] = {"late": max(late[1:])} if case["d"] <= 3 else {}
    costs = _costs(case["equation"], case["d"], setting)
    return known | {
        "l2": found["l2"],
        "c2_rule": found["c2_rule"],
        "cost": costs[case["moments"]],
        "settled": _settled(scale),
        "scale": scale,
        "shift": shift,
        "steps": [float(m) for m in marks],
    }


def _settled(curve: list[float]) -> float:
    """By how much a curve moves in its last tenth, over how much it moves in all."""
    last = curve[-max(2, len(curve) // 10 + 1) :]
    whole = max(curve) - min(curve)
    return (max(last) - min(last)) / whole if whole > 0.0 else 0.0


def _draw(rows: Rows) -> Figure:
    figure = new_figure(11.0, 5.6)
    problems = list(
        dict.fromkeys((r["case"]["equation"], r["case"]["d"]) for r in rows)
    )
    grid = figure.subplots(2, len(problems), squeeze=False)
    for column, (equation, d) in enumerate(problems):
        for line, name in enumerate(("scale", "shift")):
            axes = grid[line, column]
            for k, mode in enumerate(MODES):
                case = {"equation": equation, "d": d, "moments": mode}
                curve = rows.one(name, **case)
                if curve is not None:
                    style = ("-", "--", "-.", ":", (0, (1, 1)))[k]
                    axes.plot(
                        rows.one("steps", **case),
                        curve,
                        color=CYCLE[k],
                        linestyle=style,
                        lw=1.3,
                        label=mode,
                    )
            title = f"{equation}, {d}-D: {name}" if line == 0 else name
            plain(axes, title, "step" if line else "")
    figure.legend(
        *grid[0, 0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=len(MODES),
        fontsize=7,
        frameon=False,
    )
    return figure


def _claims(rows: Rows) -> list[Claim]:
    def worst(quantity: str, mode: str) -> float:
        return max(max(rows.values(quantity, moments=mode)), ZERO)

    settled = [
        max(rows.values("settled", moments=m))
        for m in MODES
        if m != "never (PostHoc)" and rows.values("settled", moments=m)
    ]
    stable = max(settled)
    ratios, savings = {}, {}
    problems = {(r["case"]["equation"], r["case"]["d"]) for r in rows}
    for mode in list(MODES)[1:4]:
        pairs = [
            (
                rows.one(q, equation=e, d=d, moments=mode),
                rows.one(q, equation=e, d=d, moments="every step"),
            )
            for q in ("l2", "cost")
            for e, d in sorted(problems)
        ]
        half = len(pairs) // 2
        ratios[mode] = [a / b for a, b in pairs[:half] if a and b]
        savings[mode] = [a / b for a, b in pairs[half:] if a and b]
    as_good = [m for m, r in ratios.items() if r and max(r) < 1.25]
    text = "; ".join(
        f"{mode}: {min(savings[mode]):.2f} to {max(savings[mode]):.2f} of the time of "
        f"a step, {min(r):.2f} to {max(r):.2f} times the L2 error, the squared norm "
        f"off by up to {worst('late', mode):.0e} while it trains"
        for mode, r in ratios.items()
        if r
    )
    verdict = CONFIRMED if len(as_good) == len(ratios) else CONDITION
    return [
        Claim(
            "Once training converges, alpha and beta stabilise.",
            CONFIRMED if stable < 0.1 else CONDITION if stable < 0.5 else NOT,
            f"In the last tenth of the steps the scale, half way through time, moves "
            f"by at most {stable:.0%} of its whole range. They are functions of time, "
            f"which the paper's 'fixed scalars' are not.",
        ),
        Claim(
            "The coefficients may be updated less frequently, approximated or cached.",
            verdict if as_good else NOT,
            f"Against moments of every step: {text}. The trained field is exact in all "
            f"of them, {max(rows.values('c2_rule')):.0e} on the rule at worst.",
        ),
    ]


STUDY = Study(
    name="lagged",
    title="Scale and shift during a training, and kept for some steps",
    labels=("sec:sdifp", "app:complexity"),
    text=(
        "The forward pass over all nodes, which scale and shift need, is what a step "
        "of SDIFP costs. `Lagged(n)` makes it in every n-th step only, at 12 times of "
        "the interval, interpolates in time, and estimates the change since then from "
        "the 32 nodes that the gradient comes from in all of them. Without this "
        "estimate scale and shift are those of an old network, and a training on "
        "advection failed. Measured are the error at the end, the time of a step "
        "over that of a plain network, by how much the squared norm is off on the "
        "rule while it trains (it is exact afterwards), and scale and shift of the "
        "field half way through time, over the steps."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "l2": "relative L2",
        "c2_rule": "c2, on the rule, at the end",
        "late": "c2, on the rule, in training",
        "cost": "time of a step",
        "settled": "scale, moved in the last tenth",
    },
    draw=_draw,
    alt="Scale and shift over the steps of a training, for moments of every step and "
    "moments that are kept",
    claims=_claims,
    seeds={"tiny": 1, "quick": 1, "full": 3},
    seconds=12.0,
    alone=lambda case: True,
)
