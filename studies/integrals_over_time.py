"""Mass and squared norm of all methods over time, and their errors."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from . import conservation
from ._study import CONDITION, CONFIRMED, NOT, Claim, Rows, Study
from ._style import CYCLE, ZERO, new_figure, plain

_DASHES = ("-", "--", "-.", ":", (0, (1, 1)), "-", "--")


def _draw(rows: Rows) -> dict[str, Figure]:
    out = {}
    for d in rows.known("d"):
        here, name = rows.where(d=d), "figure" if d == 1 else f"figure-{d}d"
        unit = "relative error, continuum"
        out[name] = _panels(here, "continuum_over_time", unit, targets=False)
        if d == 1:
            unit = "divided by the volume"
            out["figure-curves"] = _panels(here, "over_time", unit, targets=True)
    return out


def _panels(rows: Rows, quantity: str, unit: str, targets: bool) -> Figure:
    """A curve of each method: a line of panels for each equation."""
    equations = rows.known("equation")
    figure = new_figure(11.0, 2.3 * len(equations) + 0.6)
    grid = figure.subplots(len(equations), 4, sharey=not targets, squeeze=False)
    for line, equation in enumerate(equations):
        for axes, (symbol, points) in zip(
            grid[line],
            [(c, p) for c in ("c1", "c2") for p in conservation.POINTS],
            strict=True,
        ):
            here = rows.where(equation=equation, points=points)
            for k, method in enumerate(conservation.METHODS):
                curve = here.one(f"{symbol}_{quantity}", method=method)
                if curve is None:
                    continue
                axes.plot(
                    here.one("times", method=method),
                    curve if targets else np.maximum(curve, ZERO),
                    linestyle=_DASHES[k],
                    color=CYCLE[k],
                    lw=1.3,
                    label=method,
                )
            if targets:
                target = here.one(f"{symbol}_target")
                axes.plot(here.one("times"), target, "x", ms=4, c="0.2", label="target")
                # A constant is not to be drawn as its rounding.
                low, high = axes.get_ylim()
                middle, half = 0.5 * (low + high), 0.5 * (high - low)
                half = max(half, 0.02 * abs(middle))
                axes.set_ylim(middle - half, middle + half)
            else:
                axes.set_yscale("log")
            last = line == len(equations) - 1
            plain(axes, f"{equation}: {symbol}, {points}", "time" if last else "")
        grid[line, 0].set_ylabel(unit, fontsize=8)
    figure.legend(
        *grid[0, 0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=8,
        fontsize=7,
        frameon=False,
    )
    return figure


def _claims(rows: Rows) -> list[Claim]:
    def worst(method: str, kind: str) -> float:
        curves: Any = [
            curve
            for symbol in ("c1", "c2")
            for curve in rows.values(f"{symbol}_{kind}_over_time", method=method)
        ]
        return float(np.max(curves))

    def drift(method: str) -> float:
        curves: Any = rows.values("c2_continuum_over_time", method=method)
        return float(np.median([curve[-1] for curve in curves]))

    exact = worst("SDIFP", "rule")
    tracked = exact < 1e-12
    # Some methods are left out of the full setting.
    order = ("Plain", "PINN-SC", "PINN-proj", "PostHoc", "SDIFP")
    drifts = {m: drift(m) for m in order if m in rows.known("method")}
    others = [m for m in order[:3] if m in drifts]
    drifting = [m for m in others if drifts[m] > 10.0 * drifts["SDIFP"]]
    listed = ", ".join(f"{off:.0e} ({m})" for m, off in drifts.items())
    verdict = CONFIRMED if tracked and drifting == others else CONDITION
    return [
        Claim(
            "SDIFP tracks both integrals at all times, whatever the points; the other "
            "methods drift.",
            verdict if tracked and drifting else NOT,
            f"SDIFP on its rule {exact:.0e} at all times, in the continuum "
            f"{worst('SDIFP', 'continuum'):.0e} at worst. Ten times further off than "
            f"SDIFP are {', '.join(drifting) or 'none'}: at the end c2 is off by "
            f"{listed}: medians over equations, dimensions and points.",
        )
    ]


STUDY = Study(
    name="integrals-over-time",
    title="Mass and squared norm over time",
    labels=(
        "fig:ct_curves_fix",
        "fig:ct_curves_mc",
        "fig:ct_failure_1d",
        "fig:ct_failure_2d",
        "fig:ct_failure_3d",
    ),
    text=(
        "The trainings of `conservation`, over time: errors in the continuum in one, "
        "two and three dimensions, and in one dimension the integrals themselves with "
        "their targets."
    ),
    cases=conservation.cases,
    measure=conservation.measure,
    columns={
        "c1_rule": "c1, on the rule",
        "c2_rule": "c2, on the rule",
        "c1_continuum": "c1, continuum",
        "c2_continuum": "c2, continuum",
    },
    draw=_draw,
    alt="Errors of mass and squared norm over time for all methods",
    claims=_claims,
    reasons=conservation.STUDY.reasons,
    seeds=conservation.STUDY.seeds,
    once=conservation.STUDY.once,
    seconds=conservation.STUDY.seconds,
    source="conservation",
)
