"""The residual of an equation: a linear operator, a local term, a source."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._checks import is_concrete
from .._mesh import device_local
from ..field import as_field, integrals_at
from ..invariants import check_asked_for, integrals_from
from ..quadrature import QuadratureRule
from ..taylor import Automatic, Path
from ._apply import AppliedOperator, Evaluation, evaluations
from ._batch import Batch, batch_of, output_shape, over_batch
from ._coefficient import call, numbers
from ._operator import Operator


def _weights(given: Any) -> Array | None:
    """Those of the residuals of a system."""
    if given is None:
        return None
    if not is_concrete(given):
        return jnp.asarray(given)
    try:
        weights = np.asarray(given, float)
    except (TypeError, ValueError):
        weights = np.zeros(())
    good = bool(np.all((weights > 0.0) & np.isfinite(weights)))
    if weights.ndim != 1 or not weights.size or not good:
        raise ValueError(
            f"weights must be finite and positive, one for each residual of a system, "
            f"got {given!r}"
        )
    return jnp.asarray(weights)


class Residual(eqx.Module):
    """The residual of an equation, `A[u] + L(u, grad u) - R`, or several of them, of a
    field with several components.

    **Arguments:**

    - `operator`: A, the linear operator, derivatives by time included. Estimators may
        sample it. Of a field with n components it has n rows, or as many as the
        matrices in front of it.
    - `local`: L, nonlinear terms: a function of (u, grad, x, t), or of (u, grad, x)
        where u has no time, with the value u and its gradient of shape (d,) at one
        point, that returns one number. They come from the same pass through the network
        as the operator. For several components u has shape (n,) and grad (n, d), and it
        returns an array of as many numbers as there are residuals.
    - `source`: R, a function of (x, t), or of x, that returns as many.
    - `remainder`: what fits in none of these, added: a function of (u, x, t), or of
        (u, x), with u the whole field, which it may differentiate as it likes. It costs
        passes of its own.
    - `integrals`: integrals of the field over the domain that stand in the equation, a
        function by each name: `{"mass": lambda u: u}`. The local term receives them as
        arguments of these names. Each is a function of those of `x`, `t`, `u` and
        `grad` that it names; one that names `y` too is a kernel, integrated over y
        against `u` and `grad` there: `{"memory": lambda x, y, u: k(x - y) * u}`. They
        are computed on the rule of a conserved field.
    - `weights`: of the squares of several residuals in the loss, a positive number for
        each. By default a training measures them before its first step: they make the
        residuals equally sensitive to the parameters of the network, on average.

    Examples:
        >>> import jax.numpy as jnp, sdifp
        >>> burgers = sdifp.Residual(
        ...     sdifp.time_derivative() - 0.1 * sdifp.laplacian(),
        ...     lambda u, grad, x, t: u * grad[0],
        ... )
        >>> u = lambda x, t: 1.0 - jnp.tanh(5.0 * (x[0] - t))   # a travelling front
        >>> print(f"{abs(burgers(u, jnp.array([0.3]), 0.2)):.5f}")
        0.00000

        A linear Schrödinger equation, `i h_t + h_xx = 0` with `h = u[0] + i u[1]`:

        >>> turn = jnp.array([[0.0, 1.0], [-1.0, 0.0]])
        >>> free = sdifp.Residual(
        ...     sdifp.time_derivative() + turn @ sdifp.laplacian()
        ... )
        >>> wave = lambda x, t: jnp.stack([jnp.cos(x[0] - t), jnp.sin(x[0] - t)])
        >>> found = free(wave, jnp.array([0.3]), 0.2)
        >>> print(f"{jnp.max(jnp.abs(found)):.5f}")
        0.00000
    """

    operator: Operator
    local: Callable[..., Array] | None = None
    source: Callable[..., Array] | None = None
    remainder: Callable[..., Array] | None = None
    # Given as a mapping, and kept as a tuple of `Integral`.
    integrals: Any = eqx.field(static=True, default=(), converter=integrals_from)
    weights: Any = eqx.field(default=None, converter=_weights)

    def __check_init__(self) -> None:
        if self.integrals and self.local is None:
            raise ValueError(
                f"integrals have no effect without a local term, which receives them, "
                f"got {', '.join(one.name for one in self.integrals)}"
            )
        if not isinstance(self.operator, Operator):
            raise TypeError(
                f"operator must be an Operator, such as laplacian(), got "
                f"{self.operator!r}"
            )
        for name in ("local", "source", "remainder"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"{name} must be a function, got {value!r}")
        if self.local is not None:
            check_asked_for("local", self.local, self.integrals)

    def __call__(
        self,
        u: Any,
        x: ArrayLike,
        t: ArrayLike | None = None,
        *,
        path: Path = Automatic(),
        chunk: int | None = None,
        rule: QuadratureRule | None = None,
    ) -> Float[Array, "..."]:
        """The residual at one point or many, laid out as for an operator, whose options
        it takes; without `weights`.

        **Arguments:**

        - `rule`: of the integrals; by default that of a conserved field.
        """
        batch, shape = batch_of(u, x, t)
        known = self.integrals_at(u, batch, rule)
        (one,) = self.evaluations(
            u, batch, [self.operator], path, chunk, integrals=known
        )
        return one.shaped(shape)

    def evaluations(
        self,
        u: Any,
        batch: Batch,
        operators: Sequence[Operator],
        path: Path = Automatic(),
        chunk: int | None = None,
        series: Any = None,
        integrals: dict[str, Array] | None = None,
    ) -> list[Evaluation]:
        """The residual on a batch with each of some operators in place of its own.

        **Arguments:**

        - `series`, `integrals`: where they are known already.
        """
        applied = [AppliedOperator(a, u, path, chunk) for a in operators]
        if integrals is None:
            integrals = self.integrals_at(u, batch, None)
        known = self._known(u, batch, self.shape(output_shape(u, batch)))
        return evaluations(
            applied, batch, self.local, known, series, integrals, self.weights
        )

    def shape(self, of_u: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of its value at a point, () or (m,), for a field whose values have
        the shape () or (n,). Raises `ValueError` if it does not fit them."""
        rows = self.operator.shape(of_u)
        if self.weights is not None and rows != self.weights.shape:
            count = rows[0] if rows else 1
            raise ValueError(
                f"weights must have one number for each residual of a system, and "
                f"there are {count}, got {self.weights.size}"
            )
        return rows

    def scaled(self, rows: Float[Array, "..."]) -> Float[Array, "..."]:
        """Residuals, on the last axis, times the roots of their weights."""
        if self.weights is None:
            return rows
        roots = jnp.sqrt(self.weights).astype(rows.dtype)
        return rows * roots.reshape((1,) * (rows.ndim - 1) + roots.shape)

    def weighted(self, weights: Float[Array, " m"]) -> "Residual":
        """The same with weights."""
        return dataclasses.replace(self, weights=weights)

    def integrals_at(
        self, u: Any, batch: Batch, rule: QuadratureRule | None
    ) -> dict[str, Float[Array, " n"]]:
        """The integrals in the equation, by name, at each point of a batch."""
        if not self.integrals:
            return {}
        field = as_field(u)
        rule = getattr(field, "rule", None) if rule is None else rule
        if rule is None:
            raise ValueError(
                f"rule must be given for the integrals "
                f"{', '.join(one.name for one in self.integrals)} of a function that "
                f"is not a conserved field"
            )

        def at(x: Array, t: Array | None) -> dict[str, Array]:
            now = field if field.is_slice else field.at(t)
            time = field.time if field.is_slice else t
            mode = field.gradient
            found = integrals_at(self.integrals, now, rule, mode, x, time)
            return self.at_points(found, len(x))

        found = jax.vmap(at, (0, None if batch.t is None else 0))(batch.x, batch.t)
        return {name: values.reshape(-1) for name, values in found.items()}

    def at_point(
        self, u: Any, x: Array, t: Array | None, integrals: dict[str, Array]
    ) -> Float[Array, "..."]:
        """The residual at one point, with integrals that are known there."""
        batch, _ = batch_of(u, x, t)
        known = self.at_points(integrals, 1)
        (one,) = self.evaluations(u, batch, [self.operator], integrals=known)
        return one.values(False)[0]

    def at_points(self, found: dict[str, Array], n: int) -> dict[str, Array]:
        """Integrals at one time as one number for each of n points."""
        return {name: jnp.broadcast_to(a, (n,)) for name, a in found.items()}

    def _known(self, u: Any, batch: Batch, rows: tuple[int, ...]) -> Array | None:
        """What does not come from the pass through the network, at each point."""
        remainder, source = self.remainder, self.source
        if remainder is None and source is None:
            return None
        is_slice = as_field(u).is_slice

        @device_local()
        def at(x: Array, t: Array | None) -> Array:
            out = jnp.zeros(rows, x.dtype)
            if remainder is not None:
                time = None if is_slice else t
                value = call("remainder", remainder, u=u, x=x, t=time)
                out = out + numbers("remainder", value, rows)
            if source is not None:
                value = call("source", source, x=x, t=t)
                out = out - numbers("source", value, rows)
            return out

        return over_batch(at, batch)
