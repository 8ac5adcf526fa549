"""The pictures of the solution of one run: lines and images, or points against the
reference."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from .._folder import Saved
from ._picture import Group, Picture, legend_below, panel
from ._style import BLUE, DIFFERENCE, FIELD, GREY, RED, plain
from ._values import is_steady

_TITLE = "The solution"
# Times of the lines over x.
_LINES = 5
_REFERENCE: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.0}


def solution(saved: Saved) -> Group:
    """The field, and the reference and their difference where it is known."""
    dimension = saved.result["dimension"]
    if dimension > 3 and "x" not in saved.solution:
        return _cloud(saved)
    if dimension == 1 and is_steady(saved):
        return _profile(saved)
    places = []
    if not is_steady(saved):
        places.append("over space and time" if dimension == 1 else "at the last time")
    if dimension > 2:
        others = "the third axis" if dimension == 3 else "all axes but two"
        places.append(f"in the middle of {others}")
    where = " ".join(["", ", ".join(places)]) if places else ""
    found = _images(saved, where)
    caption = f"The field u{where}"
    if dimension == 1:
        found.insert(0, _lines(saved))
        caption = "The field u at five times, and over space and time"
    if len(found) > 2:
        caption += ", beside the reference, the known solution, and their difference"
    return Group(_TITLE, f"{caption}.", found)


def _lines(saved: Saved) -> Picture:
    """u(x) at some times, in one dimension."""
    data = saved.solution
    x, times = data["x"][:, 0], data["times"]
    chosen = np.unique(np.linspace(0, len(times) - 1, _LINES).round().astype(int))
    # Not its end, which is too bright for a line.
    colours = matplotlib.colormaps[FIELD](np.linspace(0.0, 0.85, len(chosen)))
    figure, axes = panel()
    for k, colour in zip(chosen, colours, strict=True):
        axes.plot(x, data["u"][k], color=colour, label=f"t = {times[k]:.3g}")
    words = "u at t = " + ", ".join(f"{times[k]:.3g}" for k in chosen)
    if "reference" in data:
        axes.plot(x, data["reference"][chosen].T, **_REFERENCE)
        axes.plot([], [], label="reference", **_REFERENCE)
        words += ", with the reference dashed"
    legend_below(figure, 3)
    plain(axes, "u at some times", "x")
    return Picture("lines", figure, f"{words}.")


def _profile(saved: Saved) -> Group:
    """u(x) of a problem without time, in one dimension."""
    data = saved.solution
    x, u, reference = data["x"][:, 0], data["u"][0], data.get("reference")
    figure, axes = panel()
    axes.plot(x, u, color=BLUE, label="u")
    words = f"The field u over x, values {u.min():.3g} to {u.max():.3g}"
    if reference is None:
        plain(axes, "u", "x")
        return Group(_TITLE, "The field u.", [Picture("field", figure, f"{words}.")])
    axes.plot(x, reference[0], label="reference", **_REFERENCE)
    legend_below(figure)
    plain(axes, "u and the reference", "x")
    off, axes = panel()
    axes.plot(x, u - reference[0], color=RED)
    plain(axes, "u - reference", "x")
    worst = float(np.abs(u - reference[0]).max())
    return Group(
        _TITLE,
        "The field u beside the reference, the known solution, and their difference.",
        [
            Picture("field", figure, f"{words}, with the reference dashed."),
            Picture("difference", off, f"Their difference, at most {worst:.1e}."),
        ],
    )


def _images(saved: Saved, where: str) -> list[Picture]:
    u, reference = saved.solution["u"], saved.solution.get("reference")
    both = u if reference is None else np.stack([u, reference])
    colours = {"cmap": FIELD, "vmin": both.min(), "vmax": both.max()}
    words = f"The field u{where}, values {u.min():.3g} to {u.max():.3g}."
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
    return found


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
    figure, axes = panel()
    image = axes.pcolormesh(x, y, shown, shading="gouraud", rasterized=True, **colours)
    plain(axes, title, *labels)
    axes.grid(False)
    figure.colorbar(image, ax=axes).ax.tick_params(labelsize=8)
    return figure


def _cloud(saved: Saved) -> Group:
    """Points of many dimensions, by their values."""
    u, reference = saved.solution["u"], saved.solution.get("reference")
    if reference is None:
        return Group("", "", [])
    where = "points" if is_steady(saved) else "points and times"
    low, high = float(reference.min()), float(reference.max())
    both, axes = panel()
    axes.plot([low, high], [low, high], color=GREY, linewidth=0.8)
    axes.scatter(reference, u, s=4, color=BLUE, alpha=0.5, linewidths=0)
    plain(axes, f"at random {where}", "reference", "u")
    off, axes = panel()
    axes.scatter(reference, u - reference, s=4, color=RED, alpha=0.5, linewidths=0)
    plain(axes, "difference", "reference", "u - reference")
    worst = float(np.abs(u - reference).max())
    return Group(
        _TITLE,
        f"The field u against the reference, the known solution, at {u.size} random "
        f"{where}.",
        [
            Picture("field", both, f"{u.size} points near the diagonal."),
            Picture("difference", off, f"Their difference, at most {worst:.1e}."),
        ],
    )
