"""table.md and figure.png of a study, from its data.json alone."""

import math
from pathlib import Path
from typing import Any

from ._data import read_rows, write_whole
from ._study import Rows, Setting, Study
from ._sweep import file_of

# Below this, numbers are rounding: an order of magnitude says nothing.
_ROUNDING = 1e-14


def draw(study: Study, folder: Path, setting: Setting) -> Path:
    """Write the table and the picture; returns the folder of both."""
    file = file_of(folder, setting, study)
    rows = read_rows(file)
    here = folder / setting / study.name
    write_whole(here / "table.md", table_of(study, rows, setting))
    drawn = study.draw(rows) if study.draw else {}
    figures = drawn if isinstance(drawn, dict) else {"figure": drawn}
    for name, figure in figures.items():
        if setting != "full":
            figure.supxlabel(
                note_of(study), fontsize=7, x=0.005, ha="left", style="italic"
            )
        figure.savefig(here / f"{name}.png", dpi=130)
    return here


def note_of(study: Study) -> str:
    """What is said of every setting but the full one."""
    than = " than in the paper" if study.labels else ""
    return f"quick setting: smaller budgets{than}"


def table_of(study: Study, rows: Rows, setting: Setting) -> str:
    """Measured and published side by side."""
    lines = [f"# {study.title}", ""]
    if setting != "full":
        lines += [f"*{note_of(study).capitalize()}.*", ""]
    return "\n".join([*lines, *body_of(study, rows)]) + "\n"


def body_of(study: Study, rows: Rows) -> list[str]:
    """The table itself, and the sentences below it."""
    shown = [q for q in study.columns if rows.where(q)]
    published = {
        q: any(row["paper"] is not None for row in rows.where(q)) for q in shown
    }
    cases: dict[str, dict[str, Any]] = {}
    for each in rows:
        if each["quantity"] in shown:
            name = str(sorted(each["case"].items(), key=str))
            cases.setdefault(name, {"case": each["case"]})[each["quantity"]] = each
    by = list(dict.fromkeys(k for found in cases.values() for k in found["case"]))
    head = list(by)
    for quantity in shown:
        head.append(study.columns[quantity])
        if published[quantity]:
            head += ["paper", "ratio"]
    lines = [_line(head), _line(["---"] * len(head))]
    differ: dict[str, int] = {}
    for found in cases.values():
        cells = [str(found["case"].get(k, "")) for k in by]
        for quantity in shown:
            row: Any = found.get(quantity)
            off = row is not None and differs(row)
            if off:
                differ[quantity] = differ.get(quantity, 0) + 1
            old = row is not None and row["outdated"]
            cells.append(_cell(row) + (" †" if old else "") + (" **≠**" if off else ""))
            if published[quantity]:
                paper = None if row is None else row["paper"]
                cells += [number(paper), _ratio(row["measured"], paper) if row else ""]
        lines.append(_line(cells))
    seeds = {len(row["seeds"]) for row in rows}
    if max(seeds, default=1) > 1:
        lines += ["", f"Medians of up to {max(seeds)} seeds, with their range."]
    if any(row["outdated"] for row in rows):
        lines += [
            "",
            "† Measured, at least in part, with an earlier version of the code.",
        ]
    for quantity, count in differ.items():
        reason = study.reasons.get(quantity, "We do not know why.")
        title = study.columns[quantity]
        lines += ["", f"**≠** {title}: {count} differ in order of magnitude. {reason}"]
    return lines


def differs(row: dict[str, Any]) -> bool:
    """Whether measured and published differ by an order of magnitude."""
    measured, paper = row["measured"], row["paper"]
    if measured is None or paper is None or isinstance(measured, list):
        return False
    if max(abs(measured), abs(paper)) < _ROUNDING:
        return False
    if measured <= 0.0 or paper <= 0.0:
        return bool(measured != paper)
    return abs(math.log10(measured / paper)) >= 1.0


def number(value: float | None) -> str:
    """Short, and readable."""
    if value is None:
        return ""
    if value == 0.0:
        return "0"
    if 0.01 <= abs(value) < 1e4:
        return f"{value:.3g}"
    return f"{value:.1e}"


def _ratio(measured: float | None, paper: float | None) -> str:
    """Ours over theirs."""
    return number(measured / paper) if measured is not None and paper else ""


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["measured"] is None:
        return "failed"
    text = number(row["measured"])
    same = number(row["low"]) == number(row["high"])
    if same or max(abs(row["low"]), abs(row["high"])) < _ROUNDING:
        return text
    return f"{text} ({number(row['low'])} to {number(row['high'])})"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
