"""Several runs side by side, from what they saved."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._folder import Saved, printable, write_whole
from ._figures import (
    errors_over_time,
    in_words,
    measured,
    numbers,
    prescribed,
    worst_drift,
    worst_error,
)
from ._style import CYCLE, ZERO, new_figure, plain


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
                "errors": {name: worst_error(run, name) for name in prescribed(run)},
                "drifts": {name: worst_drift(run, name) for name in measured(run)},
                "on_rule": max(
                    (r["on_rule"] for r in certified if r["on_rule"] is not None),
                    default=None,
                ),
            }
        )
    return rows


def draw_comparison(runs: Sequence[Saved], file: Path) -> Path:
    """Errors over the time that training took, and errors of the integrals over the
    time of the problem; returns the picture's file."""
    known = [(*prescribed(run), *measured(run)) for run in runs]
    names = list(dict.fromkeys(name for own in known for name in own))
    figure = new_figure(3.5 * (1 + len(names)), 3.4)
    errors, *panels = np.atleast_1d(figure.subplots(1, 1 + len(names)))
    for k, run in enumerate(runs):
        colour = CYCLE[k % len(CYCLE)]
        # Not as mathematics, and not left out of the legend.
        name = printable(run.folder.name or str(run.folder)).replace("$", r"\$")
        name = f" {name}" if name.startswith("_") else name
        seconds = [m["seconds"] for m in run.metrics]
        key = "l2_error" if run.result["has_reference"] else "loss"
        values = np.maximum(np.abs(numbers([m[key] for m in run.metrics])), ZERO)
        errors.semilogy(seconds, values, ".-", color=colour, label=name)
        for axes, which in zip(panels, names, strict=True):
            if which in known[k]:
                times, off = errors_over_time(run, which)
                off = np.maximum(off, ZERO)
                axes.semilogy(times, off, color=colour, label=name)
    all_known = all(run.result["has_reference"] for run in runs)
    what = (
        "relative L2 error" if all_known else "relative L2 error, or loss without one"
    )
    plain(errors, what, "seconds, with compilation")
    for axes, which in zip(panels, names, strict=True):
        with_target = any(which in prescribed(run) for run in runs)
        kind = "error" if with_target else "drift"
        title = f"relative {kind} of the {in_words(which)}"
        plain(axes, title, "t, on an independent rule")
    errors.legend(fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file.suffix.removeprefix(".") or "png")
    write_whole(file, buffer.getvalue())
    return file
