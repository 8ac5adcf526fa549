"""The invariants of any function on a rule."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from ..invariants import Invariant, densities
from ..quadrature import QuadratureRule


class _Densities(eqx.Module):
    function: Callable[[Array], Array]
    means: tuple[ArrayLike, ...]
    invariants: tuple[Invariant, ...] = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        u = jnp.atleast_1d(self.function(x))
        means = [jnp.asarray(m, u.dtype) for m in self.means]
        return jnp.stack(densities(self.invariants, u, means))


def means_of(
    invariants: Sequence[Invariant],
    rule: QuadratureRule,
    function: Callable[[Array], Array],
    means: Sequence[ArrayLike] = (0.0,),
) -> Float[Array, " n"]:
    """The means over the domain of the density of each invariant, then of the square of
    each component, of a function of one point.

    **Arguments:**

    - `means`: the prescribed mean of each component, zero where there is none.
    """
    return rule.mean(_Densities(function, tuple(means), tuple(invariants)))
