"""Any number of linear moments and one quadratic form of a group of components.

With `Q[g] = sum w g`, a field f with values in R^n and given functions psi_k, the
targets are `Q[psi_k . u] = m_k`, and `Q[u^T R u] = s` where R is symmetric and positive
definite. Everything is expressed in *test functions* d_k, combinations of the psi_k,
and *directions* e_k with `Q[d_k . e_l] = delta_kl`. By default `e_k = R^-1 d_k`; the
directions are then orthonormal for `<u, v> = Q[u^T R v]`, and the corrected field

    u = l + a g,   g = f - sum_k Q[d_k . f] e_k,   l = sum_k m_k e_k,
    a = sqrt((s - |m|^2) / <g, g>)

is the nearest point in that norm. (The m_k are those of the test functions.) Solving
for coefficients of the psi_k instead would lose as many digits as their Gram matrix
has; in the orthonormal ones nothing is solved, and nothing is lost.

One definition for all engines, as `_scale` is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ._closed_form import Correction
from ._scale import (
    AbsoluteFloor,
    Array,
    Parts,
    RelativeFloor,
    namespace,
    scale_alone,
    scale_of,
    shift_status,
)

# Test functions whose part outside the span of those before is smaller than this, in
# the norm of the rule, count as dependent: their Gram matrix, scaled to unit diagonal,
# has a condition of 1e12. In single precision rounding alone leaves a part that is
# larger, whose square is a few units of it.
_DEPENDENT, _ROUNDING = 1e-6, 32.0

# Coefficients below this, of functions of norm one, are not named in a dependence.
_NAMED = 1e-3


def forward_substitution(lower: Array, right: Array) -> Array:
    """The solution x of `lower x = right` for a lower triangular matrix; the first axis
    of the right-hand side is solved for.

    Written out, for few rows and as sums and products: these can be differentiated to
    any order in any mode. Its backward error is that of rounding, row by row.
    """
    rows: list[Array] = []
    for k in range(len(lower)):
        left = right[k]
        for j in range(k):
            left = left - lower[k, j] * rows[j]
        rows.append(left / lower[k, k])
    return namespace(right).stack(rows)


class Orthonormalised(NamedTuple):
    """How to turn the psi_k into orthonormal test functions: divide by their norms,
    then solve with two lower triangular matrices (the second one mends the rounding of
    the first, and is nearly the identity)."""

    norms: Array
    first: Array
    second: Array

    @property
    def is_independent(self) -> Array:
        """Whether no function depends on those before."""
        xp = namespace(self.first)
        left = xp.diagonal(self.first)
        return xp.all(left >= _least_part(float(xp.finfo(left.dtype).eps)))

    def __call__(self, rows: Array) -> Array:
        """Apply it to the psi_k, or to their targets, these on the first axis."""
        shape = (len(rows), *[1] * (rows.ndim - 1))
        scaled = rows / self.norms.reshape(shape)
        return forward_substitution(
            self.second, forward_substitution(self.first, scaled)
        )


def orthonormalised(
    gram: Array, again: Callable[[Orthonormalised], Array]
) -> Orthonormalised:
    """The orthonormalisation of functions by their Gram matrix.

    **Arguments:**

    - `gram`: `Q[psi_k^T R^-1 psi_l]`.
    - `again`: the Gram matrix of the functions after a first orthonormalisation, summed
        anew: what is left of it is rounding.
    """
    xp = namespace(gram)
    factor = lambda gram: xp.linalg.cholesky(0.5 * (gram + gram.T))
    norms = xp.sqrt(xp.diagonal(gram))
    # On the device of the matrix.
    eye = xp.diag(xp.ones_like(norms))
    first = factor(gram / (norms[:, None] * norms[None, :]))
    once = Orthonormalised(norms, first, eye)
    return once._replace(second=factor(again(once)))


def _least_part(rounding: float) -> float:
    """The part of a function of norm one outside the span of others, below which it
    depends on them, in sums with this unit of rounding."""
    return max(_DEPENDENT, float(np.sqrt(_ROUNDING * rounding)))


def check_independent(
    names: list[str], gram: np.ndarray, rounding: float = 0.0
) -> None:
    """Raise `ValueError` that names the first invariant which depends on those before.

    **Arguments:**

    - `gram`: `Q[psi_k^T R^-1 psi_l]`.
    - `rounding`: the unit of rounding of its sums, where that is not double precision.
    """
    norms = np.sqrt(np.diag(gram))
    for name, norm in zip(names, norms, strict=True):
        if not norm > 0.0:
            raise ValueError(
                f"weight of {name} must not vanish on all nodes of the rule"
            )
    scaled = gram / np.outer(norms, norms)
    for k in range(1, len(names)):
        before = scaled[:k, :k]
        share = np.linalg.lstsq(before, scaled[:k, k], rcond=None)[0]
        left = 1.0 - 2.0 * share @ scaled[:k, k] + share @ before @ share
        if left < _least_part(rounding) ** 2:
            others = [n for n, c in zip(names, share, strict=False) if abs(c) > _NAMED]
            raise ValueError(
                f"{names[k]} depends on {', '.join(others)} on the nodes of the rule: "
                f"leave one of them out"
            )


def check_definite(
    name: str, matrices: np.ndarray, rounding: float, first: int = 0
) -> None:
    """Raise `ValueError` that names the first of some symmetric matrices, one for each
    node, that is not positive definite.

    **Arguments:**

    - `rounding`: the unit of rounding of their entries. An eigenvalue of no more than
        that may be zero. (Of the matrix with unit diagonal: components may have very
        different sizes.)
    - `first`: the number of the first node.
    """
    n = matrices.shape[-1]
    diagonal = np.diagonal(matrices, axis1=1, axis2=2)
    sizes = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    scaled = matrices / (sizes[:, :, None] * sizes[:, None, :])
    good = (diagonal > 0.0).all(1) & (np.linalg.eigvalsh(scaled)[:, 0] > n * rounding)
    if not good.all():
        node = int(np.argmin(good))
        least = np.linalg.eigvalsh(matrices[node])[0]
        raise ValueError(
            f"{name} must be positive definite on every node, got an eigenvalue of "
            f"{least:.3g} on node {first + node}"
        )


class GroupMoments(NamedTuple):
    """Weighted sums of `g0 = f - sum_k pivot_k e_k`, from which those of f follow
    without cancellation. No derivative flows through the pivot. Directions that are
    orthonormal on the whole rule have neither `cross`, which is `residual`, nor
    `overlaps`, which are the `coupling`."""

    pivot: Array
    "about `Q[d_k . f]`, shape (..., p)"
    residual: Array
    "`sum w d_k . g0`, shape (..., p)"
    square: Array
    "`sum w g0^T R g0`, shape (...)"
    cross: Array | None = None
    "`sum w e_k^T R g0`, shape (..., p)"
    overlaps: Array | None = None
    "`sum w e_k^T R e_l`, shape (p, p)"
    coupling: Array | None = None
    "`sum w d_k . e_l`, shape (p, p): the identity on the whole rule"

    @property
    def sums(self) -> tuple[Array, ...]:
        """Those that depend on the field, linear in the weights."""
        known = (self.residual, self.square)
        return known if self.cross is None else (*known, self.cross)

    def with_sums(self, sums: tuple[Array, ...]) -> "GroupMoments":
        """The same with other such sums."""
        names = ("residual", "square", "cross")
        return self._replace(**dict(zip(names, sums, strict=False)))

    def about(self, pivot: Array) -> "GroupMoments":
        """The same moments, represented about another pivot."""
        assert self.coupling is not None
        step = self.pivot - pivot
        overlaps = self.coupling if self.overlaps is None else self.overlaps
        cross = self.residual if self.cross is None else self.cross
        # Matrices from the right, for steps of many times.
        moved = step @ overlaps.T
        out = self._replace(
            pivot=pivot,
            residual=self.residual + step @ self.coupling.T,
            square=self.square + (step * (2.0 * cross + moved)).sum(-1),
        )
        return out if self.cross is None else out._replace(cross=cross + moved)

    def least(self, means: Array) -> Array:
        """The least quadratic form `<l + a g, l + a g>` with these targets of the test
        functions: `<l, l>`; along given directions at `a = -<g, l>/<g, g>`."""
        dot = lambda a, b: (a * b).sum(-1)
        if self.overlaps is None:
            return dot(means, means)
        assert self.cross is not None
        xp, left = namespace(means), self.cross - self.residual @ self.overlaps
        raw = self.square - dot(self.residual, self.cross + left)
        gain = dot(means, left) ** 2 / xp.where(raw > 0.0, raw, 1.0)
        return dot(means, means @ self.overlaps) - xp.where(raw > 0.0, gain, 0.0)

    def merged(self, other: "GroupMoments", pivot: Array) -> "GroupMoments":
        """The moments of two parts of a rule together, about a pivot."""
        a, b = self.about(pivot), other.about(pivot)
        add = lambda x, y: None if x is None else x + y
        return GroupMoments(pivot, *map(add, a[1:], b[1:]))


def cholesky(matrix: list[list[Array]]) -> list[list[Array]]:
    """The lower triangular factor of a symmetric, positive definite matrix, given by
    its entries: numbers, or arrays with one for each node. Written out, as
    `forward_substitution` is."""
    xp = namespace(matrix[0][0])
    rows: list[list[Array]] = []
    for i, line in enumerate(matrix):
        row: list[Array] = []
        for j in range(i + 1):
            left = line[j]
            for k in range(j):
                left = left - row[k] * (row[k] if i == j else rows[j][k])
            row.append(xp.sqrt(left) if i == j else left / rows[j][j])
        rows.append(row)
    return rows


def solve_positive(matrix: list[list[Array]], right: list[Array]) -> list[Array]:
    """The solution of a linear system with such a matrix, entry by entry."""
    lower, n = cholesky(matrix), len(right)
    half: list[Array] = []
    for i in range(n):
        left = right[i]
        for k in range(i):
            left = left - lower[i][k] * half[k]
        half.append(left / lower[i][i])
    out: list[Array] = [None] * n
    for i in reversed(range(n)):
        left = half[i]
        for k in range(i + 1, n):
            left = left - lower[k][i] * out[k]
        out[i] = left / lower[i][i]
    return out


def solve_group(
    moments: GroupMoments,
    *,
    means: Array,
    quadratic: Array | None,
    free: Array | None = None,
    rounding: float | Array,
    floor: RelativeFloor | AbsoluteFloor,
    nearest: bool = True,
    field: Any,
) -> Correction:
    """The correction of a group: level, pivot and offset are those of the directions,
    on the last axis.

    **Arguments:**

    - `means`: the targets of the test functions, of the shape of the pivot.
    - `quadratic`: the target s, of the shape of the square; None for linear moments
        alone.
    - `free`: `s - |m|^2` for orthonormal directions, where it is known with more
        digits than these two have.
    - `rounding`, `field`: as for `solve`.
    """
    xp = namespace(moments.square)
    pivot, offset, square = moments.pivot, moments.residual, moments.square
    dot = lambda a, b: xp.sum(a * b, -1)
    finite = xp.isfinite(square) & xp.all(xp.isfinite(pivot), -1)
    if quadratic is None:
        one = xp.ones_like(square)
        worst = lambda a: xp.amax(xp.abs(a), -1)
        status = shift_status(worst(means), worst(pivot), worst(offset), field)
        return Correction(one, means, pivot, offset, status)
    shape = (rounding, floor, nearest, field)
    if means.shape[-1] == 0:
        scale, status = scale_alone(square, quadratic, finite, *shape)
        return Correction(scale, means, pivot, offset, status)
    if moments.overlaps is None:
        raw = square - dot(offset, offset)
        along = beyond = xp.zeros_like(square)
        length, whole = dot(means, means), dot(pivot + offset, pivot + offset)
    else:
        assert moments.cross is not None
        of = lambda a: a @ moments.overlaps
        # <e_k, g>
        left = moments.cross - of(offset)
        raw = square - dot(offset, moments.cross + left)
        along, beyond = dot(means, left), dot(pivot + offset, left)
        length = dot(means, of(means))
        whole = dot(pivot + offset, of(pivot + offset))
    raw = raw.clip(min=0.0)
    parts = Parts(
        raw=raw,
        whole=(raw + 2.0 * beyond + whole).clip(min=0.0),
        along=along,
        beyond=beyond,
        free=quadratic - length if free is None else free,
        size=xp.abs(quadratic),
        size_below=0.0,
        level=xp.sqrt(xp.where(length > 0.0, length, 1.0)) * (length > 0.0),
        finite=finite,
    )
    scale, status = scale_of(parts, *shape)
    return Correction(scale, means, pivot, offset, status)
