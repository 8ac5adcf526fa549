"""The pictures of the solution of one run: lines and images, or points against the
reference; of a system those of each component."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from .._folder import Saved
from ._picture import Group, Picture, legend_below, panel
from ._style import BLUE, DIFFERENCE, FIELD, GREY, RED, plain
from ._values import Component, components, is_steady

_TITLE = "The solution"
# Times of the lines over x.
_LINES = 5
_REFERENCE: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.0}


def solution(saved: Saved) -> Group:
    """The field, and the reference and their difference where it is known."""
    own = components(saved)
    dimension = saved.result["dimension"]
    what = f"The field {_listed([one.name for one in own])}"
    if dimension > 3 and "x" not in saved.solution:
        return _cloud(saved, own, what)
    if dimension == 1 and is_steady(saved):
        found = [picture for one in own for picture in _profile(saved, one)]
        caption = what
        if own[0].reference is not None:
            caption += " beside the reference, the known solution, and their difference"
        return Group(_TITLE, f"{caption}.", found)
    places = []
    if not is_steady(saved):
        places.append("over space and time" if dimension == 1 else "at the last time")
    if dimension > 2:
        others = "the third axis" if dimension == 3 else "all axes but two"
        places.append(f"in the middle of {others}")
    where = " ".join(["", ", ".join(places)]) if places else ""
    caption, found = f"{what}{where}", []
    for one in own:
        if dimension == 1:
            found.append(_lines(saved, one))
        found += _images(saved, one, where)
    if dimension == 1:
        caption = f"{what} at five times, and over space and time"
    if own[0].reference is not None:
        caption += ", beside the reference, the known solution, and their difference"
    return Group(_TITLE, f"{caption}.", found)


def _listed(names: list[str]) -> str:
    """`u`, or `(re, im)`."""
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _of(one: Component) -> str:
    """What the reference, or a difference, is of: nothing for a field with one
    component."""
    return f" of {one.name}" if one.suffix else ""


def _lines(saved: Saved, one: Component) -> Picture:
    """A component over x at some times, in one dimension."""
    data = saved.solution
    x, times = data["x"][:, 0], data["times"]
    chosen = np.unique(np.linspace(0, len(times) - 1, _LINES).round().astype(int))
    # Not its end, which is too bright for a line.
    colours = matplotlib.colormaps[FIELD](np.linspace(0.0, 0.85, len(chosen)))
    figure, axes = panel()
    for k, colour in zip(chosen, colours, strict=True):
        axes.plot(x, one.u[k], color=colour, label=f"t = {times[k]:.3g}")
    words = f"{one.name} at t = " + ", ".join(f"{times[k]:.3g}" for k in chosen)
    if one.reference is not None:
        axes.plot(x, one.reference[chosen].T, **_REFERENCE)
        axes.plot([], [], label="reference", **_REFERENCE)
        words += ", with the reference dashed"
    legend_below(figure, 3)
    plain(axes, f"{one.title} at some times", "x")
    return Picture(f"lines{one.suffix}", figure, f"{words}.")


def _profile(saved: Saved, one: Component) -> list[Picture]:
    """A component over x, of a problem without time, in one dimension."""
    x, u, reference = saved.solution["x"][:, 0], one.u[0], one.reference
    figure, axes = panel()
    axes.plot(x, u, color=BLUE, label=_label(one.name))
    words = f"The field {one.name} over x, values {u.min():.3g} to {u.max():.3g}"
    if reference is None:
        plain(axes, one.title, "x")
        return [Picture(f"field{one.suffix}", figure, f"{words}.")]
    axes.plot(x, reference[0], label="reference", **_REFERENCE)
    legend_below(figure)
    plain(axes, f"{one.title} and the reference", "x")
    off, axes = panel()
    axes.plot(x, u - reference[0], color=RED)
    plain(axes, f"{one.title} - reference", "x")
    worst = float(np.abs(u - reference[0]).max())
    return [
        Picture(f"field{one.suffix}", figure, f"{words}, with the reference dashed."),
        Picture(f"difference{one.suffix}", off, _off(one, worst)),
    ]


def _label(name: str) -> str:
    """A name in a legend: no mathematics, and not left out."""
    escaped = name.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def _off(one: Component, worst: float) -> str:
    whose = f"The difference of {one.name} and its reference" if one.suffix else ""
    return f"{whose or 'Their difference'}, at most {worst:.1e}."


def _images(saved: Saved, one: Component, where: str) -> list[Picture]:
    u, reference = one.u, one.reference
    both = u if reference is None else np.stack([u, reference])
    colours = {"cmap": FIELD, "vmin": both.min(), "vmax": both.max()}
    words = f"The field {one.name}{where}, values {u.min():.3g} to {u.max():.3g}."
    image = _image(saved, u, one.title, colours)
    found = [Picture(f"field{one.suffix}", image, words)]
    if reference is not None:
        span = f"values {reference.min():.3g} to {reference.max():.3g}"
        image = _image(saved, reference, f"reference{_of(one)}", colours)
        words = f"The reference{_of(one)}, {span}."
        found.append(Picture(f"reference{one.suffix}", image, words))
        most = max(float(np.abs(u - reference).max()), 1e-30)
        colours = {"cmap": DIFFERENCE, "vmin": -most, "vmax": most}
        image = _image(saved, u - reference, f"{one.title} - reference", colours)
        found.append(Picture(f"difference{one.suffix}", image, _off(one, most)))
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


def _cloud(saved: Saved, own: list[Component], what: str) -> Group:
    """Points of many dimensions, by their values."""
    where = "points" if is_steady(saved) else "points and times"
    found = [picture for one in own for picture in _scattered(one, where)]
    if not found:
        return Group("", "", [])
    return Group(
        _TITLE,
        f"{what} against the reference, the known solution, at {own[0].u.size} random "
        f"{where}.",
        found,
    )


def _scattered(one: Component, where: str) -> list[Picture]:
    """A component against its reference, and their difference."""
    u, reference = one.u, one.reference
    if reference is None:
        return []
    low, high = float(reference.min()), float(reference.max())
    both, axes = panel()
    axes.plot([low, high], [low, high], color=GREY, linewidth=0.8)
    axes.scatter(reference, u, s=4, color=BLUE, alpha=0.5, linewidths=0)
    title = f"{one.title} at random {where}" if one.suffix else f"at random {where}"
    label = _label(one.title).strip()
    plain(axes, title, "reference", label)
    off, axes = panel()
    axes.scatter(reference, u - reference, s=4, color=RED, alpha=0.5, linewidths=0)
    plain(axes, f"difference{_of(one)}", "reference", f"{label} - reference")
    worst = float(np.abs(u - reference).max())
    words = f"{u.size} points{_of(one)} near the diagonal."
    return [
        Picture(f"field{one.suffix}", both, words),
        Picture(f"difference{one.suffix}", off, _off(one, worst)),
    ]
