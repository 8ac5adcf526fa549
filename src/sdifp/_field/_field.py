"""conserve: a network whose integrals hold at every time."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._checks import is_concrete
from .._core import Prescribed, Target, prescribe, time_list
from .._mesh import alone, device_count
from .._projection import (
    AbsoluteFloor,
    Correction,
    Moments,
    RelativeFloor,
    Status,
    correct,
)
from .._quadrature import QuadratureRule
from ._gradient import Exact, GradientMode, MiniBatch, Subsampled
from ._targets import TargetLike, Times, target_at

if TYPE_CHECKING:
    from .._core import Certificate
    from ._freeze import FrozenField


class FieldAt(eqx.Module):
    """A conserved field at one time: the quadrature is done, points cost one
    evaluation of the network and one multiplication and addition."""

    net: Callable[..., Array]
    time: Float[Array, ""] | None
    moments: Moments
    "of the raw network on the rule"
    correction: Correction
    means: tuple[Float[Array, ""] | None, ...]
    "the target mean of each component, if any"
    prescribed: Prescribed = eqx.field(static=True)
    dimension: int = eqx.field(static=True)
    profile: Callable[[Array], Array] | None = eqx.field(static=True, default=None)

    @property
    def scale(self) -> Float[Array, "..."]:
        """alpha at this time, for each component."""
        return self.correction.scale

    @property
    def shift(self) -> Float[Array, "..."]:
        """beta at this time, for each component; it multiplies the profile."""
        return self.correction.shift

    @property
    def status(self) -> Int[Array, "..."]:
        """A `Status` for each component."""
        return self.correction.status

    @property
    def is_hopeless(self) -> Bool[Array, ""]:
        """Whether the targets are not met and training cannot change that. With a
        profile the least second moment depends on the network, so targets that are
        infeasible now may be met later."""
        unmet = self.status >= Status.DEGENERATE
        if self.profile is not None:
            unmet = unmet & (self.status != Status.INFEASIBLE)
        return jnp.any(unmet)

    @alone()
    def __call__(self, x: Float[Array, " d"]) -> Float[Array, "..."]:
        """The field at one point of this time. Raises what `check` does."""
        if jnp.shape(x) != (self.dimension,):
            raise ValueError(
                f"x must be one point of shape ({self.dimension},), got shape "
                f"{jnp.shape(x)}; use jax.vmap for many points"
            )
        self.check()
        raw = _evaluate(self.net, x, self.time)
        phi = None if self.profile is None else self.profile(x)[None]
        return self.correction(raw[..., None], phi)[..., 0]

    def check(self) -> None:
        """Raise `ValueError` if the targets are not met here and the numbers can be
        looked at, that is, outside `jit`."""
        status = _numbers(self.status)
        if status is None or not np.any(status >= Status.DEGENERATE):
            return
        # Batch axes of `vmap` come first, that of several components last.
        rows = status.reshape(-1, len(self.means))
        at, k = np.argwhere(rows >= Status.DEGENERATE)[0].tolist()
        time = None if self.time is None else _numbers(self.time)
        t = None
        if time is not None and (1 in (time.size, len(rows)) or time.size == len(rows)):
            t = float(time.reshape(-1)[min(at, time.size - 1)])
        reason = self.prescribed.reason(
            k,
            Status(int(rows[at, k])),
            lambda target: _value_of(target, t),
            second_moment=self._size(at, k) ** 2,
            dtype=self.moments.pivot.dtype.name,
        )
        raise ValueError(self.prescribed.complaint(k, t, reason))

    def _size(self, at: int, k: int) -> float:
        """About the root mean square of the raw network, of one entry of a batch."""
        pivot, square = (
            np.asarray(_numbers(a)).reshape(-1, len(self.means))[at, k]
            for a in (self.moments.pivot, self.moments.square)
        )
        return float(abs(pivot) + np.sqrt(abs(square)))

    def gauge(self) -> Float[Array, ""]:
        """`(log |scale|)^2 + (Q[f] - m)^2 / V`, summed over components with targets.

        Scale and offset of the raw network do not matter to the field, so they drift
        in training. A small multiple of this (0.01) in the loss pins them softly; V is
        the variance of the corrected field on the rule.
        """
        return jnp.sum(self.gauge_rows() ** 2)

    def gauge_rows(self) -> Float[Array, " n"]:
        """The numbers whose squares `gauge` adds up, for least-squares optimisers."""
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


class ConservedField(eqx.Module):
    """A network with prescribed integrals; made by `conserve`.

    Call it with a point and a time, `u(x, t)`; where many points share a time,
    `u.at(t)` does the quadrature once. Its trainable leaves are those of the network.
    """

    net: Callable[..., Array]
    rule: QuadratureRule
    gradient: GradientMode
    prescribed: Prescribed = eqx.field(static=True)
    profile: Callable[[Array], Array] | None = eqx.field(static=True)
    floor: RelativeFloor | AbsoluteFloor = eqx.field(static=True)
    has_time: bool = eqx.field(static=True)

    def at(self, t: ArrayLike | None = None) -> FieldAt:
        """The field at time t (left out if the network has no time)."""
        if (t is not None) != self.has_time:
            need = "be given" if self.has_time else "be left out: the network has none"
            raise ValueError(f"t must {need}, got {t!r}")
        if t is not None and jnp.shape(t) != ():
            raise ValueError(
                f"t must be one time, got shape {jnp.shape(t)}; use jax.vmap for many"
            )
        time = None if t is None else jnp.asarray(t, jnp.result_type(float, t))
        raw, correction, means = _correction_at(self, time, device_count())
        return FieldAt(
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

    def redraw(self, key: Array, *, rule: bool | None = None) -> "ConservedField":
        """The same field with fresh randomness for one training step; callable inside
        `jit`.

        **Arguments:**

        - `rule`: whether to redraw the rule as well as the nodes of the gradient. By
            default where the rule is randomised, in more than three dimensions.
        """
        for_rule, for_gradient = jax.random.split(key)
        fresh = self.gradient.redraw(for_gradient)
        if rule is None:
            rule = self.rule.dimension > 3 and self.rule.is_randomised
        new = self.rule.redraw(for_rule) if rule else self.rule
        return eqx.tree_at(lambda u: (u.rule, u.gradient), self, (new, fresh))

    def on(self, rule: QuadratureRule) -> "ConservedField":
        """The same network, conserving on another rule of the same box."""
        if rule.domain != self.rule.domain:
            raise ValueError(
                f"rule must live on the box of the field, {self.rule.domain}, got "
                f"{rule.domain}"
            )
        _check_subset(self.gradient, rule)
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

        return certify(
            self, times, key=key, other_rule=other_rule, replicates=replicates
        )

    def check(self, times: Times | None = None) -> None:
        """Raise `ValueError` if a target cannot be met, naming the first time.

        **Arguments:**

        - `times`: the times to look at; left out if the network has no time.
        """
        for t in time_list(times):
            self.at(t).check()


class AtTime(eqx.Module):
    """A function of x and t at one time."""

    function: Any
    time: Array

    @alone()
    def __call__(self, x: Float[Array, " d"]) -> Array:
        """The value at one point."""
        return self.function(x, self.time)


def at_time(function: Any, t: Array) -> FieldAt | AtTime:
    """A function of x and t at one time, with its quadrature done."""
    return (
        function.at(t) if isinstance(function, ConservedField) else AtTime(function, t)
    )


def at_with_series(
    u: ConservedField, t: Float[Array, ""], order: int
) -> tuple[FieldAt, Float[Array, "terms 4"]]:
    """A field with one component at one time, and scale, level, pivot and offset there
    with their derivatives by t up to an order, all from one quadrature."""

    def value(t: Array) -> tuple[Array, FieldAt]:
        now = u.at(t)
        return now.correction.coefficients[None], now

    def with_next(f: Any) -> Any:
        def longer(t: Array) -> tuple[Array, FieldAt]:
            found, change, now = jax.jvp(f, (t,), (jnp.ones_like(t),), has_aux=True)
            return jnp.concatenate([found, change[-1:]]), now

        return longer

    series, now = functools.reduce(lambda f, _: with_next(f), range(order), value)(t)
    now.check()
    return now, series


def _numbers(array: Any) -> np.ndarray | None:
    """The numbers behind the transformations of JAX, batch axes of `vmap` first; None
    where they are not known, inside `jit`. JAX has no public names for its tracers."""
    if hasattr(array, "primal"):
        return _numbers(array.primal)
    if hasattr(array, "batch_dim"):
        inner = _numbers(array.val)
        if inner is None:
            return None
        return np.moveaxis(inner, inner.ndim - array.val.ndim + array.batch_dim, 0)
    return np.asarray(array) if is_concrete(array) else None


def _value_of(target: Target, t: float | None) -> float:
    # Inside `jit`, where a field of outside may be evaluated, too.
    with jax.ensure_compile_time_eval():
        return float(target_at(target, t))


@eqx.filter_jit
def _correction_at(
    field: ConservedField, time: Array | None, devices: int
) -> tuple[Moments, Correction, tuple[Array | None, ...]]:
    # A program for each number of devices, which `jit` does not see by itself.
    del devices
    params, rest = eqx.partition(field.net, eqx.is_inexact_array)
    # On the parameters, never on values: that would cut derivatives in x and t too.
    frozen = eqx.combine(jax.tree.map(jax.lax.stop_gradient, params), rest)

    live, dead = (_OnNodes(net, time, field.profile) for net in (field.net, frozen))
    raw = field.gradient.moments(live, dead, field.rule)
    point = jax.ShapeDtypeStruct((field.rule.dimension,), jnp.result_type(float))
    dtype = jax.eval_shape(lambda x: _evaluate(field.net, x, time), point).dtype
    parts, means = [], []
    for k in range(len(field.prescribed.mass)):
        own = raw if raw.pivot.ndim == 0 else _component(raw, k)
        wanted = field.prescribed.moments(k, lambda target: target_at(target, time))
        mean = wanted.get("mean")
        means.append(None if mean is None else jnp.asarray(mean, own.pivot.dtype))
        parts.append(
            correct(own, **wanted, floor=field.floor, dtype=dtype)
            if wanted
            else _identity(own)
        )
    if raw.pivot.ndim == 0:
        correction = parts[0]
    else:
        correction = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    return raw, correction, tuple(means)


class _OnNodes(eqx.Module):
    """A network at one time as a function of nodes, with the profile there."""

    net: Callable[..., Array]
    time: Array | None
    profile: Callable[[Array], Array] | None = eqx.field(static=True)

    def __call__(self, nodes: Array) -> tuple[Array, Array | None]:
        values = jax.vmap(lambda x: _evaluate(self.net, x, self.time))(nodes)
        phi = None if self.profile is None else jax.vmap(self.profile)(nodes)
        return jnp.moveaxis(values, 0, -1), phi


def _component(raw: Moments, k: int) -> Moments:
    return Moments(
        raw.pivot[k],
        raw.weight,
        raw.profile,
        raw.profile_square,
        raw.residual[k],
        raw.cross[k],
        raw.square[k],
    )


def _identity(raw: Moments) -> Correction:
    zero = jnp.zeros_like(raw.pivot)
    status = jnp.full(zero.shape, Status.REGULAR, jnp.int32)
    return Correction(jnp.ones_like(zero), zero, zero, zero, status)


def _evaluate(net: Callable[..., Array], x: Array, time: Array | None) -> Array:
    return net(x) if time is None else net(x, time)


def conserve(
    net: Callable[..., Array],
    rule: QuadratureRule,
    mass: TargetLike | Sequence[TargetLike | None] | None = None,
    energy: TargetLike | Sequence[TargetLike | None] | None = None,
    *,
    variance: TargetLike | Sequence[TargetLike | None] | None = None,
    profile: Callable[[Array], Array] | None = None,
    gradient: GradientMode = Exact(),
    floor: RelativeFloor | AbsoluteFloor = RelativeFloor(),
    normalised: bool = False,
    times: Times | None = None,
) -> ConservedField:
    """Wrap a network so that its integrals hold on a rule, at every time.

    **Arguments:**

    - `net`: a function `f(x, t)` of one point, shape (d,), and one time, or `f(x)`;
        it returns one number or a vector of components. Parameters must be leaves of
        `net`: an Equinox module, or `jax.tree_util.Partial(apply, parameters)`.
    - `rule`: the quadrature rule on which the integrals hold.
    - `mass`: the integral of u over the box: a number, or a differentiable function
        of t. For several components a list with one entry each, None where there is
        no target; components without targets are left as they are.
    - `energy`: the integral of u^2 (not the mechanical energy), likewise. Either may
        be left out.
    - `variance`: the integral of `(u - m)^2`, where m is the mean of u: that is
        `energy - mass^2 / volume`, instead of the energy. It keeps the digits of a
        variation that is small beside the mean, in single precision most of all.
    - `profile`: the function of x that the shift multiplies; one that vanishes on the
        boundary keeps homogeneous Dirichlet data.
    - `gradient`: how the moments are differentiated by the parameters: `Exact()`,
        `Subsampled(k)`, or for comparison `Detached()`, `MiniBatch(k)`.
    - `floor`: the least variance to divide by.
    - `normalised`: the targets are integrals over the volume of the box, that is,
        means. Needed where the volume overflows, in very high dimension.
    - `times`: times at which to check at once that the targets can be met.

    Examples:
        >>> import jax, jax.numpy as jnp, sdifp
        >>> rule = sdifp.rule_for(sdifp.Box([0.0], [2.0], periodic=True), 64)
        >>> net = lambda x, t: jnp.exp(jnp.sin(jnp.pi * (x[0] - t)))
        >>> u = sdifp.conserve(net, rule, mass=1.0, energy=lambda t: 2.0 + t)
        >>> now = u.at(0.5)
        >>> print(f"{rule.integrate(now):.4f}")
        1.0000
        >>> print(f"{rule.integrate(lambda x: now(x) ** 2):.4f}")
        2.5000
    """
    shape, has_time = _output_shape(net, rule)
    _check_subset(gradient, rule)
    if not normalised:
        limits = jnp.finfo(jnp.result_type(float))
        low, high = np.log(float(limits.tiny)), np.log(float(limits.max))
        if not low < rule.domain.log_volume < high:
            raise ValueError(
                f"the volume of the box, exp({rule.domain.log_volume:.6g}), does not "
                f"fit {limits.dtype}; give means as targets, with "
                f"normalised=True"
            )
    prescribed = prescribe(
        mass,
        energy,
        variance,
        components=shape[0] if shape else None,
        has_time=has_time,
        has_profile=profile is not None,
        volume=1.0 if normalised else rule.domain.volume,
        nodes=rule.size,
    )
    if profile is not None:
        _check_profile(profile, rule)
    field = ConservedField(net, rule, gradient, prescribed, profile, floor, has_time)
    if times is not None:
        field.check(times)
    return field


def _output_shape(
    net: Callable[..., Array], rule: QuadratureRule
) -> tuple[tuple[int, ...], bool]:
    """The shape of the network's output, and whether it takes a time."""
    dtype = jnp.result_type(float)
    point = jax.ShapeDtypeStruct((rule.dimension,), dtype)
    time = jax.ShapeDtypeStruct((), dtype)
    errors = []
    for arguments in ((point, time), (point,)):
        try:
            out = eqx.filter_eval_shape(net, *arguments)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        if not hasattr(out, "shape") or len(out.shape) > 1 or 0 in out.shape:
            got = getattr(out, "shape", type(out).__name__)
            raise ValueError(
                f"net must return one number or a vector of components for one point "
                f"of shape ({rule.dimension},), got {got}; use jax.vmap for many points"
            )
        if not jnp.issubdtype(out.dtype, jnp.floating):
            raise TypeError(f"net must return floating-point numbers, got {out.dtype}")
        return out.shape, len(arguments) == 2
    raise ValueError(
        f"net cannot be evaluated at one point of shape ({rule.dimension},), the "
        f"dimension of the rule, with a time ({errors[0]}) nor without ({errors[1]}); "
        f"wrap a network of batches as lambda x, t: net(x[None], t)[0]; "
        f"use jax.vmap for many points"
    )


def _check_subset(gradient: GradientMode, rule: QuadratureRule) -> None:
    if isinstance(gradient, Subsampled | MiniBatch) and gradient.k > rule.size:
        raise ValueError(
            f"k must be at most the {rule.size} nodes of the rule, got {gradient.k}"
        )


def _check_profile(profile: Callable[[Array], Array], rule: QuadratureRule) -> None:
    point = jax.ShapeDtypeStruct((rule.dimension,), jnp.result_type(float))
    shape = jax.eval_shape(profile, point).shape
    if shape != ():
        raise ValueError(f"profile must return one number, got shape {shape}")
    mean, size = rule.mean(lambda x: jnp.stack([profile(x), jnp.abs(profile(x))]))
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    if float(size) == 0.0:
        raise ValueError("profile must not be zero on every node of the rule")
    if abs(float(mean)) <= 4 * eps * float(size):
        raise ValueError("profile must not have mean zero on the rule")
