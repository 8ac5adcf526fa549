"""Rules on stored points: the user's own, Halton's, and importance samples."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats.qmc
from jaxtyping import Array, Float, Int, UInt, UInt32

from .._checks import check_floating, check_weights
from .._domain import Box
from ._rule import (
    Block,
    EqualWeightRule,
    QuadratureRule,
    check_key,
    check_size,
    equal_weights,
    from_digits,
    not_randomised,
    one_per_run,
    seed_from,
    shifted,
)


class PointsRule(QuadratureRule):
    """Nodes and weights that someone else computed, as constants in float64: bytes are
    compared by value, hashed once and read only."""

    node_bytes: bytes = eqx.field(static=True)
    weight_bytes: bytes = eqx.field(static=True)

    is_randomised = False
    resample = not_randomised
    _spread = one_per_run

    @property
    def nodes(self) -> Float[Array | np.ndarray, "M d"]:
        return np.frombuffer(self.node_bytes).reshape(self.size, self.dimension)

    @property
    def weights(self) -> Float[Array | np.ndarray, " M"]:
        return np.frombuffer(self.weight_bytes)

    def at(self, index: Int[Array, " n"]) -> Block:
        dtype = jnp.result_type(float)
        nodes, weights = (
            jnp.asarray(self.nodes, dtype),
            jnp.asarray(self.weights, dtype),
        )
        return nodes[index], weights[index]


def from_points(
    box: Box,
    nodes: Float[Array | np.ndarray, "M d"],
    weights: Float[Array | np.ndarray, " M"] | None = None,
    *,
    name: str = "points",
) -> QuadratureRule:
    """A rule on your own nodes and weights: a mesh, sensors, a file.

    **Arguments:**

    - `nodes`: shape (M, d), inside the box.
    - `weights`: shape (M,), positive, with sum 1 (they are normalised again in
        float64, so single precision is enough); equal if left out.

    Examples:
        >>> import numpy as np, sdifp
        >>> nodes = np.array([[0.1], [0.4], [0.9]])
        >>> rule = sdifp.from_points(sdifp.Box([0.0], [1.0]), nodes)
        >>> print(f"{rule.mean(lambda x: x[0]):.4f}")
        0.4667
    """
    nodes = np.asarray(check_floating("nodes", nodes))
    if nodes.ndim != 2 or nodes.shape[1] != box.dimension or nodes.shape[0] == 0:
        raise ValueError(
            f"nodes must have shape (M, {box.dimension}) for this box, got "
            f"{nodes.shape}"
        )
    # In the dtype of the nodes: a wall rounded to float32 still belongs to the box.
    lower, upper = box.lower.astype(nodes.dtype), box.upper.astype(nodes.dtype)
    outside = np.flatnonzero(~np.all((nodes >= lower) & (nodes <= upper), axis=1))
    if outside.size:
        raise ValueError(
            f"every node must be finite and lie in the box, got nodes[{outside[0]}] = "
            f"{nodes[outside[0]].tolist()} ({outside.size} of {len(nodes)} are outside)"
        )
    nodes = np.clip(nodes.astype(np.float64), box.lower, box.upper)
    size = len(nodes)
    if weights is None:
        weights = equal_weights(size)
    else:
        weights = check_weights(check_floating("weights", weights), size)
        weights = weights / weights.sum()
    return PointsRule(box, name, size, nodes.tobytes(), weights.tobytes())


class HaltonRule(EqualWeightRule):
    """Scrambled Halton points, shifted modulo the box by every resampling."""

    digits: UInt32[Array | np.ndarray, "M d"]
    shift: UInt32[Array | np.ndarray, " d"]

    resample = shifted
    _spread = one_per_run

    def unit(self, index: Int[Array, " n"]) -> Float[Array, "n d"]:
        # The sum wraps modulo 2**32: a shift modulo the box.
        digits = jnp.asarray(self.digits)[index] + jnp.asarray(self.shift)[None, :]
        return from_digits(digits)


def halton(box: Box, size: int, *, key: Array) -> QuadratureRule:
    """`size` scrambled Halton nodes with equal weights; any size, few dimensions.

    Examples:
        >>> import jax, sdifp
        >>> sdifp.quadrature.halton(sdifp.Box.cube(3), 1000, key=jax.random.key(0))
        halton(1000 nodes, 3 dimensions)
    """
    engine = scipy.stats.qmc.Halton(box.dimension, scramble=True, rng=seed_from(key))
    size = check_size("size", size)
    digits = (engine.random(size) * 2.0**32).astype(np.uint32)
    return HaltonRule(box, "halton", size, digits, np.zeros(box.dimension, np.uint32))


class ImportanceRule(QuadratureRule):
    """Nodes drawn from a density of the user's, weighted by its inverse."""

    sampler: Callable[[Array], Array] = eqx.field(static=True)
    density: Callable[[Array], Array] = eqx.field(static=True)
    # The bits of the floating-point numbers: see QuadratureRule on leaves.
    node_bits: UInt[Array, "M d"]
    weight_bits: UInt[Array, " M"]

    is_randomised = True
    _spread = one_per_run

    @property
    def nodes(self) -> Float[Array | np.ndarray, "M d"]:
        return _from_bits(self.node_bits)

    @property
    def weights(self) -> Float[Array | np.ndarray, " M"]:
        return _from_bits(self.weight_bits)

    def at(self, index: Int[Array, " n"]) -> Block:
        return _from_bits(self.node_bits[index]), _from_bits(self.weight_bits[index])

    def resample(self, key: Array) -> QuadratureRule:
        nodes, weights = _draw(key, self.size, self.sampler, self.density)
        return dataclasses.replace(self, node_bits=nodes, weight_bits=weights)


def _draw(
    key: Array,
    size: int,
    sampler: Callable[[Array], Array],
    density: Callable[[Array], Array],
) -> tuple[Array, Array]:
    nodes = jax.vmap(sampler)(jax.random.split(key, size))
    values = jax.vmap(density)(nodes)
    # Divided first by the smallest, so that no weight overflows.
    weights = jnp.min(values) / values
    return _to_bits(nodes), _to_bits(weights / jnp.sum(weights))


def _to_bits(numbers: Array) -> Array:
    numbers = numbers.astype(jnp.result_type(float))
    unsigned = {4: jnp.uint32, 8: jnp.uint64}[numbers.dtype.itemsize]
    return jax.lax.bitcast_convert_type(numbers, unsigned)


def _from_bits(bits: Array) -> Array:
    floating = {4: jnp.float32, 8: jnp.float64}[bits.dtype.itemsize]
    return jax.lax.bitcast_convert_type(bits, floating)


def importance(
    box: Box,
    size: int,
    sampler: Callable[[Array], Array],
    density: Callable[[Array], Array],
    *,
    key: Array,
) -> QuadratureRule:
    """Nodes drawn where the field is large, with weights that undo the density.

    **Arguments:**

    - `sampler`: maps a key to one point of the box, shape (d,).
    - `density`: maps a point to the density it was drawn with, positive, up to a
        constant factor.

    The weights are normalised to sum 1, so means are self-normalised: consistent,
    with a bias `O(1/size)`; averages over resamples keep that bias. The points and
    densities of resamples are not checked.

    Examples:
        >>> import jax, sdifp
        >>> import jax.numpy as jnp
        >>> rule = sdifp.quadrature.importance(
        ...     sdifp.Box([0.0], [1.0]), 20_000,
        ...     sampler=lambda k: jnp.sqrt(jax.random.uniform(k, (1,))),
        ...     density=lambda x: 2 * x[0],
        ...     key=jax.random.key(0),
        ... )
        >>> abs(float(rule.mean(lambda x: x[0])) - 0.5) < 0.02
        True
    """
    size, key = check_size("size", size), check_key(key)
    point = jax.eval_shape(sampler, key)
    if point.shape != (box.dimension,):
        raise ValueError(
            f"sampler must return one point of shape ({box.dimension},), got "
            f"{point.shape}"
        )
    value = jax.eval_shape(density, point)
    if value.shape != ():
        raise ValueError(
            f"density must return one number a point, got shape {value.shape}"
        )
    bits = _draw(key, size, sampler, density)
    rule = ImportanceRule(box, "importance", size, sampler, density, *bits)
    nodes = jnp.asarray(rule.nodes)
    values = np.asarray(jax.vmap(density)(nodes))
    outside = nodes[~np.asarray(box.contains(nodes))]
    if len(outside):
        raise ValueError(
            f"sampler must return points in the box, got {outside[0].tolist()}"
        )
    bad = np.flatnonzero(~((values > 0) & np.isfinite(values)))
    if bad.size:
        raise ValueError(
            f"density must be positive and finite where sampler draws, got "
            f"{values[bad[0]]} at {nodes[bad[0]].tolist()}"
        )
    if not np.all(np.asarray(rule.weights) > 0.0):
        raise ValueError(
            f"density must not vary so much that weights vanish, got densities from "
            f"{values.min():g} to {values.max():g}"
        )
    return rule
