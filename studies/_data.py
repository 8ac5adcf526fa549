"""data.json: what was measured, with what was published, and where it came from."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._study import Case, Row, Rows, Study, Value

Key = tuple[str, int]


def write_whole(file: Path, text: str) -> None:
    """Write a file as a whole, or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(text)
    partial.replace(file)


def write_arrays(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as a whole, or not at all; `numpy.load` reads them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    with partial.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
    partial.replace(file)


def key_of(case: Case, seed: int) -> Key:
    """A measurement has one name."""
    return json.dumps(case, sort_keys=True), seed


class Data:
    """The rows of a study in a file; a row is a case and a quantity, with all
    its seeds. `code` is the version of the code that measured last; each seed of a row
    has the one that measured it."""

    def __init__(self, file: Path):
        self.file, self.changed = file, False
        self.code: str | None = None
        self.rows: list[Row] = []
        if file.exists():
            self.code, self.rows = _read(file)
        self._at = {
            (json.dumps(r["case"], sort_keys=True), r["quantity"]): r for r in self.rows
        }

    def measured(self) -> dict[Key, dict[str, Value]]:
        """All measurements."""
        out: dict[Key, dict[str, Value]] = {}
        for row in self.rows:
            for seed, value in zip(row["seeds"], row["values"], strict=True):
                out.setdefault(key_of(row["case"], seed), {})[row["quantity"]] = value
        return out

    def of_other_code(self, code: str) -> set[Key]:
        """The measurements that another version of the code made."""
        return {
            key_of(row["case"], seed)
            for row in self.rows
            for seed, own in zip(row["seeds"], row["codes"], strict=True)
            if own != code
        }

    def add(
        self,
        study: Study,
        case: Case,
        seed: int,
        found: Mapping[str, Value],
        origin: Mapping[str, str],
        code: str,
    ) -> None:
        """Take in a measurement by this version of the code."""
        self.changed, self.code = True, code
        published = study.paper(case)
        for quantity, value in found.items():
            name = (json.dumps(case, sort_keys=True), quantity)
            if name not in self._at:
                row: Row = {"case": case, "quantity": quantity, "seeds": []}
                self._at[name] = row | {"values": [], "codes": []}
                self.rows.append(self._at[name])
            row = self._at[name]
            if seed in row["seeds"]:
                k = row["seeds"].index(seed)
                row["values"][k], row["codes"][k] = _short(value), code
            else:
                row["seeds"].append(seed)
                row["values"].append(_short(value))
                row["codes"].append(code)
            row["paper"] = published.get(quantity)
            row.update(_summary(row["values"]))
            for part, text in origin.items():
                # Seeds may come from several machines.
                known = row.get(part, text)
                row[part] = known if text in known else f"{known}; {text}"

    def save(self, order: Sequence[str]) -> None:
        """Write the file, as a whole, with the cases in this order, if it changed."""
        if not self.changed:
            return
        self.changed = False
        place = {name: k for k, name in enumerate(order)}
        self.rows.sort(
            key=lambda row: place.get(
                json.dumps(row["case"], sort_keys=True), len(order)
            )
        )
        lines = ",\n".join(json.dumps(row) for row in self.rows)
        head = f'{{"code": {json.dumps(self.code)}, "rows": ['
        write_whole(self.file, f"{head}\n{lines}\n]}}\n")


def read_rows(file: Path) -> Rows:
    """What was saved, to draw from; a row is `outdated` where another version of the
    code measured it than the one that measured last."""
    code, rows = _read(file)
    for row in rows:
        row["outdated"] = any(own != code for own in row["codes"])
    return Rows(rows)


def _read(file: Path) -> tuple[str | None, list[Row]]:
    try:
        saved = json.loads(file.read_text())
        code, rows = saved.get("code"), saved["rows"]
        for row in rows:
            # Files of before have no versions.
            row.setdefault("codes", [None] * len(row["seeds"]))
            # What is looked at everywhere must be there.
            _ = row["case"], row["quantity"], row["measured"], row["paper"]
            if not len(row["seeds"]) == len(row["values"]) == len(row["codes"]):
                raise ValueError("seeds, values and codes differ in number")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{file} cannot be read ({reason}); remove it to measure again"
        ) from None
    return code, list(rows)


def _summary(values: list[Value]) -> dict[str, Any]:
    """Median and range over seeds; of curves the median alone, time by time. One
    failure among the seeds fails the row."""
    if any(v is None for v in values):
        return {"measured": None, "low": None, "high": None}
    curves: list[Any] = [v for v in values if isinstance(v, list)]
    if curves:
        columns = zip(*curves, strict=False)
        middle = [_median(list(c)) for c in columns]
        return {"measured": middle, "low": None, "high": None}
    numbers: list[Any] = list(values)
    return {"measured": _median(numbers), "low": min(numbers), "high": max(numbers)}


def _median(values: list[Any]) -> float | None:
    return None if None in values else _short(statistics.median(values))


def _short(value: Any) -> Any:
    """Six digits are enough."""
    if isinstance(value, list | tuple):
        return [_short(v) for v in value]
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.6g}")
