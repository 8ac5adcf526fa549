"""table.md and figure.png of an experiment, from its data.json alone."""

import math
from pathlib import Path
from typing import Any

from .._folder import write_whole
from ._data import read_rows
from ._experiment import Experiment, Rows, Setting
from ._sweep import file_of

QUICK = "quick setting: smaller budgets than in the paper"
# Below this, numbers are rounding: an order of magnitude says nothing.
_ROUNDING = 1e-14


def draw(experiment: Experiment, folder: Path, setting: Setting) -> Path:
    """Write the table and the picture; returns the folder of both."""
    file = file_of(folder, setting, experiment)
    rows = read_rows(file)
    here = folder / setting / experiment.name
    here.mkdir(exist_ok=True)
    write_whole(here / "table.md", table_of(experiment, rows, setting).encode())
    drawn = experiment.draw(rows)
    figures = drawn if isinstance(drawn, dict) else {"figure": drawn}
    for name, figure in figures.items():
        if setting != "full":
            figure.supxlabel(QUICK, fontsize=7, x=0.005, ha="left", style="italic")
        figure.savefig(here / f"{name}.png", dpi=130)
    return here


def table_of(experiment: Experiment, rows: Rows, setting: Setting) -> str:
    """Measured and published side by side."""
    lines = [f"# {experiment.title}", ""]
    if setting != "full":
        lines += [f"*{QUICK[0].upper()}{QUICK[1:]}.*", ""]
    return "\n".join([*lines, *body_of(experiment, rows)]) + "\n"


def body_of(experiment: Experiment, rows: Rows) -> list[str]:
    """The table itself, and the sentences below it."""
    shown = [q for q in experiment.columns if rows.where(q)]
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
        head.append(experiment.columns[quantity])
        if published[quantity]:
            head.append("paper")
    lines = [_line(head), _line(["---"] * len(head))]
    differ: dict[str, int] = {}
    for found in cases.values():
        cells = [str(found["case"].get(k, "")) for k in by]
        for quantity in shown:
            row: Any = found.get(quantity)
            off = row is not None and differs(row)
            if off:
                differ[quantity] = differ.get(quantity, 0) + 1
            cells.append(_cell(row) + (" **≠**" if off else ""))
            if published[quantity]:
                cells.append("" if row is None else number(row["paper"]))
        lines.append(_line(cells))
    seeds = {len(row["seeds"]) for row in rows}
    if max(seeds, default=1) > 1:
        lines += ["", f"Medians of up to {max(seeds)} seeds, with their range."]
    for quantity, count in differ.items():
        reason = experiment.reasons.get(quantity, "We do not know why.")
        title = experiment.columns[quantity]
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
