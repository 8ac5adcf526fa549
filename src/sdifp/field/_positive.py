"""The correction of positive networks: scaled, raised to a power, or tilted."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._core import Prescribed, Status
from ..correction import PositiveMap, accumulator
from ..invariants import Invariant, Mass, Moment, SquaredNorm, Variance
from ..quadrature import QuadratureRule
from ._components import at_time_near, since_time
from ._family import Family, FrozenForm
from ._gradient import GradientMode
from ._node_values import NodeValues, PositiveCoefficients, Solution, psi_at, unknowns
from ._positive_network import Positive
from ._protocol import Profile, evaluate
from ._slice import FieldSlice, target_at


class Exponent(FrozenForm):
    """The logarithm of a factor, and a power or a multiple of each weight."""

    profile: Profile | None = eqx.field(static=True)
    moments: tuple[Moment, ...] = eqx.field(static=True)
    positive: PositiveMap = eqx.field(static=True)
    has_power: bool = eqx.field(static=True)

    names: ClassVar[tuple[str, ...]] = ("levels", "exponents")

    def shapes(self, output: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        return output, (len(self.moments) or 1,)

    def raw(self, net: Any, x: Array, t: Array | None) -> Array:
        # Before the map, which overflows where the field does not.
        return evaluate(net.net, x, t)

    def __call__(
        self, numbers: tuple[Array, ...], raw: Array, x: Array, t: Array | None
    ) -> Array:
        level, exponents = numbers
        if self.has_power:
            found = jnp.exp(exponents[0] * self.positive.log(raw) + level)
        elif self.moments:
            added = exponents @ psi_at(self.moments, x, t)
            found = self.positive.times(raw, level + added, 0.0)
        else:
            found = self.positive.times(raw, level, 0.0)
        return found.astype(raw.dtype)


class ByExponent(Family):
    """`u = c f`, `u = c f^q` or `u = c f e^(lambda . psi)` for a positive network f."""

    prescribed: Prescribed = eqx.field(static=True)
    profile: Profile | None = eqx.field(static=True)
    positive: PositiveMap = eqx.field(static=True)

    is_affine: ClassVar[bool] = False

    def _only(self, *kinds: type) -> Invariant | None:
        """The invariant of one of these kinds."""
        found = [i for i in self.prescribed.invariants if isinstance(i, kinds)]
        return found[0] if found else None

    @property
    def _mass(self) -> Invariant:
        found = self._only(Mass)
        assert found is not None
        return found

    @property
    def _quadratic(self) -> Invariant | None:
        return self._only(SquaredNorm, Variance)

    @property
    def _moments(self) -> tuple[Moment, ...]:
        return tuple(i for i in self.prescribed.invariants if isinstance(i, Moment))

    def _mean(self, invariant: Invariant, time: Array | None) -> Array:
        value = target_at(invariant.target, time)
        return jnp.asarray(value / self.prescribed.volume, accumulator())

    def _ratio(self, time: Array | None, mean: Array) -> Array | None:
        """`log(s / m^2)`, from a variance where there is one: it keeps its digits."""
        if self._quadratic is None:
            return None
        wanted = self.prescribed.moments(0, lambda target: target_at(target, time))
        variance = wanted.get("variance")
        if variance is None:
            s = jnp.asarray(wanted["second_moment"], mean.dtype)
            variance = s - mean**2
            eps = float(jnp.finfo(mean.dtype).eps)
            variance = jnp.where(jnp.abs(variance) <= 4.0 * eps * s, 0.0, variance)
        return jnp.log1p(jnp.asarray(variance, mean.dtype) / mean**2)

    def solve(
        self,
        live: Callable[..., Array],
        frozen: Callable[..., Array],
        rule: QuadratureRule,
        gradient: GradientMode,
        time: Array | None,
    ) -> Solution:
        mean, moments = self._mean(self._mass, time), self._moments
        targets = [self._mean(one, time) / mean for one in moments]
        point = jax.ShapeDtypeStruct((rule.dimension,), jnp.result_type(float))
        dtype = jax.eval_shape(lambda x: evaluate(live, x, time), point).dtype

        def values(net: Any) -> NodeValues:
            return NodeValues(
                net=net.net,
                time=time,
                mean=mean,
                ratio=self._ratio(time, mean),
                targets=jnp.stack(targets) if targets else jnp.zeros(0, mean.dtype),
                positive=self.positive,
                moments=moments,
                field=jnp.finfo(dtype),
            )

        found: Solution = gradient.moments(values(live), values(frozen), rule, time)
        return found

    def slice(
        self, net: Any, time: Array | None, dimension: int, found: Any
    ) -> "PositiveSlice":
        return PositiveSlice(
            net=net, time=time, moments=found, family=self, dimension=dimension
        )

    def near(
        self, net: Any, series: PositiveCoefficients, time: Array | None
    ) -> "NearOneTime":
        return NearOneTime(net, series, time, self)

    @property
    def frozen(self) -> Exponent:
        power = self._quadratic is not None
        return Exponent(None, self._moments, self.positive, power)

    def tabulated(
        self, now: "PositiveSlice"
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        level, *rest = now.coefficients.multiples
        # A field that is scaled alone has the power one.
        exponents = jnp.atleast_1d(rest[0]) if rest else jnp.ones(1, level.dtype)
        # Errors of the logarithm of the field are relative errors of the field.
        one = jnp.ones_like(level)
        size = 1.0 + jnp.abs(now.moments.pivot)[None]
        if self._moments:
            bounds = now.moments
            size = jnp.maximum(jnp.abs(bounds.least), jnp.abs(bounds.most))
        return (level, exponents), (one, 1.0 / size)

    def live(self, series: PositiveCoefficients) -> Sequence[Any]:
        # Pivot and test functions do not depend on the parameters.
        return unknowns(series)

    def applied(
        self, coefficients: PositiveCoefficients, raw: Array, x: Array, t: Array | None
    ) -> Array:
        """The field at a point from the network before the map there."""
        psi = psi_at(self._moments, x, t) if self._moments else None
        z = raw.astype(accumulator())
        return coefficients.apply(self.positive, z, psi).astype(raw.dtype)


class PositiveSlice(FieldSlice):
    """A positive field at one time."""

    net: Positive
    time: Float[Array, ""] | None
    moments: Solution
    family: ByExponent = eqx.field(static=True)
    dimension: int = eqx.field(static=True)

    @property
    def coefficients(self) -> PositiveCoefficients:
        return self.moments.coefficients

    @property
    def means(self) -> tuple[Any, ...]:
        return (self.moments.wanted.mean,)

    @property
    def scale(self) -> Float[Array, ""]:
        """What multiplies the network, its power or the tilted network."""
        return jnp.exp(self.coefficients.correction.level)

    @property
    def shift(self) -> Float[Array, ""]:
        """Zero: a positive field is not shifted."""
        return jnp.zeros_like(self.scale)

    @property
    def status(self) -> Int[Array, ""]:
        return self.moments.status

    @property
    def is_hopeless(self) -> Bool[Array, ""]:
        return self.status >= Status.DEGENERATE

    def value(self, x: Array) -> Array:
        raw = evaluate(self.net.net, x, self.time)
        return self.family.applied(self.coefficients, raw, x, self.time)

    def gauge_rows(self) -> Float[Array, " n"]:
        _, _, power, tilt = self.coefficients.correction
        rows = [self.coefficients.correction.level[None]]
        if power is not None:
            rows.append(jnp.log(jnp.where(power > 0.0, power, 1.0))[None])
        if tilt is not None:
            rows.append(tilt)
        return jnp.concatenate(rows)

    def error(self, at: int, k: int, t: float | None, status: Status) -> ValueError:
        del k
        given = self.prescribed.invariants
        wanted = {i.name: float(target_at(i.target, t)) for i in given}
        lacking = {n: v for n, v in wanted.items() if not math.isfinite(v)}
        when = "" if t is None else f" at t = {t:g}"
        names = ", ".join(f"{n} = {v:g}" for n, v in wanted.items())
        if lacking:
            reason = f"{next(iter(lacking))} is not finite"
        elif status == Status.NOT_FINITE:
            reason = (
                "the network is not finite on the nodes, or the corrected field "
                "overflows its dtype"
            )
        elif status == Status.UNDERFLOW:
            reason = "the corrected field underflows its dtype; rescale it"
        elif wanted["mass"] <= 0.0:
            reason = "the mass of a positive field must be positive"
        elif status == Status.DEGENERATE and self.family._quadratic is None:
            reason = "the network is zero on the nodes, so no scale gives it a mass"
        elif status == Status.DEGENERATE:
            reason = "the network is constant on the nodes, so no power changes it"
        else:
            reason = self._bounds(wanted, at)
        return ValueError(f"the targets {names} cannot be met{when}: {reason}")

    def _bounds(self, wanted: dict[str, float], at: int) -> str:
        """What the targets must be for this network, for entry `at` of a batch."""
        count, rows = self.moments.least.shape[-1], []
        for bound in (self.moments.least, self.moments.most):
            table = np.asarray(self.by_entry(bound)).reshape(-1, count)
            rows.append(table[min(at, len(table) - 1)])
        least, most = rows
        mass, volume = wanted["mass"], self.prescribed.volume
        form = self.family._quadratic
        if form is not None:
            unit = mass * mass / volume
            gone = 1.0 if isinstance(form, Variance) else 0.0
            low, high = (unit * (float(b[0]) - gone) for b in (least, most))
            return (
                f"{form.name} of the powers of this network is above {low:.6g} and "
                f"below {high:.6g}, where that is the squared mass over the volume and "
                f"over the weight of the nodes where the network is largest"
            )
        found = [
            f"{m.name} / mass = {wanted[m.name] / mass:.6g} and its weight between "
            f"{low:.6g} and {high:.6g}"
            for m, low, high in zip(self.family._moments, least, most, strict=True)
        ]
        return (
            "the moments over the mass must be in the interior of the convex hull of "
            f"their weights on the nodes; {', '.join(found)}"
        )


class NearOneTime(eqx.Module):
    """A positive field near one time, with given coefficients: polynomials in t, all
    that derivatives in t up to some order see of them."""

    net: Positive
    series: PositiveCoefficients
    "with derivatives in t on the first axis"
    time: Float[Array, ""] | None
    family: ByExponent = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, " d"], t: Float[Array, ""] | None = None
    ) -> Float[Array, ""]:
        """The value at one point; right to the order of the coefficients in t."""
        known = at_time_near(self.series, since_time(t, self.time))
        return self.family.applied(known, evaluate(self.net.net, x, t), x, t)
