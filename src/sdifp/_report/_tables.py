"""The tables of a report, as text."""

import math
from typing import Any, NamedTuple

from .._folder import Saved, continuum_of, interval_of, measured_in_words, shown
from ._values import density_in_words, in_words, is_steady, shown_number

_TEXT = ("invariant", "definition", "status")


class Row(NamedTuple):
    """The cells of a row, and whether it is the worst of its table."""

    cells: list[str]
    worst: bool = False


class Table(NamedTuple):
    """A table with an id on the page."""

    id: str
    head: list[str]
    rows: list[Row]

    @property
    def kinds(self) -> list[str]:
        """`text` for columns of words, nothing for those of numbers."""
        return ["text" if name in _TEXT else "" for name in self.head]


def integrals_table(saved: Saved) -> Table:
    """The invariants of a problem without time: field, raw network, target and errors
    on the independent rule."""
    found = saved.result["integrals"]["invariants"]
    raw = any("raw" in curves["values"] for curves in found.values())
    head = ["invariant", "target", "field", "error of the field"]
    if raw:
        head += ["raw network", "error of the raw network"]
    head.append("definition")
    rows = []
    for name, curves in found.items():
        target, errors = curves["target"], curves.get("errors", {})
        cells = [in_words(name), "none" if target is None else shown_number(target[0])]
        for which in ("field", "raw") if raw else ("field",):
            value = curves["values"].get(which)
            cells.append("" if value is None else shown_number(value[0]))
            cells.append(shown(errors[which][0]) if which in errors else "")
        rows.append(Row([*cells, density_in_words(saved, name)]))
    return Table("integrals", head, rows)


def certificate_table(saved: Saved) -> Table | None:
    """The rows of the certificate at about five times, and the worst of all."""
    if saved.certificate is None:
        return None
    rows, tolerance = saved.certificate["rows"], saved.certificate["tolerance"]
    few = _some_times(rows)

    def size(row: dict[str, Any]) -> float:
        parts = (row["continuum"], row["continuum_margin"])
        return sum(math.inf if p is None else abs(p) for p in parts)

    worst = max(rows, key=size)
    head = ["invariant", "target", "on the rule", "independent rule", "continuum"]
    found = [
        Row(
            [
                *_time(saved, row),
                row["invariant"],
                shown_number(row["target"]),
                shown(row["on_rule"]),
                shown(row["on_other_rule"]),
                continuum_of(row, tolerance).replace("+-", "±"),
                "not finite" if row["scale"] is None else f"{row['scale']:.4g}",
                row["status"].lower(),
            ],
            worst=row is worst,
        )
        for row in rows
        if row["time"] in few or row is worst
    ]
    head = [*_time(saved), *head, "scale", "status"]
    return Table("certificate", head, found)


def measured_table(saved: Saved) -> Table | None:
    """The rows of the certificate of what is measured only, at about five times."""
    # Files of before do not have them.
    rows = (saved.certificate or {}).get("measured", [])
    if not rows:
        return None
    few = _some_times(rows)
    found = []
    for row in rows:
        if row["time"] not in few:
            continue
        if is_steady(saved):
            cells = [interval_of(row, "value", ".6g")]
        else:
            words = measured_in_words(row)
            cells = [words[name] for name in ("value", "drift", "relative_drift")]
        cells = [cell.replace("+-", "±") for cell in cells]
        found.append(Row([*_time(saved, row), row["invariant"], *cells]))
    drifts = [] if is_steady(saved) else ["drift", "relative drift"]
    return Table("measured", [*_time(saved), "invariant", "value", *drifts], found)


def _time(saved: Saved, row: dict[str, Any] | None = None) -> list[str]:
    """The cell of the time of a row, or of the head; none without time."""
    if is_steady(saved):
        return []
    return ["t" if row is None else f"{row['time']:.4g}"]


def _some_times(rows: list[dict[str, Any]]) -> list[Any]:
    """About five of the times of some rows; None where there is no time."""
    times = sorted({r["time"] for r in rows} - {None})
    return times[:: max(1, (len(times) - 1) // 4)] or [None]
