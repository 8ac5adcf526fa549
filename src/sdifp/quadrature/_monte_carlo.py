"""Independent uniform nodes, for comparison and for very high dimension."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._domain import Box
from ._rule import QuadratureRule, check_key, check_size


class MonteCarloRule(QuadratureRule):
    """Node i depends on the key and on i alone, so blocks of any length agree."""

    key: Array

    def at(
        self, index: Int[Array, " n"]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        def node(i: Array) -> Array:
            return jax.random.uniform(
                jax.random.fold_in(self.key, i), (self.dimension,)
            )

        unit = jax.vmap(node)(index)
        return self.domain.from_unit(unit), jnp.full(index.shape, 1.0 / self.size)

    def redraw(self, key: Array) -> QuadratureRule:
        return MonteCarloRule(self.domain, self.name, self.size, key)


def monte_carlo(box: Box, size: int, *, key: Array) -> QuadratureRule:
    """`size` independent uniform nodes with equal weights; error `O(size^-1/2)`.

    Examples:
        >>> import jax, sdifp
        >>> sdifp.monte_carlo(sdifp.Box.cube(100_000), 1000, key=jax.random.key(0))
        monte_carlo(1000 nodes, 100000 dimensions)
    """
    return MonteCarloRule(box, "monte_carlo", check_size("size", size), check_key(key))
