"""Scrambled Sobol points, randomised again by a digital shift inside `jit`."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats.qmc
from jaxtyping import Array, Float, UInt32

from .._domain import Box
from ._rule import QuadratureRule, check_power_of_two, seed_from

_BITS = 32


class SobolRule(QuadratureRule):
    """A base-2 digital net: the digits of node i are the exclusive or of the
    direction numbers picked by the Gray code of i, and of one shift.

    Direction numbers that carry a random linear scramble, with a uniform shift, have
    the law of SciPy's scrambled sequence; so has every redraw, which replaces the
    shift. Given the scramble, redraws are independent and each node is uniform, so
    averages over redraws are unbiased.
    """

    directions: UInt32[Array | np.ndarray, "bits d"]
    shift: UInt32[Array | np.ndarray, " d"]

    def block(
        self, start: int | Array, length: int
    ) -> tuple[Float[Array, "length d"], Float[Array, " length"]]:
        index = jnp.asarray(start, jnp.uint32) + jnp.arange(length, dtype=jnp.uint32)
        gray = index ^ (index >> 1)
        digits = jnp.broadcast_to(
            jnp.asarray(self.shift)[None, :], (length, self.dimension)
        )
        for bit, row in enumerate(jnp.asarray(self.directions)):
            chosen = ((gray >> bit) & 1).astype(bool)[:, None]
            digits = digits ^ jnp.where(chosen, row[None, :], jnp.uint32(0))
        # The middle of the cell, so that the mean over shifts is exact.
        unit = (digits.astype(jnp.result_type(float)) + 0.5) * 2.0**-_BITS
        return self.domain.from_unit(unit), jnp.full(length, 1.0 / self.size)

    def redraw(self, key: Array) -> QuadratureRule:
        shift = jax.random.bits(key, (self.dimension,), jnp.uint32)
        return SobolRule(self.domain, self.name, self.size, self.directions, shift)


def sobol(box: Box, size: int, *, key: Array) -> QuadratureRule:
    """`size = 2**m` scrambled Sobol nodes with equal weights, up to 21 201 dimensions.

    Examples:
        >>> import jax, sdifp
        >>> sdifp.sobol(sdifp.Box.cube(10), 1024, key=jax.random.key(0))
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
        box.dimension, scramble=True, bits=_BITS, rng=seed_from(key)
    )

    def digits(index: int) -> np.ndarray:
        if index > engine.num_generated:
            engine.fast_forward(index - engine.num_generated)
        return np.asarray(engine.random(1)[0] * 2.0**_BITS, np.uint32)

    shift = digits(0)
    # The Gray code of 2**(k + 1) - 1 is the single bit k.
    rows = [digits(2 ** (k + 1) - 1) ^ shift for k in range(size.bit_length() - 1)]
    directions = np.array(rows, np.uint32).reshape(-1, box.dimension)
    return SobolRule(box, "sobol", size, directions, shift)
