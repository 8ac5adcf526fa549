"""One page of all studies: what the paper says, and what was measured."""

import os
from pathlib import Path
from typing import NamedTuple

from ._data import read_rows
from ._draw import body_of, note_of
from ._names import load_study
from ._study import (
    CONDITION,
    CONFIRMED,
    Claim,
    Rows,
    Setting,
    Study,
)
from ._sweep import file_of, is_complete

# The studies of the paper, in the order of the page.
PAPER = (
    *("collocation", "weighted-metric", "grid-equivalence", "quadrature-exactness"),
    *("variance-floor", "conservation", "integrals-over-time", "dimension"),
    *("coefficient-gradient", "mini-batch-coefficients", "dropped-derivative"),
    *("boundary", "cost", "lagged", "memory", "estimator-bias", "quadrature-noise"),
    *("warm-up", "pinet"),
)
# Longer tables stay in their own file.
_LINES = 30


class _Part(NamedTuple):
    study: Study
    setting: Setting
    rows: Rows
    claims: list[Claim]


def page_text(folder: Path, page: Path) -> str:
    """The page from the data in a folder, with links from where it will be; the full
    setting where it is there."""
    parts = []
    for name in PAPER:
        study = load_study(name)
        for setting in ("full", "quick", "tiny"):
            if is_complete(study, folder, setting):
                rows = read_rows(file_of(folder, setting, study))
                parts.append(_Part(study, setting, rows, _claims(study, rows)))
                break
    lines = [
        "# The paper's tables and figures, measured",
        "",
        "Written by `python -m studies` from the data that it saved: what is measured "
        "on this page, verdicts included, is computed from them. The paper's values "
        "stand beside ours where it prints them, with the ratio of ours to them. The "
        "last column names the study of each verdict, its setting and how many seeds "
        "it has: `python -m studies NAME`, with `--full` for the full setting, is the "
        "command.",
        "",
        "| the paper says | verdict | measured | study |",
        "| --- | --- | --- | --- |",
    ]
    for part in parts:
        for claim in part.claims:
            name = part.study.name
            text, because = (t.replace("|", "\\|") for t in (claim.text, claim.because))
            lines.append(
                f"| {text} | **{claim.verdict}** | {because} | [{name}](#{name}), "
                f"{part.setting}, {_seeds(part.rows)} |"
            )
    for part in parts:
        lines += ["", f"## {part.study.name}", "", *_section(part, folder, page)]
    return "\n".join(lines) + "\n"


def _seeds(rows: Rows) -> str:
    """How many seeds the rows have, in words."""
    counts = sorted({len(row["seeds"]) for row in rows})
    if counts in ([], [1]):
        return "one seed"
    least = "" if len(counts) == 1 else f"{counts[0]} to "
    return f"{least}{counts[-1]} seeds"


def _claims(study: Study, rows: Rows) -> list[Claim]:
    """The verdicts; none is plain where a measurement gave no number."""
    failed = len(rows) - len([r for r in rows if r["measured"] is not None])
    claims = study.claims(rows)
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
    study, setting, rows, _ = part
    here = folder / setting / study.name
    link = lambda name: Path(os.path.relpath(here / name, page.parent)).as_posix()
    labels = ", ".join(f"`{name}`" for name in study.labels)
    lines = [f"**{study.title}.** In the paper: {labels}.", "", study.text, ""]
    if setting != "full":
        lines += [f"*{note_of(study).capitalize()}.*", ""]
    for file in sorted(here.glob("figure*.png"), key=lambda f: f.stem):
        lines += [f"![{study.alt}]({link(file.name)})", ""]
    table = body_of(study, rows)
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
    spent = sum(s for row in rows.where("seconds") for s in row["values"] if s)
    if spent >= 3600.0:
        lines += [
            f"The trainings took {spent / 3600.0:.1f} hours on one core each.",
            "",
        ]
    return lines
