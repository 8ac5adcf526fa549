"""-1/2 Laplacian(psi) + 1/2 |x|^2 psi = E psi, the harmonic oscillator."""

import itertools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain import Box, check_dimension
from ..operators import Functional
from ._conditions import Dirichlet
from ._data import cube_in_words
from ._problem import Problem

WALL = 7.0


def oscillator(dimension: int = 1) -> Problem:
    """The ground state of the harmonic oscillator,
    `-1/2 Laplacian(psi) + 1/2 |x|^2 psi = E psi`, on [-7, 7]^d with psi = 0 on the
    walls.

    It minimises the integral of `1/2 |grad psi|^2 + 1/2 |x|^2 psi^2` among the
    functions whose squared norm is 1. The reference is that of the whole space,
    `pi^(-d/4) exp(-|x|^2 / 2)` with E = d/2, which is 2e-11 of its maximum at the
    walls. `oscillator_states` gives the next ones.

    **Arguments:**

    - `dimension`: d, up to 3.
    """
    d = check_dimension(dimension)
    if d > 3:
        raise ValueError(f"dimension must be at most 3, got {d}")
    ((energy, psi),) = oscillator_states(d, 1)

    def density(x: Array, u: Array, grad: Array) -> Array:
        return 0.5 * (grad @ grad + (x @ x) * u**2)

    return Problem(
        domain=Box.cube(d, -WALL, WALL),
        equation=Functional(density),
        conditions=[Dirichlet(lambda x: jnp.prod(1.0 - (x / WALL) ** 2))],
        reference=(psi, lambda x: -psi(x)),
        name=f"oscillator-{d}d",
        squared_norm=1.0,
        minimum=energy,
        description=(
            f"The ground state of the harmonic oscillator, "
            f"-1/2 Laplacian(u) + 1/2 |x|^2 u = E u on "
            f"{cube_in_words(-WALL, WALL, d)}, with u = 0 on the "
            f"walls and the integral of u^2 prescribed."
        ),
    )


def oscillator_states(
    dimension: int, count: int
) -> list[tuple[float, Callable[[Array], Array]]]:
    """The lowest energies of the harmonic oscillator in the whole space, in ascending
    order, each with its orthonormal eigenfunction, a function of one point.

    The energies are `n_1 + ... + n_d + d/2`, and the eigenfunctions products of Hermite
    functions. Where energies are equal, the states with the larger `n_1` come first;
    any rotation of them is as good, and `count` may cut them apart.

    **Arguments:**

    - `dimension`: d.
    - `count`: the number of states.

    Examples:
        >>> [energy for energy, psi in oscillator_states(2, 4)]
        [1.0, 2.0, 2.0, 3.0]
    """
    d = check_dimension(dimension)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"count must be a positive integer, got {count!r}")
    numbers = itertools.islice(
        (n for total in itertools.count() for n in _splits(total, d)), count
    )
    return [(sum(n) + 0.5 * d, _state(n)) for n in numbers]


def _splits(total: int, parts: int) -> list[tuple[int, ...]]:
    """The ways to write a number as an ordered sum of others that may be 0."""
    if parts == 1:
        return [(total,)]
    return [
        (first, *rest)
        for first in range(total, -1, -1)
        for rest in _splits(total - first, parts - 1)
    ]


def _state(numbers: tuple[int, ...]) -> Callable[[Array], Array]:
    def psi(x: Array) -> Array:
        return jnp.prod(jnp.stack([_hermite(n, x[k]) for k, n in enumerate(numbers)]))

    return psi


def _hermite(n: int, x: Array) -> Array:
    """The Hermite function of degree n, with the squared norm 1."""
    last, now = jnp.zeros_like(x), jnp.pi**-0.25 * jnp.exp(-0.5 * x**2)
    for k in range(n):
        last, now = now, np.sqrt(2.0 / (k + 1)) * x * now - np.sqrt(k / (k + 1)) * last
    return now
