"""Rank-1 lattices with a random shift, for smooth fields in four to a hundred
dimensions."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from .._domain import Box
from ._rule import (
    EqualWeightRule,
    QuadratureRule,
    Sample,
    check_power_of_two,
    draw_digits,
    from_digits,
    random_coset,
    seed_from,
    shifted,
)

# The search takes some arrays of the size of the rule; beyond, Sobol points are chosen
# where nobody asks for a lattice.
MOST_SEARCHED_NODES = 2**22

# Beyond this many axes a searched generator gains nothing over a random one.
_SEARCHED_AXES = 256


class LatticeRule(EqualWeightRule):
    """Node i is `frac(i z / M + shift)`, folded by the tent map `1 - |2 x - 1|` on
    axes that are not periodic, which restores second order there."""

    generator: UInt32[Array | np.ndarray, " d"]
    shift: UInt32[Array, " d"]

    def unit(self, index: Int[Array, " n"]) -> Float[Array, "n d"]:
        # Thirty-two binary digits of i z / M and of the shift: products and sums wrap
        # modulo 2**32, so the fractional part is taken exactly and for nothing.
        digit = jnp.asarray(self.generator * np.uint32(2**32 // self.size % 2**32))
        digits = index.astype(jnp.uint32)[:, None] * digit[None, :]
        unit = from_digits(digits + jnp.asarray(self.shift)[None, :])
        tent = 1.0 - jnp.abs(2.0 * unit - 1.0)
        return jnp.where(self.domain.periodic[None, :], unit, tent)

    def _spread(self, key: Array, k: int) -> Sample:
        # With their binary digits reversed, runs of indices become every so many
        # nodes: a lattice with fewer nodes.
        run, index = random_coset(key, self.size, k), jnp.zeros(k, int)
        for bit in range(self.size.bit_length() - 1):
            index = 2 * index + ((run >> bit) & 1)
        return index, jnp.full(k, self.size / k)

    resample = shifted


def lattice(
    box: Box, size: int, *, key: Array, generator: np.ndarray | None = None
) -> QuadratureRule:
    """A rank-1 lattice of `size = 2**m` nodes with a random shift.

    **Arguments:**

    - `generator`: odd integers, one an axis; if left out they are searched component
        by component (Korobov space of smoothness 2, all axes alike), in at most
        size/4 dimensions.

    Examples:
        >>> import jax, sdifp
        >>> box = sdifp.Box.cube(8, periodic=True)
        >>> sdifp.quadrature.lattice(box, 1024, key=jax.random.key(0))
        lattice(1024 nodes, 8 dimensions)
    """
    size = check_power_of_two("lattice", size)
    if generator is None:
        generator = search_generator(size, box.dimension, seed_from(key))
    generator = np.asarray(generator)
    if generator.shape != (box.dimension,) or np.any(generator % 2 != 1):
        raise ValueError(
            f"generator must hold one odd integer for each of the {box.dimension} "
            f"axes, got {generator.tolist() if generator.size < 20 else generator}"
        )
    # Not a child of the key by `split`: `replicates` may split the same key.
    shift = draw_digits(jax.random.fold_in(key, size), box.dimension)
    return LatticeRule(
        box, "lattice", size, (generator % size).astype(np.uint32), shift
    )


def search_generator(size: int, dimension: int, rng: np.random.Generator) -> np.ndarray:
    """Component-by-component search for the generator, by fast Fourier transform.

    Minimises the worst-case error `-1 + (1/M) sum_k prod_j (1 + omega(k z_j/M) / d)`
    with `omega(x) = 2 pi^2 (x^2 - x + 1/6)` over one `z_j` after the other (Nuyens
    and Cools, 2006). Modulo 2**m every odd number is plus or minus a power of 5, and
    omega is even, so each sum over k of one 2-adic order is a cyclic correlation.
    """
    if dimension > max(1, size // 4):
        raise ValueError(
            f"a lattice of {size} nodes has only {max(1, size // 4)} different "
            f"generators, too few for {dimension} dimensions; use a larger size, "
            f"sobol or monte_carlo"
        )
    if size <= 4:
        return np.ones(dimension, np.int64)
    m = size.bit_length() - 1
    candidates = _powers_of_five(size)
    tables = []
    for order in range(m - 2):
        modulus = size >> order
        powers = _powers_of_five(modulus)
        nodes = np.stack([powers, modulus - powers]) << order
        tables.append((nodes, np.fft.rfft(_omega(powers / modulus))))

    k = np.arange(size)
    product = np.ones(size)
    free = np.ones(len(candidates), bool)
    generator = np.empty(dimension, np.int64)
    for j in range(min(dimension, _SEARCHED_AXES)):
        error = np.zeros(len(candidates))
        for nodes, kernel in tables:
            folded = product[nodes].sum(axis=0)
            part = np.fft.irfft(np.conj(np.fft.rfft(folded)) * kernel, len(folded))
            error += np.tile(part, len(error) // len(part))
        best = int(np.argmin(np.where(free, error, np.inf)))
        free[best] = False
        generator[j] = candidates[best]
        product *= 1.0 + _omega((k * generator[j]) % size / size) / dimension
    if dimension > _SEARCHED_AXES:
        rest = dimension - _SEARCHED_AXES
        generator[_SEARCHED_AXES:] = rng.permutation(candidates[free])[:rest]
    return generator


def _powers_of_five(modulus: int) -> np.ndarray:
    powers, factor = np.ones(1, np.int64), 5 % modulus
    while len(powers) < modulus // 4:
        powers = np.concatenate([powers, powers * factor % modulus])
        factor = factor * factor % modulus
    return powers


def _omega(x: np.ndarray) -> np.ndarray:
    return 2.0 * np.pi**2 * (x * x - x + 1.0 / 6.0)
