"""The residual of an equation with a linear operator, a remainder and a source."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._field import FieldAt
from ._apply import Batch, batch_of
from ._operator import Operator
from ._parts import call


def time_derivative(u: Callable[..., Array], order: int = 1) -> Callable[..., Array]:
    """The first or second derivative of `u(x, t)` by t, in forward mode: where many
    points share a time, they share its quadrature too."""
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {order!r}")

    def first(x: Array, t: ArrayLike) -> Array:
        t = jnp.asarray(t, jnp.result_type(float, t))
        return jax.jvp(lambda t: u(x, t), (t,), (jnp.ones_like(t),))[1]

    return first if order == 1 else time_derivative(first)


class Residual(eqx.Module):
    """The residual of an equation, `A[u] + N[u] - R`.

    **Arguments:**

    - `operator`: A, the linear operator, which estimators may sample.
    - `remainder`: N, a function of (u, x, t), or of (u, x) where u has no time, that
        returns one number and is evaluated exactly: nonlinear terms, time derivatives.
    - `source`: R, a function of (x, t), or of x, evaluated exactly.

    Examples:
        >>> import jax.numpy as jnp, sdifp
        >>> heat = sdifp.Residual(
        ...     -sdifp.laplacian(), lambda u, x, t: sdifp.time_derivative(u)(x, t)
        ... )
        >>> u = lambda x, t: jnp.exp(-2.0 * t) * jnp.sin(x[0]) * jnp.cos(x[1])
        >>> print(f"{abs(heat(u, jnp.array([0.3, 0.4]), 0.5)):.5f}")
        0.00000
    """

    operator: Operator
    remainder: Callable[..., Array] | None = None
    source: Callable[..., Array] | None = None

    def __check_init__(self) -> None:
        if not isinstance(self.operator, Operator):
            raise TypeError(
                f"operator must be an Operator, such as laplacian(), got "
                f"{self.operator!r}"
            )
        for name in ("remainder", "source"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"{name} must be a function, got {value!r}")

    def __call__(
        self, u: Any, x: ArrayLike, t: ArrayLike | None = None, **options: Any
    ) -> Float[Array, "..."]:
        """The residual at one point or many, laid out as for an operator, whose options
        it takes."""
        out = self.operator(u, **options)(x, t)
        batch, shape = batch_of(u, x, t)
        exact = self.exact(u, batch)
        return out if exact is None else out + exact.reshape(shape)

    def exact(self, u: Any, batch: Batch) -> Array | None:
        """`N[u] - R` at each point of a batch, flat."""
        remainder, source = self.remainder, self.source
        if remainder is None and source is None:
            return None

        no_time = batch.t is None or isinstance(u, FieldAt)

        def at(x: Array, t: Array | None) -> Array:
            out = jnp.zeros((), x.dtype)
            if remainder is not None:
                value = remainder(u, x) if no_time else remainder(u, x, t)
                out = out + _one_number("remainder", value)
            if source is not None:
                out = out - _one_number("source", call(source, x, t))
            return out

        # Points inside times: what depends on the time alone is done once for each.
        over_x = jax.vmap(at, (0, None))
        over_t = jax.vmap(over_x, (0, None if batch.t is None else 0))
        return over_t(batch.x, batch.t).reshape(-1)


def _one_number(name: str, value: Any) -> Array:
    value = jnp.asarray(value)
    if value.shape != ():
        raise ValueError(
            f"{name} must return one number for one point, got shape {value.shape}"
        )
    return value
