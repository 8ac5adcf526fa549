"""Fields whose components are corrected in groups: linear moments, quadratic forms."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._checks import is_concrete
from .._core import (
    AbsoluteFloor,
    Correction,
    Prescribed,
    RelativeFloor,
    Status,
    solve_group,
)
from ..correction import accumulator
from ..quadrature import QuadratureRule
from ._components import at_time_near, since_time
from ._consistent import minus_combination
from ._family import Family, FrozenForm
from ._gradient import CHUNK, GradientMode
from ._group import (
    Basis,
    GroupFunctions,
    Groups,
    GroupSums,
    basis_on,
)
from ._protocol import Profile, evaluate
from ._slice import FieldSlice, target_at


class GroupCoefficients(NamedTuple):
    """The correction of a group, and the directions that it is made of."""

    correction: Correction
    basis: Basis

    @property
    def shift(self) -> Float[Array, "... p"]:
        """What is added to the scaled network, in the directions."""
        scale, level, pivot, offset = self.correction.coefficients
        return level - scale[..., None] * (pivot + offset)

    def apply(
        self, functions: GroupFunctions, raw: Array, x: Array, t: Array | None
    ) -> Float[Array, " c"]:
        """The components of a group at a point."""
        e = self.basis.at(functions, x, t)
        scale, level, pivot, offset = self.correction.coefficients
        centred = minus_combination(raw.astype(e.dtype), pivot, e) - offset @ e
        return level @ e + scale * centred


_Coefficients = tuple[GroupCoefficients, ...]


class Combined(FrozenForm):
    """A scale for each component, and a multiple of what each linear moment may add."""

    profile: Profile | None = eqx.field(static=True)
    functions: tuple[GroupFunctions, ...] = eqx.field(static=True)

    names: ClassVar[tuple[str, ...]] = ("scales", "multiples")

    def shapes(self, output: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        return output, (sum(len(one.group.linear) for one in self.functions),)

    def raw(self, net: Callable[..., Array], x: Array, t: Array | None) -> Array:
        return evaluate(net, x, t)

    def __call__(
        self, numbers: tuple[Array, ...], raw: Array, x: Array, t: Array | None
    ) -> Array:
        scales, multiples = numbers
        out = [*jnp.atleast_1d(scales * raw)]
        first = 0
        for one in self.functions:
            last = first + len(one.group.linear)
            added = multiples[first:last] @ one.given(x, t)
            for k, value in zip(one.group.components, added, strict=True):
                out[k] = out[k] + value
            first = last
        return out[0] if raw.ndim == 0 else jnp.stack(out)


class ByGroup(Family):
    """`u = sum_k l_k e_k + a (f - sum_k c_k e_k)` for each group of components, with
    one scale a and as many directions e_k as there are linear moments."""

    prescribed: Prescribed = eqx.field(static=True)
    profile: Profile | None = eqx.field(static=True)
    floor: RelativeFloor | AbsoluteFloor = eqx.field(static=True)

    is_affine: ClassVar[bool] = False

    @property
    def functions(self) -> tuple[GroupFunctions, ...]:
        """The weights of each group."""
        count, profile = self.prescribed.components, self.profile
        return tuple(GroupFunctions(g, count, profile) for g in self.prescribed.groups)

    def solve(
        self,
        live: Callable[..., Array],
        frozen: Callable[..., Array],
        rule: QuadratureRule,
        gradient: GradientMode,
        time: Array | None,
    ) -> tuple[Groups, _Coefficients, tuple[Array, ...]]:
        functions = self.functions
        chunk = getattr(gradient, "chunk", CHUNK)
        bases = tuple(basis_on(one, rule, time, chunk) for one in functions)
        summand = lambda net: GroupSums(net, time, bases, functions)
        raw: Groups = gradient.moments(summand(live), summand(frozen), rule, time)
        point = jax.ShapeDtypeStruct((rule.dimension,), jnp.result_type(float))
        dtype = jax.eval_shape(lambda x: evaluate(live, x, time), point).dtype
        found = [
            self._correction(one, basis, part, time, dtype)
            for one, basis, part in zip(functions, bases, raw.parts, strict=True)
        ]
        pairs = zip((c._replace(status=None) for c in found), bases, strict=True)
        coefficients = tuple(GroupCoefficients(*pair) for pair in pairs)
        return raw, coefficients, tuple(c.status for c in found)

    def _correction(
        self,
        functions: GroupFunctions,
        basis: Basis,
        sums: Any,
        time: Array | None,
        dtype: Any,
    ) -> Correction:
        group, kind = functions.group, accumulator()
        mean = lambda i: target_at(i.target, time) / self.prescribed.volume
        means = jnp.zeros(0, kind)
        digits: Array | float = 1.0
        if basis.change is not None:
            given = jnp.stack([jnp.asarray(mean(i), kind) for i in group.linear])
            means = basis.change(given)
            digits = jnp.maximum(1.0, jnp.max(1.0 / jnp.diagonal(basis.change.first)))
        quadratic = group.quadratic
        if not functions.is_oblique:
            # On the whole rule the coupling is the identity.
            sums = sums._replace(overlaps=None, cross=None)
        found = solve_group(
            sums,
            means=means,
            quadratic=None if quadratic is None else jnp.asarray(mean(quadratic), kind),
            rounding=digits * float(jnp.finfo(kind).eps),
            floor=self.floor,
            field=jnp.finfo(dtype),
        )
        if basis.change is None:
            return found
        status = jnp.where(
            basis.change.is_independent, found.status, int(Status.NOT_FINITE)
        )
        return found._replace(status=status.astype(found.status.dtype))

    def slice(
        self, net: Callable[..., Array], time: Array | None, dimension: int, found: Any
    ) -> "GroupSlice":
        raw, coefficients, status = found
        return GroupSlice(
            net=net,
            time=time,
            moments=raw,
            corrections=coefficients,
            statuses=status,
            family=self,
            dimension=dimension,
        )

    def near(
        self, net: Callable[..., Array], series: _Coefficients, time: Array | None
    ) -> "NearOneTime":
        return NearOneTime(net, series, time, self)

    @property
    def frozen(self) -> Combined:
        return Combined(self.profile, self.functions)

    def tabulated(
        self, now: "GroupSlice"
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        multiples, units = [], []
        for one, sums in zip(now.corrections, now.moments.parts, strict=True):
            found = one.basis.multiples(one.shift)
            multiples.append(found)
            if one.basis.change is not None:
                # The scaled network, in units of what is multiplied.
                square = sums.about(jnp.zeros_like(sums.pivot)).square
                size = jnp.abs(one.correction.scale) * jnp.sqrt(square.clip(min=0.0))
                units.append(jnp.maximum(jnp.abs(found), size / one.basis.change.norms))
        join = lambda parts: jnp.concatenate([jnp.zeros(0), *parts])
        return (now.scale, join(multiples)), (jnp.abs(now.scale), join(units))

    def live(self, series: _Coefficients) -> Sequence[Any]:
        # Level, pivot and basis do not depend on the parameters.
        return [
            leaf
            for one in series
            for leaf in (one.correction.scale, one.correction.offset)
        ]

    def applied(
        self, coefficients: _Coefficients, raw: Array, x: Array, t: Array | None
    ) -> Array:
        """The field at a point from the raw network there."""
        entries = [*jnp.atleast_1d(raw)]
        for functions, one in zip(self.functions, coefficients, strict=True):
            own = functions.group.components
            values = one.apply(functions, jnp.stack([entries[k] for k in own]), x, t)
            for k, value in zip(own, values, strict=True):
                entries[k] = value.astype(raw.dtype)
        return entries[0] if raw.ndim == 0 else jnp.stack(entries)


class GroupSlice(FieldSlice):
    """A field that is corrected in groups, at one time."""

    net: Callable[..., Array]
    time: Float[Array, ""] | None
    moments: Groups
    corrections: _Coefficients
    statuses: tuple[Int[Array, "..."], ...]
    family: ByGroup = eqx.field(static=True)
    dimension: int = eqx.field(static=True)

    @property
    def coefficients(self) -> _Coefficients:
        return self.corrections

    @property
    def means(self) -> tuple[Any, ...]:
        return (None,) * self.prescribed.components

    def _by_component(self, numbers: Sequence[Array], rest: Array) -> Array:
        """A number of each group, for each component of the network."""
        out = [rest] * self.prescribed.components
        for functions, number in zip(self.family.functions, numbers, strict=True):
            for k in functions.group.components:
                out[k] = number
        scalar = jnp.ndim(self._raw) == 0
        return out[0] if scalar else jnp.stack(out, -1)

    @property
    def _raw(self) -> Any:
        point = jax.ShapeDtypeStruct((self.dimension,), jnp.result_type(float))
        return jax.eval_shape(lambda x: evaluate(self.net, x, self.time), point)

    @property
    def scale(self) -> Float[Array, "..."]:
        own = [one.correction.scale for one in self.corrections]
        return self._by_component(own, jnp.ones_like(own[0]))

    @property
    def shift(self) -> Float[Array, "..."]:
        """The size of what is added to the scaled network, in the norm of the quadratic
        form; 0 for components without targets."""
        sizes = [_norm(one.shift) for one in self.corrections]
        return self._by_component(sizes, jnp.zeros_like(sizes[0]))

    @property
    def status(self) -> Int[Array, "..."]:
        return self._by_component(self.statuses, jnp.zeros_like(self.statuses[0]))

    @property
    def is_hopeless(self) -> Bool[Array, ""]:
        unmet = []
        for functions, status in zip(self.family.functions, self.statuses, strict=True):
            # With given directions the least value depends on the network.
            later = functions.is_oblique & (status == Status.INFEASIBLE)
            unmet.append((status >= Status.DEGENERATE) & ~later)
        return jnp.any(jnp.stack(unmet))

    def value(self, x: Array) -> Array:
        raw = evaluate(self.net, x, self.time)
        return self.family.applied(self.corrections, raw, x, self.time)

    def error(self, at: int, k: int, t: float | None, status: Status) -> ValueError:
        (group,) = (g for g in self.prescribed.groups if k in g.components)
        value = lambda i: float(target_at(i.target, t))
        form = group.quadratic
        asked = "" if form is None else f"{form.name} = {value(form):g}"
        wanted = {i.name: value(i) for i in (*group.linear, *([form] if form else []))}
        if status == Status.NOT_FINITE:
            bad = [f"{n} = {v:g}" for n, v in wanted.items() if not math.isfinite(v)]
            reason = (
                "the network is not finite on the nodes, the corrected field overflows "
                "its dtype, or the weights depend on each other there"
            )
            if self._is_dependent(self.prescribed.groups.index(group)):
                reason = "the weights depend on each other on the nodes"
            reason = f"{bad[0]} is not finite" if bad else reason
        elif status == Status.DEGENERATE:
            what = "a combination of the weights" if group.linear else "zero"
            reason = f"the network is {what} on the nodes, so no scale gives it {asked}"
        elif status == Status.UNDERFLOW:
            reason = "the network or its square underflows its dtype; rescale it"
        else:
            reason = f"{asked} is below the least that a field with these moments can "
            reason += "have"
            least = self._least(self.prescribed.groups.index(group), at)
            if least is not None:
                reason += f", {least * self.prescribed.volume:g}"
        when = "" if t is None else f" at t = {t:g}"
        return ValueError(f"the targets of {group.names} cannot be met{when}: {reason}")

    def _is_dependent(self, which: int) -> bool:
        """Whether the weights of a group are known to depend on each other."""
        change = self.corrections[which].basis.change
        if change is None or not is_concrete(change.first):
            return False
        return bool(jnp.isfinite(change.norms).all() & ~change.is_independent)

    def _least(self, which: int, at: int) -> float | None:
        """The least quadratic form, for entry `at` of a batch."""
        sums = self.moments.parts[which]
        level = self.corrections[which].correction.level
        if not all(map(is_concrete, jax.tree.leaves((sums, level)))):
            return None
        if not level.shape[-1]:
            return None
        found = np.asarray(sums.least(level)).reshape(-1)
        return float(found[min(at, len(found) - 1)])

    def gauge_rows(self) -> Float[Array, " n"]:
        rows = []
        for functions, one, sums in zip(
            self.family.functions, self.corrections, self.moments.parts, strict=True
        ):
            factor, offset = jnp.abs(one.correction.scale), one.correction.offset
            if functions.group.quadratic is not None:
                live = factor > 0.0
                log = jnp.log(jnp.where(live, factor, 1.0))
                rows.append(jnp.where(live, log, 0.0)[None])
            if functions.group.linear:
                spread = sums.square - jnp.sum(offset * offset)
                if sums.overlaps is not None and sums.cross is not None:
                    left = 2.0 * sums.cross - sums.overlaps @ offset
                    spread = sums.square - offset @ left
                variance = jax.lax.stop_gradient(factor**2 * spread)
                safe = jnp.sqrt(jnp.where(variance > 0.0, variance, 1.0))
                off = one.correction.pivot + offset - one.correction.level
                rows.append(jnp.where(variance > 0.0, off / safe, 0.0))
        return jnp.concatenate(rows)


def _norm(v: Array) -> Array:
    """The length of a vector, with derivative zero where that is zero."""
    square = jnp.sum(v * v, -1)
    return jnp.where(square > 0.0, jnp.sqrt(jnp.where(square > 0.0, square, 1.0)), 0.0)


class NearOneTime(eqx.Module):
    """A field near one time, with given coefficients: polynomials in t, all that
    derivatives in t up to some order see of them."""

    net: Callable[..., Array]
    series: _Coefficients
    "with derivatives in t on the first axis"
    time: Float[Array, ""] | None
    family: ByGroup = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, " d"], t: Float[Array, ""] | None = None
    ) -> Float[Array, "..."]:
        """The value at one point; right to the order of the coefficients in t."""
        known = at_time_near(self.series, since_time(t, self.time))
        return self.family.applied(known, evaluate(self.net, x, t), x, t)
