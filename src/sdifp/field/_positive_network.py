"""Networks that are positive by construction."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from ..correction import Exp, PositiveMap, Softplus, Square
from ._protocol import evaluate

# Functions of jax.numpy that users know.
_MAPS: dict[Any, PositiveMap] = {
    jnp.exp: Exp(),
    jax.nn.softplus: Softplus(),
    jnp.square: Square(),
}


class Positive(eqx.Module):
    """A function of (x, t), or of x, that is not negative; made by `positive`."""

    net: Callable[..., Array]
    map: PositiveMap = eqx.field(static=True)

    def with_net(self, net: Callable[..., Array]) -> "Positive":
        """The same with another network inside of what is made positive."""
        inner: Any = self.net
        return Positive(inner.with_net(net), self.map)

    def __call__(
        self, x: Float[Array, " d"], t: ArrayLike | None = None
    ) -> Float[Array, "..."]:
        """The value at one point and time."""
        return self.map(evaluate(self.net, x, t))


def positive(
    net: Callable[..., Array], function: Callable[..., Array] = jnp.exp
) -> Positive:
    """Make a network positive. `conserve` then prescribes its integrals by scaling it,
    by raising it to a power or by tilting it, so that it stays positive.

    **Arguments:**

    - `net`: a function `f(x, t)` or `f(x)` of one point that returns one number.
    - `function`: `jax.numpy.exp`, `jax.nn.softplus` or `jax.numpy.square`. The square
        may vanish, and its powers are not smooth there, so it allows no `squared_norm`.

    Examples:
        >>> import jax.numpy as jnp, sdifp
        >>> rule = sdifp.rule_for(sdifp.Box([-6.0], [6.0]), 64)
        >>> net = sdifp.positive(lambda x: -jnp.abs(x[0] - 1.0))
        >>> u = sdifp.conserve(net, rule, mass=1.0, squared_norm=0.5)
        >>> print(f"{rule.integrate(u):.4f} {rule.integrate(lambda x: u(x) ** 2):.4f}")
        1.0000 0.5000
    """
    if not callable(net):
        raise TypeError(f"net must be a function of (x, t) or of x, got {net!r}")
    try:
        found = _MAPS.get(function)
    except TypeError:
        found = None
    if found is None:
        raise ValueError(
            f"function must be jax.numpy.exp, jax.nn.softplus or jax.numpy.square, got "
            f"{function!r}: another one is not known to be positive"
        )
    return Positive(net, found)
