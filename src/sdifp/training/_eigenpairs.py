"""Eigenpairs in turn: each is orthogonal to those found before."""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import check_count
from ..field import evaluate
from ..invariants import Moment, SquaredNorm
from ..problems import Problem
from ._methods import SDIFP
from ._metrics import Interval, Trained, TrainingDiverged, independent_rule
from ._recipe import Recipe, recipe_for
from ._training import Training

# More of it is no error of rounding or of a rule that resolves the functions.
_MOST_OVERLAP = 1e-2
# Values that differ by less, relative to them, are of one eigenvalue.
_SAME = 1e-2


class Combination(eqx.Module):
    """A combination of raw networks, which a trained eigenfunction is."""

    nets: Any
    "networks of one kind, as one with another axis in front of its arrays"
    factors: Float[Array, " n"]

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """The value at one point."""
        arrays, static = eqx.partition(self.nets, eqx.is_array)
        of = lambda arrays: evaluate(eqx.combine(arrays, static), x, None)
        values = jax.vmap(of)(arrays)
        return self.factors.astype(values.dtype) @ values

    def among(self, nets: Any) -> "Combination":
        """The same as one of more networks, those of its own and others after them."""
        count = len(jax.tree.leaves(eqx.filter(nets, eqx.is_array))[0])
        factors = jnp.pad(self.factors, (0, count - len(self.factors)))
        return Combination(nets, factors)


@dataclasses.dataclass(frozen=True)
class Eigenpair:
    """A stationary point of a functional, orthogonal to those before it."""

    value: Interval
    """the functional over the prescribed squared norm: the eigenvalue, where the
    functional is quadratic"""
    function: Combination
    "the eigenfunction, a function of one point"
    overlap: float
    """the largest inner product with those before on an independent rule, over the
    squared norm"""
    trained: Trained


def eigenpairs(
    problem: Problem,
    count: int,
    *,
    recipe: Recipe | None = None,
    key: Array,
) -> Iterator[Eigenpair]:
    """The lowest eigenpairs of a problem, one after the other, as an iterator.

    The first one minimises the functional with the squared norm that the problem
    prescribes. Each of the others minimises it among the functions that are orthogonal
    to all before, exactly on the quadrature rule: hard linear invariants. Where an
    eigenvalue is degenerate, any orthogonal functions of its eigenspace are found.

    **Arguments:**

    - `problem`: a steady problem with a `Functional` and a `squared_norm`, and no other
        prescribed invariant.
    - `count`: how many. A training can stop at a state above the lowest one, which
        then comes later and is warned of: ask for one or two more than are needed.
    - `recipe`: the settings of each training; by default `recipe_for(problem)`.
    - `key`: for all randomness.

    Examples:
        >>> import jax, sdifp
        >>> problem = sdifp.problems.oscillator(1)
        >>> pairs = sdifp.training.eigenpairs(problem, 6, key=jax.random.key(0))
    """
    count = check_count("count", count)
    norms = [i for i in problem.prescribed if isinstance(i, SquaredNorm)]
    if problem.functional is None:
        raise ValueError(
            f"problem must have a Functional for eigenpairs, of which each minimises "
            f"it, and {problem.name} has a Residual"
        )
    if problem.shape:
        raise ValueError(
            f"problem must have one component for eigenpairs, and {problem.name} has "
            f"{len(problem.components)}"
        )
    if len(norms) != 1 or len(problem.prescribed) != 1:
        names = ", ".join(one.name for one in problem.prescribed) or "nothing"
        raise ValueError(
            f"problem must prescribe squared_norm alone for eigenpairs, and "
            f"{problem.name} prescribes {names}"
        )
    if problem.positive:
        raise ValueError(
            f"problem must not be positive for eigenpairs, of which one at most is, "
            f"and {problem.name} is"
        )
    recipe = recipe_for(problem) if recipe is None else recipe
    nodes = min(recipe.nodes, recipe.final_nodes or recipe.nodes)
    if count > nodes:
        raise ValueError(
            f"count must be at most the {nodes} nodes of the rule, on which no more "
            f"functions are orthogonal, got {count}"
        )
    norm = float(norms[0].target.value(None))
    return _in_turn(problem, count, norm, recipe, key)


def _in_turn(
    problem: Problem, count: int, norm: float, recipe: Recipe, key: Array
) -> Iterator[Eigenpair]:
    found: list[Combination] = []
    values: list[Interval] = []
    for k in range(count):
        # Of the same networks all, which are then evaluated once.
        found = [one.among(found[-1].nets) for one in found]
        own = dataclasses.replace(
            problem,
            invariants=(*problem.invariants, *map(_orthogonal, range(k), found)),
            reference=problem.reference if k == 0 else None,
            minimum=problem.minimum if k == 0 else None,
            name=problem.name if k == 0 else f"{problem.name}-state-{k}",
        )
        training = Training(
            own, SDIFP(), recipe=recipe, check=k == 0, key=jax.random.fold_in(key, k)
        )
        try:
            trained = training.result()
        except TrainingDiverged as error:
            raise TrainingDiverged(f"{own.name}: {error}", error.trained) from error
        function = _flattened(trained, found)
        rule = independent_rule(problem, jax.random.fold_in(key, count + k))
        products = _products(function, tuple(found), rule) * problem.domain.volume
        overlap = float(jnp.max(jnp.abs(products), initial=0.0)) / norm
        if not overlap <= _MOST_OVERLAP:
            warnings.warn(
                f"{own.name} is not held apart from the states before it: on a rule "
                f"that the training does not see they overlap by {overlap:.1e} of the "
                f"squared norm; give the recipe more nodes, or a smaller count",
                stacklevel=2,
            )
        value = trained.functional
        assert value is not None
        found_value = Interval(value.value / norm, value.margin / norm)
        _warn_of_order(own.name, found_value, values)
        values.append(found_value)
        yield Eigenpair(found_value, function, overlap, trained)
        found.append(function)


def _warn_of_order(name: str, value: Interval, before: Sequence[Interval]) -> None:
    """Warn where a state is lower than one that was found before: that one was a
    stationary point of the functional and not the lowest state."""
    for j, one in enumerate(before):
        error = value.margin + one.margin + _SAME * abs(one.value)
        if value.value < one.value - error:
            warnings.warn(
                f"{name} has the value {value.value:.6g}, less than state {j}, which "
                f"has {one.value:.6g} and so was not the lowest: ask for more states "
                f"and take the lowest of them, or give the recipe more steps",
                stacklevel=3,
            )
            return


def _orthogonal(k: int, function: Combination) -> Moment:
    return Moment(
        lambda x: function(x), 0.0, name=f"overlap_{k}", vanishes_on_walls=True
    )


def _flattened(trained: Trained, before: list[Combination]) -> Combination:
    """A trained eigenfunction as a combination of raw networks."""
    field = trained.field
    numbers, _ = field.family.tabulated(field.at())
    scale = jnp.ravel(numbers[0])
    stacked = lambda net: jax.tree.map(lambda a: a[None] if eqx.is_array(a) else a, net)
    own = stacked(trained.net)
    if not before:
        return Combination(own, scale)
    # The multiples of those before, which are combinations themselves.
    rest = jnp.ravel(numbers[1]) @ jnp.stack([one.factors for one in before])
    join = lambda a, b: jnp.concatenate([a, b]) if eqx.is_array(a) else a
    nets = jax.tree.map(join, before[-1].nets, own)
    return Combination(nets, jnp.concatenate([rest, scale]))


@eqx.filter_jit
def _products(function: Any, before: tuple[Any, ...], rule: Any) -> Float[Array, " k"]:
    """The means of the products with the functions before."""
    if not before:
        return jnp.zeros(0)
    return rule.mean(lambda x: jnp.stack([function(x) * one(x) for one in before]))
