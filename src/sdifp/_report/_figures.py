"""The pictures of one run, from what it saved: small ones, for small screens."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .._folder import Saved
from ._style import (
    BLUE,
    CYCLE,
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

Line = tuple[str, Any, Any, dict[str, Any]]
"""A label, x, y and the style of a line."""


class Picture(NamedTuple):
    """A figure with its name and what it shows in words."""

    name: str
    figure: Figure
    alt: str


class Group(NamedTuple):
    """Pictures that belong together."""

    caption: str
    pictures: list[Picture]


def groups(saved: Saved) -> list[Group]:
    """All pictures that the data give."""
    found = [_integrals(saved), _solution(saved), _training(saved)]
    return [group for group in found if group.pictures]


def in_words(name: str) -> str:
    """The name of an invariant in a sentence."""
    return name.replace("_", " ")


def prescribed(saved: Saved) -> list[str]:
    """The names of the invariants that have targets."""
    found = saved.result["integrals"]["invariants"]
    return [name for name, curves in found.items() if curves["target"] is not None]


def measured(saved: Saved) -> list[str]:
    """The names of the invariants of the problem that have none."""
    # Runs of before have none of them.
    return list(saved.result["metrics"].get("measured", {}))


def worst_drift(saved: Saved, name: str) -> float | None:
    """The largest relative drift of an invariant without a target on the independent
    rule; None if it is not finite."""
    worst = float(np.max(_drift(saved, name, "field")))
    return worst if np.isfinite(worst) else None


def _drift(saved: Saved, name: str, which: str) -> np.ndarray:
    """The size of the relative drift over time, of the field or of the raw network."""
    curves = saved.result["integrals"]["invariants"][name]
    return np.abs(numbers(curves["relative_drift"][which]))


def worst_error(saved: Saved, name: str) -> float | None:
    """The largest relative error of an invariant on the independent rule, at all times
    that were measured; None if it is not finite."""
    known = _number(saved.result["metrics"]["errors"][name])
    worst = float(np.max([known, *_off(saved, name, "field")]))
    return worst if np.isfinite(worst) else None


def _off(saved: Saved, name: str, which: str) -> np.ndarray:
    """Relative errors over time of the field or of the raw network."""
    return numbers(saved.result["integrals"]["invariants"][name]["errors"][which])


def errors_over_time(saved: Saved, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Times, and the errors of the field on the independent rule; its drift where there
    is no target."""
    times = np.asarray(saved.result["integrals"]["times"])
    if name in prescribed(saved):
        return times, _off(saved, name, "field")
    # At the first time it is zero.
    return times[1:], _drift(saved, name, "field")[1:]


def _integrals(saved: Saved) -> Group:
    integrals = saved.result["integrals"]
    times = np.asarray(integrals["times"])
    found = []
    for name, curves in integrals["invariants"].items():
        values, words = curves["values"], in_words(name)
        figure, axes = _panel()
        if "raw" in values:
            raw = numbers(values["raw"])
            axes.plot(times, raw, "--", color=ORANGE, label="raw network")
        field = numbers(values["field"])
        axes.plot(times, field, color=BLUE, label="field")
        text = f"The {words} of the field over time"
        if curves["target"] is not None:
            target = numbers(curves["target"])
            axes.plot(times, target, ":", color="black", label="target")
            worst = np.max(np.abs(field - target))
            text += f" and its target; they differ by at most {worst:.1e}"
        else:
            text += f"; the {words} has no target"
            if name in measured(saved):
                text += f" and drifts by at most {np.max(np.abs(field - field[0])):.1e}"
        axes.legend(fontsize=8)
        axes.ticklabel_format(useOffset=False)
        measure = "mean" if saved.result["normalised"] else "integral"
        plain(axes, f"{words}, the {measure} of {curves['density']}", "t")
        found.append(Picture(name, figure, f"{text}."))
        if curves["target"] is not None:
            found.append(_errors(saved, name, times))
        elif name in measured(saved):
            found.append(_drifts(saved, name, times))
    caption = (
        "The prescribed integrals over time and, on a logarithmic axis, how far they "
        "are from their targets: on the rule that prescribes them, on an independent "
        "rule, and in the continuum up to the end of the 95 % interval."
    )
    if measured(saved):
        names = " and ".join(f"the {in_words(name)}" for name in measured(saved))
        caption += (
            f" Measured and not prescribed: {names}, with the drift since the first "
            f"time relative to the integral of the density's absolute value."
        )
    return Group(caption, found)


def _errors(saved: Saved, name: str, times: np.ndarray) -> Picture:
    """The errors of one invariant."""
    lines: list[Line] = []
    if "raw" in saved.result["integrals"]["invariants"][name]["errors"]:
        off = _off(saved, name, "raw")
        lines.append(("raw network", times, off, {"color": ORANGE, "linestyle": "--"}))
    rows = _rows(saved, name)
    if rows:
        at = [r["time"] for r in rows]
        column = lambda key: np.array([_number(r[key]) for r in rows])
        reach = np.abs(column("continuum")) + column("continuum_margin")
        square = {"color": BLUE, "marker": "s", "markersize": 3}
        dot = {"color": "black", "marker": "o", "markersize": 3, "linestyle": ""}
        lines += [
            ("continuum, 95 %", at, reach, {"color": GREEN, "linewidth": 3}),
            ("independent rule", at, column("on_other_rule"), square),
            ("on the rule", at, column("on_rule"), dot),
        ]
    else:
        off = _off(saved, name, "field")
        lines.append(("independent rule", times, off, {"color": BLUE}))
    figure = _logarithmic(f"relative error of the {in_words(name)}", "t", lines)
    words = ", ".join(f"{label} at most {np.max(y):.1e}" for label, _, y, _ in lines)
    text = f"Relative errors of the {in_words(name)}: {words}."
    return Picture(f"{name}-error", figure, text)


def _drifts(saved: Saved, name: str, times: np.ndarray) -> Picture:
    """The drift of one invariant without a target."""
    lines: list[Line] = []
    styles = {
        "raw": ("raw network", {"color": ORANGE, "linestyle": "--"}),
        "field": ("field", {"color": BLUE}),
    }
    known = saved.result["integrals"]["invariants"][name]["relative_drift"]
    for which, (label, style) in styles.items():
        if which in known:
            lines.append((label, times, _drift(saved, name, which), style))
    figure = _logarithmic(f"relative drift of the {in_words(name)}", "t", lines)
    words = ", ".join(f"{label} at most {np.max(y):.1e}" for label, _, y, _ in lines)
    text = f"Relative drift of the {in_words(name)}: {words}."
    return Picture(f"{name}-drift", figure, text)


def _logarithmic(title: str, x_label: str, lines: Sequence[Line]) -> Figure:
    """Lines on a logarithmic axis, with a legend unless the title says it."""
    figure, axes = _panel()
    # What is zero is drawn just below all else, so that the axis stays readable.
    positive = [v for _, _, y, _ in lines for v in np.ravel(y) if v > 0.0]
    least = max(ZERO, min(positive, default=ZERO) / 3.0)
    for label, x, y, style in lines:
        known = label.replace("$", r"\$")
        axes.semilogy(x, np.maximum(y, least), label=known, **style)
    if [line[0] for line in lines] != [title]:
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    plain(axes, title, x_label)
    return figure


def _rows(saved: Saved, name: str) -> list[dict[str, Any]]:
    rows = saved.certificate["rows"] if saved.certificate else []
    return [r for r in rows if r["invariant"] == name]


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def numbers(values: Sequence[float | None]) -> np.ndarray:
    """What was saved as numbers, where JSON has None for what is not finite."""
    return np.array([_number(v) for v in values], float)


def _panel() -> tuple[Figure, Axes]:
    figure = new_figure(4.2, 2.8)
    return figure, figure.subplots()


def _solution(saved: Saved) -> Group:
    dimension = saved.result["dimension"]
    u, reference = saved.solution["u"], saved.solution.get("reference")
    if dimension > 3:
        return _cloud(u, reference)
    where = "over space and time" if dimension == 1 else "at the last time"
    if dimension == 3:
        where += ", in the middle of the third axis"
    both = u if reference is None else np.stack([u, reference])
    colours = {"cmap": FIELD, "vmin": both.min(), "vmax": both.max()}
    words = f"The field {where}, values {u.min():.3g} to {u.max():.3g}."
    found = [Picture("field", _image(saved, u, "u", colours), words)]
    if reference is not None:
        words = f"The reference, values {reference.min():.3g} to {reference.max():.3g}."
        image = _image(saved, reference, "reference", colours)
        found.append(Picture("reference", image, words))
        most = max(float(np.abs(u - reference).max()), 1e-30)
        colours = {"cmap": DIFFERENCE, "vmin": -most, "vmax": most}
        image = _image(saved, u - reference, "u - reference", colours)
        words = f"Their difference, at most {most:.1e}."
        found.append(Picture("difference", image, words))
    return Group(f"The field {where}.", found)


def _image(
    saved: Saved, values: np.ndarray, title: str, colours: dict[str, Any]
) -> Figure:
    """Values over space and time, or over two coordinates."""
    data = saved.solution
    if saved.result["dimension"] == 1:
        x, y = data["x"][:, 0], data["times"]
        shown, labels = values, ("x", "t")
    else:
        side = round(len(data["x"]) ** 0.5)
        x, y = data["x"][::side, 0], data["x"][:side, 1]
        shown, labels = values.reshape(side, side).T, ("x1", "x2")
    figure, axes = _panel()
    image = axes.pcolormesh(x, y, shown, shading="gouraud", rasterized=True, **colours)
    plain(axes, title, *labels)
    axes.grid(False)
    figure.colorbar(image, ax=axes).ax.tick_params(labelsize=7)
    return figure


def _cloud(u: np.ndarray, reference: np.ndarray | None) -> Group:
    if reference is None:
        return Group("", [])
    low, high = float(reference.min()), float(reference.max())
    both, axes = _panel()
    axes.plot([low, high], [low, high], color=GREY, linewidth=0.8)
    axes.scatter(reference, u, s=4, color=BLUE, alpha=0.5, linewidths=0)
    plain(axes, "at random points and times", "reference", "u")
    off, axes = _panel()
    axes.scatter(reference, u - reference, s=4, color=RED, alpha=0.5, linewidths=0)
    plain(axes, "difference", "reference", "u - reference")
    worst = float(np.abs(u - reference).max())
    return Group(
        f"The field against the reference at {u.size} random points and times.",
        [
            Picture("field", both, f"{u.size} points near the diagonal."),
            Picture("difference", off, f"Their difference, at most {worst:.1e}."),
        ],
    )


def _training(saved: Saved) -> Group:
    lines = saved.metrics
    if not lines:
        return Group("", [])
    steps = [m["step"] for m in lines]
    loss = np.abs(numbers([m["loss"] for m in lines]))
    line = ("loss", steps, loss, {"color": BLUE, "marker": "."})
    words = f"The loss over {steps[-1]} steps; the last is {loss[-1]:.1e}."
    found = [Picture("loss", _logarithmic("loss", "step", [line]), words)]
    curves = []
    if saved.result["has_reference"]:
        curves.append(("L2", numbers([m["l2_error"] for m in lines])))
    for name in prescribed(saved):
        own = numbers([m["errors"].get(name) for m in lines])
        curves.append((in_words(name).strip(), own))
    if curves:
        colours = itertools.cycle(("black", *CYCLE))
        styles = itertools.cycle(("-", "--", ":"))
        shown = [
            (label, steps, y, {"color": next(colours), "linestyle": next(styles)})
            for label, y in curves
        ]
        figure = _logarithmic("relative errors in the window", "step", shown)
        last = ", ".join(f"{label} {y[-1]:.1e}" for label, y in curves)
        words = f"Relative errors, at last {last}."
        found.append(Picture("training-errors", figure, words))
    for name in ("scale", "shift"):
        # Runs of before have no shifts.
        if lines[-1].get(name) is None:
            continue
        known = [m for m in lines if m.get(name) is not None]
        low, high = np.transpose([numbers(m[name]) for m in known])
        at = [m["step"] for m in known]
        figure, axes = _panel()
        axes.fill_between(at, low, high, color=GREEN, alpha=0.35)
        axes.plot(at, low, color=GREEN)
        axes.plot(at, high, color=GREEN)
        plain(axes, f"{name}, least and largest", "step")
        words = f"The range of the {name}, at last {low[-1]:.4g} to {high[-1]:.4g}."
        found.append(Picture(name, figure, words))
    return Group("What the training reported on its way.", found)
