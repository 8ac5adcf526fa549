"""certificate: what holds, measured, on the rule and in the continuum."""

import dataclasses
import json
import math
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Array

from .._projection import Status
from .._quadrature import QuadratureRule, lattice, monte_carlo, sobol
from ._field import ConservedField, FieldAt
from ._targets import Times

# Nodes and randomisations of the estimate of the continuum, and its confidence.
_NODES, _REPLICATES, _CONFIDENCE = 2**12, 16, 0.95


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
    """What `ConservedField.certificate` measured."""

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


def certify(
    field: ConservedField,
    times: Times | None,
    *,
    key: Array,
    other_rule: QuadratureRule | None,
    replicates: int,
) -> Certificate:
    """Measure a field; see `ConservedField.certificate`."""
    if replicates < 2:
        raise ValueError(f"replicates must be at least 2, got {replicates}")
    box = field.rule.domain
    for_other, for_base, for_rules = jax.random.split(key, 3)
    base = _independent(field.rule, for_base)
    rules = base.replicates(for_rules, replicates)
    other = _independent(field.rule, for_other) if other_rule is None else other_rule
    if other.domain != box:
        raise ValueError(
            f"other_rule must live on the box of the field, {box}, got {other.domain}"
        )
    t_value = float(scipy.stats.t.ppf(0.5 + _CONFIDENCE / 2, replicates - 1))
    volume = 1.0 if field.normalised else box.volume

    grid = [None] if times is None else np.ravel(np.asarray(times, float)).tolist()
    if not grid:
        raise ValueError("times must hold at least one time, got none")
    point = jnp.asarray(field.rule.block(0, 1)[0][0])
    output = jax.eval_shape(lambda: field.at(grid[0])(point)).dtype
    eps = float(max(jnp.finfo(d).eps for d in (output, jnp.result_type(float))))
    rows = []
    for t in grid:
        # As an array, so that all times share one program.
        time = None if t is None else jnp.asarray(t)
        now = field.at(time)
        statuses = np.atleast_1d(np.asarray(now.status))
        scales = np.atleast_1d(np.asarray(now.scale))
        found = [
            volume * np.asarray(_two_integrals(now, r)).reshape(2, -1)
            for r in (field.rule, other, *rules)
        ]
        for k, pair in enumerate(zip(field.mass, field.energy, strict=True)):
            size = math.sqrt(volume * abs(found[0][1, k]))
            for power, (name, target) in enumerate(
                zip(("mass", "energy"), pair, strict=True)
            ):
                if target is None:
                    continue
                wanted = float(target(t))
                # A mass of zero has no relative error: the field's size stands in.
                unit = max(abs(wanted), size if power == 0 else 0.0) or 1.0
                errors = np.array([(f[power, k] - wanted) / unit for f in found])
                spread = float(errors[2:].std(ddof=1)) / math.sqrt(replicates)
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
                        continuum_margin=t_value * spread,
                        scale=float(scales[k]),
                        floored=status == Status.FLOORED,
                        status=status.name,
                    )
                )
    return Certificate(
        rule=repr(field.rule),
        other_rule=repr(other),
        replicates=f"{replicates} randomisations of {base!r}",
        confidence=_CONFIDENCE,
        tolerance=64 * eps,
        rows=tuple(rows),
    )


@eqx.filter_jit
def _two_integrals(now: FieldAt, rule: QuadratureRule) -> Array:
    def powers(x: Array) -> Array:
        value = now(x)
        return jnp.stack([value, value**2])

    return rule.mean(powers)


def _independent(rule: QuadratureRule, key: Array) -> QuadratureRule:
    """A randomised rule of the same box that shares nothing with the given one."""
    size = max(_NODES, 1 << (rule.size - 1).bit_length())
    box = rule.domain
    if box.dimension <= 100:
        return lattice(box, size, key=key)
    if box.dimension <= scipy.stats.qmc.Sobol.MAXDIM:
        return sobol(box, size, key=key)
    return monte_carlo(box, rule.size, key=key)
