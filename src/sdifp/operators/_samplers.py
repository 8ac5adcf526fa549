"""What a sampled operator draws: some of its terms, or random directions.

Every estimate is unbiased: its mean over the draws is the whole operator.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._term import Axes, Pairs, PointOperator, Term

Group = Any
"""A kind of terms: "pairs" of coordinates, or ("axes", some coordinates or None)."""


class Sample(eqx.Module):
    """A random estimate of a sum of terms: from all n draws, or from a piece of them,
    `piece[0]` to `piece[1] - 1`."""

    terms: tuple[Term, ...]
    sampler: "Sampler"
    key: Array | None
    n: int = eqx.field(static=True)
    piece: tuple[int, int] | None = eqx.field(static=True, default=None)

    def at_point(self, x: Array, t: Array | None) -> PointOperator:
        """The estimate at a point."""
        return self.sampler.estimate(self, x, t)


class Sampler(eqx.Module):
    """What a sampled operator draws."""

    @abc.abstractmethod
    def estimate(self, sample: Sample, x: Array, t: Array | None) -> PointOperator:
        """The estimate at a point."""


def groups_of(terms: tuple[Term, ...], x: Array, t: Array | None) -> dict[Group, int]:
    """The kinds of terms that are sampled, and how many there are of each."""
    d = x.shape[0]
    out: dict[Group, int] = {}
    for term in terms:
        group = term.group(x, t)
        if group is not None:
            out[group] = d * d if group == "pairs" else len(group[1] or range(d))
    return out


def _chosen(group: Group, which: Array, x: Array) -> Axes | Pairs:
    """The terms of a group with these numbers."""
    d = x.shape[0]
    if group == "pairs":
        return Pairs.of(which // d, which % d, x.dtype)
    return Axes.of(which if group[1] is None else jnp.asarray(group[1])[which], x.dtype)


def _sum(
    sample: Sample, x: Array, t: Array | None, estimate: Callable[[Term, Group], Any]
) -> PointOperator:
    """The sum of the terms: estimated, or exact where they are never sampled."""
    groups = [(term, term.group(x, t)) for term in sample.terms]
    parts = [a.exact(x, t) if g is None else estimate(a, g) for a, g in groups]
    return sum(parts, PointOperator())


class Coordinates(Sampler):
    """`n` of the operator's terms without replacement, times (number of terms) / n: the
    paper's estimate. Terms are coordinates, or pairs of them in mixed and biharmonic
    operators; where an operator has both, `n` of each."""

    def estimate(self, sample: Sample, x: Array, t: Array | None) -> PointOperator:
        key, n = sample.key, sample.n
        assert key is not None
        start, stop = sample.piece or (0, n)
        sizes = groups_of(sample.terms, x, t)
        drawn: dict[Group, Axes | Pairs] = {}
        for number, (group, size) in enumerate(sizes.items()):
            if n > size:
                raise ValueError(
                    f"n must be at most the {size} terms of the operator in "
                    f"{x.shape[0]} dimensions, got {n}"
                )
            which = draw(jax.random.fold_in(key, number), size, n)[start:stop]
            drawn[group] = _chosen(group, which, x)
        scale = {group: size / (stop - start) for group, size in sizes.items()}
        sampled = lambda term, group: term.sampled(x, t, drawn[group], scale[group])
        return _sum(sample, x, t, sampled)


class OneTerm(Sampler):
    """The term with a given number, without a factor, and nothing of what is never
    sampled. For audits."""

    k: Array

    def estimate(self, sample: Sample, x: Array, t: Array | None) -> PointOperator:
        which = jnp.reshape(self.k, 1)
        drawn = {g: _chosen(g, which, x) for g in groups_of(sample.terms, x, t)}
        groups = [(term, term.group(x, t)) for term in sample.terms]
        parts = [a.sampled(x, t, drawn[g], 1.0) for a, g in groups if g is not None]
        return sum(parts, PointOperator())


class Rademacher(Sampler):
    """`n` random vectors of signs: for operators of order one and two, with far less
    noise than coordinates where the terms differ much. First-order terms are exact."""

    def estimate(self, sample: Sample, x: Array, t: Array | None) -> PointOperator:
        return _along(sample, x, t, jax.random.rademacher, gaussian=False)


class Gaussian(Sampler):
    """`n` random Gaussian vectors: for operators of order one and two and the
    biharmonic one. First-order terms are exact."""

    def estimate(self, sample: Sample, x: Array, t: Array | None) -> PointOperator:
        return _along(sample, x, t, jax.random.normal, gaussian=True)


def _along(
    sample: Sample, x: Array, t: Array | None, random: Any, gaussian: bool
) -> PointOperator:
    rows = random(sample.key, (sample.n, x.shape[0]), x.dtype)
    if sample.piece is not None:
        rows = rows[slice(*sample.piece)]
    along = lambda term, group: term.along(x, t, rows, gaussian)
    return _sum(sample, x, t, along)


# Up to this many terms a whole permutation is drawn: a sort, faster than a loop over
# the terms that are asked for.
_PERMUTED = 4096


def draw(key: Array, size: int, n: int) -> Array:
    """`n` different integers below `size`, each ordered choice equally likely."""
    if size > jnp.iinfo(jnp.arange(0).dtype).max:
        raise ValueError(
            f"{size} terms are more than {jnp.arange(0).dtype} can number; switch on "
            f"x64, or use random directions"
        )
    if size <= _PERMUTED:
        return jax.random.permutation(key, size)[:n]
    # Floyd's algorithm makes a uniform set, whose order is then shuffled.
    for_set, for_order = jax.random.split(key)
    last = size - n + jnp.arange(n)
    tries = jax.random.randint(for_set, (n,), 0, last + 1)

    def insert(i: Array, chosen: Array) -> Array:
        taken = jnp.any(chosen == tries[i])
        return chosen.at[i].set(jnp.where(taken, last[i], tries[i]))

    chosen = jax.lax.fori_loop(0, n, insert, jnp.full(n, -1, tries.dtype))
    return jax.random.permutation(for_order, chosen)
