"""One page of all experiments: what the paper says, and what was measured."""

import os
from pathlib import Path
from typing import NamedTuple

from .._folder import write_whole
from ._data import read_rows
from ._draw import QUICK, body_of
from ._experiment import (
    CONDITION,
    CONFIRMED,
    Claim,
    Experiment,
    Rows,
    Setting,
)
from ._names import EXPERIMENTS, load_experiment
from ._sweep import file_of, is_complete

# Longer tables stay in their own file.
_LINES = 30


class _Part(NamedTuple):
    experiment: Experiment
    setting: Setting
    rows: Rows
    claims: list[Claim]


def write_page(folder: Path, page: Path) -> Path:
    """Write the page from the data in a folder; the full setting where it is there."""
    parts = []
    for name in EXPERIMENTS:
        experiment = load_experiment(name)
        for setting in ("full", "quick", "tiny"):
            if is_complete(experiment, folder, setting):
                rows = read_rows(file_of(folder, setting, experiment))
                parts.append(
                    _Part(experiment, setting, rows, _claims(experiment, rows))
                )
                break
    lines = [
        "# The paper's tables and figures, measured",
        "",
        "Written by `sdifp reproduce` from the data that it saved: what is measured on "
        "this page, verdicts included, is computed from them. The paper's values stand "
        "beside ours where it prints them.",
        "",
        "| the paper says | verdict | measured |",
        "| --- | --- | --- |",
    ]
    for part in parts:
        for claim in part.claims:
            name = part.experiment.name
            text, because = (t.replace("|", "\\|") for t in (claim.text, claim.because))
            lines.append(
                f"| {text} | **{claim.verdict}** | {because} ([{name}](#{name})) |"
            )
    for part in parts:
        lines += ["", f"## {part.experiment.name}", "", *_section(part, folder, page)]
    page.parent.mkdir(parents=True, exist_ok=True)
    write_whole(page, ("\n".join(lines) + "\n").encode())
    return page


def _claims(experiment: Experiment, rows: Rows) -> list[Claim]:
    """The verdicts; none is plain where a measurement gave no number."""
    failed = len(rows) - len([r for r in rows if r["measured"] is not None])
    claims = experiment.claims(rows)
    if not failed:
        return claims
    note = f" ({failed} of {len(rows)} numbers are missing: measurements failed.)"
    return [
        Claim(
            claim.text,
            CONDITION if claim.verdict == CONFIRMED else claim.verdict,
            claim.because + note,
        )
        for claim in claims
    ]


def _section(part: _Part, folder: Path, page: Path) -> list[str]:
    experiment, setting, rows, _ = part
    here = folder / setting / experiment.name
    link = lambda name: Path(os.path.relpath(here / name, page.parent)).as_posix()
    labels = ", ".join(f"`{name}`" for name in experiment.labels)
    of_paper = f" In the paper: {labels}." if labels else " Not in the paper."
    lines = [f"**{experiment.title}.**{of_paper}", "", experiment.text, ""]
    if setting != "full":
        lines += [f"*{QUICK[0].upper()}{QUICK[1:]}.*", ""]
    for file in sorted(here.glob("figure*.png"), key=lambda f: f.stem):
        lines += [f"![{experiment.alt}]({link(file.name)})", ""]
    table = body_of(experiment, rows)
    if len(table) <= _LINES:
        lines += [*table, ""]
    else:
        # The sentences below the table are not to be missed.
        below = [line for line in table if line and not line.startswith("|")]
        lines += [f"[The table]({link('table.md')})."]
        lines += [x for line in below for x in ("", line)] + [""]
    origins = {(row["command"], row["versions"], row["machine"]): None for row in rows}
    for command, versions, machine in origins:
        lines += [f"`{command}` ({versions}; {machine})", ""]
    return lines
