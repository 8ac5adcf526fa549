"""Steady problems, where the integral makes the problem well-posed: all methods.

Each contender has the time that SDIFP takes with the recipe of the problem: the same
network, points and optimiser, and as many steps as fit. The problems of Han, Lu and
Zhou that ask for an eigenvalue, and the excited states of the oscillator, are solved
by SDIFP alone.
"""

import functools
import math
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from sdifp import Problem, Recipe, problems
from sdifp._timing import interleaved
from sdifp.training import (
    MLP,
    SDIFP,
    AugmentedLagrangian,
    Method,
    PinAndRescale,
    Plain,
    PostHoc,
    RandomPoints,
    Soft,
    Training,
    TrainingDiverged,
    eigenpairs,
    recipe_for,
)

from ._methods import COLUMNS, shorter
from ._study import CONDITION, CONFIRMED, NOT, Case, Claim, Rows, Setting, Study, Value
from ._style import BLUE, GREEN, GREY, ORANGE, RED, new_figure, plain

_PROBLEMS = {
    "gross_pitaevskii(1)": problems.gross_pitaevskii,
    "gross_pitaevskii(2)": lambda: problems.gross_pitaevskii(2),
    "double_well()": problems.double_well,
    "torus_density(rotation=1.0)": lambda: problems.torus_density(rotation=1.0),
    "droplet()": problems.droplet,
    "fokker_planck_eigen(5)": lambda: problems.fokker_planck_eigen(5),
    "fokker_planck_eigen(10)": lambda: problems.fokker_planck_eigen(10),
    # By SDIFP alone.
    "cubic_schroedinger(5)": lambda: problems.cubic_schroedinger(5),
    "cubic_schroedinger(10)": lambda: problems.cubic_schroedinger(10),
    "linear_schroedinger(5)": lambda: problems.linear_schroedinger(5),
    "linear_schroedinger(10)": lambda: problems.linear_schroedinger(10),
}
_COMPARED = tuple(_PROBLEMS)[:7]
_OSCILLATORS = {"oscillator(1), six states": 1, "oscillator(2), six states": 2}
_STATES = 6
# Five weights over six decades: beside a functional, whose value the penalty must
# outweigh, and beside a residual, which vanishes at the solution.
_OF_FUNCTIONALS = (1.0, 10**1.5, 1e3, 10**4.5, 1e6)
_OF_RESIDUALS = (1e-3, 10**-1.5, 1.0, 10**1.5, 1e3)


def _cases(setting: Setting) -> list[Case]:
    if setting == "tiny":
        return [
            {"problem": "droplet()", "method": "PostHoc"},
            {"problem": "double_well()", "method": "PinAndRescale"},
            {"problem": "oscillator(1), six states", "method": "SDIFP"},
        ]
    compared = _COMPARED if setting == "full" else _COMPARED[:5:2]
    alone = (*list(_PROBLEMS)[7:], *_OSCILLATORS) if setting == "full" else ()
    return [
        *({"problem": p, "method": m} for p in compared for m in _contenders(p)),
        *({"problem": p, "method": "SDIFP"} for p in alone),
    ]


def _contenders(name: str) -> list[str]:
    is_functional = name.partition("(")[0] in ("gross_pitaevskii", "droplet")
    weights = _OF_FUNCTIONALS if is_functional else _OF_RESIDUALS
    found = ["SDIFP", "Plain", "PostHoc", *(f"Soft({w:.3g})" for w in weights)]
    found.append("AugmentedLagrangian")
    # The mass of a field that changes its sign cannot be reached by a factor.
    return found if name == "droplet()" else [*found, "PinAndRescale"]


def _method(label: str, problem: Problem) -> Method:
    if label.startswith("Soft"):
        return Soft(float(label[5:-1]))
    if label == "AugmentedLagrangian":
        weight = 1.0 if problem.functional is None else 1e3
        return AugmentedLagrangian(weight, 0.1 * weight)
    known = (SDIFP(), Plain(), PostHoc(), PinAndRescale())
    return {type(one).__name__: one for one in known}[label]


@functools.cache
def _setup(name: str, setting: Setting) -> tuple[Problem, Recipe]:
    problem: Problem = _PROBLEMS[name]()
    return problem, _in(setting, recipe_for(problem))


def _in(setting: Setting, recipe: Recipe) -> Recipe:
    if setting != "tiny":
        # A tenth of the steps shows nothing here.
        return recipe
    few = recipe.replace(network=MLP(8, 1), points=RandomPoints(2, 8), nodes=24)
    return shorter(few, setting)


@functools.cache
def _costs(name: str, setting: Setting) -> dict[str, float]:
    """The time of a step of each kind of method over that of SDIFP."""
    problem, recipe = _setup(name, setting)
    rounds, steps = (1, 1) if setting == "tiny" else (5, 4)
    recipe = recipe.replace(steps=(rounds + 1) * steps)
    kinds = ("SDIFP", "Plain", "Soft(1)", "AugmentedLagrangian", "PinAndRescale")
    runs = {
        kind.partition("(")[0]: _begin(problem, kind, recipe, 0)
        for kind in kinds
        if kind[:4] == "Soft" or kind in _contenders(name)
    }
    found = interleaved(
        rounds, {k: functools.partial(run.advance, steps) for k, run in runs.items()}
    )
    found["PostHoc"] = found["Plain"]
    return {kind: time / found["SDIFP"] for kind, time in found.items()}


def _begin(problem: Problem, label: str, recipe: Recipe, seed: int) -> Training:
    return Training(
        problem,
        _method(label, problem),
        recipe=recipe,
        every=recipe.steps,
        check=False,
        key=jax.random.key(seed),
    )


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    name, label = case["problem"], case["method"]
    if name in _OSCILLATORS:
        return _states(_OSCILLATORS[name], seed, setting)
    problem, recipe = _setup(name, setting)
    found: dict[str, Value] = {}
    if name in _COMPARED:
        cost = _costs(name, setting)[label.partition("(")[0]]
        recipe = recipe.replace(steps=max(1, round(recipe.steps / cost)))
        found["cost"] = cost
    run = _begin(problem, label, recipe, seed)
    try:
        trained = run.result()
    except TrainingDiverged:
        # Such as a network that has collapsed to zero: nothing can be corrected.
        return found | {"l2": None, "steps": run.step}
    metrics = trained.metrics
    found |= {
        "l2": metrics.l2_error,
        "violation": max(metrics.errors.values()),
        "steps": metrics.steps,
        "seconds": run.step / run.speed if run.speed else None,
    }
    if trained.certificate is not None:
        found["on_rule"] = max(row.on_rule for row in trained.certificate.rows)
    if trained.functional is not None and problem.minimum is not None:
        off = trained.functional.value - problem.minimum
        found["functional"] = abs(off / problem.minimum)
    if "eigenvalue" in metrics.measured:
        exact = problem.minimum if "linear" in name else -3.0
        assert exact is not None
        found["eigenvalue"] = abs(metrics.measured["eigenvalue"].value - exact)
    return found


def _states(dimension: int, seed: int, setting: Setting) -> dict[str, Value]:
    """The worst relative error of the lowest energies."""
    problem = problems.oscillator(dimension)
    count = 2 if setting == "tiny" else _STATES
    recipe, key = _in(setting, recipe_for(problem)), jax.random.key(seed)
    found = list(eigenpairs(problem, count, recipe=recipe, key=key))
    exact = [level for level, _ in problems.oscillator_states(dimension, count)]
    off = [abs(p.value.value / e - 1.0) for p, e in zip(found, exact, strict=True)]
    return {
        "eigenvalue": max(off),
        "overlap": max(pair.overlap for pair in found),
        "seconds": sum(pair.trained.metrics.seconds for pair in found),
    }


def _median(rows: Rows, problem: str, method: str) -> float:
    """Of the relative L2 error; infinite where there was no field."""
    found = rows.where("l2", problem=problem, method=method)
    values = [math.inf if r["measured"] is None else r["measured"] for r in found]
    return float(np.median(values)) if values else math.inf


def _claims(rows: Rows) -> list[Claim]:
    compared = [p for p in _COMPARED if p in rows.known("problem")]
    penalties = {
        p: [m for m in _contenders(p) if m.startswith(("Soft", "Aug"))]
        for p in compared
    }
    best = {p: min(_median(rows, p, m) for m in penalties[p]) for p in compared}
    ratios = {p: best[p] / _median(rows, p, "SDIFP") for p in compared}
    clear = [p for p in compared if ratios[p] >= 5.0]
    listed = ", ".join(f"{p} {ratio:.2g}" for p, ratio in ratios.items())
    verdict = CONFIRMED if len(clear) >= 4 else CONDITION if clear else NOT
    return [
        Claim(
            "(Not in the paper:) on steady problems the constraint is at least five "
            "times as accurate as every penalty and the augmented Lagrangian.",
            verdict,
            f"On {len(clear)} of {len(compared)}; error of the best of them over that "
            f"of SDIFP: {listed}.",
        )
    ]


# Contenders of the figure: the five weights have one colour.
_COLOURS = {
    "Plain": (GREY, "x"),
    "PostHoc": (GREY, "s"),
    "Soft": (ORANGE, "."),
    "AugmentedLagrangian": (RED, "^"),
    "PinAndRescale": (GREEN, "D"),
    "SDIFP": (BLUE, "o"),
}


def _draw(rows: Rows) -> Figure:
    compared = [p for p in _COMPARED if p in rows.known("problem")]
    if not compared:
        compared = rows.known("problem")
    figure = new_figure(9.0, 4.2)
    axes = figure.subplots()
    for x, problem in enumerate(compared):
        for k, (kind, (colour, marker)) in enumerate(_COLOURS.items()):
            at = x + 0.12 * (k - 2.5)
            for label in rows.known("method"):
                if label.partition("(")[0] != kind:
                    continue
                _mark(axes, rows, problem, label, at, colour, marker)
    for kind, (colour, marker) in _COLOURS.items():
        axes.plot([], [], marker, color=colour, label=kind)
    axes.set_yscale("log")
    short = lambda p: p.removesuffix("()").replace("_eigen", "\n_eigen")
    names = [short(p).replace("(", "\n(") for p in compared]
    axes.set_xticks(range(len(compared)), names, fontsize=7)
    plain(axes, "Relative L2 error at equal time", "", "median, and range of seeds")
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _mark(
    axes: Any,
    rows: Rows,
    problem: str,
    label: str,
    at: float,
    colour: str,
    marker: str,
) -> None:
    for row in rows.where("l2", problem=problem, method=label):
        if row["measured"] is None:
            continue
        axes.plot([at, at], [row["low"], row["high"]], color=colour, lw=0.8)
        axes.plot(at, row["measured"], marker, color=colour, ms=4.5)


STUDY = Study(
    name="steady",
    title="Steady problems: the constraint and its rivals",
    text="The recipes of the library, float64, equal time.",
    cases=_cases,
    measure=_measure,
    columns={name: COLUMNS[name] for name in ("l2",)}
    | {
        "violation": "integral, independent rule",
        "on_rule": COLUMNS["on_rule"],
        "functional": "functional, relative error",
        "eigenvalue": "eigenvalue, error",
        "overlap": "overlap",
        "steps": COLUMNS["steps"],
        "cost": COLUMNS["cost"],
        "seconds": COLUMNS["seconds"],
    },
    draw=_draw,
    alt="Errors of all methods on seven steady problems",
    claims=_claims,
    seeds={"tiny": 1, "quick": 1, "full": 3},
    seconds=40.0,
    alone=lambda case: True,
)
