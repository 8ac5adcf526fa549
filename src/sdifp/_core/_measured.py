"""Invariants without targets in a certificate: their values and drifts."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..invariants import Invariant, Measured, drift, read_rows
from ._prescribed import Prescribed


@dataclasses.dataclass(frozen=True)
class MeasuredRow:
    """One invariant without a target at one time: its integral in the continuum, and
    how it has changed since the first time, None without time. The margins are half the
    widths of confidence intervals, which cover the error of the quadrature only."""

    time: float | None
    invariant: str
    value: float
    value_margin: float
    drift: float | None
    drift_margin: float | None
    relative_drift: float | None
    "relative to the integral of the density's absolute value at the first time"


def measured_table(rows: Sequence[MeasuredRow]) -> str:
    """A table for the terminal; empty without any rows."""
    if not rows:
        return ""
    head = ["t", "measured", "value (95 %)", "drift (95 %)", "relative"]
    body = []
    for row in rows:
        time = "" if row.time is None else f"{row.time:.4g}"
        value = f"{row.value:.6g} +- {row.value_margin:.1e}"
        drifts = ["", ""]
        if row.drift is not None:
            drift = f"{row.drift:+.1e} +- {row.drift_margin:.1e}"
            drifts = [drift, f"{row.relative_drift:+.1e}"]
        body.append([time, row.invariant, value, *drifts])
    return aligned([head, *body])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """The cells of a table in columns, below a head; without those that are empty."""
    columns = [column for column in zip(*lines, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    return "\n".join(
        "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True))
        for line in zip(*columns, strict=True)
    )


def read_all(prescribed: Prescribed, found: np.ndarray) -> dict[Invariant, Measured]:
    """Each invariant in some integrals."""
    every = prescribed.every
    return dict(zip(every, read_rows(every, found, prescribed.volume), strict=True))


def drift_rows(
    times: Sequence[float | None],
    prescribed: Prescribed,
    known: list[list[dict[Invariant, Measured]]],
    margin: float,
) -> tuple[MeasuredRow, ...]:
    """The rows of what is measured, one after the other.

    **Arguments:**

    - `known`: what was found at each time, on each rule as in `assemble`.
    - `margin`: half the width of the interval of a mean, in standard deviations.
    """
    rows = []
    for invariant in prescribed.measured:
        column = lambda name, i=invariant: np.array(
            [[float(getattr(one[i], name)) for one in now[2:]] for now in known]
        )
        # The difference of two infinities is NaN, and shown as such.
        with np.errstate(invalid="ignore"):
            value, change, part = drift(Measured(column("value"), column("size")))
            spread = lambda a: margin * a.std(axis=1, ddof=1)
            columns = [value.mean(1), spread(value), change.mean(1), spread(change)]
            columns.append(part.mean(1))
        for k, t in enumerate(times):
            found = [float(c[k]) for c in columns]
            # Without time there is no drift.
            own = found if t is not None else [*found[:2], None, None, None]
            rows.append(MeasuredRow(t, invariant.name, *own))
    return tuple(rows)
