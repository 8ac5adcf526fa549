"""Measure estimators against the full gradient: bias, noise, time and memory."""

import functools
import math
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Array, ArrayLike, Float

from .._checks import check_count
from .._field import ConservedField, Detached, Exact, MiniBatch, Subsampled
from .._timing import interleaved
from ._apply import batch_of
from ._estimators import Disjoint, Estimator, Full, Independent, Shared, Symmetric, stde
from ._residual import Residual
from ._samplers import Coordinates, Rademacher, groups_of

# Above this many terms their covariance, which needs each of them, is not computed.
_MOST_TERMS = 4096


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

    def draw(self, file: str | FilePath) -> FilePath:
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
        file = FilePath(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=150)
        return file


def audit(
    residual: Residual,
    u: Any,
    x: ArrayLike,
    t: ArrayLike | None = None,
    *,
    key: Array,
    estimators: Mapping[str, Estimator] | None = None,
    n: int | None = None,
    repeats: int = 1024,
    confidence: float = 0.99,
) -> Audit:
    """Compare estimators of the gradient on one batch with the full gradient.

    The bias is measured along one direction: that of the covariance of sampled residual
    and sampled gradient where its formula applies (one kind of terms, at most 4096 of
    them, sampled as such), else that of the mean error over as many draws more. Where
    the residual is far smaller than its terms, rounding looks like bias: audit in
    float64.

    The rule of a conserved field is held fixed. Its gradient mode is part of what is
    measured: with `Subsampled(k)` even the full estimator has noise, that of the k
    nodes drawn for each estimate, and the printed table says so.

    **Arguments:**

    - `residual`, `u`, `x`, `t`: as for an estimator.
    - `key`: for the draws.
    - `estimators`: by name; by default all of them, with `n` terms each.
    - `n`: by default a quarter of the terms, 16 at most.
    - `repeats`: draws of each estimator.
    - `confidence`: with which all intervals hold together.
    """
    repeats = check_count("repeats", repeats, 8)
    if not isinstance(residual, Residual):
        raise TypeError(f"residual must be a Residual, got {residual!r}")
    if residual.operator.drawn:
        raise ValueError("residual has a sampled operator; give the exact one")
    if estimators is not None and (
        not isinstance(estimators, Mapping)
        or not estimators
        or not all(isinstance(e, Estimator) for e in estimators.values())
    ):
        raise TypeError(
            f"estimators must be a dictionary of Estimators, got {estimators!r}"
        )
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")
    batch, _ = batch_of(u, x, t)
    groups = groups_of(residual.operator.family, batch.x[0, 0], _first(batch.t))
    sizes = list(groups.values())
    if estimators is None:
        estimators = _default(n, min(sizes, default=1), residual, u, batch)
    params, static = eqx.partition(u, eqx.is_inexact_array)
    if not jax.tree.leaves(params):
        raise ValueError(
            "u has no parameters, so there is no gradient to audit; give a module "
            "rather than a function that closes over one"
        )

    def gradient(estimator: Estimator) -> Any:
        def loss(params: Any, key: Array) -> tuple[Array, Array | None]:
            out = estimator(residual, eqx.combine(params, static), x, t, key=key)
            return out.loss, out.mean_square

        def flat(params: Any, key: Array) -> tuple[Array, Array | None]:
            out, square = jax.grad(loss, has_aux=True)(params, key)
            return jax.flatten_util.ravel_pytree(out)[0], square

        return jax.jit(flat).lower(params, key).compile()

    exact = u
    if isinstance(u, ConservedField):
        exact = eqx.tree_at(lambda u: u.gradient, u, Exact())
    truth, square = _full_gradient(residual, exact, x, t, key)
    size = float(jnp.linalg.norm(truth))
    if not math.isfinite(size) or size == 0.0:
        raise ValueError(
            f"the full gradient must be finite and not zero, got norm {size}"
        )
    bias_one = None
    honest = not isinstance(getattr(u, "gradient", None), Detached | MiniBatch)
    if honest and len(sizes) == 1 and sizes[0] <= _MOST_TERMS:
        bias_one = _covariance(residual, exact, x, t, sizes[0])
    runs = {name: gradient(e) for name, e in estimators.items()}
    times = interleaved(
        9, {k: functools.partial(run, params, key) for k, run in runs.items()}
    )
    rows = []
    for number, (name, estimator) in enumerate(estimators.items()):
        run = runs[name]
        keys = jax.random.split(jax.random.fold_in(key, number), 2 * repeats)
        factor = None if bias_one is None else _bias_factor(estimator, sizes[0])
        length = 0.0 if bias_one is None else float(jnp.linalg.norm(bias_one))
        predicted = None
        if bias_one is not None and factor is not None and length > 1e-6 * size:
            direction = bias_one / length
            predicted = factor * length / size
        else:
            mean = sum(run(params, k)[0] - truth for k in keys[repeats:]) / repeats
            shift = jnp.linalg.norm(mean)
            direction = mean / jnp.where(shift > 0.0, shift, 1.0)
        total, along, norms, squares = jnp.zeros_like(truth), [], [], []
        for k in keys[:repeats]:
            estimate, one_square = run(params, k)
            total, own, norm = _account(total, estimate, truth, direction)
            along.append(own)
            norms.append(norm)
            if one_square is not None:
                squares.append(one_square)
        errors = np.asarray(jnp.stack(along), float) / size
        spread = float(np.std(errors, ddof=1)) / math.sqrt(repeats)
        centre = float(total @ total) / repeats**2
        mean_norm = _mean(norms)
        # All intervals together hold with this confidence (Bonferroni).
        tail = 0.5 * (1.0 - confidence) / len(estimators)
        quantile = float(scipy.stats.t.isf(tail, repeats - 1))
        rounding = 64.0 * float(jnp.finfo(truth.dtype).eps)
        rows.append(
            AuditRow(
                name=name,
                bias=float(np.mean(errors)),
                margin=max(quantile * spread, rounding),
                predicted=predicted,
                noise=math.sqrt(max(0.0, mean_norm - centre)) / size,
                mean_square=_mean(squares) / square if squares else None,
                milliseconds=1e3 * times[name],
                memory=int(run.memory_analysis().temp_size_in_bytes),
            )
        )
    covariance = None if bias_one is None else float(jnp.linalg.norm(bias_one)) / size
    return Audit(tuple(rows), size, covariance, repeats, confidence, _note(u))


def _note(u: Any) -> str | None:
    """What a field's gradient mode adds to the error of every estimator."""
    mode = getattr(u, "gradient", None)
    if not isinstance(u, ConservedField) or not isinstance(
        mode, Subsampled | MiniBatch | Detached
    ):
        return None
    if isinstance(mode, Detached):
        error, name = "bias", "Detached()"
        what = "leaves out the gradient of scale and shift"
    else:
        error = "noise" if isinstance(mode, Subsampled) else "noise and bias"
        name = f"{type(mode).__name__}({mode.k})"
        what = f"draws {mode.k} nodes for each estimate"
    return (
        f"every row, 'full' included, has the {error} of the field's own gradient "
        f"mode, {name}, which {what}; Exact() has none, and the rule is the same in "
        "all draws"
    )


@jax.jit
def _account(
    total: Array, estimate: Array, truth: Array, direction: Array
) -> tuple[Array, Array, Array]:
    """Add one error: the sum of errors, its part along the direction, its square."""
    error = estimate - truth
    return total + error, error @ direction, error @ error


def _mean(values: list[Array]) -> float:
    return float(np.mean(np.asarray(jnp.stack(values), float)))


def _first(t: Array | None) -> Array | None:
    return None if t is None else t[0]


def _default(
    n: int | None, terms: int, residual: Residual, u: Any, batch: Any
) -> dict[str, Estimator]:
    n = max(1, min(16, terms // 4)) if n is None else n
    out: dict[str, Estimator] = {
        "full": Full(),
        f"independent({n}, {n})": Independent(n),
        f"symmetric({n})": Symmetric(n),
        f"shared({n})": Shared(n),
        f"sparse STDE({n})": stde(n),
    }
    if 2 * n <= terms:
        out[f"disjoint({n}, {n})"] = Disjoint(n)
    try:
        # Only for operators of order one and two.
        residual.operator.sample(jax.random.key(0), 1, Rademacher()).symbol(
            batch.x[0, 0], _first(batch.t)
        )
    except ValueError:
        return out
    return out | {
        f"independent({n}, {n}) Rademacher": Independent(n, directions=Rademacher()),
        f"shared({n}) Rademacher": Shared(n, Rademacher()),
    }


def _full_gradient(
    residual: Residual, u: Any, x: ArrayLike, t: ArrayLike | None, key: Array
) -> tuple[Array, float]:
    """The gradient of half the mean squared residual, and the mean square."""

    @eqx.filter_jit
    def run(u: Any) -> tuple[Array, Array]:
        loss = lambda u: Full()(residual, u, x, t, key=key).loss
        value, slope = eqx.filter_value_and_grad(loss)(u)
        slope = eqx.filter(slope, eqx.is_inexact_array)
        return jax.flatten_util.ravel_pytree(slope)[0], 2.0 * value

    gradient, square = run(u)
    return gradient, float(square)


def _covariance(
    residual: Residual, u: Any, x: ArrayLike, t: ArrayLike | None, terms: int
) -> Float[Array, " parameters"]:
    """`mean_x sum_k (a_k - mean a) (d_k - mean d)` over the terms `a_k = A_k[u]` and
    their gradients d_k: the gradient of half the centred sum of squares. The covariance
    of sampled residual and sampled gradient is a multiple of it."""

    @eqx.filter_jit
    def run(u: Any) -> Array:
        def loss(u: Any) -> Array:
            def term(k: Array) -> Array:
                return residual.operator.only(k)(u)(x, t).reshape(-1)

            values = jax.lax.map(jax.checkpoint(term), jnp.arange(terms))
            centred = values - jnp.mean(values, 0, keepdims=True)
            return 0.5 * jnp.mean(jnp.sum(centred**2, 0))

        slope = eqx.filter(eqx.filter_grad(loss)(u), eqx.is_inexact_array)
        return jax.flatten_util.ravel_pytree(slope)[0]

    return run(u)


def _bias_factor(estimator: Estimator, terms: int) -> float | None:
    """The covariance of the two factors of an estimator, over the sum of products of
    centred terms: for n of N terms without replacement `N (N - n) / (n (N - 1))`, and
    for two disjoint samples of one draw `-N / (N - 1)`."""
    if isinstance(estimator, Full):
        return 0.0
    if not isinstance(getattr(estimator, "directions", None), Coordinates):
        return None
    if isinstance(estimator, Shared):
        n = estimator.n
        return terms * (terms - n) / (n * (terms - 1)) if terms > 1 else 0.0
    if isinstance(estimator, Disjoint):
        return -terms / (terms - 1)
    return 0.0 if isinstance(estimator, Independent | Symmetric) else None
