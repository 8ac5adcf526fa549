"""What every quadrature rule is and can do. Depends on Box alone."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from .._checks import check_count
from .._domain import MOST_AXES, Box
from ._stream import streamed

# Numbers (nodes times dimension) that one block of nodes may hold unless the caller
# says otherwise: 32 MiB in float64, large enough to keep the cores busy.
_BLOCK_NUMBERS = MOST_AXES

# `rule.nodes` is for looking at and for small rules; streaming never needs it.
_STORED_BYTES = 2**32

# The weighted sum and the sum of the weights, each with what rounding took from it.
_Sums = list[tuple[Array, Array]]

Block = tuple[Float[Array, "n d"], Float[Array, " n"]]
"""Some nodes and their weights."""

Sample = tuple[Int[Array, " k"], Float[Array, " k"]]
"""The indices of some nodes, and factors on their weights."""


class QuadratureRule(eqx.Module):
    """Nodes `x_i` on a box and weights `w_i > 0` with `sum w_i = 1`.

    `Q[g] = sum_i w_i g(x_i)` approximates the *mean* of g over the box; the integral
    is the volume times that. Nodes are made block by block from a few numbers, so a
    rule costs almost no memory whatever its size and dimension.

    A rule is a pytree without floating-point leaves: it can be an argument of `jit`
    and a part of a model, and no optimiser will ever move its nodes.
    """

    domain: Box = eqx.field(static=True)
    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)

    @property
    @abc.abstractmethod
    def is_randomised(self) -> bool:
        """Whether `resample` gives fresh nodes."""

    @abc.abstractmethod
    def at(self, index: Int[Array, " n"]) -> Block:
        """The nodes and weights of these indices, which may be traced."""

    def block(self, start: int | Array, length: int) -> Block:
        """The nodes and weights `start` to `start + length`; `start` may be traced."""
        if isinstance(start, int) and not 0 <= start <= self.size - length:
            raise ValueError(
                f"start and length must stay within the {self.size} nodes, got start "
                f"= {start} and length = {length}"
            )
        return self.at(start + jnp.arange(length))

    def sample(self, key: Array, k: int) -> Sample:
        """The indices of `k` different random nodes, spread as evenly as the rule
        knows how, and the factors on their weights that make sums over them unbiased:
        the inverse of the probability with which each was chosen.

        A sample of Sobol points or of a lattice is a smaller rule of its kind, or a
        union of such where `k` is not a power of two; of other rules it has one node
        from each of `k` runs of neighbours in the list. Callable inside `jit`.
        """
        k = check_size("k", k)
        if k > self.size:
            raise ValueError(
                f"k must be at most the {self.size} nodes of the rule, got {k}"
            )
        return self._spread(key, k)

    @abc.abstractmethod
    def _spread(self, key: Array, k: int) -> Sample:
        """What `sample` returns, for `k` up to the size of the rule."""

    @abc.abstractmethod
    def resample(self, key: Array) -> "QuadratureRule":
        """The same rule with fresh randomisation; callable inside `jit`. Raises
        `ValueError` for a rule that is not randomised."""

    @property
    def dimension(self) -> int:
        """The number of coordinates of a node, d."""
        return self.domain.dimension

    @property
    @abc.abstractmethod
    def nodes(self) -> Float[Array | np.ndarray, "M d"]:
        """All nodes at once, where they fit in memory."""

    @property
    @abc.abstractmethod
    def weights(self) -> Float[Array | np.ndarray, " M"]:
        """All weights, in float64 with sum 1 to one unit in the last place."""

    @property
    def chunk(self) -> int:
        """How many nodes are made at a time unless the caller says otherwise."""
        return max(1, min(self.size, _BLOCK_NUMBERS // self.dimension))

    def mean(
        self, function: Callable[[Array], Array], *, chunk: int | None = None
    ) -> Array:
        """`Q[g]` of a function of one point, the average over the box on this rule.

        **Arguments:**

        - `function`: maps one point, shape (d,), to an array of any fixed shape. Inside
            `jit` on several devices it should be a module or an `eqx.Partial` that
            holds the arrays which it needs, instead of a lambda that closes over them.
        - `chunk`: how many nodes are evaluated at a time, at the most; memory is
            proportional to it and does not grow with the size of the rule, backward
            pass included.

        Examples:
            >>> import sdifp
            >>> rule = sdifp.quadrature.gauss_legendre(sdifp.Box([0.0], [1.0]), 3)
            >>> print(f"{rule.mean(lambda x: x[0] ** 5):.6f}")
            0.166667
        """
        chunk = self.chunk if chunk is None else check_count("chunk", chunk)
        sums = streamed(self, _Block(function), _merged, min(chunk, self.size))
        total, weight = (high + low for high, low in sums)
        return total / weight

    def integrate(
        self, function: Callable[[Array], Array], *, chunk: int | None = None
    ) -> Array:
        """The integral over the box on this rule: the volume times `mean`.

        Examples:
            >>> import sdifp
            >>> box = sdifp.Box([0.0], [2.0], periodic=True)
            >>> rule = sdifp.quadrature.trapezoid(box, 8)
            >>> print(f"{rule.integrate(lambda x: 1.0 + x[0] - x[0]):.1f}")
            2.0
        """
        return self.domain.volume * self.mean(function, chunk=chunk)

    def replicates(self, key: Array, n: int) -> "list[QuadratureRule]":
        """`n` rules whose randomisations are independent, for error estimates."""
        return [self.resample(k) for k in jax.random.split(key, check_count("n", n))]

    def __repr__(self) -> str:
        nodes, axes = plural(self.size, "node"), plural(self.dimension, "dimension")
        return f"{self.name}({nodes}, {axes})"


class EqualWeightRule(QuadratureRule):
    """A randomised rule with equal weights, whose nodes are made on demand."""

    is_randomised = True

    @abc.abstractmethod
    def unit(self, index: Int[Array, " n"]) -> Float[Array, "n d"]:
        """The nodes of these indices, in the unit cube."""

    def at(self, index: Int[Array, " n"]) -> Block:
        weights = jnp.full(index.shape, 1.0 / self.size)
        return self.domain.from_unit(self.unit(index)), weights

    @property
    def nodes(self) -> Float[Array | np.ndarray, "M d"]:
        return made_nodes(self)

    @property
    def weights(self) -> Float[Array | np.ndarray, " M"]:
        return equal_weights(self.size)


def made_nodes(rule: QuadratureRule) -> Float[Array, "M d"]:
    """All nodes of a rule that stores none."""
    bytes_needed = 8 * rule.size * rule.dimension
    if bytes_needed > _STORED_BYTES:
        raise ValueError(
            f"the nodes of {rule!r} would take {bytes_needed / 2**30:.3g} GiB; "
            f"use rule.mean, rule.integrate or rule.block, which stream them"
        )
    return rule.block(0, rule.size)[0]


def one_per_run(self: QuadratureRule, key: Array, k: int) -> Sample:
    """A method `_spread`: one node from each of `k` runs of neighbours."""
    edges = np.arange(k + 1) * self.size // k
    lengths = np.diff(edges)
    steps = jax.random.randint(key, (k,), 0, lengths)
    return jnp.asarray(edges[:-1]) + steps, jnp.asarray(lengths, float)


def shifted(self: Any, key: Array) -> Any:
    """A method `resample`, for a rule with a random `shift`."""
    return dataclasses.replace(self, shift=draw_digits(key, self.dimension))


def not_randomised(self: QuadratureRule, key: Array) -> QuadratureRule:
    """A method `resample`, for a rule without randomisation."""
    raise ValueError(
        f"the rule {self.name} is not randomised, so it cannot be resampled; sobol, "
        f"lattice, halton, monte_carlo, importance and tensor products of Trapezoid "
        f"and TwoPieces can"
    )


class _Block(eqx.Module):
    """The weighted sum of a function over some nodes."""

    function: Any

    def __call__(self, nodes: Array, weights: Array) -> _Sums:
        values = jax.vmap(self.function)(nodes)
        if not isinstance(values, jax.Array):
            raise TypeError(
                f"function must return one array, got {type(values).__name__}"
            )
        if not jnp.issubdtype(values.dtype, jnp.floating):
            raise TypeError(
                f"function must return floating-point numbers, got {values.dtype}"
            )
        column = jnp.expand_dims(weights, tuple(range(1, values.ndim)))
        sums = jnp.sum(column * values, axis=0), jnp.sum(weights)
        return [(total, jnp.zeros_like(total)) for total in sums]


def _merged(first: _Sums, second: _Sums) -> _Sums:
    out = []
    for (a, low_a), (b, low_b) in zip(first, second, strict=True):
        # Knuth's error-free sum: `a + b` rounded, and what the rounding lost.
        total = a + b
        shadow = total - a
        lost = (a - (total - shadow)) + (b - shadow)
        out.append((total, low_a + low_b + lost))
    return out


def plural(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count} {noun}{'s' * (count != 1)}"


def equal_weights(size: int) -> np.ndarray:
    """M equal weights."""
    return np.full(size, 1.0 / size)


def draw_digits(key: Array, dimension: int) -> UInt32[Array, " d"]:
    """A uniform random number for each axis, as its first 32 binary digits."""
    return jax.random.bits(key, (dimension,), jnp.uint32)


def from_digits(digits: UInt32[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The numbers in [0, 1] with these 32 binary digits, in the middle of the cell
    that they leave, so that the mean over random digits is exact."""
    return (digits.astype(jnp.result_type(float)) + 0.5) * 2.0**-32


def random_coset(key: Array, size: int, k: int) -> Int[Array, " k"]:
    """`j xor r` for j below k and one random r below `size = 2**m`: every index is as
    likely as any other, and the set is made of runs of `2**i` indices that begin at a
    multiple of `2**i`, one such run if k is a power of two."""
    return jnp.arange(k) ^ jax.random.randint(key, (), 0, size)


def check_size(name: str, size: int) -> int:
    """A node count that indices of 32 bits can address."""
    if not isinstance(size, int | np.integer) or isinstance(size, bool):
        raise TypeError(f"{name} must be an integer, got {size!r}")
    if not 1 <= size < 2**31:
        raise ValueError(f"{name} must be between 1 and 2**31 - 1, got {size}")
    return int(size)


def check_power_of_two(family: str, size: int) -> int:
    """A node count 2**m, on which digital nets and lattices are balanced."""
    size = check_size("size", size)
    if size & (size - 1):
        below = 1 << (size.bit_length() - 1)
        raise ValueError(
            f"the size of a {family} rule must be a power of two, got {size}; "
            f"take {below} or {2 * below}"
        )
    return size


def check_key(key: Array) -> Array:
    """One random key, typed or of the older kind."""
    try:
        is_one = jax.random.key_data(key).ndim == 1
    except (AttributeError, TypeError, ValueError):
        is_one = False
    if not is_one:
        raise TypeError(
            f"key must be one random key, for example jax.random.key(0), got {key!r}"
        )
    return key


def seed_from(key: Array) -> np.random.Generator:
    """A NumPy generator that depends on a JAX key and on nothing else."""
    return np.random.default_rng(np.asarray(jax.random.key_data(check_key(key))))
