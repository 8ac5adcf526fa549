"""The certificate: what holds, as a table, a verdict and JSON."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import scipy.stats

from ._prescribed import Prescribed
from ._status import Status
from ._targets import Target

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
    """One integral of one component at one time. Errors are relative to the target, or
    to the root of the energy for a mass that is small beside it; for a variance they
    are relative to the root of its product with the energy."""

    time: float | None
    component: int
    integral: str
    "`mass`, `energy` or `variance`"
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
        if bad:
            first = max(bad, key=lambda r: _size(r.on_rule))
            when = "" if first.time is None else f" at t = {first.time:g}"
            which = f" of component {first.component}" if self._several else ""
            return (
                f"NOT exact on the rule: the {first.integral}{which}{when} is off by "
                f"{first.on_rule:.1e}, status {first.status}"
            )
        worst = max(row.on_rule for row in self.rows)
        far = max(self.rows, key=_reach)
        text = f"exact on the rule (worst error {worst:.1e}); in the continuum "
        if self._is_rounding(far):
            return text + "exact to rounding"
        text += f"the worst is the {far.integral}, off by {self._interval(far)}"
        return text + (f"; {self.advice}" if self.advice else "")

    @property
    def _several(self) -> bool:
        return len({row.component for row in self.rows}) > 1

    def _is_rounding(self, row: CertificateRow) -> bool:
        return _reach(row) <= self.tolerance

    def _interval(self, row: CertificateRow) -> str:
        if self._is_rounding(row):
            return "rounding"
        return f"{row.continuum:+.1e} +- {row.continuum_margin:.1e}"

    def table(self) -> str:
        """A table for the terminal."""
        several = self._several
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
                self._interval(row),
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


def _size(error: float) -> float:
    """NaN is the worst of errors."""
    return math.inf if math.isnan(error) else abs(error)


def _reach(row: CertificateRow) -> float:
    return _size(abs(row.continuum) + row.continuum_margin)


Integrals = np.ndarray
"""Of a field, of its square, and of its square about the target mean: shape
(3, components)."""

Finer = Callable[[int, float | None], tuple[str, Integrals]]
"""The name of a rule with so many nodes, and the integrals on it at a time."""


def assemble(
    times: Sequence[float | None],
    prescribed: Prescribed,
    evaluate: Callable[[Target, float | None], float],
    measure: Callable[
        [float | None], tuple[np.ndarray, np.ndarray, Sequence[Integrals]]
    ],
    finer: Finer,
    *,
    size: int,
    dimension: int,
    rule: str,
    other_rule: str,
    replicates: str,
    eps: float,
) -> Certificate:
    """The certificate of a field.

    **Arguments:**

    - `evaluate`: a target at a time, in double precision.
    - `measure`: scale and status of each component at a time, and the integrals on the
        rule, on the other rule, and on each of the replicates.
    - `finer`: the same integrals on a larger rule.
    - `size`, `dimension`: of the rule.
    - `rule`, `other_rule`, `replicates`: what they are, in words.
    - `eps`: the unit of rounding of the field.
    """
    tolerance = 64 * eps
    rows, units = [], []
    for t in times:
        scales, statuses, found = measure(t)
        count = len(found) - 2
        quantile = float(scipy.stats.t.ppf(0.5 + _CONFIDENCE / 2, count - 1))
        for k in range(len(prescribed.mass)):
            wanted = {n: evaluate(g, t) for n, g in prescribed.of(k).items()}
            status = Status(int(statuses[k]))
            if status == Status.CONSTANT and _is_flattened(wanted, prescribed, k, eps):
                status = Status.UNDERFLOW
            for name, target in wanted.items():
                unit = _unit(name, target, found[0][:, k], prescribed.volume)
                errors = np.array(
                    [
                        (_value(name, f[:, k], wanted, prescribed.volume) - target)
                        / unit
                        for f in found
                    ]
                )
                spread = float(errors[2:].std(ddof=1)) / math.sqrt(count)
                lost = abs(float(errors[0])) * unit > _LOST * abs(target)
                if name == "variance" and status == Status.REGULAR and lost:
                    status = Status.UNDERFLOW
                rows.append(
                    CertificateRow(
                        time=t,
                        component=k,
                        integral=name,
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
                units.append((unit, wanted))

    def larger(row: CertificateRow, nodes: int) -> tuple[str, float]:
        """The name of a larger rule, and its error in the integral of a row."""
        unit, wanted = units[rows.index(row)]
        name, found = finer(nodes, row.time)
        on_it = found[:, row.component]
        value = _value(row.integral, on_it, wanted, prescribed.volume)
        error = abs((value - row.target) / unit - row.continuum)
        return name, max(float(error), row.continuum_margin, tolerance)

    out = Certificate(
        rule=rule,
        other_rule=other_rule,
        replicates=replicates,
        confidence=_CONFIDENCE,
        tolerance=tolerance,
        rows=tuple(rows),
    )
    if not out.holds:
        return out
    far = max(rows, key=_reach)
    if abs(far.continuum) - far.continuum_margin <= max(tolerance, _NEGLIGIBLE):
        return out
    return dataclasses.replace(out, advice=_advice(far, larger, size, dimension))


def _unit(name: str, target: float, found: np.ndarray, volume: float) -> float:
    """What the error of an integral is relative to."""
    energy = abs(float(found[1]))
    # The square of a very large field overflows, and says nothing of its size.
    energy = energy if math.isfinite(energy) else 0.0
    if name == "mass":
        # A mass of zero has no relative error: the field's size stands in.
        return max(abs(target), math.sqrt(volume * energy)) or 1.0
    if name == "variance":
        # Rounding of the values moves it in proportion to both roots.
        return max(abs(target), math.sqrt(abs(target) * energy)) or energy or 1.0
    return abs(target) or 1.0


def _value(
    name: str, found: np.ndarray, wanted: dict[str, float], volume: float
) -> float:
    """The integral of this name."""
    mass, energy, about = (float(f) for f in found)
    if name != "variance":
        return mass if name == "mass" else energy
    return about - (mass - wanted["mass"]) ** 2 / volume


def _is_flattened(
    wanted: dict[str, float], prescribed: Prescribed, k: int, eps: float
) -> bool:
    """Whether a constant field came out although the targets, in double precision, ask
    for a variation that the field could have."""
    if "mass" not in wanted or "energy" not in wanted:
        return False
    mean, square = (wanted[n] / prescribed.volume for n in ("mass", "energy"))
    return prescribed.variance_of(k, mean, square) > (64 * eps * mean) ** 2


def _advice(
    row: CertificateRow,
    larger: Callable[[CertificateRow, int], tuple[str, float]],
    size: int,
    dimension: int,
) -> str:
    """How many nodes would do, by trying larger rules: twice as many on each axis, or
    four times as many above three dimensions."""
    now = abs(row.continuum)
    growth = 2**dimension if dimension <= 3 else 4
    tried: list[tuple[float, int, str]] = []
    nodes = size * growth
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
