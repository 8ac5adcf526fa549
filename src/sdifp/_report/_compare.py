"""Several runs side by side, from what they saved."""

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure, SubFigure

from .._folder import Saved, printable, write_whole
from ._compared_fields import draw_fields, height_of_fields
from ._style import CYCLE, STYLES, ZERO, new_figure, plain
from ._values import (
    errors_over_time,
    in_words,
    is_steady,
    l2_errors,
    measured,
    numbers,
    prescribed,
    worst_drift,
    worst_error,
)

# Characters of a line of the legend.
_LABEL = 32
# Inches, of a panel.
_WIDTH, _HEIGHT = 3.8, 3.2


def compare_rows(runs: Sequence[Saved]) -> list[dict[str, Any]]:
    """One row for each run."""
    rows = []
    for run in runs:
        metrics = run.result["metrics"]
        certified = run.certificate["rows"] if run.certificate else []
        rows.append(
            {
                "run": str(run.folder),
                "problem": run.result["problem"],
                "method": run.result["method"],
                "finished": run.result["finished"],
                **{k: metrics[k] for k in ("step", "seconds", "loss", "l2_error")},
                "l2_errors": l2_errors(run),
                "errors": {name: worst_error(run, name) for name in prescribed(run)},
                "drifts": {
                    name: worst_drift(run, name)
                    for name in _drawn(run)
                    if name in measured(run)
                },
                "functional": _functional(run),
                "on_rule": max(
                    (r["on_rule"] for r in certified if r["on_rule"] is not None),
                    default=None,
                ),
            }
        )
    return rows


def _functional(run: Saved) -> dict[str, Any]:
    """The value of the functional that a run minimises, by its name."""
    found = run.result.get("functional")
    return {} if found is None else {found["name"]: found["value"]}


def draw_comparison(runs: Sequence[Saved], file: Path) -> Path:
    """Errors over the time that training took, and errors of the integrals over the
    time of the problem, in which a run of a problem without time has one number; if no
    problem has time, over that of the training, too. Above them the fields, where
    there is no time and they have two dimensions at most. Returns the picture's file.
    """
    known = [_drawn(run) for run in runs]
    names = list(dict.fromkeys(name for own in known for name in own))
    all_steady = all(is_steady(run) for run in runs)
    # Two in a row, so that letters are large where the picture is shown small.
    columns = min(2, 1 + len(names))
    rows = -(-(1 + len(names)) // columns)
    above = height_of_fields(runs)
    whole = new_figure(_WIDTH * columns, _HEIGHT * rows + above)
    figure: Figure | SubFigure = whole
    if above:
        halves: Any = whole.subfigures(2, 1, height_ratios=[above, _HEIGHT * rows])
        draw_fields(halves[0], runs, _labels(runs))
        figure = halves[1]
    errors, *panels = figure.subplots(rows, columns, squeeze=False).ravel()
    panels, free = panels[: len(names)], panels[len(names) :]
    for k, (run, label) in enumerate(zip(runs, _labels(runs), strict=True)):
        # Runs with the same numbers are seen through each other.
        style = {
            "color": CYCLE[k % len(CYCLE)],
            "linestyle": STYLES[k % len(STYLES)],
        }
        seconds = [m["seconds"] for m in run.metrics]
        key = "l2_error" if run.result["has_reference"] else "loss"
        values = np.maximum(np.abs(numbers([m[key] for m in run.metrics])), ZERO)
        errors.semilogy(seconds, values, marker=".", label=label, **style)
        for axes, which in zip(panels, names, strict=True):
            if which not in known[k]:
                continue
            if all_steady:
                off = numbers([m["errors"][which] for m in run.metrics])
                axes.semilogy(seconds, np.maximum(off, ZERO), marker=".", **style)
                continue
            times, off = errors_over_time(run, which)
            off = np.maximum(off, ZERO)
            if is_steady(run):
                axes.axhline(off[0], **style)
                axes.set_yscale("log")
            else:
                axes.semilogy(times, off, **style)
    all_known = all(run.result["has_reference"] for run in runs)
    what = (
        "relative L2 error" if all_known else "relative L2 error, or loss without one"
    )
    plain(errors, what, "seconds, with compilation")
    for axes, which in zip(panels, names, strict=True):
        with_target = any(which in prescribed(run) for run in runs)
        kind = "error" if with_target else "drift"
        title = f"relative {kind} of the {in_words(which)}"
        along = "seconds" if all_steady else "t"
        plain(axes, title, f"{along}, on an independent rule")
    if free:
        free[0].axis("off")
        lines, labels = errors.get_legend_handles_labels()
        free[0].legend(lines, labels, loc="center", fontsize=11, frameon=False)
    else:
        figure.legend(
            loc="outside lower center", ncols=columns, fontsize=11, frameon=False
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    whole.savefig(buffer, format=file.suffix.removeprefix(".") or "png")
    write_whole(file, buffer.getvalue())
    return file


def _drawn(run: Saved) -> list[str]:
    """The invariants that have errors or drifts."""
    return prescribed(run) if is_steady(run) else [*prescribed(run), *measured(run)]


def _labels(runs: Sequence[Saved]) -> list[str]:
    """The names of the folders, or their paths where two have the same name."""
    names = [run.folder.name or str(run.folder) for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    lines = [textwrap.fill(printable(name), _LABEL) for name in names]
    # Not as mathematics, and not left out of the legend.
    escaped = [line.replace("$", r"\$") for line in lines]
    return [f" {line}" if line.startswith("_") else line for line in escaped]
