"""Estimates of the gradient of half the mean squared residual.

With r the residual, J and I random parts of its operator, `r_J` and `r_I` the estimates
of r from them, the gradient by the parameters is estimated by `r_J grad r_I`. That is
unbiased if J and I are independent, and `r_J r_I` is then an unbiased estimate of r^2.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._checks import check_count
from .._field import ConservedField
from ._apply import (
    Batch,
    Evaluation,
    PointFunction,
    Series,
    batch_of,
    in_chunks,
    mapped_over,
)
from ._operator import Operator
from ._paths import Automatic, Path, VmappedJet
from ._residual import Residual
from ._samplers import Coordinates, Sampler


class Estimate(eqx.Module):
    """What an estimator returns: differentiate `loss` by the parameters."""

    loss: Float[Array, ""]
    "an estimate of half the mean squared residual; its gradient is the estimate"
    mean_square: Float[Array, ""] | None
    "an unbiased estimate of the mean squared residual, where there is one"


class Estimator(eqx.Module):
    """An estimate of half the mean squared residual and of its gradient."""

    def __call__(
        self,
        residual: Residual,
        u: Any,
        x: ArrayLike,
        t: ArrayLike | None = None,
        *,
        key: Array,
    ) -> Estimate:
        """The estimate on a batch of points, laid out as for an operator; callable
        inside `jit`.

        **Arguments:**

        - `key`: another one in every step. The terms of the operator and, for a
            conserved field, the nodes that its gradient is estimated from are drawn
            independently.
        """
        if not isinstance(residual, Residual):
            raise TypeError(f"residual must be a Residual, got {residual!r}")
        for_terms, for_nodes = jax.random.split(key)
        if isinstance(u, ConservedField):
            u = u.redraw(for_nodes, rule=False)
        batch, _ = batch_of(u, x, t)
        # Points and times are constants of the estimate.
        batch = jax.lax.stop_gradient(batch)
        return self.estimate(residual, u, batch, for_terms)

    @abc.abstractmethod
    def estimate(
        self,
        residual: Residual,
        u: Any,
        batch: Batch,
        key: Array,
        series: Series | None = None,
    ) -> Estimate:
        """The estimate, once the nodes of the field's gradient are drawn.

        **Arguments:**

        - `series`: the corrections of a conserved field at the times of the batch,
            where they are known already.
        """


class Full(Estimator):
    """All terms: the exact residual, and the exact gradient.

    **Arguments:**

    - `path`, `chunk`: as for an operator.
    """

    path: Path = Automatic()
    chunk: int | None = eqx.field(static=True, default=None)

    def estimate(
        self,
        residual: Residual,
        u: Any,
        batch: Batch,
        key: Array,
        series: Series | None = None,
    ) -> Estimate:
        parts = residual.evaluations(
            u, batch, [residual.operator], self.path, self.chunk, series
        )
        loss = _mean(lambda r: 0.5 * r**2, parts)
        return Estimate(loss, 2.0 * jax.lax.stop_gradient(loss))


class _DoublyStochastic(Estimator):
    """What estimates `r_J grad r_I` have in common."""

    i: int = eqx.field(static=True)
    j: int | None = eqx.field(static=True, default=None)
    directions: Sampler = Coordinates()
    path: Path = Automatic()
    chunk: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_count("i", self.i)
        if self.j is not None:
            check_count("j", self.j)

    @property
    def counts(self) -> tuple[int, int]:
        return self.i, self.i if self.j is None else self.j

    def products(
        self,
        residual: Residual,
        u: Any,
        batch: Batch,
        live: Operator,
        still: Operator,
        series: Series | None,
    ) -> tuple[Array, Array]:
        """The loss whose gradient is `mean r_J grad r_I`, and `mean r_J r_I`."""
        r_i, r_j = residual.evaluations(
            u, batch, [live, still], self.path, self.chunk, series
        )
        known = jax.lax.stop_gradient(r_j.values())
        surrogate = _mean(lambda r, known: known * r, [r_i], known)
        product = jax.lax.stop_gradient(surrogate)
        # The value of half the mean square, with the gradient of the surrogate.
        return surrogate - product + 0.5 * product, product


class Independent(_DoublyStochastic):
    """The paper's doubly stochastic estimate `r_J grad r_I` with I and J drawn
    independently. Unbiased. The part J is evaluated forward only.

    **Arguments:**

    - `i`: how many terms, or directions, are differentiated by the parameters.
    - `j`: how many estimate the residual; by default as many.
    - `directions`: what is drawn, `Coordinates()`, `Rademacher()` or `Gaussian()`.
    - `path`, `chunk`: as for an operator.
    """

    def estimate(
        self,
        residual: Residual,
        u: Any,
        batch: Batch,
        key: Array,
        series: Series | None = None,
    ) -> Estimate:
        live, still = (
            residual.operator.sample(k, n, self.directions)
            for k, n in zip(jax.random.split(key), self.counts, strict=True)
        )
        return Estimate(*self.products(residual, u, batch, live, still, series))


class Disjoint(_DoublyStochastic):
    """The same with I and J disjoint, from one draw. **Biased**: disjoint subsets are
    not independent. For comparison; the arguments are those of `Independent`."""

    def estimate(
        self,
        residual: Residual,
        u: Any,
        batch: Batch,
        key: Array,
        series: Series | None = None,
    ) -> Estimate:
        i, n = self.i, sum(self.counts)
        draw = residual.operator.sample_piece
        live = draw(key, n, self.directions, (0, i))
        still = draw(key, n, self.directions, (i, n))
        loss, _ = self.products(residual, u, batch, live, still, series)
        return Estimate(loss, None)


class Symmetric(Estimator):
    """Half of `r_J grad r_I + r_I grad r_J`, with I and J drawn independently.
    Unbiased, with less noise than `Independent`, and more work: both parts are
    differentiated.

    **Arguments:**

    - `n`: how many terms, or directions, each part has.
    - `directions`, `path`, `chunk`: as for `Independent`.
    """

    n: int = eqx.field(static=True)
    directions: Sampler = Coordinates()
    path: Path = Automatic()
    chunk: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_count("n", self.n)

    def estimate(
        self,
        residual: Residual,
        u: Any,
        batch: Batch,
        key: Array,
        series: Series | None = None,
    ) -> Estimate:
        both = [
            residual.operator.sample(k, self.n, self.directions)
            for k in jax.random.split(key)
        ]
        parts = residual.evaluations(u, batch, both, self.path, self.chunk, series)
        loss = _mean(lambda r, s: 0.5 * r * s, parts)
        return Estimate(loss, 2.0 * jax.lax.stop_gradient(loss))


class Shared(Estimator):
    """The paper's fast mode `r_I grad r_I`. **Biased** by the covariance of the two:
    what one gets by squaring a sampled residual.

    **Arguments:**

    - `n`: how many terms, or directions.
    - `directions`, `path`, `chunk`: as for `Independent`.
    """

    n: int = eqx.field(static=True)
    directions: Sampler = Coordinates()
    path: Path = Automatic()
    chunk: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_count("n", self.n)

    def estimate(
        self,
        residual: Residual,
        u: Any,
        batch: Batch,
        key: Array,
        series: Series | None = None,
    ) -> Estimate:
        one = residual.operator.sample(key, self.n, self.directions)
        parts = residual.evaluations(u, batch, [one], self.path, self.chunk, series)
        return Estimate(_mean(lambda r: 0.5 * r**2, parts), None)


def stde(n: int, directions: Sampler = Coordinates()) -> Shared:
    """STDE's estimate, for comparison: a sampled residual squared, each direction by
    `jax.experimental.jet`. Sparse with `Coordinates()`, dense with `Rademacher()` or
    `Gaussian()`. **Biased**, as `Shared` is."""
    return Shared(n, directions, VmappedJet(), chunk=2**31 - 1)


def _mean(
    combine: Callable[..., Array], parts: Sequence[Evaluation], *known: Array
) -> Float[Array, ""]:
    """The mean over points of a function of the residuals of one point, and of known
    numbers for each."""
    batch = parts[0].batch
    chunk = min(p.applied.chunk_for(batch, len(parts)) for p in parts)

    def one(x: Array, t: Array | None, token: Array | None, data: Any) -> Array:
        own, known = data
        values = [p.at_point(x, t, token, d) for p, d in zip(parts, own, strict=True)]
        return combine(*values, *known)

    data = ([p.data for p in parts], known)
    total = fused_sum(one, batch.points, batch.times, data, chunk)
    return total / batch.points.shape[0]


def fused_sum(
    function: PointFunction, x: Array, t: Array | None, data: Any, chunk: int
) -> Array:
    """The sum of a function over points, a chunk of them at a time, each forward and
    backward at once: nothing is kept of a chunk but its part of the gradient.

    Reverse mode only, and not by the points. `function` may close over what is
    differentiated.
    """
    n = x.shape[0]
    xs, ts, pieces = in_chunks((x, t, data), n, chunk)
    # The rows that fill the last chunk count nothing.
    live = (jnp.arange(xs.shape[0] * xs.shape[1]) < n).reshape(xs.shape[:2])
    mapped = mapped_over(function, t is not None)
    pure, closed_over = jax.closure_convert(mapped, *_piece((xs, ts, pieces)))

    def total(params: Any, data: Any, chunk: Any) -> Array:
        x, t, live = chunk
        return jnp.sum(jnp.where(live, pure(x, t, data, *params), 0.0))

    chunks = (xs, ts, live)
    first = _piece((pieces, chunks))
    dtype = jax.eval_shape(total, list(closed_over), *first).dtype

    def value(params: Any, data: Any, chunks: Any) -> Array:
        def body(carry: Array, piece: Any) -> tuple[Array, None]:
            return carry + total(params, *piece), None

        return _scan(body, jnp.zeros((), dtype), (data, chunks))[0]

    def forward(params: Any, data: Any, chunks: Any) -> tuple[Array, Any]:
        def body(carry: Any, piece: Any) -> tuple[Any, Any]:
            out, (by_params, by_data) = jax.value_and_grad(total, (0, 1))(
                params, *piece
            )
            return jax.tree.map(jnp.add, carry, (out, by_params)), by_data

        start = (jnp.zeros((), dtype), jax.tree.map(jnp.zeros_like, params))
        (out, by_params), by_data = _scan(body, start, (data, chunks))
        return out, (by_params, by_data)

    def backward(kept: Any, cotangent: Array) -> Any:
        times = lambda a: (cotangent * a).astype(a.dtype)
        by_params, by_data = jax.tree.map(times, kept)
        return by_params, by_data, None

    run = jax.custom_vjp(value)
    run.defvjp(forward, backward)
    return run(list(closed_over), pieces, chunks)


def _piece(pieces: Any) -> Any:
    return jax.tree.map(lambda a: a[0], pieces)


def _scan(body: Callable[..., Any], start: Any, pieces: Any) -> tuple[Any, Any]:
    """`lax.scan`, without the loop where there is one piece."""
    if jax.tree.leaves(pieces)[0].shape[0] > 1:
        return jax.lax.scan(body, start, pieces)
    out, extra = body(start, _piece(pieces))
    return out, jax.tree.map(lambda a: a[None], extra)
