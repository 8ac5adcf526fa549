"""Measure estimators against the full gradient: bias, noise, time and memory."""

import functools
import math
from collections.abc import Callable, Mapping
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
from ..field import Detached, Exact, MiniBatch, Subsampled, as_field
from ..operators import (
    Batch,
    Coordinates,
    Rademacher,
    Residual,
    batch_of,
    groups_of,
)
from ._audit_result import Audit, AuditRow
from ._estimators import Disjoint, Estimator, Full, Independent, Shared, Symmetric, stde

# Above this many terms their covariance, which needs each of them, is not computed.
_MOST_TERMS = 4096


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
    if residual.operator.samples:
        raise ValueError("residual has a sampled operator; give the exact one")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")
    batch, _ = batch_of(u, x, t)
    sizes = list(groups_of(residual.operator.terms, *batch.first).values())
    if estimators is None:
        estimators = _default(n, min(sizes, default=1), residual, batch)
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

    def compiled(estimator: Estimator) -> Any:
        def loss(params: Any, key: Array) -> tuple[Array, Array | None]:
            out = estimator(residual, eqx.combine(params, static), x, t, key=key)
            return out.loss, out.mean_square

        def flat(params: Any, key: Array) -> tuple[Array, Array | None]:
            out, square = jax.grad(loss, has_aux=True)(params, key)
            return jax.flatten_util.ravel_pytree(out)[0], square

        return jax.jit(flat).lower(params, key).compile()

    exact = as_field(u).with_gradient(Exact())
    full = lambda u: Full()(residual, u, x, t, key=key).loss
    half, truth = _value_and_gradient(full, exact)
    size = float(jnp.linalg.norm(truth))
    if not math.isfinite(size) or size == 0.0:
        raise ValueError(
            f"the full gradient must be finite and not zero, got norm {size}"
        )
    shared, length = None, 0.0
    honest = not isinstance(as_field(u).gradient, Detached | MiniBatch)
    if honest and len(sizes) == 1 and sizes[0] <= _MOST_TERMS:
        shared = _covariance(residual, exact, x, t, sizes[0])
        length = float(jnp.linalg.norm(shared))
    runs = {name: compiled(e) for name, e in estimators.items()}
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
        total, along, norms, squares = jnp.zeros_like(truth), [], [], []
        for k in keys[:repeats]:
            estimate, square = run(params, k)
            total, own, norm = _account(total, estimate, truth, direction)
            along.append(own)
            norms.append(norm)
            squares.append(square)
        errors = np.asarray(jnp.stack(along), float) / size
        spread = float(np.std(errors, ddof=1)) / math.sqrt(repeats)
        variance = _mean(norms) - float(total @ total) / repeats**2
        row = AuditRow(
            name=name,
            bias=float(np.mean(errors)),
            margin=max(quantile * spread, rounding),
            predicted=predicted,
            noise=math.sqrt(max(0.0, variance)) / size,
            mean_square=None if squares[0] is None else _mean(squares) / (2.0 * half),
            milliseconds=1e3 * times[name],
            memory=int(run.memory_analysis().temp_size_in_bytes),
        )
        rows.append(row)
    covariance = None if shared is None else length / size
    return Audit(tuple(rows), size, covariance, repeats, confidence, _note(u))


def _note(u: Any) -> str | None:
    """What a field's gradient mode adds to the error of every estimator."""
    mode = as_field(u).gradient
    if not isinstance(mode, Subsampled | MiniBatch | Detached):
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


def _default(
    n: int | None, terms: int, residual: Residual, batch: Batch
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
        residual.operator.sample(jax.random.key(0), 1, Rademacher()).kinds(*batch.first)
    except ValueError:
        return out
    return out | {
        f"independent({n}, {n}) Rademacher": Independent(n, directions=Rademacher()),
        f"shared({n}) Rademacher": Shared(n, Rademacher()),
    }


def _value_and_gradient(
    loss: Callable[[Any], Array], u: Any
) -> tuple[float, Float[Array, " parameters"]]:
    @eqx.filter_jit
    def run(u: Any) -> tuple[Array, Array]:
        value, slope = eqx.filter_value_and_grad(loss)(u)
        slope = eqx.filter(slope, eqx.is_inexact_array)
        return value, jax.flatten_util.ravel_pytree(slope)[0]

    value, gradient = run(u)
    return float(value), gradient


def _covariance(
    residual: Residual, u: Any, x: ArrayLike, t: ArrayLike | None, terms: int
) -> Float[Array, " parameters"]:
    """`mean_x sum_k (a_k - mean a) (d_k - mean d)` over the terms `a_k = A_k[u]` and
    their gradients d_k: the gradient of half the centred sum of squares. The covariance
    of sampled residual and sampled gradient is a multiple of it."""

    def loss(u: Any) -> Array:
        term = lambda k: residual.operator.only(k)(u)(x, t).reshape(-1)
        values = jax.lax.map(jax.checkpoint(term), jnp.arange(terms))
        centred = values - jnp.mean(values, 0, keepdims=True)
        return 0.5 * jnp.mean(jnp.sum(centred**2, 0))

    return _value_and_gradient(loss, u)[1]


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
