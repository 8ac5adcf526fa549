"""Bias and noise of sampled operators against the number of terms."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scipy.stats
from jaxtyping import Array
from matplotlib.figure import Figure

from sdifp import Problem, Recipe
from sdifp.estimators import Disjoint, Estimator, Independent, Shared, Symmetric, audit
from sdifp.problems import manufactured
from sdifp.training import MLP, Adam, Plain, RandomPoints, Training

from ._study import CONFIRMED, NOT, Case, Claim, Rows, Setting, Study, Value
from ._style import BLUE, GREEN, ORANGE, RED, new_figure, plain

_ESTIMATORS: dict[str, Callable[[int], Estimator]] = {
    "independent": Independent,
    "symmetric": Symmetric,
    "shared": Shared,
    "disjoint": Disjoint,
}
_DIMENSION: dict[Setting, int] = {"tiny": 4, "quick": 20, "full": 100}
_TERMS: dict[Setting, tuple[int, ...]] = {
    "tiny": (1,),
    "quick": (1, 2, 5, 10),
    "full": (1, 2, 5, 10, 20, 50),
}
_DRAWS: dict[Setting, int] = {"tiny": 8, "quick": 400, "full": 4000}
_STEPS: dict[str, int] = {"not trained": 0, "partly trained": 300}


def _cases(setting: Setting) -> list[Case]:
    return [
        {"network": state, "estimator": name, "terms": n}
        for state in (["not trained"] if setting == "tiny" else _STEPS)
        for name in _ESTIMATORS
        for n in _TERMS[setting]
    ]


@functools.lru_cache(maxsize=2)
def _trained(
    dimension: int, steps: int, seed: int
) -> tuple[Problem, Any, Array, Array]:
    problem = manufactured(dimension)
    recipe = Recipe(
        MLP(32, 2),
        Adam(1e-2),
        steps=max(1, steps),
        points=RandomPoints(2, 16),
        nodes=256,
    )
    key = jax.random.key(seed)
    run = Training(problem, Plain(), recipe=recipe, check=False, key=key)
    run.advance(steps)
    x, t = RandomPoints(2, 8).draw(key, problem.domain, 0.0, problem.duration)
    return problem, run.field, x, t


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    steps = min(_STEPS[case["network"]], 2 if setting == "tiny" else 10**9)
    problem, field, x, t = _trained(_DIMENSION[setting], steps, seed)
    found = audit(
        problem.residual,
        field,
        x,
        t,
        key=jax.random.key(seed),
        estimators={case["estimator"]: _ESTIMATORS[case["estimator"]](case["terms"])},
        repeats=_DRAWS[setting],
    ).rows[0]
    out = {
        "bias": found.bias,
        "margin": found.margin,
        "formula": found.predicted,
        "noise": found.noise,
    }
    # There is no formula for some estimators.
    return {name: value for name, value in out.items() if value is not None}


def _draw(rows: Rows) -> Figure:
    states = rows.known("network")
    figure = new_figure(10.0, 3.2 * len(states))
    grid = figure.subplots(len(states), 2, squeeze=False)
    styles = {
        "independent": (BLUE, "o"),
        "symmetric": (GREEN, "^"),
        "shared": (RED, "s"),
        "disjoint": (ORANGE, "D"),
    }
    for line, state in enumerate(states):
        left, right = grid[line]
        for k, (name, (colour, marker)) in enumerate(styles.items()):
            case = {"network": state, "estimator": name}
            x, bias = rows.line("terms", "bias", **case)
            _, margin = rows.line("terms", "margin", **case)
            # Side by side, so that the intervals can be told apart.
            beside = np.asarray(x) * 1.05 ** (k - 1.5)
            left.errorbar(
                beside,
                bias,
                margin,
                fmt=marker,
                color=colour,
                capsize=3,
                ms=5,
                label=name,
            )
            at, formula = rows.line("terms", "formula", **case)
            left.plot(at, formula, "-", color=colour, lw=0.8)
            right.loglog(
                *rows.line("terms", "noise", **case),
                "-",
                marker=marker,
                color=colour,
                label=name,
            )
        left.axhline(0.0, color="0.6", lw=0.8)
        left.set_xscale("log")
        plain(
            left,
            f"Bias, {state} (lines: covariance formula)",
            "sampled terms",
            "relative to the gradient",
        )
        plain(right, f"Noise, {state}", "sampled terms", "relative to the gradient")
    grid[0, 0].legend(fontsize=8, frameon=False)
    return figure


def _claims(rows: Rows) -> list[Claim]:
    def seen(name: str) -> tuple[int, int]:
        found = rows.where("bias", estimator=name)
        margins = rows.where("margin", estimator=name)
        biased = [
            abs(b["measured"]) > m["measured"]
            for b, m in zip(found, margins, strict=True)
        ]
        return sum(biased), len(biased)

    fair = [seen(name) for name in ("independent", "symmetric")]
    shared, count = seen("shared")
    off = [
        abs(b["measured"] - f["measured"]) / m["measured"]
        for name in ("shared", "disjoint")
        for b, f, m in zip(
            *(rows.where(q, estimator=name) for q in ("bias", "formula", "margin")),
            strict=True,
        )
        if f["measured"] is not None
    ]
    sizes = {
        state: max(map(abs, rows.values("bias", estimator="shared", network=state)))
        for state in rows.known("network")
    }
    largest = ", ".join(f"{size:.2g} ({state})" for state, size in sizes.items())
    none, tests = (sum(x) for x in zip(*fair, strict=True))
    # So many tests at 99 % fail now and then without any bias.
    chance = float(scipy.stats.binom.sf(none - 1, tests, 0.01))
    widest = min(rows.values("margin", estimator="independent"))
    agree = sum(x <= 1.0 for x in off)
    return [
        Claim(
            "Independent samples of terms for residual and derivative give an "
            "unbiased gradient.",
            CONFIRMED if chance > 0.01 else NOT,
            f"Zero is outside the interval in {none} of {tests} tests at 99 % each, "
            f"independent and symmetric; that many or more by chance: {chance:.0%}. "
            f"The narrowest interval is +-{widest:.2g} of the gradient.",
        ),
        Claim(
            "The same sample for both is biased by their covariance.",
            CONFIRMED if shared == count and agree >= 0.95 * len(off) else NOT,
            f"Bias seen in {shared} of {count} tests, at most, in units of the "
            f"gradient: {largest}. The formula is inside the interval in {agree} of "
            f"{len(off)} tests, disjoint samples (which are not independent) included.",
        ),
    ]


STUDY = Study(
    name="estimator-bias",
    title="Bias and noise of sampled operators",
    labels=("cor:operator_reuse_bias",),
    text=(
        "The Laplacian of the manufactured problem, sampled by coordinates: the "
        "gradient of the squared residual of a network at 16 points, against "
        "the one of the full operator. Bias along the direction of the covariance, "
        "with a 99 % interval; lines are the covariance formula, computed from all "
        "terms. Before training, and after 300 steps of Adam."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "bias": "bias",
        "margin": "+-",
        "formula": "covariance formula",
        "noise": "noise",
    },
    draw=_draw,
    alt="Bias with intervals and formula, and noise, against the number of terms",
    claims=_claims,
    seeds={"tiny": 1, "quick": 1, "full": 3},
    seconds=5.0,
)
