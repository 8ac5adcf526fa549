"""conserve: a network whose integrals hold at every time."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._checks import (
    check_profile,
    check_real,
    check_volume,
    first_line,
    is_concrete,
    output_of,
)
from .._core import prescribe
from ..correction import AbsoluteFloor, RelativeFloor
from ..invariants import Invariant, entries, time_list
from ..quadrature import QuadratureRule
from ._certificate import check_densities
from ._check_groups import check_groups
from ._check_positive import check_one_component, check_positive_field
from ._components import ByComponent
from ._family import Family
from ._field import ConservedField
from ._gradient import Exact, GradientMode
from ._grouped import ByGroup
from ._positive import ByExponent
from ._positive_network import Positive
from ._slice import TargetLike, Times

TargetsLike = TargetLike | Sequence[TargetLike | None] | None


def conserve(
    net: Callable[..., Array],
    rule: QuadratureRule,
    mass: TargetsLike = None,
    squared_norm: TargetsLike = None,
    *,
    variance: TargetsLike = None,
    invariants: Sequence[Invariant] = (),
    profile: Callable[[Array], Array] | None = None,
    gradient: GradientMode = Exact(),
    floor: RelativeFloor | AbsoluteFloor = RelativeFloor(),
    times: Times | None = None,
) -> ConservedField:
    """Wrap a network so that its integrals hold on a rule, at every time.

    **Arguments:**

    - `net`: a function `f(x, t)` of one point, shape (d,), and one time, or `f(x)`;
        it returns one number or a vector of components. Parameters must be leaves of
        `net`: an Equinox module, or `jax.tree_util.Partial(apply, parameters)`. What
        `positive` makes stays positive: it is not shifted, but scaled (mass), raised
        to a power (mass and squared norm) or tilted (mass and moments).
    - `rule`: the quadrature rule on which the integrals hold.
    - `mass`: the integral of u over the box: a number, or a differentiable function
        of t. For several components a list with one entry each, None where there is
        no target; components without targets are left as they are.
    - `squared_norm`: the integral of u^2, likewise. Either may be left out.
    - `variance`: the integral of `(u - m)^2`, where m is the mean of u: that is
        `squared_norm - mass^2 / volume`, instead of the squared norm. It keeps the
        digits of a variation that is small beside the mean, in single precision most
        of all.
    - `invariants`: the same as objects, `Mass(1.0)`, `SquaredNorm(2.0, component=1)`,
        of which `mass`, `squared_norm` and `variance` are the short form; and moments
        with weights, totals over components, and quadratic forms (`Moment`,
        `Quadratic`, `DirichletEnergy`, `QuadraticForm`). One without a target, such as
        a `Density`, is measured and not enforced: the certificate has its value and
        drift.
    - `profile`: the function of x that the shift multiplies, or the weights of all
        moments; one that vanishes on the boundary keeps homogeneous Dirichlet data.
    - `gradient`: how the moments are differentiated with respect to the parameters:
        `Exact()`, `Subsampled(k)`, in training also `Interpolated(times)` and
        `Lagged(every)`, or for comparison `Detached()`, `MiniBatch(k)`.
    - `floor`: the least variance to divide by; not for positive networks.
    - `times`: times at which to check at once that the targets can be met.

    Examples:
        >>> import jax, jax.numpy as jnp, sdifp
        >>> rule = sdifp.rule_for(sdifp.Box([0.0], [2.0], periodic=True), 64)
        >>> net = lambda x, t: jnp.exp(jnp.sin(jnp.pi * (x[0] - t)))
        >>> u = sdifp.conserve(net, rule, mass=1.0, squared_norm=lambda t: 2.0 + t)
        >>> now = u.at(0.5)
        >>> print(f"{rule.integrate(now):.4f}")
        1.0000
        >>> print(f"{rule.integrate(lambda x: now(x) ** 2):.4f}")
        2.5000
    """
    shape, has_time = _output_shape(net, rule)
    if isinstance(net, Positive):
        check_one_component(shape)
    gradient.check(rule)
    check_volume(rule.domain.log_volume, jnp.result_type(float).name)
    prescribed = prescribe(
        {"mass": mass, "squared_norm": squared_norm, "variance": variance},
        invariants,
        components=shape[0] if shape else None,
        has_time=has_time,
        has_profile=profile is not None,
        volume=rule.domain.volume,
        nodes=rule.size,
        support=lambda one: _support(one, rule, shape[0] if shape else 1),
    )
    volume = prescribed.volume
    check_densities(prescribed.measured, net, rule.dimension, has_time)
    family: Family
    if isinstance(net, Positive):
        family = ByExponent(prescribed, profile, net.map)
        check_positive_field(family, floor)
        groups = ByGroup(prescribed, None, RelativeFloor()).functions
        with _eager(rule):
            check_groups(groups, rule, _first(times), has_time, volume)
        return _checked(ConservedField(net, rule, gradient, family, has_time), times)
    if profile is not None:
        _check_profile(profile, rule)
    if prescribed.groups:
        family = ByGroup(prescribed, profile, floor)
        with _eager(rule):
            check_groups(family.functions, rule, _first(times), has_time, volume)
    else:
        family = ByComponent(prescribed, profile, floor)
    return _checked(ConservedField(net, rule, gradient, family, has_time), times)


def _eager(rule: QuadratureRule) -> AbstractContextManager[Any]:
    """What is known of a rule is computed at once, inside `jit` too."""
    known = all(map(is_concrete, jax.tree.leaves(rule)))
    return jax.ensure_compile_time_eval() if known else nullcontext()


def _first(times: Times | None) -> Array | None:
    """The first of some times."""
    if times is None:
        return None
    first = time_list(times)[0]
    return None if first is None else jnp.asarray(first)


def _checked(field: ConservedField, times: Times | None) -> ConservedField:
    if times is not None:
        field.check(times)
    return field


def _output_shape(
    net: Callable[..., Array], rule: QuadratureRule
) -> tuple[tuple[int, ...], bool]:
    """The shape of the network's output, and whether it takes a time."""
    errors = []
    for has_time in (True, False):
        try:
            out = output_of(net, rule.dimension, has_time)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {first_line(error)}")
            continue
        if not hasattr(out, "shape") or len(out.shape) > 1 or 0 in out.shape:
            got = getattr(out, "shape", type(out).__name__)
            raise ValueError(
                f"net must return one number or a vector of components for one point "
                f"of shape ({rule.dimension},), got {got}; use jax.vmap for many points"
            )
        check_real("net", out.dtype)
        return out.shape, has_time
    raise ValueError(
        f"net cannot be evaluated at one point of shape ({rule.dimension},), the "
        f"dimension of the rule, with a time ({errors[0]}) nor without ({errors[1]}); "
        f"wrap a network of batches as lambda x, t: net(x[None], t)[0]; "
        f"use jax.vmap for many points"
    )


def _support(invariant: Invariant, rule: QuadratureRule, count: int) -> tuple[int, ...]:
    """The components on which the weight of a linear invariant does not vanish. A
    weight that depends on t may vanish now and not later: all of its components."""
    own = invariant.among(count)
    if not invariant.has_weight or getattr(invariant, "weight_has_time", False):
        return own

    def size(x: Array) -> Array:
        psi = entries(invariant.weight_at(x, None, count))
        return jnp.stack([jnp.abs(jnp.asarray(a, float)) for a in psi])

    with _eager(rule):
        found = rule.mean(size)
    if not is_concrete(found):
        return own
    # A weight that vanishes altogether is refused later, by name.
    there = tuple(k for k, size in zip(own, found.tolist(), strict=True) if size != 0.0)
    return there or own


def _check_profile(profile: Callable[[Array], Array], rule: QuadratureRule) -> None:
    shape = output_of(profile, rule.dimension, False).shape
    if shape != ():
        raise ValueError(f"profile must return one number, got shape {shape}")
    mean, size = rule.mean(lambda x: jnp.stack([profile(x), jnp.abs(profile(x))]))
    check_profile(mean, size, jnp.finfo(jnp.result_type(float)).eps)
