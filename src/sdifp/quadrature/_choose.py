"""rule_for: which rule to use, and why."""

import functools
from collections.abc import Callable, Iterator, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats.qmc
from jaxtyping import Array, Float

from .._domain import Box
from ._lattice import MOST_SEARCHED_NODES, lattice
from ._monte_carlo import monte_carlo
from ._rule import QuadratureRule, check_size, plural
from ._sobol import sobol
from ._tensor import (
    MOST_GAUSS_NODES,
    AxisRule,
    GaussLegendre,
    Midpoint,
    Trapezoid,
    TwoPieces,
    tensor,
)

_TENSOR_DIMENSIONS = 3
# benchmarks/quadrature.py: the lattice is no worse than Sobol points up to here.
_LATTICE_DIMENSIONS = 100

# Where the search for a tolerance begins and gives up, and how many independent
# randomisations judge a randomised rule.
_SMALLEST_AXIS, _SMALLEST, _LARGEST = 2**3, 2**8, 2**18
_REPLICATES = 8


def rule_for(
    box: Box,
    budget: int | None = None,
    *,
    tolerance: float | None = None,
    integrand: Callable[[Array], Array] | None = None,
    neumann: bool | Sequence[bool] | np.ndarray = False,
    randomised: bool = False,
    key: Array | None = None,
    explain: bool = False,
) -> QuadratureRule:
    """The rule that suits a box: tensor products up to three dimensions (trapezoid on
    periodic axes, midpoint on Neumann axes, Gauss-Legendre on the others), then a
    lattice, then Sobol points, then Monte Carlo.

    **Arguments:**

    - `budget`: the largest number of nodes. Give this or `tolerance`.
    - `tolerance`: the error allowed in the mean and in the mean square of
        `integrand`, relative to its root mean square and mean square. It is
        *measured*, by doubling the nodes or from independent randomisations, so it
        holds for that function and not for every other.
    - `integrand`: a function of one point; by default a smooth field of unit size
        that depends on all axes alike.
    - `neumann`: the axes on which the field is even across both walls.
    - `randomised`: whether the rule must allow `resample`, as training on an energy
        needs: on axes that are not periodic Gauss-Legendre on two pieces, whose border
        is random.
    - `key`: needed in more than three dimensions, where rules are randomised.
    - `explain`: print what was chosen and why.

    Examples:
        >>> import sdifp
        >>> box = sdifp.Box([0.0], [2.0], periodic=True)
        >>> rule = sdifp.rule_for(box, 128, explain=True)
        trapezoid, 128 nodes: 1 dimension, so a tensor product, spectral where smooth
        >>> sdifp.rule_for(box, tolerance=1e-5).size
        16
    """
    if (budget is None) == (tolerance is None):
        raise ValueError(
            f"give either budget or tolerance, got budget = {budget} and tolerance = "
            f"{tolerance}"
        )
    if budget is not None and integrand is not None:
        raise ValueError("integrand has no effect with budget; give tolerance")
    even = np.asarray(neumann)
    if even.dtype != np.bool_ or even.shape not in ((), (box.dimension,)):
        raise ValueError(
            f"neumann must be one bool, or one bool for each of the {box.dimension} "
            f"axes, got {neumann!r}"
        )
    even = np.broadcast_to(even, (box.dimension,)) & ~box.periodic
    if box.dimension > _TENSOR_DIMENSIONS and key is None:
        raise ValueError(
            f"key must be given in {box.dimension} dimensions, where the rule is "
            f"randomised, for example key=jax.random.key(0)"
        )
    if budget is not None:
        rule, reason = _build(box, even, check_size("budget", budget), key, randomised)
    else:
        assert tolerance is not None
        if not tolerance > 0.0:
            raise ValueError(f"tolerance must be positive, got {tolerance}")
        function = integrand or functools.partial(_reference, box, even)
        rule, reason = _search(box, even, tolerance, function, key, randomised)
    if explain:
        print(f"{rule.name}, {rule.size} nodes: {reason}")
    return rule


def _build(
    box: Box, even: np.ndarray, budget: int, key: Array | None, randomised: bool
) -> tuple[QuadratureRule, str]:
    d = box.dimension
    if d <= _TENSOR_DIMENSIONS:
        n = int(min(budget, 2**24) ** (1.0 / d) + 1e-9)
        gauss = min(n, MOST_GAUSS_NODES)

        def axis(k: int) -> AxisRule:
            if box.periodic[k]:
                return Trapezoid(n)
            if randomised:
                return TwoPieces(max(2, gauss - gauss % 2))
            return Midpoint(n) if even[k] else GaussLegendre(gauss)

        rule = tensor(box, [axis(k) for k in range(d)])
        axes = plural(d, "dimension")
        return rule, f"{axes}, so a tensor product, spectral where smooth"
    assert key is not None
    size = 1 << (budget.bit_length() - 1)
    if d <= min(_LATTICE_DIMENSIONS, size // 4) and size <= MOST_SEARCHED_NODES:
        return lattice(box, size, key=key), (
            f"{d} dimensions, so a shifted rank-1 lattice, of second order for smooth "
            f"fields"
        )
    if d <= scipy.stats.qmc.Sobol.MAXDIM:
        many = d <= _LATTICE_DIMENSIONS and size > MOST_SEARCHED_NODES
        why = " and more nodes than a lattice is searched for" if many else ""
        reason = f"{d} dimensions{why}, so scrambled Sobol points"
        return sobol(box, size, key=key), reason
    return monte_carlo(box, budget, key=key), (
        f"{d} dimensions, more than any low-discrepancy sequence here has"
    )


def _search(
    box: Box,
    even: np.ndarray,
    tolerance: float,
    function: Callable[[Array], Array],
    key: Array | None,
    randomised: bool,
) -> tuple[QuadratureRule, str]:
    def two_moments(x: Array) -> Array:
        value = jnp.asarray(function(x))
        if value.shape != ():
            raise ValueError(
                f"integrand must return one number, got shape {value.shape}"
            )
        return jnp.stack([value, value * value])

    moments = eqx.filter_jit(lambda rule: rule.mean(two_moments))

    def error(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        # Relative to the field's own size.
        with np.errstate(divide="ignore", invalid="ignore"):
            return (one - other) / np.array([np.sqrt(other[1]), other[1]])

    found, rule, how = np.inf, None, ""
    for rule, reason, how, others in _candidates(box, even, key, randomised):
        here = np.asarray(moments(rule))
        there = np.stack([np.asarray(moments(other)) for other in others])
        if box.dimension <= _TENSOR_DIMENSIONS:
            found = np.max([np.abs(error(here, finer)) for finer in there])
        else:
            # The mean of the replicates stands in for the limit.
            spread = np.sum(error(there, there.mean(axis=0)) ** 2, axis=0)
            found = np.max(np.sqrt(spread / (_REPLICATES - 1)))
        if not np.isfinite(found):
            raise ValueError(
                f"integrand must be finite and not zero everywhere, and its moments "
                f"on {rule!r} are not"
            )
        if found <= tolerance:
            return rule, f"{reason}; error {found:.1e} by {how}"
    raise ValueError(
        f"tolerance = {tolerance:g} was not reached: the error of {rule!r}, the "
        f"largest rule that was tried, is {found:.1e} by {how}"
    )


def _candidates(
    box: Box, even: np.ndarray, key: Array | None, randomised: bool
) -> Iterator[tuple[QuadratureRule, str, str, list[QuadratureRule]]]:
    """Rules of growing size, each with the rules that judge it."""
    d = box.dimension
    if d <= _TENSOR_DIMENSIONS:
        most = MOST_GAUSS_NODES if not np.all(box.periodic | even) else _LARGEST
        n = _SMALLEST_AXIS
        while n**d <= _LARGEST and 3 * n + 2 <= most:
            # Two finer grids, not nested in this one: a wave that one of them cannot
            # tell from a constant is seen by the other.
            build = lambda k: _build(box, even, k**d, key, randomised)
            finer = [build(k)[0] for k in (2 * n + 1, 3 * n + 2)]
            yield *build(n), "two finer grids", finer
            n *= 2
    else:
        assert key is not None
        size = _SMALLEST
        while size <= _LARGEST:
            rule, reason = _build(box, even, size, key, randomised)
            rules = rule.replicates(jax.random.fold_in(key, 1), _REPLICATES)
            yield rule, reason, f"{_REPLICATES} independent randomisations", rules
            size *= 2


def _reference(box: Box, even: np.ndarray, x: Float[Array, " d"]) -> Array:
    """`exp(sum_k c_k(x_k) / sqrt(d))`, with c_k a wave that suits the axis."""
    unit = (x - jnp.asarray(box.lower)) / jnp.asarray(box.width)
    wave = jnp.where(
        box.periodic,
        jnp.cos(2 * jnp.pi * unit),
        jnp.where(even, jnp.cos(jnp.pi * unit), 2.0 * unit - 1.0),
    )
    return jnp.exp(jnp.sum(wave) / np.sqrt(box.dimension))
