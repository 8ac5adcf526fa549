"""The certificate: what holds, as a table, a verdict and JSON."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import scipy.stats

from ._status import Status
from ._targets import Target

# The confidence of the interval for the continuum.
_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class CertificateRow:
    """One integral of one component at one time. Errors are relative to the target, or
    to the root of the energy for a mass that is small beside it."""

    time: float | None
    component: int
    integral: str
    "`mass` or `energy`"
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

    @property
    def holds(self) -> bool:
        """Whether every integral holds on the rule to rounding."""
        return not self._failed

    @property
    def _failed(self) -> list[CertificateRow]:
        fine = (Status.REGULAR.name, Status.CONSTANT.name)
        return [
            row
            for row in self.rows
            if not row.on_rule <= self.tolerance or row.status not in fine
        ]

    @property
    def verdict(self) -> str:
        """One line."""
        bad = self._failed
        worst = max(self.rows, key=lambda r: r.on_rule)
        far = max(self.rows, key=lambda r: abs(r.continuum) + r.continuum_margin)
        if bad:
            first = bad[0]
            when = "" if first.time is None else f" at t = {first.time:g}"
            return (
                f"NOT exact on the rule: the {first.integral}{when} is off by "
                f"{first.on_rule:.1e}, status {first.status}"
            )
        return (
            f"exact on the rule (worst error {worst.on_rule:.1e}); in the continuum "
            f"the worst is the {far.integral}, off by {far.continuum:+.1e} "
            f"+- {far.continuum_margin:.1e}"
        )

    def table(self) -> str:
        """A table for the terminal."""
        several = len({row.component for row in self.rows}) > 1
        head = ["t", *(["component"] if several else []), "integral", "target"]
        head += ["on the rule", "other rule", "continuum (95 %)", "scale", "status"]
        body = [
            [
                "" if row.time is None else f"{row.time:.4g}",
                *([str(row.component)] if several else []),
                row.integral,
                f"{row.target:.6g}",
                f"{row.on_rule:.1e}",
                f"{row.on_other_rule:.1e}",
                f"{row.continuum:+.1e} +- {row.continuum_margin:.1e}",
                f"{row.scale:.4g}",
                row.status,
            ]
            for row in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True))
            for line in [head, *body]
        )

    def to_json(self, file: str | Path | None = None) -> str:
        """The same as JSON; also written to `file` if given."""
        data = dataclasses.asdict(self) | {"holds": self.holds, "verdict": self.verdict}
        for row in data["rows"]:
            # JSON has no NaN.
            for name, value in row.items():
                if isinstance(value, float) and not math.isfinite(value):
                    row[name] = None
        text = json.dumps(data, indent=1, allow_nan=False)
        if file is not None:
            Path(file).write_text(text + "\n")
        return text

    def __str__(self) -> str:
        return f"{self.table()}\n{self.rule}: {self.verdict}"


def assemble(
    times: Sequence[float | None],
    targets: Sequence[tuple[Target | None, Target | None]],
    evaluate: Callable[[Target, float | None], float],
    measure: Callable[
        [float | None], tuple[np.ndarray, np.ndarray, Sequence[np.ndarray]]
    ],
    *,
    volume: float,
    rule: str,
    other_rule: str,
    replicates: str,
    eps: float,
) -> Certificate:
    """The certificate of a field.

    **Arguments:**

    - `targets`: mass and energy of each component.
    - `evaluate`: a target at a time.
    - `measure`: scale and status of each component at a time, and the integrals of
        the field and of its square, shape (2, components): on the rule, on the other
        rule, and on each of the replicates.
    - `volume`: of the box, or 1 where the targets are means.
    - `rule`, `other_rule`, `replicates`: what they are, in words.
    - `eps`: the unit of rounding of the field.
    """
    rows = []
    for t in times:
        scales, statuses, found = measure(t)
        count = len(found) - 2
        quantile = float(scipy.stats.t.ppf(0.5 + _CONFIDENCE / 2, count - 1))
        for k, pair in enumerate(targets):
            size = math.sqrt(volume * abs(found[0][1, k]))
            for power, (name, target) in enumerate(
                zip(("mass", "energy"), pair, strict=True)
            ):
                if target is None:
                    continue
                wanted = evaluate(target, t)
                # A mass of zero has no relative error: the field's size stands in.
                unit = max(abs(wanted), size if power == 0 else 0.0) or 1.0
                errors = np.array([(f[power, k] - wanted) / unit for f in found])
                spread = float(errors[2:].std(ddof=1)) / math.sqrt(count)
                status = Status(int(statuses[k]))
                rows.append(
                    CertificateRow(
                        time=t,
                        component=k,
                        integral=name,
                        target=wanted,
                        on_rule=abs(float(errors[0])),
                        on_other_rule=abs(float(errors[1])),
                        continuum=float(errors[2:].mean()),
                        continuum_margin=quantile * spread,
                        scale=float(scales[k]),
                        floored=status == Status.FLOORED,
                        status=status.name,
                    )
                )
    return Certificate(
        rule=rule,
        other_rule=other_rule,
        replicates=replicates,
        confidence=_CONFIDENCE,
        tolerance=64 * eps,
        rows=tuple(rows),
    )
