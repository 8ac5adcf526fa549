"""project: moments, correction and application in one call on arrays."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._checks import SUM_TOLERANCE, check_finite, is_concrete
from .._core import AbsoluteFloor, Correction, RelativeFloor, Status, variance_of
from ._correction import (
    Target,
    as_array,
    check_combination,
    correct,
    least_second_moment,
)
from ._moments import Moments, accumulator, check_values, moments_of_part


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
        ValueError: second_moment = 0.5 is infeasible with mean = 1.0: no field has \
these moments, the least second moment possible is 1.0
    """
    if not isinstance(floor, RelativeFloor | AbsoluteFloor):
        raise TypeError(
            f"floor must be a RelativeFloor or an AbsoluteFloor, got {floor!r}"
        )
    values, weights, profile = check_values(values, weights, profile)
    targets = _check_targets(values, mean, second_moment, variance, profile)
    combined = _in_double(targets, with_profile=profile is not None)
    out, raw = _project(values, weights, profile, combined, floor, nearest)
    if throw is not False and is_concrete(out.status):
        # Under an eager `grad` the numbers are known, but wrapped: unwrap them.
        raw, values, targets = jax.tree.map(
            lambda a: jax.lax.stop_gradient(a) if isinstance(a, jax.Array) else a,
            (raw, values, targets),
        )
        _raise_unless_held(out.status, raw, values, weights, profile, targets)
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
    values: Array,
    mean: Target | None,
    second_moment: Target | None,
    variance: Target | None,
    profile: Array | None,
) -> dict[str, Array | np.ndarray]:
    """Those that are given: arrays of JAX as they are, all others in NumPy, with the
    digits that they came with."""
    check_combination(mean, second_moment, variance)
    given = {"mean": mean, "second_moment": second_moment, "variance": variance}
    targets = {
        k: jnp.asarray(v) if isinstance(v, jax.Array) else _floating(v)
        for k, v in given.items()
        if v is not None
    }
    if profile is not None and mean is None:
        raise ValueError("profile has no effect without mean: nothing is shifted")
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
    both = [given.get(name) for name in ("mean", "second_moment")]
    if all(isinstance(v, np.ndarray) for v in both) and not with_profile:
        mean, square = np.asarray(both[0]), np.asarray(given.pop("second_moment"))
        rounding = max(float(jnp.finfo(v.dtype).eps) for v in (mean, square))
        given["variance"] = np.asarray(variance_of(mean, square, rounding))
    return {k: as_array(v, jnp.result_type(v)) for k, v in given.items()}


def _raise_unless_held(
    status: Array,
    raw: Moments,
    values: Array | np.ndarray,
    weights: Array | np.ndarray,
    profile: Array | np.ndarray | None,
    targets: dict[str, Array | np.ndarray],
) -> None:
    """Say for the first field of the batch what is wrong with it."""
    with_profile = profile is not None
    worst = np.asarray(status)
    bad = np.argwhere(worst >= Status.DEGENERATE)
    if not len(bad):
        return
    at = tuple(bad[0].tolist())
    where = f" (field {at} of the batch)" if at else ""

    def of(name: str) -> float:
        return float(np.broadcast_to(np.asarray(targets[name]), worst.shape)[at])

    second = "variance" if "variance" in targets else "second_moment"
    if worst[at] == Status.NOT_FINITE:
        check_finite("values", values)
        asked = ", ".join(f"{name} = {of(name):g}" for name in targets)
        raise ValueError(
            f"values are too large or too small for the targets {asked}{where}: a sum "
            f"of squares, the scale or the result overflows {values.dtype}; rescale "
            f"the field"
        )
    if worst[at] == Status.DEGENERATE and values.shape[-1] == 1:
        raise ValueError(
            "values on one node have no variance, so mean and second moment cannot "
            "both be prescribed there; use a rule with two nodes or more"
        )
    if worst[at] in (Status.DEGENERATE, Status.UNDERFLOW):
        own, sums = np.asarray(values, np.float64)[at], accumulator().name
        w = np.asarray(weights, np.float64)
        phi = np.ones_like(w) if profile is None else np.asarray(profile, np.float64)
        varied = own - phi * (w @ own) / (w @ phi) if "mean" in targets else own
        apart = float(np.max(abs(varied)))
        advice = "rescale the field" + ("" if sums == "float64" else " or use float64")
        limits = np.finfo(sums)
        if apart**2 * limits.eps > limits.tiny and worst[at] == Status.UNDERFLOW:
            raise ValueError(
                f"{second} = {of(second):g} is too small for {values.dtype}{where}: "
                f"the square of the result underflows; {advice}"
            )
        if apart > 64 * np.finfo(values.dtype).eps * np.max(abs(own)):
            raise ValueError(
                f"values are too small for {sums}{where}: they vary by {apart:.1e}, "
                f"whose square underflows, so no scale gives them {second} = "
                f"{of(second):g}; {advice}"
            )
        shape = "a multiple of the profile" if with_profile else "constant"
        if "mean" not in targets:
            shape = "zero"
        raise ValueError(
            f"values are {shape} on the nodes{where}, so no scale gives them "
            f"{second} = {of(second)}"
        )
    if "mean" not in targets:
        raise ValueError(
            f"second_moment must not be negative, got {of('second_moment')}{where}"
        )
    kind = "field of this form" if with_profile else "field"
    least = float(np.asarray(least_second_moment(raw, targets["mean"]))[at])
    if second == "variance":
        least = max(least - of("mean") ** 2, 0.0)
    raise ValueError(
        f"{second} = {of(second)} is infeasible with mean = {of('mean')}{where}: no "
        f"{kind} has these moments, the least {second.replace('_', ' ')} possible is "
        f"{least}"
    )


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
    targets = _check_targets(values, mean, None, None, None)
    if is_concrete(values):
        check_finite("values", values)
    gap = targets["mean"] - moments_of_part(values, weights).mean
    direction = weights / jnp.sum(weights * weights)
    shape = tuple(range(values.ndim - 1))
    shifted = values + gap[..., None] * jnp.expand_dims(direction, shape)
    return shifted.astype(values.dtype)
