"""Rules on stored points: the user's own, Halton's, and importance samples."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats.qmc
from jaxtyping import Array, Float

from .._checks import check_floating, check_weights
from .._domain import Box
from ._rule import QuadratureRule, check_size, equal_weights, seed_from


def _slice(array: Array | np.ndarray, start: int | Array, length: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(jnp.asarray(array), start, length)


class PointsRule(QuadratureRule):
    """Stored nodes and weights, and the function that draws new ones, if any."""

    stored_nodes: Float[Array | np.ndarray, "M d"]
    stored_weights: Float[Array | np.ndarray, " M"]
    draw: Callable[[Array], tuple[Array, Array]] | None = eqx.field(
        static=True, default=None
    )

    @property
    def nodes(self) -> Float[Array | np.ndarray, "M d"]:
        return self.stored_nodes

    @property
    def weights(self) -> Float[Array | np.ndarray, " M"]:
        return self.stored_weights

    def block(
        self, start: int | Array, length: int
    ) -> tuple[Float[Array, "length d"], Float[Array, " length"]]:
        nodes = _slice(self.stored_nodes, start, length)
        return nodes, _slice(self.stored_weights, start, length)

    def redraw(self, key: Array) -> QuadratureRule:
        if self.draw is None:
            return super().redraw(key)
        return PointsRule(self.domain, self.name, self.size, *self.draw(key), self.draw)


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
        return PointsRule(box, name, len(nodes), nodes, equal_weights(len(nodes)))
    weights = check_weights(weights, len(nodes))
    return PointsRule(box, name, len(nodes), nodes, weights / weights.sum())


class HaltonRule(QuadratureRule):
    """Scrambled Halton points, shifted modulo the box by every redraw."""

    unit: Float[Array | np.ndarray, "M d"]
    shift: Float[Array | np.ndarray, " d"]

    def block(
        self, start: int | Array, length: int
    ) -> tuple[Float[Array, "length d"], Float[Array, " length"]]:
        unit = (_slice(self.unit, start, length) + jnp.asarray(self.shift)[None]) % 1.0
        return self.domain.from_unit(unit), jnp.full(length, 1.0 / self.size)

    def redraw(self, key: Array) -> QuadratureRule:
        shift = jax.random.uniform(key, (self.dimension,))
        return HaltonRule(self.domain, self.name, self.size, self.unit, shift)


def halton(box: Box, size: int, *, key: Array) -> QuadratureRule:
    """`size` scrambled Halton nodes with equal weights; any size, few dimensions.

    Examples:
        >>> import jax, sdifp
        >>> sdifp.halton(sdifp.Box.cube(3), 1000, key=jax.random.key(0))
        halton(1000 nodes, 3 dimensions)
    """
    engine = scipy.stats.qmc.Halton(box.dimension, scramble=True, rng=seed_from(key))
    size = check_size("size", size)
    unit = engine.random(size)
    return HaltonRule(box, "halton", size, unit, np.zeros(box.dimension))


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
    with a bias `O(1/size)`; averages over redraws keep that bias.

    Examples:
        >>> import jax, sdifp
        >>> import jax.numpy as jnp
        >>> rule = sdifp.importance(
        ...     sdifp.Box([0.0], [1.0]), 20_000,
        ...     sampler=lambda k: jnp.sqrt(jax.random.uniform(k, (1,))),
        ...     density=lambda x: 2 * x[0],
        ...     key=jax.random.key(0),
        ... )
        >>> abs(float(rule.mean(lambda x: x[0])) - 0.5) < 0.02
        True
    """
    size = check_size("size", size)

    def sample(key: Array) -> tuple[Array, Array]:
        nodes = jax.vmap(sampler)(jax.random.split(key, size))
        return nodes, jax.vmap(density)(nodes)

    def draw(key: Array) -> tuple[Array, Array]:
        nodes, values = sample(key)
        # Divided first by the smallest, so that no weight overflows.
        weights = jnp.min(values) / values
        return nodes, weights / jnp.sum(weights)

    point = jax.eval_shape(sampler, key)
    if point.shape != (box.dimension,):
        raise ValueError(
            f"sampler must return one point of shape ({box.dimension},), got "
            f"{point.shape}"
        )
    nodes, values = sample(key)
    if values.shape != (size,):
        raise ValueError(
            f"density must return one number a point, got shape {values.shape[1:]}"
        )
    inside = np.asarray(box.contains(nodes))
    if not inside.all():
        i = int(np.flatnonzero(~inside)[0])
        raise ValueError(
            f"sampler must return points in the box, got {nodes[i].tolist()}"
        )
    bad = np.flatnonzero(~((np.asarray(values) > 0) & np.isfinite(values)))
    if bad.size:
        i = int(bad[0])
        raise ValueError(
            f"density must be positive and finite where sampler draws, got "
            f"{values[i]} at {nodes[i].tolist()}"
        )
    weights = np.asarray(draw(key)[1], np.float64)
    return PointsRule(box, "importance", size, nodes, weights / weights.sum(), draw)
