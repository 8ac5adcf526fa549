"""A network with prescribed integrals."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import Prescribed
from .._mesh import device_count
from ..invariants import time_list
from ..quadrature import QuadratureRule
from ._family import Family
from ._gradient import GradientMode
from ._interpolated import Interpolated
from ._lagged import Lagged
from ._protocol import Expansion, Field, Profile
from ._slice import FieldSlice, Times

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
    family: Family = eqx.field(static=True)
    has_time: bool = eqx.field(static=True)

    is_slice = False

    @property
    def prescribed(self) -> Prescribed:
        """The invariants and their targets."""
        return self.family.prescribed

    @property
    def profile(self) -> Profile | None:
        """What the shift multiplies; None for 1."""
        return self.family.profile

    @property
    def is_affine(self) -> bool:
        """Whether operators may act on the network and the profile by themselves."""
        return self.family.is_affine

    def at(self, t: ArrayLike | None = None) -> FieldSlice:
        """The field at time t (left out if the network has no time)."""
        self._check_time(t)
        if t is not None and jnp.shape(t) != ():
            raise ValueError(
                f"t must be one time, got shape {jnp.shape(t)}; use jax.vmap for many"
            )
        time = None if t is None else jnp.asarray(t, jnp.result_type(float, t))
        found = _solved_at(self, time, device_count())
        return self.family.slice(self.net, time, self.rule.dimension, found)

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

        def series(t: Array, order: int) -> tuple[Any, FieldSlice]:
            if order == 0:
                now = self.at(t)
                return jax.tree.map(lambda c: c[None], now.coefficients), now
            found, change, now = jax.jvp(
                lambda t: series(t, order - 1), (t,), (jnp.ones_like(t),), has_aux=True
            )
            join = lambda a, b: jnp.concatenate([a, b[-1:]])
            return jax.tree.map(join, found, change), now

        found, now = series(t, order)
        now.check()
        return Expansion(now, found)

    def near(self, series: Any, t: Array | None) -> Callable[..., Array]:
        """The field as a function of (x, t) near a time, from its expansion there."""
        return self.family.near(self.net, series, t)

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
        """Compute the correction once, as a function of time, for inference.

        **Arguments:**

        - `times`: the first and the last time, between which a Chebyshev grid is
            refined until the tolerance is met, or a whole grid of your own. Left out
            if the network has no time.
        - `tolerance`: the error of the interpolated numbers of it, relative,
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
def _solved_at(field: ConservedField, time: Array | None, devices: int) -> Any:
    # A program for each number of devices, which `jit` does not see by itself.
    del devices
    params, rest = eqx.partition(field.net, eqx.is_inexact_array)
    # On the parameters, never on values: that would cut derivatives in x and t too.
    fixed = jax.tree.map(jax.lax.stop_gradient, field.gradient.baseline(params))
    frozen = eqx.combine(fixed, rest)
    return field.family.solve(field.net, frozen, field.rule, field.gradient, time)
