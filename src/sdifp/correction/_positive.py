"""Positive fields with prescribed moments: scaled, raised to a power, or tilted."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._checks import (
    check_finite,
    check_floating,
    check_known,
    check_positive,
    check_weights,
    is_concrete,
)
from .._core import Status, check_independent, orthonormalised
from ._moments import accumulator

Numbers = Array | np.ndarray

# Steps of the safeguarded Newton methods, of which a few are usual.
_MOST_STEPS = 64

# Newton steps from the solution that derivatives flow through: k of them make all
# derivatives up to the order 2^k - 1 exact.
_LIVE_STEPS = 3


class PositiveProjection(eqx.Module):
    """Positive values with prescribed moments, and the numbers that made them."""

    values: Float[Array, "*batch M"]
    power: Float[Array, "*batch"]
    "the exponent q of `f^q`"
    tilt: Float[Array, "*batch p"]
    "the lambda of `exp(lambda . psi)`"
    status: Int[Array, "*batch"]
    "a `Status` for each field of the batch"


def project_positive(
    values: Float[Numbers, "*batch M"],
    weights: Float[Numbers, " M"],
    *,
    mean: float,
    second_moment: float | None = None,
    moments: Float[Numbers, "p M"] | None = None,
    means: Float[Numbers, " p"] | Sequence[float] = (),
    throw: bool = True,
) -> PositiveProjection:
    """Give a positive field on the nodes of a rule prescribed moments; it stays
    positive (values that are tiny beside the largest may underflow to zero), and the
    moments are exact on the rule.

    With `Q[v] = sum_i w_i v_i`, the result has `Q[u] = mean` and is

    - `u = m f / Q[f]` for the mean alone: a scaled field;
    - `u = m f^q / Q[f^q]` with `second_moment`: the one power q > 0 that has it;
    - `u = m f e^(lambda . psi) / Q[f e^(lambda . psi)]` with `moments`: the field
        nearest to f in relative entropy that has them.

    **Arguments:**

    - `values`: the raw field on the nodes, all positive, nodes on the last axis.
    - `weights`: of the rule, positive, with sum 1.
    - `mean`: the target m, positive. All targets must be known numbers.
    - `second_moment`: the target `Q[u^2]`, between `mean^2` and `mean^2` over the
        weight of the nodes where f is largest.
    - `moments`: functions psi_k on the nodes, such as x and x^2 for the mean and the
        second moment of a density.
    - `means`: their targets `Q[psi_k u]`; divided by the mean they must be in the
        interior of the convex hull of psi on the nodes.
    - `throw`: raise `ValueError` where the targets cannot be met, outside `jit`; if
        false, look at the status.

    Derivatives with respect to values are exact up to the seventh order.

    Examples:
        >>> import numpy as np, sdifp
        >>> x, weights = np.linspace(-4.0, 4.0, 81), np.full(81, 1 / 81)
        >>> raw = np.exp(-np.abs(x - 0.5))
        >>> got = sdifp.correction.project_positive(
        ...     raw, weights, mean=1.0, moments=np.stack([x, x**2]), means=[0.0, 1.0])
        >>> u = got.values
        >>> print(f"{weights @ u:.4f} {weights @ (x**2 * u):.4f} {u.min() > 0.0}")
        1.0000 1.0000 True
    """
    values = check_floating("values", values)
    size = values.shape[-1] if values.ndim else 0
    if size == 0:
        raise ValueError(
            f"values must have the nodes on their last axis, at least one node, got "
            f"shape {values.shape}"
        )
    w = check_weights(check_known("weights", weights, (size,)), size)
    # Their sum may be off by rounding, which a second moment near its bound would see.
    w = w / w.sum()
    if is_concrete(values) and values.size:
        check_finite("values", values)
        least = float(np.min(values))
        if not least > 0.0:
            raise ValueError(
                f"values must be positive, got {least:.3g}: take exp, softplus or the "
                f"square of a network; a signed field cannot be scaled to a mean"
            )
    for name, given in (("mean", mean), ("second_moment", second_moment)):
        traced = isinstance(given, jax.core.Tracer)
        if given is not None and (traced or np.ndim(given) > 0):
            raise TypeError(f"{name} must be a known number, got {given!r}")
    check_positive("mean", mean)
    ratio = None
    if second_moment is not None:
        check_positive("second_moment", second_moment)
        ratio = np.asarray(np.log(second_moment) - 2.0 * np.log(mean))
        # The logarithms of two rounded numbers that are equal.
        eps = float(jnp.finfo(accumulator()).eps)
        ratio = np.where(abs(ratio) <= 8 * eps, 0.0, ratio)
        if moments is not None:
            raise ValueError("give second_moment or moments, not both")
    none = np.zeros((0, size))
    psi = check_known("moments", none if moments is None else moments, (None, size))
    targets = check_known("means", means, (len(psi),)) / mean
    tests, to_given = _tests(psi, targets, w)
    flat = jnp.asarray(values).reshape(-1, size)
    shaped = lambda a: a.reshape(*values.shape[:-1], *a.shape[1:])
    found = _project(flat, w, np.asarray(mean, float), ratio, tests)
    u, power, tilt, status = map(shaped, found)
    out = PositiveProjection(u, power, tilt @ to_given, status)
    if throw and is_concrete(status) and status.size:
        first = values.reshape(-1, size)[np.argmax(np.asarray(status).reshape(-1))]
        _raise_unless_met(np.asarray(status), first, w, ratio, targets)
    return out


def _tests(
    psi: np.ndarray, targets: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Combinations of the moments whose mean is to be zero, of variance one and
    uncorrelated under the weights, and the matrix that turns coefficients of them into
    coefficients of the moments."""
    if not len(psi):
        return psi, np.zeros((0, 0))
    names = ["the mean", *(f"moment {k}" for k in range(len(psi)))]
    whole = np.concatenate([np.ones((1, psi.shape[1])), psi])
    check_independent(names, np.einsum("km,lm,m->kl", whole, whole, weights))
    centre = psi @ weights
    gram = lambda d: np.einsum("km,lm,m->kl", d, d, weights)
    centred = psi - centre[:, None]
    change = orthonormalised(gram(centred), lambda once: gram(once(centred)))
    own = change(centred) - change(targets - centre)[:, None]
    return own, change(np.eye(len(psi)))


@eqx.filter_jit
def _project(
    values: Array,
    weights: Numbers,
    mean: Numbers,
    ratio: Numbers | None,
    tests: Numbers,
) -> tuple[Array, Array, Array, Array]:
    """Values, power, tilt and status of each field of a batch."""
    dtype = accumulator()
    w, psi = jnp.asarray(weights, dtype), jnp.asarray(tests, dtype)
    m = jnp.asarray(mean, dtype)

    def one(f: Array) -> tuple[Array, Array, Array, Array]:
        raw = f.astype(dtype)
        # Relative to the largest, whose logarithm is zero to the last bit.
        logs = jnp.log(raw / jax.lax.stop_gradient(jnp.max(raw)))
        power, tilt = jnp.ones((), dtype), jnp.zeros(len(psi), dtype)
        met = jnp.asarray(True)
        if ratio is not None:
            power, met = _power(logs, w, ratio)
        elif len(psi):
            tilt, met = _tilt(logs, w, psi)
        raised = power * logs + tilt @ psi
        raised = raised - jax.lax.stop_gradient(jnp.max(raised))
        u = (m * jnp.exp(raised) / jnp.sum(w * jnp.exp(raised))).astype(f.dtype)
        status = jnp.where(met, Status.REGULAR, Status.INFEASIBLE)
        if ratio is not None:
            flat = (jnp.max(logs) == jnp.min(logs)) & (ratio > 0.0)
            status = jnp.where(flat, Status.DEGENERATE, status)
            status = jnp.where(ratio == 0.0, Status.CONSTANT, status)
        status = jnp.where(jnp.any(u > 0.0), status, Status.UNDERFLOW)
        finite = jnp.all(jnp.isfinite(u)) & jnp.all(raw > 0.0)
        status = jnp.where(finite, status, Status.NOT_FINITE).astype(jnp.int32)
        return u, power, tilt, status

    return jax.vmap(one)(values)


def _power(logs: Array, w: Array, ratio: Numbers) -> tuple[Array, Array]:
    """The q with `log Q[f^2q] - 2 log Q[f^q] = ratio`, and whether there is one."""
    ratio = jnp.asarray(ratio, logs.dtype)

    def terms(q: Array, logs: Array) -> tuple[Array, Array]:
        """The left-hand side, which increases in q, and its derivative."""
        raised = q * logs
        raised = raised - jax.lax.stop_gradient(jnp.max(raised))
        once, twice = w * jnp.exp(raised), w * jnp.exp(2.0 * raised)
        first, second = jnp.sum(once), jnp.sum(twice)
        slope = 2.0 * (twice @ logs / second - once @ logs / first)
        return jnp.log(second) - 2.0 * jnp.log(first), slope

    fixed = jax.lax.stop_gradient(logs)
    fixed = fixed - w @ fixed
    top = jnp.sum(jnp.where(fixed == jnp.max(fixed), w, 0.0))
    met = (ratio > 0.0) & (ratio < -jnp.log(top))
    start = jnp.where(met, jnp.sqrt(jnp.abs(ratio) / (w @ fixed**2)), 0.0)

    def step(state: Any) -> Any:
        q, low, high, _, count = state
        value, slope = terms(q, fixed)
        below = value < ratio
        low = jnp.where(below, jnp.maximum(low, q), low)
        high = jnp.where(below, high, jnp.minimum(high, q))
        # Newton's step for the logarithms of both sides, kept inside what is known.
        by = jnp.log(ratio / value) * value / (slope * q)
        new = q * jnp.exp(jnp.clip(by, -3.0, 3.0))
        middle = jnp.where(jnp.isfinite(high), 0.5 * (low + high), 2.0 * q)
        new = jnp.where((new > low) & (new < high), new, middle)
        done = (new == q) | (value == ratio)
        return jnp.where(value == ratio, q, new), low, high, done, count + 1

    going = lambda s: ~s[3] & (s[4] < _MOST_STEPS)
    zero, far = jnp.zeros_like(start), jnp.full_like(start, jnp.inf)
    q = jax.lax.while_loop(going, step, (start, zero, far, ~met, jnp.asarray(0)))[0]
    centred = logs - w @ logs
    met = met & (terms(q, jax.lax.stop_gradient(centred))[1] > 0.0)
    for _ in range(_LIVE_STEPS):
        value, slope = terms(q, centred)
        q = q - jnp.where(met, value - ratio, 0.0) / jnp.where(met, slope, 1.0)
    return q, met & (q > 0.0)


def _tilt(logs: Array, w: Array, psi: Array) -> tuple[Array, Array]:
    """The lambda with `Q[psi f e^(lambda . psi)] = 0`, and whether there is one: where
    the convex `log Q[f e^(lambda . psi)]` is least."""

    def terms(tilt: Array, logs: Array) -> tuple[Array, Array, Array]:
        """The function, its gradient and its second derivative."""
        raised = logs + tilt @ psi
        top = jax.lax.stop_gradient(jnp.max(raised))
        mass = w * jnp.exp(raised - top)
        total = jnp.sum(mass)
        slope = psi @ mass / total
        centred = psi - slope[:, None]
        return top + jnp.log(total), slope, (centred * (mass / total)[None]) @ centred.T

    fixed = jax.lax.stop_gradient(logs)
    eps = float(jnp.finfo(logs.dtype).eps)
    least = lambda tilt: terms(tilt, fixed)[0]

    def step(state: Any) -> Any:
        tilt, _, count = state
        value, slope, curve = terms(tilt, fixed)
        move = -jnp.linalg.solve(curve, slope)
        move = jnp.where(jnp.all(jnp.isfinite(move)), move, -slope)
        gain = -(slope @ move)
        # Down to rounding it goes down.
        lower = lambda a: least(tilt + a * move) <= value - 0.1 * a * gain + 8 * eps
        shrink = lambda a: 0.5 * a
        a = jax.lax.while_loop(
            lambda a: ~lower(a) & (a > 1e-12), shrink, jnp.ones_like(gain)
        )
        return tilt + a * move, gain <= eps**2, count + 1

    going = lambda s: ~s[1] & (s[2] < _MOST_STEPS)
    start = (jnp.zeros(len(psi), logs.dtype), jnp.asarray(False), jnp.asarray(0))
    tilt = jax.lax.while_loop(going, step, start)[0]
    _, slope, curve = terms(tilt, fixed)
    # On the boundary of the hull the mass is on so few nodes that nothing varies.
    met = (jnp.max(jnp.abs(slope)) <= 1e3 * eps) & (
        jnp.linalg.eigvalsh(curve)[0] > eps * jnp.linalg.eigvalsh(curve)[-1]
    )
    for _ in range(_LIVE_STEPS):
        _, slope, curve = terms(tilt, logs)
        safe = jnp.where(met, curve, jnp.eye(len(psi), dtype=curve.dtype))
        tilt = tilt - jnp.linalg.solve(safe, jnp.where(met, slope, 0.0))
    return tilt, met


def _raise_unless_met(
    status: np.ndarray,
    values: Numbers,
    weights: np.ndarray,
    ratio: np.ndarray | None,
    targets: np.ndarray,
) -> None:
    """Say for the worst field of the batch what is wrong with it."""
    worst = Status(int(status.max()))
    if worst < Status.DEGENERATE:
        return
    f = np.asarray(values, np.float64)
    if worst == Status.NOT_FINITE:
        reason = "the corrected field overflows its dtype"
    elif worst == Status.UNDERFLOW:
        reason = "the corrected field underflows its dtype; rescale it"
    elif worst == Status.DEGENERATE:
        reason = "the field is constant on the nodes, so no power changes it"
    elif ratio is not None:
        most = 1.0 / weights[f == f.max()].sum()
        reason = (
            f"second_moment is {np.exp(ratio):.6g} times the squared mean; for powers "
            f"of this field it must be above 1 and below {most:.6g}, one over the "
            f"weight of the nodes where it is largest"
        )
    else:
        reason = (
            f"means over mean, {targets.tolist()}, must be in the interior of the "
            f"convex hull of moments on the nodes"
        )
    at = np.unravel_index(int(np.argmax(status)), status.shape) if status.ndim else ()
    where = f" of field {tuple(map(int, at))} of the batch" if at else ""
    raise ValueError(f"the targets{where} cannot be met: {reason}")
