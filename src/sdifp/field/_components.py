"""Mass, squared norm and variance of each component: scale and shift."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._core import AbsoluteFloor, Correction, Prescribed, RelativeFloor, Status
from ..correction import (
    Moments,
    correct,
    merge_moments,
    moments_about,
    moments_of_part,
)
from ..quadrature import QuadratureRule
from ._family import Affine, Family
from ._gradient import Additive, GradientMode
from ._protocol import Profile, evaluate
from ._slice import FieldSlice, target_at

_Means = tuple[Float[Array, ""] | None, ...]


class ByComponent(Family):
    """`u = alpha f + beta phi`, for each component by itself: the paper's map."""

    prescribed: Prescribed = eqx.field(static=True)
    profile: Profile | None = eqx.field(static=True)
    floor: RelativeFloor | AbsoluteFloor = eqx.field(static=True)

    is_affine: ClassVar[bool] = True

    def solve(
        self,
        live: Callable[..., Array],
        frozen: Callable[..., Array],
        rule: QuadratureRule,
        gradient: GradientMode,
        time: Array | None,
    ) -> tuple[Moments, Correction, _Means]:
        summand = lambda net: _OnNodes(net, time, self.profile)
        raw: Moments = gradient.moments(summand(live), summand(frozen), rule, time)
        point = jax.ShapeDtypeStruct((rule.dimension,), jnp.result_type(float))
        dtype = jax.eval_shape(lambda x: evaluate(live, x, time), point).dtype
        scalar = raw.pivot.ndim == 0
        parts, means = [], []
        for k in range(self.prescribed.components):
            own = raw if scalar else raw.component(k)
            wanted = self.prescribed.moments(k, lambda target: target_at(target, time))
            mean = wanted.get("mean")
            means.append(None if mean is None else jnp.asarray(mean, own.pivot.dtype))
            parts.append(
                correct(own, **wanted, floor=self.floor, dtype=dtype)
                if wanted
                else Correction.identity(own.pivot)
            )
        stack = lambda *leaves: leaves[0] if scalar else jnp.stack(leaves)
        return raw, jax.tree.map(stack, *parts), tuple(means)

    def slice(
        self, net: Callable[..., Array], time: Array | None, dimension: int, found: Any
    ) -> "ComponentSlice":
        raw, correction, means = found
        return ComponentSlice(
            net=net,
            time=time,
            moments=raw,
            correction=correction,
            wanted=means,
            family=self,
            dimension=dimension,
        )

    def near(
        self, net: Callable[..., Array], series: Correction, time: Array | None
    ) -> "NearOneTime":
        return NearOneTime(net, series, time, self.profile)

    @property
    def frozen(self) -> Affine:
        return Affine(self.profile)

    def tabulated(
        self, now: "ComponentSlice"
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        size = jnp.abs(now.scale)
        shifted = size * jnp.sqrt(now.moments.second_moment)
        units = (size, jnp.maximum(jnp.abs(now.shift), shifted))
        return (now.scale, now.shift), units

    def live(self, series: Correction) -> Sequence[Any]:
        # Level and pivot do not depend on the parameters.
        return [series.scale, series.offset]


class ComponentSlice(FieldSlice):
    """A field with scale and shift at one time."""

    net: Callable[..., Array]
    time: Float[Array, ""] | None
    moments: Moments
    correction: Correction
    wanted: _Means
    family: ByComponent = eqx.field(static=True)
    dimension: int = eqx.field(static=True)

    @property
    def coefficients(self) -> Correction:
        """The correction without its status."""
        return Correction(*self.correction.coefficients)

    @property
    def means(self) -> _Means:
        return self.wanted

    @property
    def scale(self) -> Float[Array, "..."]:
        return self.correction.scale

    @property
    def shift(self) -> Float[Array, "..."]:
        return self.correction.shift

    @property
    def status(self) -> Int[Array, "..."]:
        return self.correction.status

    @property
    def is_hopeless(self) -> Bool[Array, ""]:
        # With a profile the least second moment depends on the network, so targets
        # that are infeasible now may be met later.
        unmet = self.status >= Status.DEGENERATE
        if self.profile is not None:
            unmet = unmet & (self.status != Status.INFEASIBLE)
        return jnp.any(unmet)

    def value(self, x: Array) -> Array:
        raw = evaluate(self.net, x, self.time)
        phi = None if self.profile is None else self.profile(x)[None]
        return self.correction(raw[..., None], phi)[..., 0]

    def error(self, at: int, k: int, t: float | None, status: Status) -> ValueError:
        pivot, square = (
            abs(found[at, k])
            for a in (self.moments.pivot, self.moments.square)
            if (found := self.by_entry(a)) is not None
        )
        return self.prescribed.error(
            k,
            t,
            status,
            lambda target: float(target_at(target, t)),
            # About that of the raw network.
            second_moment=float(pivot + np.sqrt(square)) ** 2,
            dtype=self.moments.pivot.dtype.name,
        )

    def gauge_rows(self) -> Float[Array, " n"]:
        scale, raw = jnp.atleast_1d(self.scale), jnp.atleast_1d(self.moments.mean)
        spread = jnp.atleast_1d(self.moments.spread)
        rows = []
        for k, mean in enumerate(self.means):
            # A component without targets has scale 1 and adds nothing.
            factor = jnp.abs(scale[k])
            live = factor > 0.0
            rows.append(jnp.where(live, jnp.log(jnp.where(live, factor, 1.0)), 0.0))
            if mean is not None:
                variance = jax.lax.stop_gradient(factor**2 * spread[k])
                safe = jnp.sqrt(jnp.where(variance > 0.0, variance, 1.0))
                rows.append(jnp.where(variance > 0.0, (raw[k] - mean) / safe, 0.0))
        return jnp.stack(rows)


class _OnNodes(Additive):
    """A network at one time, with the profile of the shift."""

    net: Callable[..., Array]
    time: Array | None
    profile: Profile | None = eqx.field(static=True)

    def _values(self, nodes: Array) -> tuple[Array, Array | None]:
        values = jax.vmap(lambda x: evaluate(self.net, x, self.time))(nodes)
        phi = None if self.profile is None else jax.vmap(self.profile)(nodes)
        return jnp.moveaxis(values, 0, -1), phi

    def part(self, nodes: Array, weights: Array) -> Moments:
        values, profile = self._values(nodes)
        return moments_of_part(values, weights, profile)

    def about(self, pivot: Array, nodes: Array, weights: Array) -> Moments:
        values, profile = self._values(nodes)
        return moments_about(pivot, values, weights, profile)

    @staticmethod
    def merge(first: Moments, second: Moments) -> Moments:
        return merge_moments(first, second)


class NearOneTime(eqx.Module):
    """A corrected field near one time, with given coefficients: polynomials in t, all
    that derivatives in t up to some order see of them."""

    net: Callable[..., Array]
    correction: Correction
    "with derivatives in t on the first axis; the pivot is constant"
    time: Float[Array, ""] | None
    profile: Profile | None = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, " d"], t: Float[Array, ""] | None = None
    ) -> Float[Array, "..."]:
        """The value at one point; right to the order of the coefficients in t."""
        c, since = self.correction, since_time(t, self.time)
        powers = jnp.stack([since**k / math.factorial(k) for k in range(len(c.level))])
        scale, offset = jnp.tensordot(powers, jnp.stack([c.scale, c.offset], 1), 1)
        level = jnp.tensordot(powers, c.level, 1)
        now = Correction(scale, level, c.pivot[0], offset)
        phi = 1.0 if self.profile is None else self.profile(x)
        return now.apply(evaluate(self.net, x, t), phi)


def since_time(t: Array | None, start: Array | None) -> Array:
    """The time that has gone by; zero for a field without time."""
    return jnp.zeros(()) if t is None or start is None else t - start


def at_time_near(series: Any, since: Array) -> Any:
    """A tree of coefficients when some time has gone by: polynomials, from their
    derivatives in t on the first axis."""

    def now(c: Array) -> Array:
        terms = [c[k] * (since**k / math.factorial(k)) for k in range(len(c))]
        return sum(terms[1:], start=terms[0])

    return jax.tree.map(now, series)
