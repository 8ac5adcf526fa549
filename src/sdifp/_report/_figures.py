"""The pictures of one run, from what it saved."""

import itertools
from typing import Any

import numpy as np

from .._folder import Saved
from ._integrals import integrals
from ._picture import Group, Picture, logarithmic, panel
from ._solution import solution
from ._style import BLUE, CYCLE, GREEN, plain
from ._values import in_words, is_steady, l2_errors, numbers, prescribed


def groups(saved: Saved) -> list[Group]:
    """All pictures that the data give."""
    found = [integrals(saved), solution(saved), _training(saved)]
    return [group for group in found if group.pictures]


def _training(saved: Saved) -> Group:
    lines = saved.metrics
    if not lines:
        return Group("", "", [])
    steps = [m["step"] for m in lines]
    found = [_loss(steps, numbers([m["loss"] for m in lines]))]
    caption = "The loss in the course of the training."
    curves = []
    if saved.result["has_reference"]:
        curves.append(("L2 error", numbers([m["l2_error"] for m in lines])))
        for name in l2_errors(saved):
            own = numbers([m["l2_errors"].get(name) for m in lines])
            curves.append((f"L2 error of {name}", own))
    functional = saved.result.get("functional")
    if functional is not None and functional["minimum"]:
        name, least = functional["name"], functional["minimum"]
        values = numbers([m["functional"][name] for m in lines])
        curves.append((in_words(name), np.abs(values - least) / abs(least)))
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
        figure = logarithmic("relative errors in training", "step", shown)
        last = ", ".join(f"{label} {y[-1]:.1e}" for label, y in curves)
        words = f"Relative errors, at last {last}."
        found.append(Picture("training-errors", figure, words))
        caption = "The loss and the relative errors in the course of the training."
        if not is_steady(saved):
            caption += (
                " Each error is the largest over nine times of the window in training."
            )
    for name in ("scale", "shift"):
        # Runs of before have no shifts.
        if lines[-1].get(name) is None:
            continue
        known = [m for m in lines if m.get(name) is not None]
        low, high = np.transpose([numbers(m[name]) for m in known])
        if np.all(low == high[0]) and np.all(high == high[0]):
            # It has no effect, or there is one report.
            continue
        at = [m["step"] for m in known]
        figure, axes = panel()
        if is_steady(saved):
            axes.plot(at, high, color=GREEN)
            plain(axes, name, "step")
            words = f"The {name}, at last {high[-1]:.4g}."
        else:
            axes.fill_between(at, low, high, color=GREEN, alpha=0.35)
            axes.plot(at, low, color=GREEN)
            axes.plot(at, high, color=GREEN)
            plain(axes, f"{name}, least and largest", "step")
            words = f"The range of the {name}, at last {low[-1]:.4g} to {high[-1]:.4g}."
        found.append(Picture(name, figure, words))
    return Group("Training", caption, found)


def _loss(steps: list[int], loss: np.ndarray) -> Picture:
    """The loss, on a linear axis if it is that of a functional with negative values."""
    words = f"The loss over {steps[-1]} steps; the last is {loss[-1]:.3g}."
    style: dict[str, Any] = {"color": BLUE, "marker": "."}
    if np.nanmin(loss) >= 0.0:
        line = ("loss", steps, loss, style)
        return Picture("loss", logarithmic("loss", "step", [line]), words)
    figure, axes = panel()
    axes.plot(steps, loss, **style)
    plain(axes, "loss", "step")
    return Picture("loss", figure, words)
