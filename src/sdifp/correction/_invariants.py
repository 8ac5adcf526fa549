"""Any number of linear moments and one quadratic form of arrays.

The mathematics is in `_core/_group.py`, for all engines.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._checks import (
    check_finite,
    check_floating,
    check_known,
    check_weights,
    is_concrete,
)
from .._core import (
    AbsoluteFloor,
    Correction,
    GroupMoments,
    RelativeFloor,
    Status,
    check_definite,
    check_independent,
    orthonormalised,
    solve_group,
)
from ._moments import accumulator

Numbers = Array | np.ndarray


class InvariantProjection(eqx.Module):
    """Values with prescribed invariants, and what became of them."""

    values: Float[Array, "*batch n M"]
    scale: Float[Array, "*batch"]
    "the factor on what is left of the raw values without their linear moments"
    status: Int[Array, "*batch"]
    "a `Status` for each field of the batch"


class _Directions(eqx.Module):
    """Test functions, directions and the metric on the nodes."""

    tests: Float[Numbers, "p n M"]
    directions: Float[Numbers, "p n M"]
    metric: Float[Numbers, "n n M"] | None
    weights: Float[Numbers, " M"]
    orthonormal: bool = eqx.field(static=True)

    def product(self, u: Array, v: Array) -> Array:
        """`<u, v>` of arrays with components and nodes on the last two axes."""
        lowered = v if self.metric is None else _lowered(self.metric, v)
        return jnp.einsum("...nm,...nm,m->...", u, lowered, self.weights)


def project_invariants(
    values: Float[Numbers, "*batch n M"],
    weights: Float[Numbers, " M"],
    moments: Float[Numbers, "p n M"] | None = None,
    means: Float[Numbers, "..."] | Sequence[float] = (),
    *,
    quadratic: Float[Numbers, "..."] | float | None = None,
    metric: Float[Numbers, "n n M"] | None = None,
    directions: Float[Numbers, "p n M"] | None = None,
    names: list[str] | None = None,
    floor: RelativeFloor | AbsoluteFloor = RelativeFloor(),
    throw: bool = True,
) -> InvariantProjection:
    """Give a field of n components prescribed linear moments and one quadratic form,
    exactly on the nodes of a rule.

    With `Q[v] = sum_i w_i v_i` the result is

        argmin { Q[(v - f)^T R (v - f)] : Q[psi_k . v] = m_k, Q[v^T R v] = s },

    the nearest field with these moments in the norm of R.

    **Arguments:**

    - `values`: the raw field, components and nodes on the last two axes.
    - `weights`: of the rule, positive, with sum 1.
    - `moments`: the functions psi_k on the nodes: a mass of one component, a total of
        several, a centre of mass. Left out for the quadratic form alone.
    - `means`: the targets m_k, shape (p,), or (*batch, p).
    - `quadratic`: the target s, one number or one for each field; left out for linear
        moments alone.
    - `metric`: R on the nodes, symmetric and positive definite; by default the
        identity.
    - `directions`: what the correction may add, one function for each moment; those
        that vanish on the boundary keep homogeneous Dirichlet data. The result then has
        the moments, but is not the nearest such field.
    - `names`: of the moments, for messages.
    - `floor`: the least quadratic form to divide by.
    - `throw`: raise `ValueError` where the targets cannot be met, outside `jit`; if
        false, look at the status.

    Moments that depend on each other are refused by name. The functions must be known
    numbers; values and targets may be traced by JAX, and derivatives with respect to
    them are exact.

    Examples:
        >>> import numpy as np, sdifp
        >>> x, weights = np.linspace(0.0, 1.0, 5), np.full(5, 0.2)
        >>> mass, centre = np.ones((1, 5)), x[None]
        >>> got = sdifp.correction.project_invariants(
        ...     np.sin(x)[None], weights, np.stack([mass, centre]), [1.0, 0.6])
        >>> print(f"{weights @ got.values[0]:.4f} {weights @ (x * got.values[0]):.4f}")
        1.0000 0.6000
    """
    if not isinstance(floor, RelativeFloor | AbsoluteFloor):
        raise TypeError(
            f"floor must be a RelativeFloor or an AbsoluteFloor, got {floor!r}"
        )
    values = check_floating("values", values)
    if values.ndim < 2 or 0 in values.shape[-2:]:
        raise ValueError(
            f"values must have components and nodes on the last two axes, at least one "
            f"of each, got shape {values.shape}"
        )
    n, size = values.shape[-2:]
    if (moments is None or not len(moments)) and quadratic is None:
        raise ValueError("give a target: moments with means, quadratic, or both")
    none = np.zeros((0, n, size))
    psi = check_known("moments", none if moments is None else moments, (None, n, size))
    weights = check_weights(check_known("weights", weights, (size,)), size)
    names = names or [f"moment {k}" for k in range(len(psi))]
    if len(names) != len(psi):
        raise ValueError(
            f"names must have one entry for each of {len(psi)} moments, got {names!r}"
        )
    own = None if metric is None else check_known("metric", metric, (n, n, size))
    if own is not None:
        _check_metric(own)
    chi = (
        None if directions is None else check_known("directions", directions, psi.shape)
    )
    targets = _targets("means", means, values.shape[:-2], (len(psi),))
    basis, targets, digits = _basis(psi, targets, weights, own, chi, names)
    square, free = None, None
    if quadratic is not None:
        square = _targets("quadratic", quadratic, values.shape[:-2], ())
        if isinstance(square, np.ndarray) and isinstance(targets, np.ndarray):
            # In double precision, whatever comes after.
            free = np.asarray(square - np.sum(targets**2, -1)) if chi is None else None
    out, least = _project(
        jnp.asarray(values), basis, targets, square, free, digits, floor
    )
    if throw and is_concrete(out.status):
        if isinstance(targets, np.ndarray) and chi is None:
            least = jnp.asarray(np.sum(targets**2, -1))
        # Under an eager `grad` the numbers are known, but wrapped: unwrap them.
        known = jax.tree.map(
            lambda a: jax.lax.stop_gradient(a) if isinstance(a, jax.Array) else a,
            (values, targets, square, least),
        )
        _raise_unless_met(np.asarray(out.status), *known)
    return out


@eqx.filter_jit
def _project(
    values: Array,
    basis: _Directions,
    means: Numbers,
    quadratic: Numbers | None,
    free: Numbers | None,
    digits: Numbers,
    floor: RelativeFloor | AbsoluteFloor,
) -> tuple[InvariantProjection, Array]:
    dtype, batch = accumulator(), values.shape[:-2]
    f = values.astype(dtype)
    tested = lambda g: jnp.einsum("pnm,...nm,m->...p", basis.tests, g, basis.weights)
    spread = lambda c: jnp.einsum("...p,pnm->...nm", c, basis.directions)
    pivot = jax.lax.stop_gradient(tested(f))
    centred = f - spread(pivot)
    sums = GroupMoments(pivot, tested(centred), basis.product(centred, centred))
    if not basis.orthonormal:
        each = jnp.moveaxis(basis.directions, 0, -3)
        overlaps = basis.product(each[:, None], each[None])
        cross = basis.product(each, jnp.expand_dims(centred, -3))
        sums = sums._replace(cross=cross, overlaps=overlaps)
    full = lambda a, shape: jnp.broadcast_to(jnp.asarray(a, dtype), (*batch, *shape))
    wanted = full(means, (len(basis.tests),))
    found = solve_group(
        sums,
        means=wanted,
        quadratic=None if quadratic is None else full(quadratic, ()),
        free=None if free is None else full(free, ()),
        rounding=digits * float(jnp.finfo(dtype).eps),
        floor=floor,
        field=jnp.finfo(values.dtype),
    )
    corrected = _applied(found, centred, spread).astype(values.dtype)
    fits = jnp.all(jnp.isfinite(corrected), axis=(-2, -1))
    status = jnp.where(fits, found.status, Status.NOT_FINITE).astype(jnp.int32)
    return InvariantProjection(corrected, found.scale, status), sums.least(wanted)


def _applied(
    found: Correction, centred: Array, spread: Callable[[Array], Array]
) -> Array:
    scale = found.scale[..., None, None]
    return spread(found.level) + scale * (centred - spread(found.offset))


def _basis(
    psi: np.ndarray,
    means: Numbers,
    weights: np.ndarray,
    metric: np.ndarray | None,
    chi: np.ndarray | None,
    names: list[str],
) -> tuple[_Directions, Numbers, Numbers]:
    """Test functions and directions, the targets of these, and how many times the
    rounding of the targets they may be off by."""
    if not len(psi):
        return _Directions(psi, psi, metric, weights, True), means, np.ones(())
    if chi is not None:
        # Twice: the second time mends the rounding of the first.
        for _ in range(2):
            coupling = np.einsum("knm,lnm,m->kl", psi, chi, weights)
            if not np.any(coupling) or not np.linalg.cond(coupling) <= 1e12:
                raise ValueError(
                    f"directions cannot change {', '.join(names)} independently: "
                    f"Q[moment . direction] is singular"
                )
            chi = np.einsum("lnm,lk->knm", chi, np.linalg.inv(coupling))
        return _Directions(psi, chi, metric, weights, False), means, np.ones(())
    raised = lambda d: d if metric is None else _raised(metric, d)
    gram = lambda d: np.einsum("knm,lnm,m->kl", d, raised(d), weights)
    check_independent(names, gram(psi))
    change = orthonormalised(gram(psi), lambda once: gram(once(psi)))
    tests = change(psi)
    digits = np.asarray(max(1.0, (1.0 / np.diag(change.first)).max()))
    own = _Directions(tests, raised(tests), metric, weights, True)
    xp = jnp if isinstance(means, jax.Array) else np
    return own, xp.moveaxis(change(xp.moveaxis(means, -1, 0)), 0, -1), digits


def _raised(metric: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """`R^-1 psi` on each node."""
    by_node = np.linalg.solve(np.moveaxis(metric, -1, 0), psi.transpose(2, 1, 0))
    return by_node.transpose(2, 1, 0)


def _lowered(metric: Numbers, v: Array) -> Array:
    """`R v` on each node."""
    return jnp.einsum("ijm,...jm->...im", metric, v)


def _targets(
    name: str, given: object, batch: tuple[int, ...], own: tuple[int, ...]
) -> Numbers:
    """Arrays of JAX as they are, all others in NumPy, in double precision."""
    out: Numbers
    try:
        out = given if isinstance(given, jax.Array) else np.asarray(given, float)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must be an array of real numbers, got {given!r}"
        ) from None
    if out.shape not in (own, (*batch, *own)):
        either = f"{own} or {(*batch, *own)}" if batch else f"{own}"
        raise ValueError(f"{name} must have shape {either}, got {out.shape}")
    if is_concrete(out):
        check_finite(name, out)
    return out


def _check_metric(metric: np.ndarray) -> None:
    by_node = np.moveaxis(metric, -1, 0)
    if not np.allclose(by_node, np.swapaxes(by_node, 1, 2), rtol=1e-12, atol=0.0):
        raise ValueError("metric must be symmetric on every node")
    check_definite("metric", by_node, float(np.finfo(float).eps))


def _raise_unless_met(
    status: np.ndarray,
    values: Numbers,
    means: Numbers,
    quadratic: Numbers | None,
    least: Numbers,
) -> None:
    """Say for the first field of the batch what is wrong with it."""
    bad = np.argwhere(status >= Status.DEGENERATE)
    if not len(bad):
        return
    at = tuple(bad[0].tolist())
    found = Status(int(status[at]))
    if found == Status.NOT_FINITE:
        check_finite("values", values)
    one = lambda a: float(np.broadcast_to(np.asarray(a), status.shape)[at])
    wanted = "" if quadratic is None else f"quadratic = {one(quadratic):g}"
    if found == Status.NOT_FINITE:
        reason = "the corrected field overflows its dtype"
    elif found == Status.DEGENERATE:
        what = "a combination of the directions" if means.shape[-1] else "zero"
        reason = f"the field is {what} on the nodes, so no scale gives it {wanted}"
    elif found == Status.UNDERFLOW:
        reason = "the field, or its square, underflows its dtype; rescale it"
    else:
        reason = f"{wanted} is below the least that a field with these moments can "
        reason += f"have, {one(least):g}"
    where = f" of field {at} of the batch" if at else ""
    raise ValueError(f"the targets{where} cannot be met: {reason}")
