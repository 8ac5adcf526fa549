"""Several runs side by side, from what they saved."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._folder import Saved
from ._figures import units
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
                **{
                    name: metrics[name]
                    for name in (
                        *("step", "seconds", "loss", "l2_error"),
                        *("mass_error", "energy_error"),
                    )
                },
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
    figure = new_figure(10.5, 3.4)
    errors, mass, energy = figure.subplots(1, 3)
    for k, run in enumerate(runs):
        colour = CYCLE[k % len(CYCLE)]
        name = run.folder.name or str(run.folder)
        seconds = [m["seconds"] for m in run.metrics]
        key = "loss" if run.result["metrics"]["l2_error"] is None else "l2_error"
        values = np.maximum(np.abs([m[key] for m in run.metrics]), ZERO)
        errors.semilogy(seconds, values, ".-", color=colour, label=name)
        integrals = run.result["integrals"]
        for axes, which in ((mass, "mass"), (energy, "energy")):
            curves = integrals[which]
            if curves["target"] is None:
                continue
            off = np.abs(np.subtract(curves["field"], curves["target"]))
            off = off / units(curves, integrals["energy"], which)
            axes.semilogy(
                integrals["times"], np.maximum(off, ZERO), color=colour, label=name
            )
    plain(errors, "relative L2 error, or loss without reference", "seconds in steps")
    plain(mass, "relative error of the mass, independent rule", "t")
    plain(energy, "relative error of the energy, independent rule", "t")
    errors.legend(fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    return file
