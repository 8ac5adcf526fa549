"""Equations as functions, and the rules of those that mix the entries of a vector:
products with a matrix, sums and concatenations of coefficients with few entries."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._jet import Jet, add, only_top, or_zero


def evaluate(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """What an equation gives for some arguments."""
    out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]


def as_function(
    eqn: Any, places: list[int], values: Sequence[Any]
) -> tuple[Callable[..., tuple[Any, ...]], tuple[Array, ...]]:
    """An equation as a function of the arguments at some places, and their values."""

    def function(*parts: Array) -> tuple[Any, ...]:
        full = list(values)
        for k, part in zip(places, parts, strict=True):
            full[k] = part
        return tuple(evaluate(eqn, full))

    return function, tuple(values[k] for k in places)


def _contracted(eqn: Any, at: int) -> int | None:
    """The axis of the constant that a vector at the place `at` is contracted with, if
    the equation is such a product without batch axes."""
    if eqn.primitive.name != "dot_general":
        return None
    contract, batch = eqn.params["dimension_numbers"]
    vector = eqn.invars[at].aval
    if vector.ndim != 1 or batch[0] or len(contract[0]) != 1:
        return None
    return int(contract[1 - at][0])


def matrix_product(
    eqn: Any, places: list[int], token: Array | None
) -> Callable[[Array, Array], Array] | None:
    """Rows times a constant matrix, if the equation is a vector times a matrix.

    Under `vmap` XLA sees products of three axes, whose gradient it transposes first:
    1.4 times slower than one product of all rows, measured. A token that differs among
    the points lets the rule below see the points even where the rows do not have them.
    """
    if len(places) != 1:
        return None
    axis = _contracted(eqn, places[0])
    if axis is None or eqn.invars[1 - places[0]].aval.ndim != 2:
        return None
    precision = eqn.params["precision"]
    if places[0] == 1 and isinstance(precision, tuple):
        precision = precision[::-1]

    def product(rows: Array, weight: Array) -> Array:
        return jax.lax.dot_general(
            rows,
            weight,
            (((1,), (axis,)), ((), ())),
            precision=precision,
            preferred_element_type=eqn.params["preferred_element_type"],
        )

    if token is None:
        return product

    @jax.custom_batching.custom_vmap
    def batched(rows: Array, weight: Array, token: Array) -> Array:
        return product(rows, weight)

    @batched.def_vmap
    def rule(size: int, axes: Any, rows: Array, weight: Array, token: Array) -> Any:
        del size, token
        if axes[1]:
            return jax.vmap(product, (0 if axes[0] else None, 0))(rows, weight), True
        if not axes[0]:
            return product(rows, weight), False
        points, directions, width = rows.shape
        out = product(rows.reshape(points * directions, width), weight)
        return out.reshape(points, directions, out.shape[-1]), True

    return lambda rows, weight: batched(rows, weight, token)


def sparse_sum(jet: Jet) -> Jet:
    sums = jax.tree.map(lambda r: jnp.sum(r, 1), jet.lower)
    top, loose = jax.tree.map(jnp.sum, (jet.top, jet.loose))
    return Jet(jnp.sum(jet.primal), sums, add(top, loose))


def sparse_concatenate(jets: list[Jet], places: list[int]) -> Jet | None:
    # What only has a top, such as a time, joins without becoming a direction.
    places = [k for k in places if not only_top(jets[k])]
    parts = [jets[k] for k in places]
    if any(j.index is None for j in parts):
        return None
    primal = jnp.concatenate([j.primal for j in jets])
    starts = [sum(j.primal.shape[0] for j in jets[:k]) for k in places]
    indices = [jnp.asarray(j.index) + s for j, s in zip(parts, starts, strict=True)]

    def entries(*rows: Array | None) -> Array | None:
        if all(r is None for r in rows):
            return None
        zeros = [jnp.zeros(i.shape, primal.dtype) for i in indices]
        return jnp.concatenate(list(map(or_zero, rows, zeros)), 1)

    top = None
    if any(j.top is not None for j in jets):
        top = jnp.concatenate([or_zero(j.top, j.primal) for j in jets])
    lower = tuple(map(entries, *(j.lower for j in parts)))
    loose = entries(*(j.loose for j in parts))
    return Jet(primal, lower, top, jnp.concatenate(indices, 1), loose)


def sparse_product(
    eqn: Any, jets: list[Jet], at: int, token: Array | None
) -> Jet | None:
    axis = _contracted(eqn, at)
    if axis is None or jets[at].index is None:
        return None
    jet, weight = jets[at], jets[1 - at].primal
    product = matrix_product(eqn, [at], token)
    if product is None:
        whole = lambda v: as_function(eqn, [at], [j.primal for j in jets])[0](v)[0]
    else:
        whole = lambda v: product(v[None], weight)[0]
    # Only the rows of the matrix that the entries meet, first by place in the row.
    index = jnp.asarray(jet.index)
    shape = index.shape
    gathered = jnp.moveaxis(jnp.take(weight, index.T.ravel(), axis=axis), axis, 0)
    blocks = gathered.reshape(*shape[::-1], *gathered.shape[1:])

    def rows(entries: Array) -> Array:
        # Written out: a contraction over two or three entries is slow as a product.
        ones = [1] * (gathered.ndim - 1)
        terms = [entries[:, e].reshape(-1, *ones) * blocks[e] for e in range(shape[1])]
        return functools.reduce(jnp.add, terms)

    top = None if jet.top is None else whole(jet.top)
    entries = lambda loose: jnp.tensordot(loose.T.ravel(), gathered, 1)
    loose = jax.tree.map(entries, jet.loose)
    return Jet(whole(jet.primal), jax.tree.map(rows, jet.lower), add(top, loose))
