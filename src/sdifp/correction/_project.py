"""The moment projection of arrays: moments, correction and application.

The closed form itself is in `_core`, for all engines.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from .._checks import SUM_TOLERANCE, check_finite, is_concrete
from .._core import (
    AbsoluteFloor,
    Correction,
    Moments,
    RelativeFloor,
    Status,
    explain,
    solve,
    variance_of,
)
from ._moments import accumulator, check_values, moments_of_part

Target = Float[Array | np.ndarray, "..."] | float | np.floating


def correct(
    moments: Moments,
    *,
    mean: Target | None = None,
    second_moment: Target | None = None,
    variance: Target | None = None,
    floor: RelativeFloor | AbsoluteFloor = RelativeFloor(),
    nearest: bool = True,
    dtype: DTypeLike | None = None,
) -> Correction:
    """The correction that gives a field with these moments the target moments.

    `mean` alone is a shift, `second_moment` alone a scaling, `mean` with
    `second_moment` or `variance` the paper's affine map (theorem on the weighted
    quadrature projection)::

        u = m + a (f - Q[f]),   a = sqrt(V / Q[(f - Q[f])^2]),   V = s - m^2.

    With a profile phi, put `g = f - (Q[f]/Q[phi]) phi` and `c = m / Q[phi]`; then
    `u = c phi + a g`, and a is a root of the quadratic `Q[u^2] = s`::

        a = a0 +- sqrt((s - s_least) / Q[g^2]),   a0 = -c Q[g phi] / Q[g^2],
        s_least = c^2 (Q[phi^2] - Q[g phi]^2 / Q[g^2]).

    The root nearer to f in the rule's norm has the sign of `Q[g f]`: always plus for
    phi = 1. `nearest=False` takes the other one, which for phi = 1 is the farthest
    point of the shell.

    Nothing is raised here: look at `status`. Targets must be numbers or have the
    shape of the moments. `dtype` is that of the values that will be corrected, by
    default that of the moments.
    """
    given = _given(mean, second_moment, variance)
    like = moments.spread
    return solve(
        moments,
        **{k: _target(v, like) for k, v in given.items()},
        rounding=max(_rounding(v, like.dtype) for v in given.values()),
        floor=floor,
        nearest=nearest,
        field=jnp.finfo(like.dtype if dtype is None else dtype),
    )


def _given(
    mean: Target | None, second_moment: Target | None, variance: Target | None
) -> dict[str, Target]:
    """The targets that are given, which can be given together."""
    if mean is None and second_moment is None and variance is None:
        raise ValueError("give a target: mean, second_moment, or mean and variance")
    if second_moment is not None and variance is not None:
        raise ValueError("give second_moment or variance, not both")
    if variance is not None and mean is None:
        raise ValueError("variance needs mean as well")
    given = {"mean": mean, "second_moment": second_moment, "variance": variance}
    return {k: v for k, v in given.items() if v is not None}


def least_second_moment(moments: Moments, mean: Target) -> Float[Array, "..."]:
    """The least second moment that a field `c phi + a g` of this mean can have:
    `m^2` where phi = 1, more with a profile."""
    level = _target(mean, moments.spread) * (moments.weight / moments.profile)
    overlap, spread = moments.overlap, moments.spread
    gain = jnp.where(spread > 0.0, overlap**2 / jnp.where(spread > 0.0, spread, 1), 0.0)
    return level**2 * (moments.profile_square / moments.weight - gain)


def _rounding(target: Target, dtype: np.dtype) -> float:
    """The unit of rounding of a target: it may come in a shorter format."""
    given = jnp.result_type(target)
    formats = (given, dtype) if jnp.issubdtype(given, jnp.floating) else (dtype,)
    return float(max(jnp.finfo(d).eps for d in formats))


def _target(target: Target, like: Array) -> Array:
    return jnp.broadcast_to(_as_array(target, like.dtype), like.shape)


def _as_array(target: Target, dtype: np.dtype) -> Array:
    """A target in a dtype. A number that underflows does not turn into the target 0."""
    if isinstance(target, float | np.floating | np.ndarray):
        given = np.asarray(target, np.float64)
        least = np.maximum(abs(given), float(jnp.finfo(dtype).tiny))
        target = np.where(given == 0.0, 0.0, np.copysign(least, given))
    return jnp.asarray(target, dtype)


class Projection(eqx.Module):
    """Corrected values and the map that made them."""

    values: Float[Array, "*batch M"]
    correction: Correction

    @property
    def scale(self) -> Float[Array, "*batch"]:
        """alpha: the factor on the raw values."""
        return self.correction.scale

    @property
    def shift(self) -> Float[Array, "*batch"]:
        """beta: what is added, times the profile."""
        return self.correction.shift

    @property
    def status(self) -> Int[Array, "*batch"]:
        """A `Status` for each field of the batch."""
        return self.correction.status


def project(
    values: Float[Array | np.ndarray, "*batch M"],
    weights: Float[Array | np.ndarray, " M"],
    *,
    mean: Target | None = None,
    second_moment: Target | None = None,
    variance: Target | None = None,
    profile: Float[Array | np.ndarray, " M"] | None = None,
    floor: RelativeFloor | AbsoluteFloor = RelativeFloor(),
    nearest: bool = True,
    throw: bool | None = None,
) -> Projection:
    """Give a field on the nodes of a rule prescribed moments, exactly on the rule.

    With `Q[v] = sum_i w_i v_i`, the result for `mean = m` and `second_moment = s` is

        argmin { Q[(v - f)^2] : Q[v] = m, Q[v^2] = s },

    the nearest field with these moments in the rule's own norm. `mean` alone shifts,
    `second_moment` alone scales. `variance = s - m^2` says the same as
    `second_moment`, and keeps digits where it is small beside `m^2`.

    **Arguments:**

    - `values`: the raw field on the nodes, nodes on the last axis, any leading axes.
    - `weights`: of the rule, positive, with sum 1 (up to rounding: the moments hold
        for the weights over their sum).
    - `mean`, `second_moment`, `variance`: one number, or one for each field of the
        batch. (The mean is the integral over the volume of the domain.)
    - `profile`: values on the nodes of the function that the shift multiplies; one
        that vanishes on the boundary keeps homogeneous Dirichlet data. The result
        then has the moments, but is not the nearest such field.
    - `floor`: the least variance to divide by.
    - `nearest`: take the other root of the quadratic if false; without a profile
        that is the farthest field with these moments.
    - `throw`: raise `ValueError` if the field is degenerate, the targets infeasible
        or a number not finite. By default outside `jit` only, where it costs nothing;
        `True` inside `jit` too (where the value is used: XLA drops a check of what it
        drops); `False` never. Under `vmap` nothing is raised by default. The status is
        there in any case.

    Derivatives with respect to values and targets are exact.

    Examples:
        >>> import numpy as np, sdifp
        >>> weights = np.array([0.5, 0.25, 0.25])
        >>> values = np.array([1.0, 2.0, 6.0])
        >>> got = sdifp.project(values, weights, mean=2.0, variance=1.0)
        >>> print(f"{weights @ got.values:.4f} {weights @ got.values**2:.4f}")
        2.0000 5.0000
        >>> sdifp.project(np.ones(3), weights, mean=1.0, second_moment=0.5)
        Traceback (most recent call last):
            ...
        ValueError: the targets cannot be met: second_moment = 0.5 is below the least \
that a field of mean 1 can have, 1
    """
    if not isinstance(floor, RelativeFloor | AbsoluteFloor):
        raise TypeError(
            f"floor must be a RelativeFloor or an AbsoluteFloor, got {floor!r}"
        )
    values, weights, profile = check_values(values, weights, profile)
    if profile is not None and mean is None:
        raise ValueError("profile has no effect without mean: nothing is shifted")
    targets = _check_targets(values, _given(mean, second_moment, variance))
    combined = _in_double(targets, with_profile=profile is not None)
    out, raw = _project(values, weights, profile, combined, floor, nearest)
    if throw is not False and is_concrete(out.status):
        # Under an eager `grad` the numbers are known, but wrapped: unwrap them.
        raw, values, targets = jax.tree.map(
            lambda a: jax.lax.stop_gradient(a) if isinstance(a, jax.Array) else a,
            (raw, values, targets),
        )
        _raise_unless_held(out.status, raw, values, targets, profile is not None)
    elif throw:
        bad = out.status >= Status.DEGENERATE
        message = "the targets of this projection do not hold: see its status"
        out = eqx.error_if(out, jnp.any(bad), message)
    return out


@functools.partial(jax.jit, static_argnames=("floor", "nearest"))
def _project(
    values: Array,
    weights: Array,
    profile: Array | None,
    targets: dict[str, Target],
    floor: RelativeFloor | AbsoluteFloor,
    nearest: bool,
) -> tuple[Projection, Moments]:
    raw = moments_of_part(values, weights, profile)
    correction = correct(
        raw, **targets, floor=floor, nearest=nearest, dtype=values.dtype
    )
    corrected = correction(values, profile)
    status = correction.status
    if values.dtype != accumulator():
        fits = jnp.all(jnp.isfinite(corrected), axis=-1)
        status = jnp.where(fits, status, Status.NOT_FINITE)
    # Rounding in float32 passes; weights that were never normalised do not.
    whole = jnp.abs(raw.weight - 1.0) <= SUM_TOLERANCE
    status = jnp.where(whole, status, Status.UNNORMALISED).astype(jnp.int32)
    return Projection(corrected, correction._replace(status=status)), raw


def _check_targets(
    values: Array, given: dict[str, Target]
) -> dict[str, Array | np.ndarray]:
    """Arrays of JAX as they are, all others in NumPy, with the digits that they came
    with."""
    targets = {
        k: jnp.asarray(v) if isinstance(v, jax.Array) else _floating(v)
        for k, v in given.items()
    }
    batch = values.shape[:-1]
    for name, target in targets.items():
        if target.shape not in ((), batch):
            raise ValueError(
                f"{name} must be one number or have the batch shape {batch} of values, "
                f"got shape {target.shape}"
            )
        if not jnp.issubdtype(target.dtype, jnp.number) or jnp.iscomplexobj(target):
            raise TypeError(f"{name} must be a real number, got {target.dtype}")
        if is_concrete(target):
            check_finite(name, target)
    return targets


def _floating(target: object) -> np.ndarray:
    """Numbers of NumPy; whole ones in double precision."""
    # A Python integer may be too long for those of NumPy.
    array = np.asarray(float(target) if type(target) is int else target)
    convert = array.dtype.kind in "iu" or array.dtype == np.longdouble
    return array.astype(np.float64) if convert else array


def _in_double(
    targets: dict[str, Array | np.ndarray], *, with_profile: bool
) -> dict[str, Array]:
    """The targets as arrays of JAX. The difference `s - m^2` of numbers that are known
    in double precision is formed there first; with a profile it is another difference
    that counts."""
    given = dict(targets)
    mean, square = (given.get(name) for name in ("mean", "second_moment"))
    if (
        not with_profile
        and isinstance(mean, np.ndarray)
        and isinstance(square, np.ndarray)
    ):
        rounding = max(float(jnp.finfo(v.dtype).eps) for v in (mean, square))
        given["variance"] = np.asarray(variance_of(mean, square, rounding))
        del given["second_moment"]
    return {k: _as_array(v, jnp.result_type(v)) for k, v in given.items()}


def _raise_unless_held(
    status: Array,
    raw: Moments,
    values: Array | np.ndarray,
    targets: dict[str, Array | np.ndarray],
    has_profile: bool,
) -> None:
    """Say for the first field of the batch what is wrong with it."""
    found = np.asarray(status)
    bad = np.argwhere(found >= Status.DEGENERATE)
    if not len(bad):
        return
    at = tuple(bad[0].tolist())
    if found[at] == Status.NOT_FINITE:
        check_finite("values", values)
    wanted = {
        name: float(np.broadcast_to(np.asarray(target), found.shape)[at])
        for name, target in targets.items()
    }
    mean = wanted.get("mean", 0.0)
    least = float(np.asarray(least_second_moment(raw, mean))[at])
    if "variance" in wanted:
        least = max(least - mean * mean, 0.0)
    reason = explain(
        Status(int(found[at])),
        wanted,
        second_moment=float(np.asarray(raw.second_moment)[at]),
        dtype=accumulator().name,
        has_profile=has_profile,
        least=f"{least:g}",
        raw="the field",
    )
    where = f" of field {at} of the batch" if at else ""
    raise ValueError(f"the targets{where} cannot be met: {reason}")


def project_euclidean(
    values: Float[Array | np.ndarray, "*batch M"],
    weights: Float[Array | np.ndarray, " M"],
    *,
    mean: Target,
) -> Float[Array, "*batch M"]:
    """The nearest values with this mean in the *unweighted* norm, for comparison.

    `f + w (m - Q[f]) / sum w^2`: it puts the correction on the nodes of large weight,
    so it is not a shift of the field unless all weights are equal (paper, table on
    weighted against Euclidean corrections).

    Examples:
        >>> import numpy as np, sdifp
        >>> weights = np.array([0.5, 0.25, 0.25])
        >>> sdifp.correction.project_euclidean(np.zeros(3), weights, mean=3.0).tolist()
        [4.0, 2.0, 2.0]
    """
    values, weights, _ = check_values(values, weights, None)
    targets = _check_targets(values, {"mean": mean})
    if is_concrete(values):
        check_finite("values", values)
    gap = targets["mean"] - moments_of_part(values, weights).mean
    direction = weights / jnp.sum(weights * weights)
    shape = tuple(range(values.ndim - 1))
    shifted = values + gap[..., None] * jnp.expand_dims(direction, shape)
    return shifted.astype(values.dtype)
