"""The fast mode I = J at the beginning of a training: loss against wall time."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from sdifp import Problem, problems
from sdifp.estimators import (
    Estimator,
    Full,
    Independent,
    Shared,
    Symmetric,
    WarmUp,
)
from sdifp.training import SDIFP, RandomPoints, Training, recipe_for

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
from ._style import CYCLE, new_figure, plain

_PROBLEMS = {
    "reaction-diffusion": problems.reaction_diffusion,
    "manufactured": problems.manufactured,
}
_DIMENSION: dict[Setting, int] = {"tiny": 8, "quick": 100, "full": 1000}
_STEPS: dict[Setting, int] = {"tiny": 6, "quick": 180, "full": 600}
# Where the curves are measured, the beginning aside.
_REPORTS: dict[Setting, int] = {"tiny": 3, "quick": 12, "full": 24}
_TERMS: dict[Setting, int] = {"tiny": 2, "quick": 16, "full": 16}
# Ratios nearer to one than this count as equal.
_MARGIN = 0.05
_ESTIMATORS = ("shared", "independent", "symmetric", "warm-up", "full")


def _cases(setting: Setting) -> list[Case]:
    names = list(_PROBLEMS)[: 1 if setting == "tiny" else None]
    return [{"problem": p, "estimator": e} for p in names for e in _ESTIMATORS]


def _estimator(name: str, n: int, steps: int) -> Estimator:
    known = {
        "shared": Shared(n),
        "independent": Independent(n),
        "symmetric": Symmetric(n),
        "warm-up": WarmUp(Shared(n), Independent(n), steps=steps // 3),
        "full": Full(),
    }
    return known[name]


@eqx.filter_jit
def _look(problem: Problem, u: Any, x: Array, t: Array) -> tuple[Array, Array]:
    """The loss with all terms, and the relative L2 error, on fixed points."""
    loss = Full()(problem.residual, u, x, t, key=jax.random.key(0)).loss
    (solution,) = problem.references

    def at(x: Array, t: Array) -> tuple[Array, Array]:
        found, exact = jax.vmap(u.at(t))(x), jax.vmap(lambda x: solution(x, t))(x)
        return jnp.sum((found - exact) ** 2), jnp.sum(exact**2)

    off, size = jax.lax.map(lambda a: at(*a), (x, t))
    return loss, jnp.sqrt(jnp.sum(off) / jnp.sum(size))


@functools.cache
def _problem(name: str, dimension: int) -> Problem:
    return _PROBLEMS[name](dimension)


@functools.lru_cache(maxsize=1)
def _together(
    name: str, setting: Setting, seed: int
) -> dict[str, dict[str, list[float]]]:
    """The curves of all estimators. They are trained in turns, a part of the steps at a
    time, so that what else the machine does falls on all of them alike."""
    problem = _problem(name, _DIMENSION[setting])
    steps, n = _STEPS[setting], _TERMS[setting]
    recipe = recipe_for(problem).replace(steps=steps, final_nodes=2**10)
    key = jax.random.key(40_000 + seed)
    x, t = RandomPoints(2, 256).draw(key, problem.domain, 0.0, problem.duration)
    runs = {
        name: Training(
            problem,
            SDIFP(),
            recipe=recipe.replace(estimator=_estimator(name, n, steps)),
            key=jax.random.key(seed),
            every=steps,
            check=False,
        )
        for name in _ESTIMATORS
    }
    curves: dict[str, dict[str, list[float]]] = {
        name: {"at": [], "at_seconds": [], "loss_curve": [], "l2_curve": []}
        for name in runs
    }

    def report(name: str, run: Training) -> None:
        found = [float(v) for v in _look(problem, run.final_field, x, t)]
        seconds = run.step / run.speed if run.speed else 0.0
        for curve, value in zip(
            curves[name].values(), (run.step, seconds, *found), strict=True
        ):
            curve.append(value)

    for name, run in runs.items():
        # Compiled before anything is timed.
        run.advance(0)
        report(name, run)
    for _ in range(_REPORTS[setting]):
        for name, run in runs.items():
            run.advance(steps // _REPORTS[setting])
            report(name, run)
    return curves


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    curves = _together(case["problem"], setting, seed)[case["estimator"]]
    out: dict[str, Value] = {
        "loss": curves["loss_curve"][-1],
        "l2": curves["l2_curve"][-1],
        "ms": 1e3 * curves["at_seconds"][-1] / curves["at"][-1],
    }
    return out | {name: list(curve) for name, curve in curves.items()}


def at_equal_time(
    one: dict[str, list[float]], other: dict[str, list[float]], times: np.ndarray
) -> np.ndarray:
    """The ratio of two curves, `values` over `seconds`, at the same times, with
    logarithms interpolated linearly."""
    first, second = (
        np.interp(times, curve["seconds"], np.log(curve["values"]))
        for curve in (one, other)
    )
    return np.exp(first - second)


class _Ratios:
    """A quantity of one estimator over that of another, of each seed."""

    def __init__(self, rows: Rows, problem: str, quantity: str, one: str, other: str):
        self._curves = [
            self._of(rows, problem, name, quantity) for name in (one, other)
        ]

    @staticmethod
    def _of(
        rows: Rows, problem: str, estimator: str, quantity: str
    ) -> list[dict[str, list[float]]]:
        seconds, values = (
            rows.where(name, problem=problem, estimator=estimator)[0]["values"]
            for name in ("at_seconds", f"{quantity}_curve")
        )
        return [
            {"seconds": s, "values": v} for s, v in zip(seconds, values, strict=True)
        ]

    def early(self) -> list[float]:
        """The geometric mean over the first third of the time that the second takes
        for all its steps, at equal wall time."""
        out = []
        for one, other in zip(*self._curves, strict=True):
            times = np.linspace(0.0, other["seconds"][-1] / 3.0, 33)[1:]
            ratios = at_equal_time(one, other, times)
            out.append(float(np.exp(np.mean(np.log(ratios)))))
        return out

    def last(self) -> list[float]:
        """After the same number of steps."""
        return [
            one["values"][-1] / other["values"][-1]
            for one, other in zip(*self._curves, strict=True)
        ]


def _words(ratios: list[float]) -> str:
    return f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _verdict(holds: list[bool]) -> str:
    return (CONFIRMED if all(holds) else CONDITION) if any(holds) else NOT


def _draw(rows: Rows) -> Figure:
    names = rows.known("problem")
    figure = new_figure(10.0, 3.1 * len(names))
    grid = figure.subplots(len(names), 2, squeeze=False)
    for line, problem in zip(grid, names, strict=True):
        for axes, quantity, title in (
            (line[0], "loss", "loss with all terms"),
            (line[1], "l2", "relative L2 error"),
        ):
            for k, name in enumerate(rows.known("estimator")):
                case = {"problem": problem, "estimator": name}
                axes.semilogy(
                    rows.one("at_seconds", **case),
                    rows.one(f"{quantity}_curve", **case),
                    "-",
                    marker="osD^v"[k],
                    ms=3.5,
                    lw=1.2,
                    color=CYCLE[k],
                    label=name,
                )
            plain(axes, f"{problem}: {title}", "seconds of steps")
    grid[0, 0].legend(fontsize=8, frameon=False)
    return figure


def _claims(rows: Rows) -> list[Claim]:
    names = rows.known("problem")
    ratios = lambda quantity, one, other: {
        p: _Ratios(rows, p, quantity, one, other) for p in names
    }
    against = {q: ratios(q, "shared", "independent") for q in ("loss", "l2")}
    early, last = (
        {q: {p: getattr(r, when)() for p, r in of.items()} for q, of in against.items()}
        for when in ("early", "last")
    )
    listed = lambda found: "; ".join(f"{p} {_words(r)}" for p, r in found.items())
    ms = "; ".join(
        f"{p} "
        + ", ".join(
            f"{e} {rows.one('ms', problem=p, estimator=e):.1f} ms"
            for e in rows.known("estimator")
        )
        for p in names
    )
    warm, full = (
        {
            q: {p: r.last() for p, r in ratios(q, one, "independent").items()}
            for q in against
        }
        for one in ("warm-up", "full")
    )
    return [
        Claim(
            "The fast mode I = J is cheaper per step and can shorten the early phase "
            "of a training.",
            _verdict([max(r) < 1.0 - _MARGIN for r in early["loss"].values()]),
            f"Loss of shared over independent at equal wall time, the mean of the "
            f"first third: {listed(early['loss'])}; L2 error {listed(early['l2'])}. "
            f"A step takes: {ms}.",
        ),
        Claim(
            "The fast mode is biased, so the independent one is recommended for "
            "production runs.",
            _verdict([min(r) > 1.0 + _MARGIN for r in last["l2"].values()]),
            f"After all steps, shared over independent: loss {listed(last['loss'])}; "
            f"L2 error {listed(last['l2'])}.",
        ),
        Claim(
            "(Not in the paper:) the fast mode for the first third of the steps is "
            "better than the independent one from the beginning.",
            _verdict([max(r) < 1.0 - _MARGIN for r in warm["l2"].values()]),
            f"After all steps, over independent: warm-up loss {listed(warm['loss'])}, "
            f"L2 error {listed(warm['l2'])}; all terms loss {listed(full['loss'])}, L2 "
            f"error {listed(full['l2'])}.",
        ),
    ]


STUDY = Study(
    name="warm-up",
    title="The fast mode I = J early in a training",
    labels=("cor:operator_reuse_bias",),
    text=(
        "Loss and relative L2 error against the wall time of the steps, without "
        "compilation and measurements. The recipe of the problems with fewer steps of "
        "Adam, and 16 terms of the Laplacian: one sample for residual and derivative "
        "(shared), two (independent, symmetric), shared for the first third of the "
        "steps and then independent (warm-up), and all terms (full), which need no "
        "sample. The loss is that of all terms on a fixed batch of 2 times and 256 "
        "points, the L2 error is measured there too. The five are trained in turns, a "
        "part of the steps at a time. Ratios are taken for each seed, with the median "
        "and the range over seeds; within five per cent of one they count as equal."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "loss": "loss at the end",
        "l2": "relative L2 at the end",
        "ms": "ms per step",
    },
    draw=_draw,
    alt="Loss and L2 error against seconds for five estimators, two problems",
    claims=_claims,
    seeds={"tiny": 1, "quick": 1, "full": 3},
    float64=lambda case: False,
    seconds=10.0,
    alone=lambda case: True,
)
