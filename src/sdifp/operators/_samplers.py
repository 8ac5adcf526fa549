"""What a sampled operator draws: some of its terms, or random directions.

Every estimate is unbiased: its mean over the draws is the whole operator.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._parts import Axes, Pairs, Part
from ._symbol import Symbol

Group = Any
"""A kind of terms: "pairs" of coordinates, or ("axes", some coordinates or None)."""


class Sampler(eqx.Module):
    """What a sampled operator draws."""

    @abc.abstractmethod
    def symbol(
        self,
        family: tuple[Part, ...],
        x: Array,
        t: Array | None,
        key: Array | None,
        n: int,
        piece: tuple[int, int] | None,
    ) -> Symbol:
        """The estimate at a point, from all n draws or a piece of them."""


def groups_of(family: tuple[Part, ...], x: Array, t: Array | None) -> dict[Group, int]:
    """The kinds of terms that are sampled, and how many there are of each."""
    d = x.shape[0]
    out: dict[Group, int] = {}
    for part in family:
        group = part.group(x, t)
        if group is not None:
            out[group] = d * d if group == "pairs" else len(group[1] or range(d))
    return out


def _terms(group: Group, which: Array, x: Array) -> Axes | Pairs:
    """The terms of a group with these numbers."""
    d = x.shape[0]
    if group == "pairs":
        return Pairs.of(which // d, which % d, x.dtype)
    return Axes.of(which if group[1] is None else jnp.asarray(group[1])[which], x.dtype)


class Coordinates(Sampler):
    """`n` of the operator's terms without replacement, times (number of terms) / n: the
    paper's estimate. Terms are coordinates, or pairs of them in mixed and biharmonic
    operators; where an operator has both, `n` of each."""

    def symbol(
        self,
        family: tuple[Part, ...],
        x: Array,
        t: Array | None,
        key: Array | None,
        n: int,
        piece: tuple[int, int] | None,
    ) -> Symbol:
        assert key is not None
        start, stop = (0, n) if piece is None else piece
        sizes = groups_of(family, x, t)
        drawn: dict[Group, Axes | Pairs] = {}
        for number, (group, size) in enumerate(sizes.items()):
            if n > size:
                raise ValueError(
                    f"n must be at most the {size} terms of the operator in "
                    f"{x.shape[0]} dimensions, got {n}"
                )
            which = draw(jax.random.fold_in(key, number), size, n)[start:stop]
            drawn[group] = _terms(group, which, x)
        out = Symbol()
        for part in family:
            group = part.group(x, t)
            if group is None:
                out = out + part.exact(x, t)
            else:
                scale = sizes[group] / (stop - start)
                out = out + part.sampled(x, t, drawn[group], scale)
        return out


class OneTerm(Sampler):
    """The term with a given number, without a factor, and nothing of what is never
    sampled. For audits."""

    k: Array

    def symbol(
        self,
        family: tuple[Part, ...],
        x: Array,
        t: Array | None,
        key: Array | None,
        n: int,
        piece: tuple[int, int] | None,
    ) -> Symbol:
        out = Symbol()
        chosen = {
            g: _terms(g, jnp.reshape(self.k, 1), x) for g in groups_of(family, x, t)
        }
        for part in family:
            group = part.group(x, t)
            if group is not None:
                out = out + part.sampled(x, t, chosen[group], 1.0)
        return out


class Rademacher(Sampler):
    """`n` random vectors of signs: for operators of order one and two, with far less
    noise than coordinates where the terms differ much. First-order terms are exact."""

    def symbol(
        self,
        family: tuple[Part, ...],
        x: Array,
        t: Array | None,
        key: Array | None,
        n: int,
        piece: tuple[int, int] | None,
    ) -> Symbol:
        assert key is not None
        rows = jax.random.rademacher(key, (n, x.shape[0]), x.dtype)
        return _along(family, x, t, rows, piece, gaussian=False)


class Gaussian(Sampler):
    """`n` random Gaussian vectors: for operators of order one and two and the
    biharmonic one. First-order terms are exact."""

    def symbol(
        self,
        family: tuple[Part, ...],
        x: Array,
        t: Array | None,
        key: Array | None,
        n: int,
        piece: tuple[int, int] | None,
    ) -> Symbol:
        assert key is not None
        rows = jax.random.normal(key, (n, x.shape[0]), x.dtype)
        return _along(family, x, t, rows, piece, gaussian=True)


def _along(
    family: tuple[Part, ...],
    x: Array,
    t: Array | None,
    rows: Array,
    piece: tuple[int, int] | None,
    gaussian: bool,
) -> Symbol:
    if piece is not None:
        rows = rows[slice(*piece)]
    out = Symbol()
    for part in family:
        if part.group(x, t) is None:
            out = out + part.exact(x, t)
        else:
            out = out + part.along(x, t, rows, gaussian)
    return out


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
