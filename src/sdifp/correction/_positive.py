"""Positive fields with prescribed moments: scaled, raised to a power, or tilted."""

from collections.abc import Sequence

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
from .._core import Status, check_independent
from ._exponential import TestFunctions, Wanted, solve_exponential
from ._maps import Given
from ._moments import accumulator

Numbers = Array | np.ndarray


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
    tests = _tests(psi, targets, w) if len(psi) else None
    flat = jnp.asarray(values).reshape(-1, size)
    shaped = lambda a: a.reshape(*values.shape[:-1], *a.shape[1:])
    on_nodes = None if tests is None else tests(psi)
    found = _project(flat, w, np.asarray(mean, float), ratio, on_nodes)
    u, power, tilt, status = map(shaped, found)
    if tests is not None:
        tilt = tilt @ tests.change(np.eye(len(psi)))
    out = PositiveProjection(u, power, tilt, status)
    if throw and is_concrete(status) and status.size:
        # Under an eager `grad` the numbers are known, but wrapped: unwrap them.
        known = jax.lax.stop_gradient(jnp.asarray(values)).reshape(-1, size)
        first = known[int(np.argmax(np.asarray(status).reshape(-1)))]
        _raise_unless_met(np.asarray(status), first, w, ratio, targets)
    return out


def _tests(psi: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> TestFunctions:
    """The moments as independent tests, or an error that names the first one that is
    not."""
    names = ["the mean", *(f"moment {k}" for k in range(len(psi)))]
    whole = np.concatenate([np.ones((1, psi.shape[1])), psi])
    check_independent(names, (whole * weights) @ whole.T)
    return TestFunctions.of(psi, targets, weights)


@eqx.filter_jit
def _project(
    values: Array,
    weights: Numbers,
    mean: Numbers,
    ratio: Numbers | None,
    tests: Numbers | None,
) -> tuple[Array, Array, Array, Array]:
    """Values, power, tilt and status of each field of a batch."""
    dtype = accumulator()
    known = lambda a: None if a is None else jnp.asarray(a, dtype)
    w, psi = jnp.asarray(weights, dtype), known(tests)
    wanted = Wanted(jnp.asarray(mean, dtype), known(ratio), psi)

    def one(f: Array) -> tuple[Array, Array, Array, Array]:
        raw = f.astype(dtype)
        # Relative to the largest, whose logarithm is zero to the last bit.
        z = raw / jax.lax.stop_gradient(jnp.max(raw))
        found, status = solve_exponential(wanted, Given(), z, w, jnp.finfo(f.dtype))
        u = found.apply(Given(), z, psi).astype(f.dtype)
        power = jnp.ones((), dtype) if found.power is None else found.power
        tilt = jnp.zeros(0, dtype) if found.tilt is None else found.tilt
        finite = jnp.all(jnp.isfinite(u)) | (status == Status.INFEASIBLE)
        finite = finite & jnp.all(raw > 0.0)
        return u, power, tilt, jnp.where(finite, status, Status.NOT_FINITE)

    return jax.vmap(one)(values)


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
