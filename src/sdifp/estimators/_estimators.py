"""Estimates of the gradient of half the mean squared residual.

With r the residual, J and I random parts of its operator, `r_J` and `r_I` the estimates
of r from them, the gradient with respect to the parameters is estimated by
`r_J grad r_I`. That is unbiased if J and I are independent, and `r_J r_I` is then an
unbiased estimate of r^2.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._checks import check_count
from ..correction import Correction
from ..field import as_field
from ..operators import (
    Batch,
    Coordinates,
    Evaluation,
    Operator,
    Residual,
    Sampler,
    batch_of,
)
from ..taylor import Automatic, Path, VmappedJet
from ._sum import fused_sum


class Task(NamedTuple):
    """What is estimated: the residual of a function on a batch of points."""

    residual: Residual
    u: Any
    batch: Batch
    series: Correction | None

    def residuals(self, estimator: Any, *operators: Operator) -> list[Evaluation]:
        """The residual with each of some operators in place of its own."""
        path, chunk = estimator.path, estimator.chunk
        return self.residual.evaluations(
            self.u, self.batch, operators, path, chunk, self.series
        )

    def samples(self, estimator: Any, n: int, *keys: Array) -> list[Evaluation]:
        """The residual with n terms of its operator, for each of some keys."""
        draw = lambda key: self.residual.operator.sample(key, n, estimator.directions)
        return self.residuals(estimator, *map(draw, keys))


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

    def estimate(
        self,
        residual: Residual,
        u: Any,
        batch: Batch,
        key: Array,
        series: Correction | None = None,
    ) -> Estimate:
        """The estimate, once the nodes of the field's gradient are drawn.

        **Arguments:**

        - `series`: the corrections of a conserved field at the times of the batch,
            where they are known already.
        """
        return self.combine(Task(residual, u, batch, series), key)

    def at(self, step: Int[Array, ""], switched: Bool[Array, ""]) -> "Estimator":
        """The estimator of one step of a training, see `WarmUp`.

        **Arguments:**

        - `step`: in the window in training.
        - `switched`: whether an audit has found its bias to exceed its noise.
        """
        del step, switched
        return self

    @abc.abstractmethod
    def combine(self, task: Task, key: Array) -> Estimate:
        """The estimate from residuals with all terms of the operator, or some."""


class Full(Estimator):
    """All terms: the exact residual, and the exact gradient.

    **Arguments:**

    - `path`, `chunk`: as for an operator.
    """

    path: Path = Automatic()
    chunk: int | None = eqx.field(static=True, default=None)

    def combine(self, task: Task, key: Array) -> Estimate:
        parts = task.residuals(self, task.residual.operator)
        loss = _mean(lambda r: 0.5 * r**2, parts)
        return Estimate(loss, 2.0 * jax.lax.stop_gradient(loss))


class _TwoCounts(Estimator):
    i: int = eqx.field(static=True)
    j: int | None = eqx.field(static=True, default=None)
    directions: Sampler = Coordinates()
    path: Path = Automatic()
    chunk: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_count("i", self.i)
        if self.j is not None:
            check_count("j", self.j)


class _OneCount(Estimator):
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

    def combine(self, task: Task, key: Array) -> Estimate:
        j, operator = self.j or self.i, task.residual.operator
        draws = zip(jax.random.split(key), (self.i, j), strict=True)
        both = [operator.sample(k, n, self.directions) for k, n in draws]
        return Estimate(*_product(*task.residuals(self, *both)))


class Disjoint(_TwoCounts):
    """As `Independent`, but with I and J disjoint, from one draw. **Biased**: disjoint
    subsets are not independent. For comparison; the arguments are those of
    `Independent`."""

    def combine(self, task: Task, key: Array) -> Estimate:
        n = self.i + (self.j or self.i)
        draw = task.residual.operator.sample_piece
        pieces = ((0, self.i), (self.i, n))
        both = [draw(key, n, self.directions, piece) for piece in pieces]
        return Estimate(_product(*task.residuals(self, *both))[0], None)


def _product(live: Evaluation, still: Evaluation) -> tuple[Array, Array]:
    """The loss whose gradient is `mean r_J grad r_I`, and `mean r_J r_I`."""
    known = jax.lax.stop_gradient(still.values())
    surrogate = _mean(lambda r, known: known * r, [live], known)
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

    def combine(self, task: Task, key: Array) -> Estimate:
        parts = task.samples(self, self.n, *jax.random.split(key))
        loss = _mean(lambda r, s: 0.5 * r * s, parts)
        return Estimate(loss, 2.0 * jax.lax.stop_gradient(loss))


class Shared(_OneCount):
    """The paper's fast mode `r_I grad r_I`. **Biased** by the covariance of the two:
    what one gets by squaring a sampled residual.

    **Arguments:**

    - `n`: how many terms, or directions.
    - `directions`, `path`, `chunk`: as for `Independent`.
    """

    def combine(self, task: Task, key: Array) -> Estimate:
        loss = _mean(lambda r: 0.5 * r**2, task.samples(self, self.n, key))
        return Estimate(loss, None)


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
