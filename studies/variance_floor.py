"""Amplification with and without a variance floor."""

import numpy as np
from matplotlib.figure import Figure

from sdifp import project
from sdifp.correction import AbsoluteFloor, RelativeFloor

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
from ._style import BLUE, GREY, ORANGE, ZERO, new_figure, plain

_FLOORS: dict[str, AbsoluteFloor | RelativeFloor] = {
    "none": AbsoluteFloor(0.0),
    "absolute, 1e-8": AbsoluteFloor(1e-8),
    "relative": RelativeFloor(),
}
_NODES = 256
_MEAN, _VARIANCE = 1.0, 1.0


def _cases(setting: Setting) -> list[Case]:
    exponents = range(-20, 1, 10 if setting == "tiny" else 1)
    return [
        {"floor": floor, "deviation": 10.0**e} for floor in _FLOORS for e in exponents
    ]


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(_NODES)
    noise = (noise - noise.mean()) / noise.std()
    raw = 1.0 + case["deviation"] * noise
    weights = np.full(_NODES, 1.0 / _NODES)
    found = project(
        raw,
        weights,
        mean=_MEAN,
        variance=_VARIANCE,
        floor=_FLOORS[case["floor"]],
        throw=False,
    )
    got = np.asarray(found.values)
    return {
        "scale": float(found.scale),
        "mean": float(abs(weights @ got - _MEAN)),
        "second": float(abs(weights @ got**2 - (_MEAN**2 + _VARIANCE))),
        "status": float(found.status),
    }


def _draw(rows: Rows) -> Figure:
    figure = new_figure(9.0, 3.8)
    left, right = figure.subplots(1, 2)
    styles = ((GREY, ":", "^", 9), (ORANGE, "--", "s", 5), (BLUE, "-", "o", 4))
    for floor, (colour, line, marker, size) in zip(
        rows.known("floor"), styles, strict=False
    ):
        for axes, quantity in ((left, "scale"), (right, "second")):
            x, y = rows.line("deviation", quantity, floor=floor)
            # A scale of zero has no place on this axis: the curve ends there.
            shown = np.where(np.asarray(y) > 0.0, y, np.nan if axes is left else ZERO)
            axes.loglog(
                x,
                shown,
                line,
                marker=marker,
                ms=size,
                fillstyle="none" if floor == "none" else "full",
                color=colour,
                label=floor,
            )
    label = "standard deviation of the raw field (its mean is 1)"
    plain(left, "Amplification", label, "scale")
    plain(right, "Error of the second moment", label, "on the rule (target 2)")
    left.legend(fontsize=8, frameon=False, title="floor", title_fontsize=8)
    return figure


def _claims(rows: Rows) -> list[Claim]:
    def largest(floor: str) -> float:
        return max(rows.values("scale", floor=floor))

    broken = [
        row["case"]["deviation"]
        for row in rows.where("second", floor="absolute, 1e-8")
        if row["measured"] > 1e-8
    ]
    kept = [
        row["case"]["deviation"]
        for row in rows.where("second", floor="relative")
        if row["measured"] < 1e-8
    ]
    bounded = largest("absolute, 1e-8") <= 1.0001e4
    verdict = NOT
    if bounded:
        verdict = CONDITION if broken else CONFIRMED
    return [
        Claim(
            "Large amplification appears only where the raw field is nearly constant "
            "and there is no floor; the floor keeps it bounded.",
            verdict,
            f"Largest scale {largest('none'):.0e} without, "
            f"{largest('absolute, 1e-8'):.0e} with the floor of 1e-8. But that floor "
            f"breaks the second moment of every field whose deviation is "
            f"{max(broken, default=0.0):.0e} or less; the relative one keeps it down "
            f"to {min(kept, default=0.0):.0e}, where only rounding is left of it.",
        )
    ]


STUDY = Study(
    name="variance-floor",
    title="Amplification with and without a variance floor",
    labels=("fig:sdifp_variance_floor_stability",),
    text=(
        "A raw field of mean 1 with a small deviation, on 256 nodes, is given mean 1 "
        "and variance 1. Floors: none, the paper's absolute one, and ours, relative to "
        "the size of the field. Where nothing but rounding is left of the field and no "
        "floor divides it, there is no scale that helps: it is 0, and the status says "
        "so."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "scale": "scale",
        "mean": "error of the mean",
        "second": "error of the second moment",
    },
    draw=_draw,
    alt="Scale and error of the second moment against the deviation of the raw field",
    claims=_claims,
    seconds=0.05,
)
