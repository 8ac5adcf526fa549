"""The pictures of one run, from what it saved."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .._folder import Saved
from ._style import (
    BLUE,
    DIFFERENCE,
    FIELD,
    GREEN,
    GREY,
    ORANGE,
    RED,
    ZERO,
    new_figure,
    plain,
)

SYMBOLS = {"mass": "c1", "energy": "c2"}


class Picture(NamedTuple):
    """A figure with its name, its caption and what it shows in words."""

    name: str
    figure: Figure
    caption: str
    alt: str


def pictures(saved: Saved) -> list[Picture]:
    """All pictures that the data give."""
    found = [_integrals(saved), _solution(saved), _training(saved)]
    return [p for p in found if p is not None]


def _integrals(saved: Saved) -> Picture:
    integrals = saved.result["integrals"]
    times = np.asarray(integrals["times"])
    figure = new_figure(9.0, 5.6)
    grid = figure.subplots(2, 2, sharex=True)
    words = []
    for row, name in zip(grid, SYMBOLS, strict=True):
        curves = integrals[name]
        value, error = row
        if "raw" in curves:
            value.plot(times, curves["raw"], "--", color=ORANGE, label="raw network")
        value.plot(times, curves["field"], color=BLUE, label="field")
        target = curves["target"]
        per = " (per volume)" if saved.result["normalised"] else ""
        power = "u" if name == "mass" else "u^2"
        plain(value, f"{name} {SYMBOLS[name]}(t) = integral of {power}{per}", "t")
        value.ticklabel_format(useOffset=False)
        if target is None:
            value.legend(fontsize=8)
            error.axis("off")
            words.append(f"the {name} has no target")
            continue
        value.plot(times, target, ":", color="black", label="target")
        value.legend(fontsize=8)
        words.append(f"{name}: {_errors(error, saved, name, times)}")
        plain(error, f"relative error of the {name}", "t")
    return Picture(
        "integrals",
        figure,
        "The prescribed integrals over time and, on a logarithmic axis, how far they "
        "are from their targets: on the rule that prescribes them, on an independent "
        "rule, and in the continuum, up to the end of the 95 % interval.",
        "Curves of mass and energy with their targets, and their errors. "
        + "; ".join(words),
    )


def _errors(axes: Axes, saved: Saved, name: str, times: np.ndarray) -> str:
    """Draw the errors of one integral; returns the worst of them in words."""
    curves = saved.result["integrals"][name]
    unit = units(curves, saved.result["integrals"]["energy"], name)
    off = lambda which: np.abs(np.subtract(curves[which], curves["target"])) / unit
    lines: list[tuple[str, Any, Any, dict[str, Any]]] = []
    if "raw" in curves:
        lines.append(
            ("raw network", times, off("raw"), {"color": ORANGE, "linestyle": "--"})
        )
    rows = _rows(saved, name)
    if rows:
        at = [r["time"] for r in rows]
        column = lambda key: np.array([_number(r[key]) for r in rows])
        lines += [
            ("continuum, 95 %", at, _reach(column), {"color": GREEN}),
            (
                "independent rule",
                at,
                column("on_other_rule"),
                {"color": BLUE, "marker": "s", "markersize": 3},
            ),
            (
                "on the rule",
                at,
                column("on_rule"),
                {"color": "black", "marker": "o", "markersize": 3, "linestyle": ""},
            ),
        ]
    else:
        lines.append(("independent rule", times, off("field"), {"color": BLUE}))
    for label, x, y, style in lines:
        axes.plot(x, np.maximum(y, ZERO), label=label, **style)
    axes.set_yscale("log")
    axes.legend(fontsize=8)
    return ", ".join(f"{label} at most {np.max(y):.1e}" for label, _, y, _ in lines)


def _reach(column: Any) -> np.ndarray:
    return np.abs(column("continuum")) + column("continuum_margin")


def units(curves: dict[str, Any], energy: dict[str, Any], name: str) -> np.ndarray:
    """What errors are relative to: the target, or for a mass that is small beside it
    the root of the energy."""
    unit = np.abs(np.asarray(curves["target"], float))
    if name == "mass":
        unit = np.maximum(unit, np.sqrt(np.abs(energy["target"] or energy["field"])))
    return np.where(unit > 0.0, unit, 1.0)


def _rows(saved: Saved, name: str) -> list[dict[str, Any]]:
    rows = saved.certificate["rows"] if saved.certificate else []
    return [r for r in rows if r["integral"] == name]


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _solution(saved: Saved) -> Picture | None:
    data, dimension = saved.solution, saved.result["dimension"]
    u, reference = data["u"], data.get("reference")
    if dimension > 3:
        return None if reference is None else _cloud(u, reference)
    fields = {"u": u}
    if reference is not None:
        fields |= {"reference": reference, "u - reference": u - reference}
    figure = new_figure(3.4 * len(fields) + 0.2, 3.2)
    grid = figure.subplots(1, len(fields), sharey=True, squeeze=False)[0]
    both = np.concatenate([f.ravel() for n, f in fields.items() if "-" not in n])
    for axes, (name, values) in zip(grid, fields.items(), strict=True):
        if "-" in name:
            most = max(float(np.abs(values).max()), 1e-30)
            colours = {"cmap": DIFFERENCE, "vmin": -most, "vmax": most}
        else:
            colours = {"cmap": FIELD, "vmin": both.min(), "vmax": both.max()}
        if dimension == 1:
            x, y = data["x"][:, 0], data["times"]
            shown, labels = values, ("x", "t")
        else:
            side = round(len(data["x"]) ** 0.5)
            x, y = data["x"][::side, 0], data["x"][:side, 1]
            shown, labels = values.reshape(side, side).T, ("x1", "x2")
        image = axes.pcolormesh(
            x, y, shown, shading="gouraud", rasterized=True, **colours
        )
        plain(axes, name, labels[0], labels[1] if axes is grid[0] else "")
        axes.grid(False)
        figure.colorbar(image, ax=axes, shrink=0.9).ax.tick_params(labelsize=7)
    where = "over space and time" if dimension == 1 else "at the last time"
    if dimension == 3:
        where += ", in the middle of the third axis"
    alt = f"Colours of the field {where}, values {u.min():.3g} to {u.max():.3g}"
    if reference is not None:
        alt += (
            f"; the largest difference to the reference is "
            f"{np.abs(u - reference).max():.1e}"
        )
    return Picture("solution", figure, f"The field {where}.", alt)


def _cloud(u: np.ndarray, reference: np.ndarray) -> Picture:
    figure = new_figure(8.0, 3.6)
    left, right = figure.subplots(1, 2)
    low, high = float(reference.min()), float(reference.max())
    left.plot([low, high], [low, high], color=GREY, linewidth=0.8)
    left.scatter(reference, u, s=4, color=BLUE, alpha=0.5, linewidths=0)
    plain(left, "at random points and times", "reference", "u")
    right.scatter(reference, u - reference, s=4, color=RED, alpha=0.5, linewidths=0)
    plain(right, "difference", "reference", "u - reference")
    worst = float(np.abs(u - reference).max())
    return Picture(
        "solution",
        figure,
        f"The field against the reference at {u.size} random points and times.",
        f"A cloud of points near the diagonal; the largest difference is {worst:.1e}.",
    )


def _training(saved: Saved) -> Picture | None:
    lines = saved.metrics
    if not lines:
        return None
    steps = [m["step"] for m in lines]
    scales = [m["scale"] for m in lines]
    corrected = scales[-1] is not None
    figure = new_figure(9.0, 3.0)
    grid = figure.subplots(1, 3 if corrected else 2)
    loss = np.abs([m["loss"] for m in lines])
    grid[0].semilogy(steps, np.maximum(loss, 1e-30), color=BLUE, marker=".")
    plain(grid[0], "loss", "step")
    named = {
        "L2": ("l2_error", "-", "black"),
        "mass": ("mass_error", "--", BLUE),
        "energy": ("energy_error", ":", RED),
    }
    for label, (key, style, colour) in named.items():
        if lines[-1][key] is not None:
            values = np.maximum([m[key] for m in lines], ZERO)
            grid[1].semilogy(steps, values, style, color=colour, label=label)
    plain(grid[1], "relative errors in the window", "step")
    if grid[1].lines:
        grid[1].legend(fontsize=8)
    if corrected:
        low, high = np.transpose(scales)
        grid[2].fill_between(steps, low, high, color=GREEN, alpha=0.35)
        grid[2].plot(steps, low, color=GREEN)
        grid[2].plot(steps, high, color=GREEN)
        plain(grid[2], "scale, least and largest", "step")
    text = "Loss, relative errors"
    if corrected:
        text += " and the range of the scale"
    return Picture(
        "training",
        figure,
        f"{text} while the training went on.",
        f"{text} over {steps[-1]} steps; the last loss is {lines[-1]['loss']:.1e}.",
    )
