"""Estimates of the gradient of half the mean squared residual.

With r the residual, J and I random parts of its operator, `r_J` and `r_I` the estimates
of r from them, the gradient with respect to the parameters is estimated by
`r_J grad r_I`. That is unbiased if J and I are independent, and `r_J r_I` is then an
unbiased estimate of r^2.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._checks import check_count
from ..field import as_field
from ..operators import (
    Batch,
    Coordinates,
    Evaluation,
    Operator,
    PointFunction,
    Residual,
    Sampler,
    batch_of,
    in_chunks,
    mapped_over,
)
from ..taylor import Automatic, Path, VmappedJet


class Estimate(eqx.Module):
    """An estimate: differentiate `loss` with respect to the parameters."""

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
        u = as_field(u).resample(for_nodes, rule=False)
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
        series: Any = None,
        integrals: dict[str, Array] | None = None,
    ) -> Estimate:
        """The estimate, once the nodes of the field's gradient are drawn.

        **Arguments:**

        - `series`: the corrections of a conserved field at the times of the batch,
            where they are known already.
        - `integrals`: those in the equation, at each point, likewise.
        """


class _Drawn(Estimator):
    """An estimate from residuals with all terms of the operator, or some of them. Each
    has the fields `path` and `chunk`, options of an operator."""

    def estimate(
        self,
        residual: Residual,
        u: Any,
        batch: Batch,
        key: Array,
        series: Any = None,
        integrals: dict[str, Array] | None = None,
    ) -> Estimate:
        own: Any = self
        operators = self.draw(residual.operator, key)
        options = (own.path, own.chunk, series, integrals)
        parts = residual.evaluations(u, batch, operators, *options)
        return self.combine(*parts)

    @abc.abstractmethod
    def draw(self, operator: Operator, key: Array) -> list[Operator]:
        """The operators whose residuals are combined: all terms, or some."""

    @abc.abstractmethod
    def combine(self, *residuals: Evaluation) -> Estimate:
        """The estimate from the residuals with these operators."""


class Full(_Drawn):
    """All terms: the exact residual, and the exact gradient.

    **Arguments:**

    - `path`, `chunk`: as for an operator.
    """

    path: Path = Automatic()
    chunk: int | None = eqx.field(static=True, default=None)

    def draw(self, operator: Operator, key: Array) -> list[Operator]:
        return [operator]

    def combine(self, *residuals: Evaluation) -> Estimate:
        (one,) = residuals
        loss = _mean(lambda r: 0.5 * one.product(r, r), residuals)
        return Estimate(loss, 2.0 * jax.lax.stop_gradient(loss))


class _TwoCounts(_Drawn):
    i: int = eqx.field(static=True)
    j: int | None = eqx.field(static=True, default=None)
    directions: Sampler = Coordinates()
    path: Path = Automatic()
    chunk: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_count("i", self.i)
        if self.j is not None:
            check_count("j", self.j)


class _OneCount(_Drawn):
    n: int = eqx.field(static=True)
    directions: Sampler = Coordinates()
    path: Path = Automatic()
    chunk: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_count("n", self.n)


class Independent(_TwoCounts):
    """The paper's doubly stochastic estimate `r_J grad r_I` with I and J drawn
    independently. Unbiased. The part J is evaluated forward only.

    **Arguments:**

    - `i`: how many terms, or directions, are differentiated with respect to the
        parameters.
    - `j`: how many estimate the residual; by default as many.
    - `directions`: what is drawn, `Coordinates()`, `Rademacher()` or `Gaussian()`.
    - `path`, `chunk`: as for an operator.
    """

    def draw(self, operator: Operator, key: Array) -> list[Operator]:
        draws = zip(jax.random.split(key), (self.i, self.j or self.i), strict=True)
        return [operator.sample(k, n, self.directions) for k, n in draws]

    def combine(self, *residuals: Evaluation) -> Estimate:
        return Estimate(*_product(*residuals))


class Disjoint(_TwoCounts):
    """As `Independent`, but with I and J disjoint, from one draw. **Biased**: disjoint
    subsets are not independent. For comparison; the arguments are those of
    `Independent`."""

    def draw(self, operator: Operator, key: Array) -> list[Operator]:
        n = self.i + (self.j or self.i)
        pieces = ((0, self.i), (self.i, n))
        return [operator.sample(key, n, self.directions, piece) for piece in pieces]

    def combine(self, *residuals: Evaluation) -> Estimate:
        return Estimate(_product(*residuals)[0], None)


def _product(live: Evaluation, still: Evaluation) -> tuple[Array, Array]:
    """The loss whose gradient is `mean r_J grad r_I`, and `mean r_J r_I`."""
    known = jax.lax.stop_gradient(still.values())
    surrogate = _mean(lambda r, known: live.product(known, r), [live], known)
    product = jax.lax.stop_gradient(surrogate)
    # The value of half the mean square, with the gradient of the surrogate.
    return surrogate - product + 0.5 * product, product


class Symmetric(_OneCount):
    """Half of `r_J grad r_I + r_I grad r_J`, with I and J drawn independently.
    Unbiased, with less noise than `Independent`, and more work: both parts are
    differentiated.

    **Arguments:**

    - `n`: how many terms, or directions, each part has.
    - `directions`, `path`, `chunk`: as for `Independent`.
    """

    def draw(self, operator: Operator, key: Array) -> list[Operator]:
        keys = jax.random.split(key)
        return [operator.sample(k, self.n, self.directions) for k in keys]

    def combine(self, *residuals: Evaluation) -> Estimate:
        one = residuals[0]
        loss = _mean(lambda r, s: 0.5 * one.product(r, s), residuals)
        return Estimate(loss, 2.0 * jax.lax.stop_gradient(loss))


class Shared(_OneCount):
    """The paper's fast mode `r_I grad r_I`. **Biased** by the covariance of the two:
    what one gets by squaring a sampled residual.

    **Arguments:**

    - `n`: how many terms, or directions.
    - `directions`, `path`, `chunk`: as for `Independent`.
    """

    def draw(self, operator: Operator, key: Array) -> list[Operator]:
        return [operator.sample(key, self.n, self.directions)]

    def combine(self, *residuals: Evaluation) -> Estimate:
        (one,) = residuals
        return Estimate(_mean(lambda r: 0.5 * one.product(r, r), residuals), None)


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
    total = _fused_sum(one, batch.points, batch.times, data, chunk)
    return total / batch.points.shape[0]


def _fused_sum(
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
    # All that is traced and closed over, keys and other whole numbers too: under
    # `lax.cond` a custom rule cannot close over them.
    pure = eqx.filter_closure_convert(mapped, *_piece((xs, ts, pieces)))
    traced, static = eqx.partition(pure, lambda a: isinstance(a, jax.core.Tracer))
    closed_over, fixed = eqx.partition(traced, eqx.is_inexact_array)

    def total(params: Any, fixed: Any, data: Any, chunk: Any) -> Array:
        x, t, live = chunk
        values = eqx.combine(params, fixed, static)(x, t, data)
        return jnp.sum(jnp.where(live, values, 0.0))

    chunks = (xs, ts, live)
    first = _piece((pieces, chunks))
    dtype = jax.eval_shape(total, closed_over, fixed, *first).dtype

    def value(params: Any, fixed: Any, data: Any, chunks: Any) -> Array:
        def body(carry: Array, piece: Any) -> tuple[Array, None]:
            return carry + total(params, fixed, *piece), None

        return _scan(body, jnp.zeros((), dtype), (data, chunks))[0]

    def forward(params: Any, fixed: Any, data: Any, chunks: Any) -> tuple[Array, Any]:
        def body(carry: Any, piece: Any) -> tuple[Any, Any]:
            out, (by_params, by_data) = jax.value_and_grad(total, (0, 2))(
                params, fixed, *piece
            )
            return jax.tree.map(jnp.add, carry, (out, by_params)), by_data

        start = (jnp.zeros((), dtype), jax.tree.map(jnp.zeros_like, params))
        (out, by_params), by_data = _scan(body, start, (data, chunks))
        return out, (by_params, by_data)

    def backward(kept: Any, cotangent: Array) -> Any:
        times = lambda a: (cotangent * a).astype(a.dtype)
        by_params, by_data = jax.tree.map(times, kept)
        return by_params, None, by_data, None

    run = jax.custom_vjp(value)
    run.defvjp(forward, backward)
    return run(closed_over, fixed, pieces, chunks)


def _piece(pieces: Any) -> Any:
    return jax.tree.map(lambda a: a[0], pieces)


def _scan(body: Callable[..., Any], start: Any, pieces: Any) -> tuple[Any, Any]:
    """`lax.scan`, without the loop where there is one piece."""
    if jax.tree.leaves(pieces)[0].shape[0] > 1:
        return jax.lax.scan(body, start, pieces)
    out, extra = body(start, _piece(pieces))
    return out, jax.tree.map(lambda a: a[None], extra)
