"""Independent uniform nodes, for comparison and for very high dimension."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._domain import Box
from ._rule import (
    Block,
    EqualWeightRule,
    QuadratureRule,
    Sample,
    check_key,
    check_size,
    one_per_run,
)


class MonteCarloRule(EqualWeightRule):
    """Node i depends on the key and on i alone, so blocks of any length agree."""

    key: Array

    def at(self, index: Int[Array, " n"]) -> Block:
        def node(i: Array) -> Array:
            return jax.random.uniform(
                jax.random.fold_in(self.key, i), (self.dimension,)
            )

        unit = jax.vmap(node)(index)
        return self.domain.from_unit(unit), jnp.full(index.shape, 1.0 / self.size)

    def _spread(self, key: Array, k: int) -> Sample:
        return one_per_run(key, self.size, k)

    def resample(self, key: Array) -> QuadratureRule:
        return MonteCarloRule(self.domain, self.name, self.size, key)


def monte_carlo(box: Box, size: int, *, key: Array) -> QuadratureRule:
    """`size` independent uniform nodes with equal weights; error `O(size^-1/2)`.

    Examples:
        >>> import jax, sdifp
        >>> box = sdifp.Box.cube(100_000)
        >>> sdifp.quadrature.monte_carlo(box, 1000, key=jax.random.key(0))
        monte_carlo(1000 nodes, 100000 dimensions)
    """
    return MonteCarloRule(box, "monte_carlo", check_size("size", size), check_key(key))
