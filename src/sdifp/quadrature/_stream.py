"""Sums over the nodes of a rule, a block at a time, on any number of devices."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, UInt32

from .._mesh import device_count, device_local, gathered, on_each, share_of

if TYPE_CHECKING:
    from ._rule import QuadratureRule

Sums = TypeVar("Sums")

Block = Callable[[Array, Array], Sums]
"""What is made of some nodes and their weights."""

# A rule is cut into parts, whose number depends on its size alone. Whoever sums a part,
# it is the same program on the same nodes, and one program merges all parts: so the
# result has the same bits on any number of devices. More parts are larger messages,
# and smaller ones slower matrix products: on two cores 1600 nodes take 1.4 times as
# long at a time as 4096 do.
_PART_NODES, _MOST_PARTS = 4096, 256


def part_count(size: int, devices: int = 1) -> int:
    """How many parts a rule of so many nodes is cut into: the same for all numbers of
    devices but very large ones, each of which has two at the least."""
    most = max(_MOST_PARTS, 2 << (devices - 1).bit_length())
    return min(most, -(-size // _PART_NODES))


def node_numbers(number: Array, step: int) -> UInt32[Array, " step"]:
    """The nodes of one block; unsigned, for with those that fill the last one there may
    be 2^31 and more."""
    first = number.astype(jnp.uint32) * step
    return first + jnp.arange(step, dtype=jnp.uint32)


def streamed(
    rule: "QuadratureRule",
    block: Block[Sums],
    merge: Callable[[Sums, Sums], Sums],
    chunk: int,
    least: int = 1,
) -> Sums:
    """What a function makes of all nodes and weights, at most `chunk` of them at a
    time, merged in an order that does not depend on how many devices there are.

    **Arguments:**

    - `block`: of some nodes and their weights; a module that holds the arrays which it
        needs. It is evaluated again in the backward pass, so that memory does not grow
        with the rule; weights may be zero.
    - `merge`: of two neighbours.
    - `least`: how many parts a device sums at the least: 2 for a block whose bits
        change where the compiler sees that there is one alone.
    """
    size = rule.size
    parts, pieces, step = _cut(size, chunk)
    if parts == pieces == 1:
        with device_local():
            return block(*rule.block(0, size))

    def part_of(rule: "QuadratureRule", block: Block[Sums]) -> Callable[[Array], Sums]:
        block = device_local()(block)

        @jax.checkpoint
        def piece(number: Array) -> Sums:
            index = node_numbers(number, step)
            if parts * pieces * step == size:
                return block(*rule.at(index.astype(int)))
            # The last node stands in for those beyond it, and counts nothing.
            nodes, weights = rule.at(jnp.minimum(index, size - 1).astype(int))
            return block(nodes, jnp.where(index < size, weights, 0.0))

        def part(number: Array) -> Sums:
            first = number * pieces
            if pieces == 1:
                return piece(first)
            more = first + jnp.arange(1, pieces)
            add = lambda sums, number: (merge(sums, piece(number)), None)
            return jax.lax.scan(add, piece(first), more)[0]

        return part

    def all_parts(rule: "QuadratureRule", block: Block[Sums]) -> Any:
        numbers = _own_parts(parts, least if pieces == 1 else 2)
        found = jax.lax.map(part_of(rule, block), numbers)
        # As one array, which is one message: the sums are all that is sent.
        table = gathered(jax.vmap(lambda sums: ravel_pytree(sums)[0])(found))[:parts]
        split = ravel_pytree(jax.tree.map(lambda a: a[0], found))[1]
        return jax.vmap(split)(jax.lax.optimization_barrier(table))

    if parts == 1:
        return part_of(rule, block)(jnp.zeros((), int))
    return _in_order(jax.vmap(merge), on_each(all_parts, rule, block))


def listed(rule: "QuadratureRule", block: Block[Sums], chunk: int) -> Sums:
    """What a function makes of all nodes, with an entry for each of them on the first
    axis, in their order; at most `chunk` of them are evaluated at a time. The same bits
    on any number of devices, each of which has all entries.

    **Arguments:**

    - `block`: of some nodes and their weights, as for `streamed`.
    """
    size = rule.size
    parts, pieces, step = _cut(size, chunk)
    if parts == pieces == 1:
        with device_local():
            return block(*rule.block(0, size))

    def part_of(rule: "QuadratureRule", block: Block[Sums]) -> Callable[[Array], Sums]:
        block = device_local()(block)

        @jax.checkpoint
        def piece(number: Array) -> Sums:
            # The last node stands in for those beyond it, which are cut off.
            index = jnp.minimum(node_numbers(number, step), size - 1)
            return block(*rule.at(index.astype(int)))

        if pieces == 1:
            return lambda number: jax.tree.map(lambda a: a[None], piece(number))
        return lambda number: jax.lax.map(piece, number * pieces + jnp.arange(pieces))

    def all_parts(rule: "QuadratureRule", block: Block[Sums]) -> Sums:
        numbers = _own_parts(parts, 1 if pieces == 1 else 2)
        found = jax.lax.map(part_of(rule, block), numbers)
        return jax.tree.map(lambda a: gathered(a)[:parts], found)

    if parts == 1:
        found = part_of(rule, block)(jnp.zeros((), int))
        return jax.tree.map(lambda a: _joined(a, 2)[:size], found)
    found = jax.lax.optimization_barrier(on_each(all_parts, rule, block))
    return jax.tree.map(lambda a: _joined(a, 3)[:size], found)


def _joined(array: Array, axes: int) -> Array:
    """The same with the first axes as one."""
    return array.reshape(math.prod(array.shape[:axes]), *array.shape[axes:])


def _cut(size: int, chunk: int) -> tuple[int, int, int]:
    """How many parts a rule is cut into, how many pieces each of these, and how many
    nodes a piece has."""
    parts = part_count(size, device_count())
    length = -(-size // parts)
    pieces = -(-length // min(chunk, length))
    return parts, pieces, -(-length // pieces)


def _own_parts(parts: int, least: int) -> Array:
    """The numbers of the parts of this device, so many at the least."""
    # A device that is left over repeats the last part, which is cut off. A loop that
    # runs once would be compiled into another program if there is one inside.
    numbers = jnp.minimum(share_of(parts, least), parts - 1)
    return jax.lax.optimization_barrier(numbers)


def _in_order(merge: Callable[[Any, Any], Any], sums: Any) -> Any:
    """Merge neighbours until one is left; the last of an odd number waits."""
    count = jax.tree.leaves(sums)[0].shape[0]
    if count == 1:
        return jax.tree.map(lambda a: a[0], sums)
    even = 2 * (count // 2)
    merged = merge(*(jax.tree.map(lambda a, k=k: a[k:even:2], sums) for k in (0, 1)))
    rest = jax.tree.map(lambda a: a[even:], sums)
    join = lambda *parts: jnp.concatenate(parts)
    return _in_order(merge, jax.tree.map(join, merged, rest))
