"""Rules on stored points: the user's own, Halton's, and importance samples."""

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
    Sample,
    check_key,
    check_size,
    draw_digits,
    equal_weights,
    from_digits,
    not_randomised,
    one_per_run,
    seed_from,
)


class Constants:
    """Arrays as a static field: compared by value, hashed once."""

    def __init__(self, *arrays: np.ndarray) -> None:
        self.arrays = arrays
        for array in arrays:
            array.flags.writeable = False
        self._key = tuple((a.shape, a.tobytes()) for a in arrays)
        self._hash = hash(self._key)

    def __reduce__(self) -> tuple[type["Constants"], tuple[np.ndarray, ...]]:
        return Constants, self.arrays

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Constants) and self._key == other._key
        )


class PointsRule(QuadratureRule):
    """Nodes and weights that someone else computed, as constants."""

    table: Constants = eqx.field(static=True)

    is_randomised = False

    @property
    def nodes(self) -> Float[Array | np.ndarray, "M d"]:
        return self.table.arrays[0]

    @property
    def weights(self) -> Float[Array | np.ndarray, " M"]:
        return self.table.arrays[1]

    def at(self, index: Int[Array, " n"]) -> Block:
        dtype = jnp.result_type(float)
        nodes, weights = (jnp.asarray(a, dtype)[index] for a in self.table.arrays)
        return nodes, weights

    def resample(self, key: Array) -> QuadratureRule:
        raise not_randomised(self.name)

    def _spread(self, key: Array, k: int) -> Sample:
        return one_per_run(key, self.size, k)


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
        i = int(outside[0])
        raise ValueError(
            f"every node must be finite and lie in the box, got nodes[{i}] = "
            f"{nodes[i].tolist()} ({outside.size} of {len(nodes)} are outside)"
        )
    nodes = np.clip(nodes.astype(np.float64), box.lower, box.upper)
    if weights is None:
        return PointsRule(
            box, name, len(nodes), Constants(nodes, equal_weights(len(nodes)))
        )
    weights = check_weights(check_floating("weights", weights), len(nodes))
    return PointsRule(box, name, len(nodes), Constants(nodes, weights / weights.sum()))


class HaltonRule(EqualWeightRule):
    """Scrambled Halton points, shifted modulo the box by every resampling."""

    digits: UInt32[Array | np.ndarray, "M d"]
    shift: UInt32[Array | np.ndarray, " d"]

    def at(self, index: Int[Array, " n"]) -> Block:
        # The sum wraps modulo 2**32: a shift modulo the box.
        digits = jnp.asarray(self.digits)[index] + jnp.asarray(self.shift)[None, :]
        unit = from_digits(digits)
        return self.domain.from_unit(unit), jnp.full(index.shape, 1.0 / self.size)

    def _spread(self, key: Array, k: int) -> Sample:
        return one_per_run(key, self.size, k)

    def resample(self, key: Array) -> QuadratureRule:
        shift = draw_digits(key, self.dimension)
        return HaltonRule(self.domain, self.name, self.size, self.digits, shift)


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

    @property
    def nodes(self) -> Float[Array | np.ndarray, "M d"]:
        return _from_bits(self.node_bits)

    @property
    def weights(self) -> Float[Array | np.ndarray, " M"]:
        return _from_bits(self.weight_bits)

    def at(self, index: Int[Array, " n"]) -> Block:
        return _from_bits(self.node_bits[index]), _from_bits(self.weight_bits[index])

    def _spread(self, key: Array, k: int) -> Sample:
        return one_per_run(key, self.size, k)

    def resample(self, key: Array) -> QuadratureRule:
        return ImportanceRule(
            self.domain,
            self.name,
            self.size,
            self.sampler,
            self.density,
            *_draw(key, self.size, self.sampler, self.density),
        )


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
    nodes = _from_bits(rule.node_bits)
    inside = np.asarray(box.contains(nodes))
    if not inside.all():
        i = int(np.flatnonzero(~inside)[0])
        raise ValueError(
            f"sampler must return points in the box, got {nodes[i].tolist()}"
        )
    values = np.asarray(jax.vmap(density)(nodes))
    bad = np.flatnonzero(~((values > 0) & np.isfinite(values)))
    if bad.size:
        i = int(bad[0])
        raise ValueError(
            f"density must be positive and finite where sampler draws, got "
            f"{values[i]} at {nodes[i].tolist()}"
        )
    if not np.all(np.asarray(rule.weights) > 0.0):
        raise ValueError(
            f"density must not vary so much that weights vanish, got densities from "
            f"{values.min():g} to {values.max():g}"
        )
    return rule
