"""The pictures of the integrals of one run over time."""

from typing import Any

import numpy as np

from .._folder import Saved
from ._picture import Group, Line, Picture, legend_below, logarithmic, panel
from ._style import BLUE, GREEN, ORANGE, plain
from ._values import (
    density_in_words,
    drift,
    errors,
    in_words,
    is_steady,
    measured,
    number,
    numbers,
)


def integrals(saved: Saved) -> Group:
    """Each invariant and its errors; nothing for a problem without time, whose
    invariants are numbers in a table."""
    if is_steady(saved):
        return Group("", "", [])
    known = saved.result["integrals"]
    times = np.asarray(known["times"])
    found = []
    for name, curves in known["invariants"].items():
        values, words = curves["values"], in_words(name)
        figure, axes = panel()
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
        legend_below(figure, 3)
        axes.ticklabel_format(useOffset=False)
        plain(axes, f"{words}, {density_in_words(saved, name)}", "t")
        found.append(Picture(name, figure, f"{text}."))
        if curves["target"] is not None:
            found.append(_errors(saved, name, times))
        elif name in measured(saved):
            found.append(_drifts(saved, name, times))
    return Group("Integrals over time", _caption(saved), found)


def _caption(saved: Saved) -> str:
    if saved.certificate is None:
        text = (
            "The integrals of the field over time, with their targets where there are "
            "any, and their errors on an independent rule."
        )
    else:
        text = (
            "The integrals over time, of the raw network and of the field, which is "
            "the corrected network, with their targets. On logarithmic axes, how far "
            "they are from their targets: on the rule, on an independent rule, and in "
            "the continuum up to the end of the 95 % interval."
        )
    if measured(saved):
        names = " and ".join(f"the {in_words(name)}" for name in measured(saved))
        text += (
            f" Measured and not prescribed: {names}, with the drift relative to the "
            f"integral of the density's absolute value at the first time."
        )
    return text


def _errors(saved: Saved, name: str, times: np.ndarray) -> Picture:
    """The errors of one invariant."""
    lines: list[Line] = []
    if "raw" in saved.result["integrals"]["invariants"][name]["errors"]:
        off = errors(saved, name, "raw")
        lines.append(("raw network", times, off, {"color": ORANGE, "linestyle": "--"}))
    rows = _rows(saved, name)
    if rows:
        at = [r["time"] for r in rows]
        column = lambda key: np.array([number(r[key]) for r in rows])
        reach = np.abs(column("continuum")) + column("continuum_margin")
        square = {"color": BLUE, "marker": "s", "markersize": 3}
        dot = {"color": "black", "marker": "o", "markersize": 3, "linestyle": ""}
        lines += [
            ("continuum, 95 %", at, reach, {"color": GREEN, "linewidth": 3}),
            ("independent rule", at, column("on_other_rule"), square),
            ("on the rule", at, column("on_rule"), dot),
        ]
    else:
        off = errors(saved, name, "field")
        lines.append(("independent rule", times, off, {"color": BLUE}))
    figure = logarithmic(f"relative error of the {in_words(name)}", "t", lines)
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
            lines.append((label, times, drift(saved, name, which), style))
    figure = logarithmic(f"relative drift of the {in_words(name)}", "t", lines)
    words = ", ".join(f"{label} at most {np.max(y):.1e}" for label, _, y, _ in lines)
    text = f"Relative drift of the {in_words(name)}: {words}."
    return Picture(f"{name}-drift", figure, text)


def _rows(saved: Saved, name: str) -> list[dict[str, Any]]:
    rows = saved.certificate["rows"] if saved.certificate else []
    return [r for r in rows if r["invariant"] == name]
