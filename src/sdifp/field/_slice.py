"""A conserved field at one time."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._checks import is_concrete
from .._core import Correction, Prescribed
from .._mesh import device_local
from ..correction import Moments, Status
from ..invariants import Target
from ._protocol import DeterministicField, Expansion, Profile, evaluate

Times = ArrayLike | Sequence[float]

TargetLike = float | np.floating | np.ndarray | Array | Callable[[Array], ArrayLike]


class FieldSlice(DeterministicField):
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
    profile: Profile | None = eqx.field(static=True, default=None)

    is_slice = True

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

    @device_local()
    def __call__(self, x: Float[Array, " d"]) -> Float[Array, "..."]:
        """The field at one point of this time. Raises what `check` does."""
        if jnp.shape(x) != (self.dimension,):
            raise ValueError(
                f"x must be one point of shape ({self.dimension},), got shape "
                f"{jnp.shape(x)}; use jax.vmap for many points"
            )
        self.check()
        raw = evaluate(self.net, x, self.time)
        phi = None if self.profile is None else self.profile(x)[None]
        return self.correction(raw[..., None], phi)[..., 0]

    def check(self) -> None:
        """Raise `ValueError` if the targets are not met here and the numbers can be
        looked at, that is, outside `jit`."""
        status = _numbers(self.status)
        if status is None or not np.any(status >= Status.DEGENERATE):
            return
        # Batch axes of `vmap` come first, that of several components last.
        by_entry = lambda a: np.asarray(_numbers(a)).reshape(-1, len(self.means))
        rows = by_entry(self.status)
        at, k = np.argwhere(rows >= Status.DEGENERATE)[0].tolist()
        time = None if self.time is None else _numbers(self.time)
        t = None
        if time is not None and (len(rows) == 1 or time.size in (1, len(rows))):
            t = float(time.reshape(-1)[min(at, time.size - 1)])
        pivot, square = (
            abs(by_entry(a)[at, k]) for a in (self.moments.pivot, self.moments.square)
        )
        # Inside `jit`, where a field of outside may be evaluated, too.
        with jax.ensure_compile_time_eval():
            raise self.prescribed.error(
                k,
                t,
                Status(int(rows[at, k])),
                lambda target: float(target_at(target, t)),
                # About that of the raw network.
                second_moment=float(pivot + np.sqrt(square)) ** 2,
                dtype=self.moments.pivot.dtype.name,
            )

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

    def time_for(self, d: int, t: ArrayLike | None) -> ArrayLike | None:
        del d
        if t is not None:
            raise ValueError(f"t must be left out: u is at one time already, got {t!r}")
        return self.time

    def expand(self, t: Array | None, order: int) -> Expansion:
        del t, order
        numbers = [c[None] for c in self.correction.coefficients]
        return Expansion(self, Correction(*numbers))


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


def target_at(target: Target, t: Array | float | None) -> Array | float:
    """The target at time t: a number as a Python float, which keeps its digits."""
    # A function of an array, as it is promised one.
    time = None if t is None else jnp.asarray(t, jnp.result_type(float, t))
    value = target.value(time)
    if isinstance(value, float):
        return value
    out = jnp.asarray(value, jnp.result_type(float))
    if out.shape != ():
        raise ValueError(
            f"{target.name} must return one number at each time, got shape {out.shape}"
        )
    return out


def double_target_at(target: Target, t: float | None) -> float:
    """The same in double precision, whatever the precision of the field, unless the
    function cannot be evaluated in that."""
    try:
        with jax.enable_x64(True):
            return float(target_at(target, t))
    except Exception:
        return float(target_at(target, t))
