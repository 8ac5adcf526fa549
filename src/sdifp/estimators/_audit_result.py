"""What an audit found, as a table and as a picture."""

from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np


class AuditRow(eqx.Module):
    """What was measured of one estimator; gradients are relative to the norm of the
    full one."""

    name: str = eqx.field(static=True)
    bias: float = eqx.field(static=True)
    "mean error along the direction that was tested"
    margin: float = eqx.field(static=True)
    "half the width of its confidence interval, joint over all rows"
    predicted: float | None = eqx.field(static=True)
    "the bias along that direction by the covariance formula, where there is one"
    noise: float = eqx.field(static=True)
    "root mean square distance of one estimate from the mean"
    mean_square: float | None = eqx.field(static=True)
    "mean of its estimates of the mean squared residual, over the true one"
    milliseconds: float = eqx.field(static=True)
    "one estimate of the gradient, median of the best third"
    memory: int = eqx.field(static=True)
    "bytes of temporaries, as the compiler has it"

    @property
    def biased(self) -> bool:
        """Whether the confidence interval leaves out zero."""
        return abs(self.bias) > self.margin


class Audit(eqx.Module):
    """Estimators of a gradient side by side; `print` it, or `draw` it."""

    rows: tuple[AuditRow, ...] = eqx.field(static=True)
    gradient_norm: float = eqx.field(static=True)
    "of the full gradient"
    covariance: float | None = eqx.field(static=True)
    "norm of the bias of one shared term by the formula, relative to the gradient"
    repeats: int = eqx.field(static=True)
    confidence: float = eqx.field(static=True)
    note: str | None = eqx.field(static=True, default=None)
    "what the field's own gradient mode adds to the error of every row, if it does"

    def __str__(self) -> str:
        head = (
            f"{'estimator':<28} {'bias':>9} {'+-':>8} {'formula':>9} {'verdict':>9} "
            f"{'noise':>8} {'mean r^2':>9} {'ms':>8} {'MiB':>8}"
        )
        lines = [head]
        for row in self.rows:
            predicted = "" if row.predicted is None else f"{row.predicted:9.4f}"
            square = "" if row.mean_square is None else f"{row.mean_square:9.4f}"
            lines.append(
                f"{row.name:<28} {row.bias:>9.4f} {row.margin:>8.4f} {predicted:>9} "
                f"{'BIASED' if row.biased else 'none seen':>9} {row.noise:>8.3f} "
                f"{square:>9} {row.milliseconds:>8.2f} {row.memory / 2**20:>8.2f}"
            )
        lines.append(
            f"relative to the full gradient (norm {self.gradient_norm:.4g}); "
            f"{self.repeats} draws each, joint confidence {100 * self.confidence:g} %; "
            "'none seen': zero is inside the interval"
        )
        if self.note is not None:
            lines.append(self.note)
        return "\n".join(lines)

    def as_rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, for JSON."""
        names = list(AuditRow.__dataclass_fields__)
        return [
            {n: getattr(r, n) for n in names} | {"biased": r.biased} for r in self.rows
        ]

    def draw(self, file: str | Path) -> Path:
        """Draw bias with its interval, noise, time and memory, and save the picture."""
        from matplotlib.figure import Figure

        names = [r.name for r in self.rows]
        y = np.arange(len(names))[::-1]
        figure = Figure((11.0, 1.4 + 0.42 * len(names)), layout="constrained")
        axes = figure.subplots(1, 4, sharey=True)
        for row, at in zip(self.rows, y, strict=True):
            # Vermillion and blue of Okabe and Ito, told apart by their markers too.
            colour, marker = ("#D55E00", "s") if row.biased else ("#0072B2", "o")
            axes[0].errorbar(
                row.bias, at, xerr=row.margin, fmt=marker, color=colour, capsize=4
            )
            if row.predicted is not None:
                axes[0].plot(row.predicted, at, "k|", markersize=16)
        axes[0].axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
        axes[0].set_xlabel("bias / |gradient|\n(bar: covariance formula)")
        for axis, values, label in (
            (axes[1], [r.noise for r in self.rows], "noise / |gradient|"),
            (axes[2], [r.milliseconds for r in self.rows], "time (ms)"),
            (axes[3], [r.memory / 2**20 for r in self.rows], "temporaries (MiB)"),
        ):
            axis.barh(y, values, color="0.7", height=0.6)
            for at, value in zip(y, values, strict=True):
                axis.annotate(
                    f" {value:.3g}", (value, at), va="center", fontsize=8, color="0.2"
                )
            axis.margins(x=0.2)
            axis.set_xlabel(label)
        axes[0].set_yticks(y, names)
        for axis in axes:
            axis.spines[["top", "right"]].set_visible(False)
        figure.suptitle(
            f"Estimators against the full gradient, {self.repeats} draws "
            f"(squares: biased, at joint confidence {100 * self.confidence:g} %)",
            fontsize=11,
        )
        if self.note is not None:
            figure.supxlabel(self.note, fontsize=8, wrap=True)
        file = Path(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=150)
        return file
