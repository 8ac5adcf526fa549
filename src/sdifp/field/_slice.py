"""A conserved field at one time, and targets there."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._checks import is_concrete
from .._core import Prescribed, Status
from .._mesh import device_local
from ..invariants import Target, value_of
from ._protocol import DeterministicField, Expansion, Profile

Times = ArrayLike | Sequence[float]

TargetLike = float | np.floating | np.ndarray | Array | Callable[[Array], ArrayLike]


class FieldSlice(DeterministicField):
    """A conserved field at one time: the quadrature is done, points cost one
    evaluation of the network and of the correction.
    """

    net: eqx.AbstractVar[Callable[..., Array]]
    time: eqx.AbstractVar[Float[Array, ""] | None]
    "None for a network without time"
    moments: eqx.AbstractVar[Any]
    "the sums of the raw network on the rule"
    family: eqx.AbstractVar[Any]
    dimension: eqx.AbstractVar[int]
    "of the points"

    is_slice = True

    @property
    @abc.abstractmethod
    def coefficients(self) -> Any:
        """The numbers of the correction that are functions of t, a tree of arrays."""

    @property
    @abc.abstractmethod
    def means(self) -> tuple[Any, ...]:
        """The target mean of each component, None where there is none."""

    @property
    @abc.abstractmethod
    def scale(self) -> Float[Array, "..."]:
        """alpha at this time, for each component."""

    @property
    @abc.abstractmethod
    def shift(self) -> Float[Array, "..."]:
        """beta at this time, for each component; it multiplies the profile."""

    @property
    @abc.abstractmethod
    def status(self) -> Int[Array, "..."]:
        """A `Status` for each component."""

    @property
    @abc.abstractmethod
    def is_hopeless(self) -> Bool[Array, ""]:
        """Whether the targets are not met and training cannot change that."""

    @abc.abstractmethod
    def value(self, x: Array) -> Array:
        """The field at a point, without a check."""

    @abc.abstractmethod
    def error(self, at: int, k: int, t: float | None, status: Status) -> ValueError:
        """Why the targets are not met: of entry `at` of a batch, and component `k`."""

    @abc.abstractmethod
    def gauge_rows(self) -> Float[Array, " n"]:
        """The numbers whose squares `gauge` adds up, for least-squares optimisers."""

    @device_local()
    def __call__(self, x: Float[Array, " d"]) -> Float[Array, "..."]:
        """The field at one point of this time. Raises what `check` does."""
        if jnp.shape(x) != (self.dimension,):
            raise ValueError(
                f"x must be one point of shape ({self.dimension},), got shape "
                f"{jnp.shape(x)}; use jax.vmap for many points"
            )
        self.check()
        return self.value(x)

    def check(self) -> None:
        """Raise `ValueError` if the targets are not met here and the numbers can be
        looked at, that is, outside `jit`."""
        rows = self.by_entry(self.status)
        if rows is None or not np.any(rows >= Status.DEGENERATE):
            return
        at, k = np.argwhere(rows >= Status.DEGENERATE)[0].tolist()
        time = None if self.time is None else _numbers(self.time)
        t = None
        if time is not None and (len(rows) == 1 or time.size in (1, len(rows))):
            t = float(time.reshape(-1)[min(at, time.size - 1)])
        # Inside `jit`, where a field of outside may be evaluated, too.
        with jax.ensure_compile_time_eval():
            raise self.error(at, k, t, Status(int(rows[at, k])))

    def by_entry(self, array: Any) -> np.ndarray | None:
        """Numbers of each component, with the batch axes of `vmap` as one before; None
        where they are not known."""
        found = _numbers(array)
        # Batch axes of `vmap` come first, that of several components last.
        count = self.prescribed.components
        return None if found is None else found.reshape(-1, count)

    def gauge(self) -> Float[Array, ""]:
        """`(log |scale|)^2 + (Q[f] - m)^2 / V`, summed over components with targets; of
        a positive field the squares of log scale and log power, or of the tilt.

        Scale and offset of the raw network do not matter to the field, so they drift
        in training. A small multiple of this (0.01) in the loss pins them softly; V is
        the variance of the corrected field on the rule.
        """
        return jnp.sum(self.gauge_rows() ** 2)

    def time_for(self, d: int, t: ArrayLike | None) -> ArrayLike | None:
        del d
        if t is not None:
            raise ValueError(f"t must be left out: u is at one time already, got {t!r}")
        return self.time

    @property
    def prescribed(self) -> Prescribed:
        """What is prescribed."""
        return self.family.prescribed

    @property
    def profile(self) -> Profile | None:
        """What the shift multiplies."""
        return self.family.profile

    @property
    def is_affine(self) -> bool:
        """Whether operators may act on the network and the profile by themselves."""
        return self.family.is_affine

    def near(self, series: Any, t: Array | None) -> Callable[..., Array]:
        """The field as a function of (x, t), from its expansion."""
        return self.family.near(self.net, series, t)

    def expand(self, t: Array | None, order: int) -> Expansion:
        del t, order
        return Expansion(self, jax.tree.map(lambda c: c[None], self.coefficients))


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
    if not callable(target.given):
        return target.given
    value = value_of(
        target.name, target.given, {"t": time}, [()], "one real number at each time"
    )
    if isinstance(value, int | float | np.number):
        return float(value)
    return jnp.asarray(value, jnp.result_type(float))


def double_target_at(target: Target, t: float | None) -> float:
    """The same in double precision, whatever the precision of the field, unless the
    function cannot be evaluated in that."""
    try:
        with jax.enable_x64(True):
            return float(target_at(target, t))
    except Exception:
        return float(target_at(target, t))
