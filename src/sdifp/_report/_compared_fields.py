"""The fields of several runs of a problem without time, side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import SubFigure

from .._folder import Saved
from ._style import CYCLE, FIELD, STYLES, plain
from ._values import components, is_steady

# Images in a row.
_COLUMNS = 3
# Inches, of lines and of a row of images.
_LINES, _IMAGES = 3.2, 2.7


def height_of_fields(runs: Sequence[Saved]) -> float:
    """In inches; zero where fields cannot stand side by side: they have a time, several
    components or more than two dimensions, or are saved at other points."""
    first = runs[0].solution.get("x")
    if first is None or not all(is_steady(run) for run in runs):
        return 0
    if any(len(components(run)) > 1 for run in runs):
        return 0
    places = [run.solution.get("x") for run in runs]
    if any(x is None or not np.array_equal(x, first) for x in places):
        return 0
    if first.shape[1] == 1:
        return _LINES
    if first.shape[1] > 2 or runs[0].result["dimension"] > 2:
        return 0
    return _IMAGES * _rows(len(runs) + ("reference" in runs[0].solution))


def _rows(images: int) -> int:
    return -(-images // _COLUMNS)


def draw_fields(
    figure: SubFigure, runs: Sequence[Saved], labels: Sequence[str]
) -> None:
    """Lines over x in one dimension, images in two, with the reference if known."""
    x = runs[0].solution["x"]
    reference = runs[0].solution.get("reference")
    fields = [_turned(run.solution, reference) for run in runs]
    if x.shape[1] == 1:
        axes = figure.subplots()
        for k, u in enumerate(fields):
            colour, line = CYCLE[k % len(CYCLE)], STYLES[k % len(STYLES)]
            axes.plot(x[:, 0], u, color=colour, linestyle=line)
        title = "u"
        if reference is not None:
            axes.plot(x[:, 0], reference[0], color="black", lw=0.8, ls=(0, (1, 3)))
            title = "u, and the reference in black dots"
        plain(axes, title, "x")
        return
    titles = [f"{name}\n{_error(run)}" for name, run in zip(labels, runs, strict=True)]
    if reference is not None:
        fields, titles = [*fields, reference[0]], [*titles, "reference\n"]
    shown = fields if reference is None else [reference[0]]
    colours: dict[str, Any] = {"vmin": np.min(shown), "vmax": np.max(shown)}
    grid = figure.subplots(_rows(len(fields)), _COLUMNS, squeeze=False)
    side = round(len(x) ** 0.5)
    for axes in grid.ravel()[len(fields) :]:
        axes.axis("off")
    for axes, u, title in zip(grid.ravel(), fields, titles, strict=False):
        image = axes.pcolormesh(
            x[::side, 0],
            x[:side, 1],
            u.reshape(side, side).T,
            shading="gouraud",
            rasterized=True,
            cmap=FIELD,
            **colours,
        )
        plain(axes, title, "x1", "x2")
        axes.grid(False)
        axes.set_aspect("equal")
    figure.colorbar(image, ax=grid, aspect=40).ax.tick_params(labelsize=8)


def _turned(solution: dict[str, Any], reference: np.ndarray | None) -> np.ndarray:
    """The field with the sign of the reference, where -u is a solution, too."""
    u, own = solution["u"][0], solution.get("reference")
    if own is None or reference is None or np.vdot(own, reference) >= 0.0:
        return np.asarray(u)
    return np.asarray(-u)


def _error(run: Saved) -> str:
    found = run.result["metrics"]["l2_error"]
    return "" if found is None else f"relative L2 error {found:.1e}"
