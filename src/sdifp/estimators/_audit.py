"""Measure estimators against the full gradient: bias, noise, time and memory."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Array, ArrayLike, Float

from .._checks import check_count
from .._timing import interleaved
from ..field import Detached, Exact, Lagged, MiniBatch, Subsampled, as_field
from ..operators import Coordinates, Operator, Rademacher, Residual, batch_of, groups_of
from ._estimators import (
    Disjoint,
    Estimate,
    Estimator,
    Full,
    Independent,
    Shared,
    Symmetric,
    stde,
)
from ._variance import Variance, noise_of, spread, terms_of, variance_of

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
    predicted_noise: float | None = eqx.field(static=True)
    "the same by the formula of `Variance`, where there is one"
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
    variance: Variance | None = eqx.field(static=True, default=None)
    "what the noise of independent samples is made of, where it is known"
    budget: int | None = eqx.field(static=True, default=None)
    "|I| + |J| of the first independent samples, if there are any"

    def __str__(self) -> str:
        head = (
            f"{'estimator':<28} {'bias':>9} {'+-':>8} {'formula':>9} {'verdict':>9} "
            f"{'noise':>8} {'formula':>8} {'mean r^2':>9} {'ms':>8} {'MiB':>8}"
        )
        lines = [head]
        for row in self.rows:
            predicted = "" if row.predicted is None else f"{row.predicted:9.4f}"
            noise = "" if row.predicted_noise is None else f"{row.predicted_noise:8.3f}"
            square = "" if row.mean_square is None else f"{row.mean_square:9.4f}"
            lines.append(
                f"{row.name:<28} {row.bias:>9.4f} {row.margin:>8.4f} {predicted:>9} "
                f"{'BIASED' if row.biased else 'none seen':>9} {row.noise:>8.3f} "
                f"{noise:>8} {square:>9} {row.milliseconds:>8.2f} "
                f"{row.memory / 2**20:>8.2f}"
            )
        lines.append(
            f"relative to the full gradient (norm {self.gradient_norm:.4g}); "
            f"{self.repeats} draws each, joint confidence {100 * self.confidence:g} %; "
            "'none seen': zero is inside the interval"
        )
        if self.split is not None:
            budget, i, j, least = self.split
            lines.append(
                f"by the formula, the least noise of |I| + |J| = {budget} terms is "
                f"{least:.3f}, with |I| = {i} and |J| = {j}"
            )
        if self.note is not None:
            lines.append(self.note)
        return "\n".join(lines)

    @property
    def split(self) -> tuple[int, int, int, float] | None:
        """The number of terms of the first independent samples, how |I| and |J| would
        divide it with the least noise, and that noise; None where it is not known."""
        if self.variance is None or self.budget is None:
            return None
        i, j = self.variance.best_split(self.budget)
        return self.budget, i, j, self.variance.noise(i, j)

    def as_rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, for JSON."""
        return [dataclasses.asdict(r) | {"biased": r.biased} for r in self.rows]

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
            bars = axis.barh(y, values, color="0.7", height=0.6)
            axis.bar_label(bars, fmt=" %.3g", fontsize=8, color="0.2")
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
    if residual.operator.is_sampled:
        raise ValueError("residual has a sampled operator; give the exact one")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")
    batch, _ = batch_of(u, x, t)
    # Of what has matrices in front, too; terms of one kind are drawn together.
    parts = [part.operator.terms for part in residual.operator.parts]
    kinds = [groups_of(terms, *batch.first) for terms in parts]
    sizes = list(dict(pair for kind in kinds for pair in kind.items()).values())
    if estimators is None:
        estimators = _default(n, min(sizes, default=1), residual.operator, batch.first)
    known = isinstance(estimators, Mapping) and estimators
    if not known or not all(isinstance(e, Estimator) for e in estimators.values()):
        raise TypeError(
            f"estimators must be a dictionary of Estimators, got {estimators!r}"
        )
    params, static = eqx.partition(u, eqx.is_inexact_array)
    if not jax.tree.leaves(params):
        raise ValueError(
            "u has no parameters, so there is no gradient to audit; give a module "
            "rather than a function that closes over one"
        )

    def compiled(estimate: Callable[[Any, Array], Estimate]) -> Any:
        """The gradient of a loss, flat, and the loss."""

        def loss(params: Any, key: Array) -> tuple[Array, Estimate]:
            out = estimate(eqx.combine(params, static), key)
            return out.loss, out

        def flat(params: Any, key: Array) -> tuple[Array, Estimate]:
            slope, out = jax.grad(loss, has_aux=True)(params, key)
            return jax.flatten_util.ravel_pytree(slope)[0], out

        return jax.jit(flat).lower(params, key).compile()

    def estimated(estimator: Estimator, mode: Any = None) -> Any:
        own = lambda u: u if mode is None else as_field(u).with_gradient(mode)
        return compiled(lambda u, key: estimator(residual, own(u), x, t, key=key))

    truth, out = estimated(Full(), Exact())(params, key)
    square = 2.0 * float(out.loss)
    size = float(jnp.linalg.norm(truth))
    if not math.isfinite(size) or size == 0.0:
        raise ValueError(
            f"the full gradient must be finite and not zero, got norm {size}"
        )
    shared, length = None, 0.0
    honest = not isinstance(_mode(u), Detached | MiniBatch)
    if honest and len(sizes) == 1 and sizes[0] <= _MOST_TERMS:
        centred = functools.partial(_centred_squares, residual, x, t, sizes[0])
        shared, _ = compiled(lambda u, _: Estimate(centred(u), None))(params, key)
        length = float(jnp.linalg.norm(shared))
    variance = None
    if shared is not None:
        variance = variance_of(residual, u, x, t, sizes[0], size)
    plain = not isinstance(_mode(u), Subsampled | Lagged)
    runs = {name: estimated(e) for name, e in estimators.items()}
    once = {name: functools.partial(run, params, key) for name, run in runs.items()}
    times = interleaved(9, once)
    # All intervals together hold with this confidence (Bonferroni).
    tail = 0.5 * (1.0 - confidence) / len(estimators)
    quantile = float(scipy.stats.t.isf(tail, repeats - 1))
    rounding = 64.0 * float(jnp.finfo(truth.dtype).eps)
    rows = []
    for number, (name, estimator) in enumerate(estimators.items()):
        run = runs[name]
        keys = jax.random.split(jax.random.fold_in(key, number), 2 * repeats)
        factor = None if shared is None else _bias_factor(estimator, sizes[0])
        predicted = None
        if shared is not None and factor is not None and length > 1e-6 * size:
            direction = shared / length
            predicted = factor * length / size
        else:
            mean = sum(run(params, k)[0] - truth for k in keys[repeats:]) / repeats
            shift = jnp.linalg.norm(mean)
            direction = mean / jnp.where(shift > 0.0, shift, 1.0)
        total, found = jnp.zeros_like(truth), []
        for k in keys[:repeats]:
            estimate, out = run(params, k)
            total, *numbers = _account(total, estimate, truth, direction)
            found.append((*numbers, out.mean_square))
        # A mean square that is None becomes NaN.
        along, norms, squares = np.asarray(found, float).T
        errors = along / size
        error = float(np.std(errors, ddof=1)) / math.sqrt(repeats)
        scatter = np.mean(norms) - float(total @ total) / repeats**2
        ratio = float(np.mean(squares)) / square
        row = AuditRow(
            name=name,
            bias=float(np.mean(errors)),
            margin=max(quantile * error, rounding),
            predicted=predicted,
            noise=math.sqrt(max(0.0, scatter)) / size,
            predicted_noise=noise_of(estimator, variance if plain else None),
            mean_square=None if out.mean_square is None else ratio,
            milliseconds=1e3 * times[name],
            memory=int(run.memory_analysis().temp_size_in_bytes),
        )
        rows.append(row)
    covariance = None if shared is None else length / size
    budgets = [terms_of(e) for e in estimators.values()]
    budget = next((sum(n) for n in budgets if n is not None), None)
    facts = (covariance, repeats, confidence, _note(u), variance, budget)
    return Audit(tuple(rows), size, *facts)


def _mode(u: Any) -> Any:
    """How the nodes of a field are differentiated; None for one without any."""
    mode = as_field(u).gradient
    return getattr(mode, "gradient", mode)


def _note(u: Any) -> str | None:
    """What a field's gradient mode adds to the error of every estimator."""
    mode = _mode(u)
    if not isinstance(mode, Subsampled | Lagged | MiniBatch | Detached):
        return None
    error, name = "bias", "Detached()"
    what = "leaves out the gradient of scale and shift"
    if not isinstance(mode, Detached):
        error = "noise and bias" if isinstance(mode, MiniBatch) else "noise"
        name = f"{type(mode).__name__}({mode.k})"
        if isinstance(mode, Lagged):
            name = f"Lagged({mode.every})"
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


def _default(
    n: int | None, terms: int, operator: Operator, point: tuple[Array, Array | None]
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
        operator.sample(jax.random.key(0), 1, Rademacher()).kinds(*point)
    except ValueError:
        return out
    return out | {
        f"independent({n}, {n}) Rademacher": Independent(n, directions=Rademacher()),
        f"shared({n}) Rademacher": Shared(n, Rademacher()),
    }


def _centred_squares(
    residual: Residual, x: ArrayLike, t: ArrayLike | None, terms: int, u: Any
) -> Float[Array, ""]:
    """Half the centred sum of squares of the terms `a_k = A_k[u]`. Its gradient is
    `mean_x sum_k (a_k - mean a) (d_k - mean d)` with their gradients d_k: the
    covariance of sampled residual and sampled gradient is a multiple of it."""
    exact = as_field(u).with_gradient(Exact())
    term = lambda k: residual.scaled(residual.operator.only(k)(exact)(x, t))
    values = jax.lax.map(jax.checkpoint(term), jnp.arange(terms))
    centred = values - jnp.mean(values, 0, keepdims=True)
    return 0.5 * jnp.sum(centred**2) / len(batch_of(u, x, t)[0].points)


def _bias_factor(estimator: Estimator, terms: int) -> float | None:
    """The covariance of the two factors of an estimator, over the sum of products of
    centred terms: for n of N terms without replacement `N (N - n) / (n (N - 1))`, and
    for two disjoint samples of one draw `-N / (N - 1)`."""
    if isinstance(estimator, Full):
        return 0.0
    if not isinstance(getattr(estimator, "directions", None), Coordinates):
        return None
    if isinstance(estimator, Shared):
        return spread(estimator.n, terms)
    if isinstance(estimator, Disjoint):
        return -terms / (terms - 1)
    return 0.0 if isinstance(estimator, Independent | Symmetric) else None
