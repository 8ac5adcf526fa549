"""How the moments of a network on a rule are differentiated by its parameters.

Every mode has the exact moments as its value, and exact derivatives in x and t, on all
nodes of the rule (`MiniBatch` aside). They differ in the gradient with respect to the
parameters, and in its cost.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._checks import check_count
from .._mesh import device_local, on_each, share_of, summed
from ..quadrature import QuadratureRule, streamed

# Rows of one evaluation of the network: enough to fill the matrix products, few
# enough for the activations to stay in the cache.
CHUNK = 4096


class Summand(eqx.Module):
    """What is needed of a network on the nodes of a rule, at one time: sums, or values.
    It is a tree of arrays."""

    @abc.abstractmethod
    def whole(self, rule: QuadratureRule, chunk: int) -> Any:
        """On all nodes, `chunk` of which are evaluated at a time."""

    @abc.abstractmethod
    def part(self, nodes: Array, weights: Array) -> Any:
        """On some nodes."""

    @abc.abstractmethod
    def changed(self, whole: Any, frozen: Any, rule: QuadratureRule, some: Any) -> Any:
        """On all nodes, from what `frozen` has there and from the difference of both on
        `some` nodes, their indices and factors on their weights. It estimates the
        gradient with respect to the parameters and, where these are other ones, the
        change of the sums, both without bias."""


class Additive(Summand):
    """Sums over nodes, with a `pivot` through which no derivative flows, `sums`, those
    that depend on the network, linear in the weights, and `with_sums`, the same with
    others."""

    least: ClassVar[int] = 1
    "see `streamed`"

    @abc.abstractmethod
    def about(self, pivot: Any, nodes: Array, weights: Array) -> Any:
        """The sums of some nodes about a given pivot, plainly differentiable."""

    @staticmethod
    @abc.abstractmethod
    def merge(first: Any, second: Any) -> Any:
        """The sums of two parts of a rule together."""

    def whole(self, rule: QuadratureRule, chunk: int) -> Any:
        return streamed(rule, _Block(self), type(self).merge, chunk, self.least)

    def changed(self, whole: Any, frozen: Any, rule: QuadratureRule, some: Any) -> Any:
        sums = lambda one, pivot, *part: one.about(pivot, *part).sums
        change = difference(sums, self, frozen, whole.pivot, rule, some)
        return whole.with_sums(jax.tree.map(jnp.add, whole.sums, change))


def difference(
    sums: Callable[..., Any],
    live: Any,
    frozen: Any,
    at: Any,
    rule: QuadratureRule,
    some: tuple[Array, Array],
) -> Any:
    """By how much sums over nodes differ between two networks, estimated from some
    nodes, their indices and factors on their weights. With the same parameters it is
    zero in value and in every derivative by x and t.

    **Arguments:**

    - `sums`: a function of `live` or `frozen`, of `at`, and of nodes and weights.
    """
    index, factor = some
    k = len(index)

    def of_own(
        at: Any, rule: QuadratureRule, index: Array, factor: Array, *both: Any
    ) -> Any:
        own = share_of(k)
        counted = jnp.where(own < k, factor[own], 0.0)
        nodes, weights = rule.at(index[own])
        with device_local():
            found = [sums(one, at, nodes, counted * weights) for one in both]
        return summed(jax.tree.map(jnp.subtract, *found))

    return on_each(of_own, at, rule, index, factor, live, frozen)


class _Block(eqx.Module):
    summand: Additive

    def __call__(self, nodes: Array, weights: Array) -> Any:
        return self.summand.part(nodes, weights)


class GradientMode(eqx.Module):
    """What `conserve` differentiates the moments by. A random mode has a field `key`,
    one that uses a part of the nodes their number `k`, one that interpolates moments a
    `table` of them, one that leaves the nodes to another mode a field `gradient`."""

    def __check_init__(self) -> None:
        for name in ("every", "k", "times", "chunk"):
            if hasattr(self, name):
                check_count(name, getattr(self, name))

    @abc.abstractmethod
    def moments(
        self,
        live: Summand,
        frozen: Summand,
        rule: QuadratureRule,
        t: Array | None,
    ) -> Any:
        """The sums at a time; `frozen` is `live` with constant parameters."""

    def baseline(self, parameters: Any) -> Any:
        """The parameters of `frozen`: those of `live`, or of moments kept."""
        earlier = getattr(getattr(self, "table", None), "parameters", None)
        return parameters if earlier is None else earlier

    def resample(self, key: Array) -> "GradientMode":
        """The same mode with fresh randomness, for one training step."""
        fresh = {"key": key} if hasattr(self, "key") else {}
        if hasattr(self, "gradient"):
            fresh["gradient"] = self.gradient.resample(key)
        return dataclasses.replace(self, **fresh)

    def check(self, rule: QuadratureRule) -> None:
        """Raise if there are fewer nodes than the gradient is estimated from."""
        if hasattr(self, "gradient"):
            self.gradient.check(rule)
        k = getattr(self, "k", 0)
        if k > rule.size:
            raise ValueError(
                f"k must be at most the {rule.size} nodes of the rule, got {k}"
            )


class Exact(GradientMode):
    """The gradient on all nodes, equal to the one that autodiff finds, in memory
    proportional to `chunk` and not to the size of the rule.

    **Arguments:**

    - `chunk`: how many nodes are evaluated at a time, at the most.
    """

    chunk: int = eqx.field(static=True, default=CHUNK)

    def moments(
        self,
        live: Summand,
        frozen: Summand,
        rule: QuadratureRule,
        t: Array | None,
    ) -> Any:
        return live.whole(rule, self.chunk)


class Subsampled(GradientMode):
    """An unbiased gradient from `k` random nodes; value and derivatives in time stay
    exact on all of them.

    Needs fresh randomness in every step: `u = u.resample(key)` inside the step. Without
    it the gradient is the exact one.

    **Arguments:**

    - `k`: how many nodes the gradient is estimated from.
    - `stratified`: nodes that are spread as evenly as the rule knows how, instead of
        `k` nodes at random: for Sobol points and lattices a smaller rule of their kind
        (far less noise if `k` is a power of two), else one node from each of `k` runs
        of neighbours.
    - `chunk`: how many nodes are evaluated at a time, at the most.
    """

    k: int = eqx.field(static=True)
    stratified: bool = eqx.field(static=True, default=True)
    chunk: int = eqx.field(static=True, default=CHUNK)
    key: Array | None = None

    def moments(
        self,
        live: Summand,
        frozen: Summand,
        rule: QuadratureRule,
        t: Array | None,
    ) -> Any:
        if self.key is None:
            return live.whole(rule, self.chunk)
        whole = frozen.whole(rule, self.chunk)
        some = choose_nodes(self.key, rule, self.k, self.stratified)
        return live.changed(whole, frozen, rule, some)


class Detached(GradientMode):
    """No gradient through the moments. **Biased**: the network is trained as if scale
    and shift were given numbers, which can run away. For comparison.

    **Arguments:**

    - `chunk`: how many nodes are evaluated at a time, at the most.
    """

    chunk: int = eqx.field(static=True, default=CHUNK)

    def moments(
        self,
        live: Summand,
        frozen: Summand,
        rule: QuadratureRule,
        t: Array | None,
    ) -> Any:
        return frozen.whole(rule, self.chunk)


class MiniBatch(GradientMode):
    """Moments, value and gradient, from `k` random nodes alone. **Biased, and not
    exact on the rule**: what a projection of each training batch does. For comparison.

    Needs `u = u.resample(key)` in every step; without it all nodes are used.

    **Arguments:**

    - `k`: how many nodes the moments are taken from.
    """

    k: int = eqx.field(static=True)
    key: Array | None = None

    def moments(
        self,
        live: Summand,
        frozen: Summand,
        rule: QuadratureRule,
        t: Array | None,
    ) -> Any:
        if self.key is None:
            return live.whole(rule, CHUNK)
        index, factor = choose_nodes(self.key, rule, self.k, stratified=False)
        nodes, weights = rule.at(index)
        return live.part(nodes, factor * weights)


def choose_nodes(
    key: Array, rule: QuadratureRule, k: int, stratified: bool
) -> tuple[Int[Array, " k"], Float[Array, " k"]]:
    """`k` different random nodes, and the factors on their weights that make sums over
    them unbiased: the inverse of the probability with which each was chosen."""
    if stratified:
        return rule.sample(key, k)
    index = jax.random.choice(key, rule.size, (k,), replace=False)
    return index, jnp.full(k, rule.size / k)
