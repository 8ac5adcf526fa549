"""Tensor products of one-dimensional rules: spectral accuracy in few dimensions."""

import abc
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float, Int, UInt32

from .._domain import Box
from ._rule import (
    Block,
    QuadratureRule,
    check_size,
    equal_weights,
    from_digits,
    made_nodes,
    not_randomised,
    one_per_run,
    shifted,
)

# One float64 a node must fit in 1 GiB: beyond that no user of a tensor grid gets an
# answer in reasonable time, and a mistyped size should say so at once.
_MOST_NODES = 2**27

MOST_GAUSS_NODES = 2**13


@dataclasses.dataclass(frozen=True)
class AxisRule(abc.ABC):
    """A rule with `n` nodes on one axis of a tensor product."""

    n: int
    name: ClassVar[str]
    most: ClassVar[int] = 2**31 - 1
    "the largest n"
    pieces: ClassVar[int] = 1
    "n must be a multiple of this"
    is_randomised: ClassVar[bool] = False
    "whether a random number moves the nodes"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_size("n", self.n))
        if self.n > self.most:
            raise ValueError(
                f"n must be at most {self.most} for {self.name} nodes, whose cost "
                f"grows with n^2, got {self.n}; use midpoint, or sobol for rough fields"
            )

        if self.n % self.pieces:
            raise ValueError(
                f"n must be a multiple of {self.pieces} for {self.name}, got {self.n}"
            )

    @abc.abstractmethod
    def on_unit_interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes in [0, 1] and weights with sum 1, in float64."""

    @abc.abstractmethod
    def moved(self, nodes: Array, weights: Array, by: Array) -> tuple[Array, Array]:
        """The same nodes and weights, moved by a number in [0, 1]; as they are where
        the rule is not randomised."""


def _not_moved(
    self: AxisRule, nodes: Array, weights: Array, by: Array
) -> tuple[Array, Array]:
    """`moved` of a rule that is not randomised."""
    del self, by
    return nodes, weights


@dataclasses.dataclass(frozen=True)
class Trapezoid(AxisRule):
    """Equispaced, the first node on the wall; exact for trigonometric polynomials of
    degree below `n`. For periodic axes."""

    name = "trapezoid"
    is_randomised = True

    def on_unit_interval(self) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(self.n) / self.n, np.full(self.n, 1.0 / self.n)

    def moved(self, nodes: Array, weights: Array, by: Array) -> tuple[Array, Array]:
        return (nodes + by) % 1.0, weights


@dataclasses.dataclass(frozen=True)
class Midpoint(AxisRule):
    """Equispaced, at the middle of `n` cells; exact for cosines of half-integer
    frequency below `2 n`, so spectral for fields that are even across both walls
    (homogeneous Neumann data)."""

    name = "midpoint"
    moved = _not_moved

    def on_unit_interval(self) -> tuple[np.ndarray, np.ndarray]:
        return (np.arange(self.n) + 0.5) / self.n, np.full(self.n, 1.0 / self.n)


@dataclasses.dataclass(frozen=True)
class GaussLegendre(AxisRule):
    """Exact for polynomials of degree up to `2 n - 1`. For smooth fields without
    symmetry at the walls."""

    name = "gauss_legendre"
    most = MOST_GAUSS_NODES
    moved = _not_moved

    @functools.cache  # noqa: B019 - few and small
    def on_unit_interval(self) -> tuple[np.ndarray, np.ndarray]:
        nodes, weights = scipy.special.roots_legendre(self.n)
        nodes, weights = 0.5 * (nodes + 1.0), weights / math.fsum(weights)
        for array in (nodes, weights):
            array.flags.writeable = False
        return nodes, weights


# The shares of the interval that the border of two pieces may divide it at.
_LEAST_SHARE, _MOST_SHARE = 0.3, 0.7


@dataclasses.dataclass(frozen=True)
class TwoPieces(AxisRule):
    """Gauss-Legendre with `n / 2` nodes on each of two pieces of the interval, whose
    border is in the middle or, once resampled, at random in its middle part. Exact for
    polynomials of degree up to `n - 1`: a Gauss-Legendre rule that can be resampled.
    Beyond that degree the mean over the border has an error of the same order, so that
    resamples show whether a rule resolves a function and do not average its error out.
    """

    name = "two_pieces"
    most = MOST_GAUSS_NODES
    pieces = 2
    is_randomised = True

    def on_unit_interval(self) -> tuple[np.ndarray, np.ndarray]:
        nodes, weights = GaussLegendre(self.n // 2).on_unit_interval()
        both = np.concatenate([0.5 * nodes, 0.5 + 0.5 * nodes])
        return both, np.concatenate([0.5 * weights, 0.5 * weights])

    def moved(self, nodes: Array, weights: Array, by: Array) -> tuple[Array, Array]:
        border = _LEAST_SHARE + (_MOST_SHARE - _LEAST_SHARE) * by
        low = nodes < 0.5
        factor = jnp.where(low, 2.0 * border, 2.0 * (1.0 - border))
        start = jnp.where(low, 0.0, border - factor * 0.5)
        return start + factor * nodes, factor * weights


class TensorRule(QuadratureRule):
    """The tensor product of one `AxisRule` for each axis of a box."""

    axes: tuple[AxisRule, ...] = eqx.field(static=True)
    shift: UInt32[Array, " d"] | None = None

    _spread = one_per_run

    def at(self, index: Int[Array, " n"]) -> Block:
        shape = tuple(axis.n for axis in self.axes)
        columns, weights = [], jnp.ones(index.shape)
        for k, i in enumerate(jnp.unravel_index(index, shape)):
            column, own = (
                jnp.asarray(a, weights.dtype)[i]
                for a in self.axes[k].on_unit_interval()
            )
            if self.shift is not None:
                by = from_digits(self.shift[k])
                column, own = self.axes[k].moved(column, own, by)
            columns.append(column)
            weights = weights * own
        return self.domain.from_unit(jnp.stack(columns, axis=-1)), weights

    @property
    def nodes(self) -> Float[Array | np.ndarray, "M d"]:
        return made_nodes(self)

    @property
    def weights(self) -> Float[Array | np.ndarray, " M"]:
        if self.shift is not None and any(
            isinstance(axis, TwoPieces) for axis in self.axes
        ):
            return self.block(0, self.size)[1]
        columns = [axis.on_unit_interval()[1] for axis in self.axes]
        if all(np.ptp(column) == 0.0 for column in columns):
            return equal_weights(self.size)
        weights = functools.reduce(np.multiply.outer, columns).ravel()
        return weights / weights.sum()

    @property
    def is_randomised(self) -> bool:
        """Whether `resample` moves the nodes: the rule of each axis allows it."""
        return all(axis.is_randomised for axis in self.axes)

    def resample(self, key: Array) -> QuadratureRule:
        return (shifted if self.is_randomised else not_randomised)(self, key)


def tensor(box: Box, axes: Sequence[AxisRule]) -> QuadratureRule:
    """The tensor product of a one-dimensional rule for each axis.

    Examples:
        >>> from sdifp import Box
        >>> from sdifp.quadrature import GaussLegendre, Trapezoid, tensor
        >>> box = Box([0.0, 0.0], [1.0, 1.0], periodic=[True, False])
        >>> tensor(box, [Trapezoid(16), GaussLegendre(4)])
        tensor(64 nodes, 2 dimensions)
    """
    axes = tuple(axes)
    if len(axes) != box.dimension:
        raise ValueError(
            f"a tensor rule needs one rule for each of the {box.dimension} axes of "
            f"the box, got {len(axes)}"
        )
    for k, axis in enumerate(axes):
        if not isinstance(axis, AxisRule):
            raise TypeError(
                f"axes must be rules such as Trapezoid(16), Midpoint(16) or "
                f"GaussLegendre(16), got {axis!r} for axis {k}"
            )
        if isinstance(axis, Trapezoid) and not box.periodic[k]:
            raise ValueError(
                f"the trapezoid rule is for periodic axes, and axis {k} of the box is "
                f"not periodic; use midpoint or gauss_legendre there"
            )
    digits = math.fsum(math.log10(axis.n) for axis in axes)
    if digits > math.log10(_MOST_NODES):
        exact = math.prod(axis.n for axis in axes) if digits < 15 else None
        size = f"{exact:,}" if exact else f"about 10^{digits:.0f}"
        raise ValueError(
            f"this tensor rule in {box.dimension} dimensions would have {size} nodes, "
            f"more than {_MOST_NODES:,}; use lattice, sobol or rule_for, whose size "
            f"does not grow with the dimension"
        )
    names = {axis.name for axis in axes}
    name = names.pop() if len(names) == 1 else "tensor"
    return TensorRule(box, name, math.prod(axis.n for axis in axes), axes)


def trapezoid(box: Box, n: int | Sequence[int] | np.ndarray) -> QuadratureRule:
    """The trapezoid rule on a periodic box, `n` nodes an axis (or one n each).

    Resampleing it shifts the whole grid modulo the box.

    Examples:
        >>> import sdifp
        >>> sdifp.quadrature.trapezoid(sdifp.Box([0.0], [2.0], periodic=True), 64).size
        64
    """
    return tensor(box, _same(box, Trapezoid, n))


def midpoint(box: Box, n: int | Sequence[int] | np.ndarray) -> QuadratureRule:
    """The midpoint rule, `n` nodes an axis (or one n each).

    Examples:
        >>> import sdifp
        >>> sdifp.quadrature.midpoint(sdifp.Box([0.0], [1.0]), 4).nodes.ravel().tolist()
        [0.125, 0.375, 0.625, 0.875]
    """
    return tensor(box, _same(box, Midpoint, n))


def gauss_legendre(box: Box, n: int | Sequence[int] | np.ndarray) -> QuadratureRule:
    """The Gauss-Legendre rule, `n` nodes an axis (or one n each).

    Examples:
        >>> import sdifp
        >>> sdifp.quadrature.gauss_legendre(sdifp.Box.cube(2), 5).size
        25
    """
    return tensor(box, _same(box, GaussLegendre, n))


def _same(
    box: Box, family: type[AxisRule], n: int | Sequence[int] | np.ndarray
) -> tuple[AxisRule, ...]:
    n = n.tolist() if isinstance(n, np.ndarray) else n
    return tuple(map(family, n if isinstance(n, Sequence) else [n] * box.dimension))
