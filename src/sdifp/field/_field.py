"""A network with prescribed integrals."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import Correction, Prescribed
from .._mesh import device_count
from ..correction import AbsoluteFloor, Moments, RelativeFloor, correct
from ..invariants import time_list
from ..quadrature import QuadratureRule
from ._gradient import GradientMode
from ._interpolated import Interpolated
from ._lagged import Lagged
from ._protocol import Expansion, Field, Profile, evaluate
from ._slice import FieldSlice, Times, target_at

if TYPE_CHECKING:
    from .._core import Certificate
    from ._freeze import FrozenField


class ConservedField(Field):
    """A network with prescribed integrals; made by `conserve`.

    Call it with a point and a time, `u(x, t)`; where many points share a time,
    `u.at(t)` does the quadrature once. Its trainable leaves are those of the network.
    """

    net: Callable[..., Array]
    rule: QuadratureRule
    gradient: GradientMode
    prescribed: Prescribed = eqx.field(static=True)
    profile: Profile | None = eqx.field(static=True)
    floor: RelativeFloor | AbsoluteFloor = eqx.field(static=True)
    has_time: bool = eqx.field(static=True)

    is_slice = False

    def at(self, t: ArrayLike | None = None) -> FieldSlice:
        """The field at time t (left out if the network has no time)."""
        self._check_time(t)
        if t is not None and jnp.shape(t) != ():
            raise ValueError(
                f"t must be one time, got shape {jnp.shape(t)}; use jax.vmap for many"
            )
        time = None if t is None else jnp.asarray(t, jnp.result_type(float, t))
        raw, correction, means = _correction_at(self, time, device_count())
        return FieldSlice(
            self.net,
            time,
            raw,
            correction,
            means,
            self.prescribed,
            self.rule.dimension,
            self.profile,
        )

    def __call__(
        self, x: Float[Array, " d"], t: ArrayLike | None = None
    ) -> Float[Array, "..."]:
        """The field at one point and time."""
        return self.at(t)(x)

    def _check_time(self, t: ArrayLike | None) -> None:
        if (t is not None) != self.has_time:
            need = "be given" if self.has_time else "be left out: the network has none"
            raise ValueError(f"t must {need}, got {t!r}")

    def time_for(self, d: int, t: ArrayLike | None) -> ArrayLike | None:
        if d != self.rule.dimension:
            raise ValueError(
                f"x must have the dimension of the field, {self.rule.dimension}, got "
                f"points of dimension {d}"
            )
        self._check_time(t)
        return t

    def expand(self, t: Array | None, order: int) -> Expansion:
        if t is None:
            return self.at().expand(None, 0)

        def series(t: Array, order: int) -> tuple[Array, FieldSlice]:
            if order == 0:
                now = self.at(t)
                return jnp.stack(now.correction.coefficients, -1)[None], now
            found, change, now = jax.jvp(
                lambda t: series(t, order - 1), (t,), (jnp.ones_like(t),), has_aux=True
            )
            return jnp.concatenate([found, change[-1:]]), now

        found, now = series(t, order)
        now.check()
        return Expansion(now, Correction(*jnp.moveaxis(found, -1, 0)))

    def over(self, net: Callable[..., Array]) -> "ConservedField":
        """The same with another network of the same kind."""
        return eqx.tree_at(lambda u: u.net, self, net)

    def with_gradient(self, gradient: GradientMode) -> "ConservedField":
        """The same with another gradient mode."""
        return eqx.tree_at(lambda u: u.gradient, self, gradient)

    def tabulated(self, start: ArrayLike, length: ArrayLike) -> "ConservedField":
        """The same with its moments interpolated over an interval of time, for one
        training step: they are those of this network on this rule. Callable inside
        `jit`. Needs `Interpolated` or `Lagged`, and a network with time.

        **Arguments:**

        - `start`, `length`: of the interval.
        """
        if not isinstance(self.gradient, Interpolated | Lagged):
            raise ValueError(
                f"gradient must be Interpolated or Lagged for a table of moments, got "
                f"{self.gradient!r}"
            )
        if not self.has_time:
            raise ValueError("a network without time has no moments to interpolate")
        table = self.gradient.tabulate(self, start, length)
        return self.with_gradient(self.gradient.keep(table))

    def resample(self, key: Array, *, rule: bool | None = None) -> "ConservedField":
        """The same field with fresh randomness for one training step; callable inside
        `jit`.

        **Arguments:**

        - `rule`: whether to resample the rule as well as the nodes of the gradient. By
            default where the rule is randomised, in more than three dimensions.
        """
        for_rule, for_gradient = jax.random.split(key)
        fresh = self.gradient.resample(for_gradient)
        if rule is None:
            rule = self.rule.dimension > 3 and self.rule.is_randomised
        new = self.rule.resample(for_rule) if rule else self.rule
        return eqx.tree_at(lambda u: (u.rule, u.gradient), self, (new, fresh))

    def on(self, rule: QuadratureRule) -> "ConservedField":
        """The same network, conserving on another rule of the same box."""
        if rule.domain != self.rule.domain:
            raise ValueError(
                f"rule must live on the box of the field, {self.rule.domain}, got "
                f"{rule.domain}"
            )
        self.gradient.check(rule)
        return eqx.tree_at(lambda u: u.rule, self, rule)

    def freeze(
        self, times: Times | None = None, *, tolerance: float | None = None
    ) -> "FrozenField":
        """Compute scale and shift once, as functions of time, for inference.

        **Arguments:**

        - `times`: the first and the last time, between which a Chebyshev grid is
            refined until the tolerance is met, or a whole grid of your own. Left out
            if the network has no time.
        - `tolerance`: the error of the interpolated scale and shift, relative,
            measured half way between the nodes; by default 1e-9, or rounding where
            x64 is off. A feature narrower than the gaps is not seen.
        """
        from ._freeze import freeze

        return freeze(self, times, tolerance)

    def certificate(
        self,
        times: Times | None = None,
        *,
        key: Array,
        other_rule: QuadratureRule | None = None,
        replicates: int = 16,
    ) -> "Certificate":
        """Measure what holds: the error of each integral on the rule, on an
        independent rule, and in the continuum with a confidence interval.

        **Arguments:**

        - `times`: the times to look at; left out if the network has no time.
        - `key`: for the independent rule and the randomisations.
        - `other_rule`: the independent rule; by default a shifted lattice or scrambled
            Sobol points, at least as many as the rule has.
        - `replicates`: independent randomisations of such a rule that estimate the
            continuum.
        """
        from ._certificate import certify

        return certify(self, times, key, other_rule, replicates)

    def check(self, times: Times | None = None) -> None:
        """Raise `ValueError` if a target cannot be met, naming the first time.

        **Arguments:**

        - `times`: the times to look at; left out if the network has no time.
        """
        for t in time_list(times):
            self.at(t).check()


@eqx.filter_jit
def _correction_at(
    field: ConservedField, time: Array | None, devices: int
) -> tuple[Moments, Correction, tuple[Array | None, ...]]:
    # A program for each number of devices, which `jit` does not see by itself.
    del devices
    params, rest = eqx.partition(field.net, eqx.is_inexact_array)
    # On the parameters, never on values: that would cut derivatives in x and t too.
    fixed = jax.tree.map(jax.lax.stop_gradient, field.gradient.baseline(params))
    frozen = eqx.combine(fixed, rest)

    live, dead = (_OnNodes(net, time, field.profile) for net in (field.net, frozen))
    raw = field.gradient.moments(live, dead, field.rule, time)
    point = jax.ShapeDtypeStruct((field.rule.dimension,), jnp.result_type(float))
    dtype = jax.eval_shape(lambda x: evaluate(field.net, x, time), point).dtype
    scalar = raw.pivot.ndim == 0
    parts, means = [], []
    for k in range(field.prescribed.components):
        own = raw if scalar else raw.component(k)
        wanted = field.prescribed.moments(k, lambda target: target_at(target, time))
        mean = wanted.get("mean")
        means.append(None if mean is None else jnp.asarray(mean, own.pivot.dtype))
        parts.append(
            correct(own, **wanted, floor=field.floor, dtype=dtype)
            if wanted
            else Correction.identity(own.pivot)
        )
    stack = lambda *leaves: leaves[0] if scalar else jnp.stack(leaves)
    return raw, jax.tree.map(stack, *parts), tuple(means)


class _OnNodes(eqx.Module):
    """A network at one time as a function of nodes, with the profile there."""

    net: Callable[..., Array]
    time: Array | None
    profile: Callable[[Array], Array] | None = eqx.field(static=True)

    def __call__(self, nodes: Array) -> tuple[Array, Array | None]:
        values = jax.vmap(lambda x: evaluate(self.net, x, self.time))(nodes)
        phi = None if self.profile is None else jax.vmap(self.profile)(nodes)
        return jnp.moveaxis(values, 0, -1), phi
