"""The certificate: what holds, as a table, a verdict and JSON."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from ..invariants import (
    Invariant,
    Measured,
    Target,
    Variance,
    relative_error,
)
from ._measured import MeasuredRow, aligned, drift_rows, measured_table, read_all
from ._prescribed import Prescribed
from ._scale import Status

# The confidence of the interval for the continuum.
_CONFIDENCE = 0.95

# Errors of the rule below this are far below those of any trained network.
_NEGLIGIBLE = 1e-9

# A variance that is off by more than this part of itself is lost in the rounding of the
# field's values.
_LOST = 0.01

# The largest rule that is tried in search of a better one.
_MOST_NODES = 2**17


@dataclasses.dataclass(frozen=True)
class CertificateRow:
    """One invariant at one time. Errors are relative to the target; for a mass that is
    small beside it, to the root of the squared norm; for a variance, to the root of its
    product with the squared norm; for a moment, to the root of the squared norms of
    field and weight."""

    time: float | None
    invariant: str
    "its name, such as `mass`, or `mass[1]` for one of several components"
    target: float
    on_rule: float
    "error on the rule"
    on_other_rule: float
    "error on an independent rule"
    continuum: float
    "estimate of the error in the continuum"
    continuum_margin: float
    "half the width of its confidence interval"
    scale: float
    floored: bool
    status: str


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What the `certificate` of a conserved field measured."""

    rule: str
    other_rule: str
    replicates: str
    confidence: float
    tolerance: float
    "the error on the rule that counts as rounding"
    rows: tuple[CertificateRow, ...]
    advice: str = ""
    "what to do where the rule limits the accuracy in the continuum"
    training: str = ""
    "what held in training, where that was less than what holds now"
    measured: tuple[MeasuredRow, ...] = ()
    "invariants that are measured and not prescribed"

    @property
    def holds(self) -> bool:
        """Whether every integral holds on the rule to rounding."""
        return not self._failed

    @property
    def _failed(self) -> list[CertificateRow]:
        fine = (Status.REGULAR.name, Status.CONSTANT.name)
        holds = lambda row: row.on_rule <= self.tolerance and row.status in fine
        return [row for row in self.rows if not holds(row)]

    @property
    def verdict(self) -> str:
        """One line."""
        if self._failed:
            first = max(self._failed, key=lambda r: _size(r.on_rule))
            when = "" if first.time is None else f" at t = {first.time:g}"
            return (
                f"NOT exact on the rule: the {_words(first)}{when} is off by "
                f"{first.on_rule:.1e}, status {first.status}"
            )
        worst = max(row.on_rule for row in self.rows)
        far = max(self.rows, key=_reach)
        off = self._interval(far)
        text = f"exact on the rule (worst error {worst:.1e}); in the continuum "
        if off == "rounding":
            return text + "exact to rounding"
        text += f"the worst is the {_words(far)}, off by {off}"
        return text + (f"; {self.advice}" if self.advice else "")

    def _interval(self, row: CertificateRow) -> str:
        if _reach(row) <= self.tolerance:
            return "rounding"
        return f"{row.continuum:+.1e} +- {row.continuum_margin:.1e}"

    def table(self) -> str:
        """A table for the terminal."""
        head = ["t", "invariant", "target"]
        head += ["on the rule", "other rule", "continuum (95 %)", "scale", "status"]
        body = [
            [
                "" if row.time is None else f"{row.time:.4g}",
                row.invariant,
                f"{row.target:.6g}",
                f"{row.on_rule:.1e}",
                f"{row.on_other_rule:.1e}",
                self._interval(row),
                f"{row.scale:.4g}",
                row.status,
            ]
            for row in self.rows
        ]
        return aligned([head, *body])

    def to_json(self, file: str | Path | None = None) -> str:
        """The same as JSON; also written to `file` if given."""
        data = dataclasses.asdict(self) | {"holds": self.holds, "verdict": self.verdict}
        for row in [*data["rows"], *data["measured"]]:
            # JSON has no NaN.
            for name, value in row.items():
                if isinstance(value, float) and not math.isfinite(value):
                    row[name] = None
        text = json.dumps(data, indent=1, allow_nan=False)
        if file is not None:
            Path(file).write_text(text + "\n")
        return text

    def __str__(self) -> str:
        lines = [self.table(), measured_table(self.measured)]
        lines += [f"{self.rule}: {self.verdict}", self.training]
        return "\n".join(line for line in lines if line)


def _size(error: float) -> float:
    """NaN is the worst of errors."""
    return math.inf if math.isnan(error) else abs(error)


def _words(row: CertificateRow) -> str:
    return row.invariant.replace("_", " ")


def _reach(row: CertificateRow) -> float:
    return _size(abs(row.continuum) + row.continuum_margin)


Integrals = np.ndarray
"""Of the rows of each invariant."""


def assemble(
    times: Sequence[float | None],
    prescribed: Prescribed,
    rules: Sequence[Any],
    base: Any,
    *,
    evaluate: Callable[[Target, float | None], float],
    at: Callable[
        [float | None], tuple[np.ndarray, np.ndarray, Callable[[Any], Integrals]]
    ],
    finer: Callable[[int], Any],
    eps: float,
) -> Certificate:
    """The certificate of a field.

    **Arguments:**

    - `rules`: that of the field, another one, and replicates of `base`.
    - `evaluate`: a target at a time, in double precision.
    - `at`: scale and status of each component at a time, and the integrals on a rule.
    - `finer`: a rule with so many nodes.
    - `eps`: the unit of rounding of the field.
    """
    tolerance, count = 64 * eps, len(rules) - 2
    quantile = float(scipy.stats.t.ppf(0.5 + _CONFIDENCE / 2, count - 1))
    rows: list[CertificateRow] = []
    seen: list[tuple[_Now, Invariant]] = []
    known: list[list[dict[Invariant, Measured]]] = []
    for t in times:
        scales, statuses, integrals = at(t)
        found = [integrals(rule) for rule in rules]
        known.append([read_all(prescribed, integrals) for integrals in found])
        targets = {i: evaluate(i.target, t) for i in prescribed.invariants}
        now = _Now(prescribed, targets, found[0], integrals)
        for invariant, target in targets.items():
            errors = np.array([now.error(invariant, f) for f in found])
            spread = float(errors[2:].std(ddof=1)) / math.sqrt(count)
            k = invariant.index
            status = Status(int(statuses[k]))
            if status == Status.CONSTANT and now.is_flattened(k, eps):
                status = Status.UNDERFLOW
            lost = abs(now.value(invariant, found[0]) - target) > _LOST * abs(target)
            if isinstance(invariant, Variance) and status == Status.REGULAR and lost:
                status = Status.UNDERFLOW
            rows.append(
                CertificateRow(
                    time=t,
                    invariant=invariant.name,
                    target=target,
                    on_rule=abs(float(errors[0])),
                    on_other_rule=abs(float(errors[1])),
                    continuum=float(errors[2:].mean()),
                    continuum_margin=quantile * spread,
                    scale=float(scales[k]),
                    floored=status == Status.FLOORED,
                    status=status.name,
                )
            )
            seen.append((now, invariant))

    def larger(row: CertificateRow, nodes: int) -> tuple[str, float]:
        """The name of a larger rule, and its error in the invariant of a row."""
        rule, (now, invariant) = finer(nodes), seen[rows.index(row)]
        error = abs(now.error(invariant, now.integrals(rule)) - row.continuum)
        return rule.name, max(float(error), row.continuum_margin, tolerance)

    out = Certificate(
        rule=repr(rules[0]),
        other_rule=repr(rules[1]),
        replicates=f"{count} randomisations of {base!r}",
        confidence=_CONFIDENCE,
        tolerance=tolerance,
        rows=tuple(rows),
        measured=drift_rows(times, prescribed, known, quantile / math.sqrt(count)),
    )
    if not out.holds:
        return out
    far = max(rows, key=_reach)
    if abs(far.continuum) - far.continuum_margin <= max(tolerance, _NEGLIGIBLE):
        return out
    return dataclasses.replace(out, advice=_advice(far, larger, rules[0]))


class _Now(NamedTuple):
    """What is prescribed and what was found at one time."""

    prescribed: Prescribed
    targets: dict[Invariant, float]
    on_rule: Integrals
    integrals: Callable[[Any], Integrals]

    def value(self, invariant: Invariant, found: Integrals) -> float:
        """An invariant in some integrals."""
        return float(read_all(self.prescribed, found)[invariant].value)

    def error(self, invariant: Invariant, found: Integrals) -> Any:
        """The relative error of an invariant in some integrals."""
        # The square of a very large field overflows, and says nothing of its size.
        known = read_all(self.prescribed, self.on_rule)[invariant]
        size = float(known.size * known.weight)
        size = size if math.isfinite(size) else 0.0
        value, volume = self.value(invariant, found), self.prescribed.volume
        return relative_error(invariant, value, self.targets[invariant], size, volume)

    def is_flattened(self, k: int, eps: float) -> bool:
        """Whether a constant field came out although the targets, in double precision,
        require a variation that the field could have."""
        wanted = {i.kind: v for i, v in self.targets.items() if i.index == k}
        grouped = bool(self.prescribed.groups)
        if grouped or not {"mass", "squared_norm"} <= wanted.keys():
            return False
        volume = self.prescribed.volume
        mean, square = (wanted[n] / volume for n in ("mass", "squared_norm"))
        return self.prescribed.variance_of(k, mean, square) > (64 * eps * mean) ** 2


def _advice(
    row: CertificateRow,
    larger: Callable[[CertificateRow, int], tuple[str, float]],
    rule: Any,
) -> str:
    """How many nodes would do, by trying larger rules: twice as many on each axis, or
    four times as many above three dimensions."""
    now = abs(row.continuum)
    growth = 2**rule.dimension if rule.dimension <= 3 else 4
    tried: list[tuple[float, int, str]] = []
    nodes = rule.size * growth
    while nodes <= _MOST_NODES or not tried:
        name, error = larger(row, nodes)
        tried.append((error, nodes, name))
        if error <= now / 10:
            break
        nodes *= growth
    error, nodes, name = min(tried)
    if not error < 0.9 * now:
        return f"the rule is the limit, and {nodes} nodes do not help"
    return (
        f"the rule is the limit: raise nodes to {nodes} ({name}: estimated error "
        f"{error:.0e})"
    )
