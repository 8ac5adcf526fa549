"""Estimates of the gradient of half the mean squared residual.

With r the residual, J and I random parts of its operator, `r_J` and `r_I` the estimates
of r from them, the gradient by the parameters is estimated by `r_J grad r_I`. That is
unbiased if J and I are independent, and `r_J r_I` is then an unbiased estimate of r^2.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._checks import check_count
from .._field import ConservedField
from ._apply import (
    Applied,
    Batch,
    PointFunction,
    affine,
    batch_of,
    in_chunks,
    over_points,
    raw_of,
)
from ._jet import add
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
        self, residual: Residual, u: Any, batch: Batch, key: Array
    ) -> Estimate:
        """The estimate, once the nodes of the field's gradient are drawn."""


class Full(Estimator):
    """All terms: the exact residual, and the exact gradient.

    **Arguments:**

    - `path`, `chunk`: as for an operator.
    """

    path: Path = Automatic()
    chunk: int | None = eqx.field(static=True, default=None)

    def estimate(
        self, residual: Residual, u: Any, batch: Batch, key: Array
    ) -> Estimate:
        parts = _parts(residual, u, batch, [residual.operator], self.path, self.chunk)
        loss = _mean(lambda r: 0.5 * r[0] ** 2, parts)
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
        self, residual: Residual, u: Any, batch: Batch, live: Operator, still: Operator
    ) -> tuple[Array, Array]:
        """The loss whose gradient is `mean r_J grad r_I`, and `mean r_J r_I`."""
        r_i, r_j = _parts(residual, u, batch, [live, still], self.path, self.chunk)
        known = jax.lax.stop_gradient(r_j.values())
        surrogate = _mean(lambda r, known: known * r[0], [r_i], known)
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
        self, residual: Residual, u: Any, batch: Batch, key: Array
    ) -> Estimate:
        live, still = (
            residual.operator.sample(k, n, self.directions)
            for k, n in zip(jax.random.split(key), self.counts, strict=True)
        )
        return Estimate(*self.products(residual, u, batch, live, still))


class Disjoint(_DoublyStochastic):
    """The same with I and J disjoint, from one draw. **Biased**: disjoint subsets are
    not independent. For comparison; the arguments are those of `Independent`."""

    def estimate(
        self, residual: Residual, u: Any, batch: Batch, key: Array
    ) -> Estimate:
        i, n = self.i, sum(self.counts)
        draw = residual.operator.sample_piece
        live = draw(key, n, self.directions, (0, i))
        still = draw(key, n, self.directions, (i, n))
        loss, _ = self.products(residual, u, batch, live, still)
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
        self, residual: Residual, u: Any, batch: Batch, key: Array
    ) -> Estimate:
        both = [
            residual.operator.sample(k, self.n, self.directions)
            for k in jax.random.split(key)
        ]
        parts = _parts(residual, u, batch, both, self.path, self.chunk)
        loss = _mean(lambda r: 0.5 * r[0] * r[1], parts)
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
        self, residual: Residual, u: Any, batch: Batch, key: Array
    ) -> Estimate:
        one = residual.operator.sample(key, self.n, self.directions)
        parts = _parts(residual, u, batch, [one], self.path, self.chunk)
        return Estimate(_mean(lambda r: 0.5 * r[0] ** 2, parts), None)


def stde(n: int, directions: Sampler = Coordinates()) -> Shared:
    """STDE's estimate, for comparison: a sampled residual squared, each direction by
    `jax.experimental.jet`. Sparse with `Coordinates()`, dense with `Rademacher()` or
    `Gaussian()`. **Biased**, as `Shared` is."""
    return Shared(n, directions, VmappedJet(), chunk=2**31 - 1)


class _Part(NamedTuple):
    """The residual with a part of the operator in place of it, at each point: `scale
    A[f] + rest` with f the raw network."""

    applied: Applied
    batch: Batch
    scale: Float[Array, " n"]
    rest: Float[Array, " n"]

    @property
    def function(self) -> PointFunction:
        return self.applied.at_point(raw_of(self.applied.u))

    def values(self) -> Float[Array, " n"]:
        points, times = self.batch.points, self.batch.times
        chunk = self.applied.chunk_for(self.batch)
        raw = over_points(self.function, points, times, chunk)
        return self.scale * raw + self.rest


def _parts(
    residual: Residual,
    u: Any,
    batch: Batch,
    operators: Sequence[Operator],
    path: Path,
    chunk: int | None,
) -> list[_Part]:
    """The residual with each of some operators; what they share is computed once."""
    applied = [Applied(a, u, path, chunk) for a in operators]
    values = affine(u, batch, any(a.has_zero(batch) for a in applied))
    exact = residual.exact(u, batch)
    zero = jnp.zeros(batch.points.shape[0], batch.x.dtype)
    scale = jnp.ones_like(zero) if values.scale is None else values.scale
    rests = [add(a.rest(batch, values), exact) for a in applied]
    return [
        _Part(a, batch, scale, zero if rest is None else rest)
        for a, rest in zip(applied, rests, strict=True)
    ]


def _mean(
    combine: Callable[..., Array], parts: Sequence[_Part], *known: Array
) -> Float[Array, ""]:
    """The mean over points of a function of the residuals of one point, and of known
    numbers for each."""
    batch, scale = parts[0].batch, parts[0].scale
    functions = [p.function for p in parts]
    chunk = min(p.applied.chunk_for(batch, len(parts)) for p in parts)

    def all_parts(x: Array, t: Array | None, token: Array | None) -> Array:
        return jnp.stack([f(x, t, token) for f in functions])

    def one(raw: Array, scale: Array, rest: Array, *known: Array) -> Array:
        return combine(scale * raw + rest, *known)

    data = (scale, jnp.stack([p.rest for p in parts], 1), *known)
    total = fused_sum(all_parts, one, batch.points, batch.times, data, chunk)
    return total / batch.points.shape[0]


def fused_sum(
    function: Callable[..., Array],
    combine: Callable[..., Array],
    x: Array,
    t: Array | None,
    data: tuple[Array, ...],
    chunk: int,
) -> Array:
    """`sum_n combine(function(x_n, t_n), *data_n)`, a chunk of points at a time, each
    forward and backward at once: nothing is kept of a chunk but its part of the
    gradient.

    Reverse mode only, and not by the points. `function` may close over what is
    differentiated.
    """
    n = x.shape[0]
    xs, ts, pieces = in_chunks((x, t, data), n, chunk)
    # The rows that fill the last chunk count nothing.
    live = (jnp.arange(xs.shape[0] * xs.shape[1]) < n).reshape(xs.shape[:2])
    mapped = jax.vmap(lambda x, t: function(x, t, x), (0, None if t is None else 0))
    pure, closed_over = jax.closure_convert(
        mapped, xs[0], None if ts is None else ts[0]
    )

    def total(values: Array, data: tuple[Array, ...], live: Array) -> Array:
        return jnp.sum(jnp.where(live, jax.vmap(combine)(values, *data), 0.0))

    def one(params: Any) -> Array:
        return total(pure(*_piece((xs, ts)), *params), _piece(pieces), live[0])

    dtype = jax.eval_shape(one, list(closed_over)).dtype

    def value(params: Any, data: Any, chunks: Any) -> Array:
        def body(carry: Array, piece: Any) -> tuple[Array, None]:
            data, (x, t, live) = piece
            return carry + total(pure(x, t, *params), data, live), None

        return _scan(body, jnp.zeros((), dtype), (data, chunks))[0]

    def forward(params: Any, data: Any, chunks: Any) -> tuple[Array, Any]:
        def body(carry: Any, piece: Any) -> tuple[Any, Any]:
            data, (x, t, live) = piece
            values, pull = jax.vjp(lambda params: pure(x, t, *params), params)
            out, (slope, by_data) = jax.value_and_grad(total, (0, 1))(
                values, data, live
            )
            (by_params,) = pull(slope)
            return jax.tree.map(jnp.add, carry, (out, by_params)), by_data

        start = (jnp.zeros((), dtype), jax.tree.map(jnp.zeros_like, params))
        (out, by_params), by_data = _scan(body, start, (data, chunks))
        return out, (by_params, by_data)

    def backward(kept: Any, cotangent: Array) -> Any:
        by_params, by_data = jax.tree.map(lambda a: cotangent * a, kept)
        return by_params, by_data, None

    run = jax.custom_vjp(value)
    run.defvjp(forward, backward)
    return run(list(closed_over), pieces, (xs, ts, live))


def _piece(pieces: Any) -> Any:
    return jax.tree.map(lambda a: a[0], pieces)


def _scan(body: Callable[..., Any], start: Any, pieces: Any) -> tuple[Any, Any]:
    """`lax.scan`, without the loop where there is one piece."""
    if jax.tree.leaves(pieces)[0].shape[0] > 1:
        return jax.lax.scan(body, start, pieces)
    out, extra = body(start, _piece(pieces))
    return out, jax.tree.map(lambda a: a[None], extra)
