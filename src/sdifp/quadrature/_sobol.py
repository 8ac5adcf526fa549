"""Scrambled Sobol points, randomised again by a digital shift inside `jit`."""

import jax.numpy as jnp
import numpy as np
import scipy.stats.qmc
from jaxtyping import Array, Float, Int, UInt32

from .._domain import Box
from ._rule import (
    EqualWeightRule,
    QuadratureRule,
    Sample,
    check_power_of_two,
    from_digits,
    random_coset,
    seed_from,
    shifted,
)


class SobolRule(EqualWeightRule):
    """A base-2 digital net: the digits of node i are the exclusive or of the
    direction numbers picked by the Gray code of i, and of one shift.

    Direction numbers that carry a random linear scramble, with a uniform shift, have
    the law of SciPy's scrambled sequence; so has every resampling, which replaces the
    shift. Given the scramble, resamples are independent and each node is uniform, so
    averages over resamples are unbiased.
    """

    directions: UInt32[Array | np.ndarray, "bits d"]
    shift: UInt32[Array | np.ndarray, " d"]

    def unit(self, index: Int[Array, " n"]) -> Float[Array, "n d"]:
        index = index.astype(jnp.uint32)
        gray = index ^ (index >> 1)
        digits = jnp.broadcast_to(
            jnp.asarray(self.shift)[None, :], (index.size, self.dimension)
        )
        for bit, row in enumerate(jnp.asarray(self.directions)):
            chosen = ((gray >> bit) & 1).astype(bool)[:, None]
            digits = digits ^ jnp.where(chosen, row[None, :], jnp.uint32(0))
        return from_digits(digits)

    def _spread(self, key: Array, k: int) -> Sample:
        # A run of 2**i nodes that begins at a multiple of 2**i is a net itself.
        return random_coset(key, self.size, k), jnp.full(k, self.size / k)

    resample = shifted


def sobol(box: Box, size: int, *, key: Array) -> QuadratureRule:
    """`size = 2**m` scrambled Sobol nodes with equal weights, up to 21 201 dimensions.

    Examples:
        >>> import jax, sdifp
        >>> sdifp.quadrature.sobol(sdifp.Box.cube(10), 1024, key=jax.random.key(0))
        sobol(1024 nodes, 10 dimensions)
    """
    size = check_power_of_two("sobol", size)
    most = scipy.stats.qmc.Sobol.MAXDIM
    if box.dimension > most:
        raise ValueError(
            f"sobol is available up to {most} dimensions, and the box has "
            f"{box.dimension}; use monte_carlo"
        )
    engine = scipy.stats.qmc.Sobol(
        box.dimension, scramble=True, bits=32, rng=seed_from(key)
    )

    def digits(index: int) -> np.ndarray:
        if index > engine.num_generated:
            engine.fast_forward(index - engine.num_generated)
        return np.asarray(engine.random(1)[0] * 2.0**32, np.uint32)

    shift = digits(0)
    # The Gray code of 2**(k + 1) - 1 is the single bit k.
    rows = [digits(2 ** (k + 1) - 1) ^ shift for k in range(size.bit_length() - 1)]
    directions = np.array(rows, np.uint32).reshape(-1, box.dimension)
    return SobolRule(box, "sobol", size, directions, shift)
