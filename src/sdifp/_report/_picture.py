"""A picture of a report, and the panels that pictures are drawn in: small ones, for
small screens."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ._style import ZERO, new_figure, plain

Line = tuple[str, Any, Any, dict[str, Any]]
"""A label, x, y and the style of a line."""


class Picture(NamedTuple):
    """A figure with its name and what it shows in words."""

    name: str
    figure: Figure
    alt: str


class Group(NamedTuple):
    """Pictures that belong together."""

    title: str
    caption: str
    pictures: list[Picture]


def panel() -> tuple[Figure, Axes]:
    """A figure with one pair of axes."""
    figure = new_figure(4.0, 2.9)
    return figure, figure.subplots()


def legend_below(figure: Figure, columns: int = 2) -> None:
    """A legend that covers nothing."""
    figure.legend(loc="outside lower center", ncols=columns, fontsize=9, frameon=False)


def logarithmic(title: str, x_label: str, lines: Sequence[Line]) -> Figure:
    """Lines on a logarithmic axis, with a legend unless the title says it."""
    figure, axes = panel()
    # What is zero is drawn just below all else, so that the axis stays readable.
    positive = [v for _, _, y, _ in lines for v in np.ravel(y) if v > 0.0]
    least = max(ZERO, min(positive, default=ZERO) / 3.0)
    for label, x, y, style in lines:
        known = label.replace("$", r"\$")
        axes.semilogy(x, np.maximum(y, least), label=known, **style)
    if [line[0] for line in lines] != [title]:
        legend_below(figure)
    plain(axes, title, x_label)
    # Exponents are smaller than the rest of a label.
    axes.tick_params(axis="y", which="both", labelsize=9)
    return figure
