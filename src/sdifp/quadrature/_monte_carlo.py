"""Independent uniform nodes, for comparison and for very high dimension."""

import jax
from jaxtyping import Array, Float, Int

from .._domain import Box
from ._rule import (
    EqualWeightRule,
    QuadratureRule,
    check_key,
    check_size,
    one_per_run,
)


class MonteCarloRule(EqualWeightRule):
    """Node i depends on the key and on i alone, so blocks of any length agree."""

    key: Array

    _spread = one_per_run

    def unit(self, index: Int[Array, " n"]) -> Float[Array, "n d"]:
        fold, shape = jax.random.fold_in, (self.dimension,)
        return jax.vmap(lambda i: jax.random.uniform(fold(self.key, i), shape))(index)

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
