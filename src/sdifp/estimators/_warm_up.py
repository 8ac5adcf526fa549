"""WarmUp: one estimate early in a training, another one later."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Int

from .._checks import check_count
from ..operators import Batch, Residual
from ._estimators import Estimate, Estimator


class WarmUp(Estimator):
    """The estimate `early` at the beginning of a training, and `late` after it: for
    instance the paper's fast mode, which is biased, and then an unbiased one. Outside
    a training it is `late`.

    **Arguments:**

    - `early`, `late`: two estimators, such as `Shared(16)` and `Independent(16)`.
    - `steps`: after how many steps of a window `late` takes over. By default at the
        first report at which the bias of `early` exceeds the noise of one of its
        estimates, both estimated from draws of `early` and `late`; `late` must then be
        unbiased.
    """

    early: Estimator
    late: Estimator
    steps: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        for name, given in (("early", self.early), ("late", self.late)):
            if not isinstance(given, Estimator) or isinstance(given, WarmUp):
                raise TypeError(
                    f"{name} must be an Estimator other than WarmUp, got {given!r}"
                )
        if self.steps is not None:
            check_count("steps", self.steps)

    def estimate(
        self,
        residual: Residual,
        u: Any,
        batch: Batch,
        key: Array,
        series: Any = None,
        integrals: dict[str, Array] | None = None,
    ) -> Estimate:
        return self.late.estimate(residual, u, batch, key, series, integrals)

    def at(self, step: Int[Array, ""], switched: Bool[Array, ""]) -> Estimator:
        """The estimator of one step of a window; `switched` tells whether an audit has
        found the bias of `early` to exceed its noise."""
        passed = switched if self.steps is None else step >= self.steps
        return _Either(self.early, self.late, passed)


class _Either(Estimator):
    """One of two estimates, of which the other one costs nothing."""

    early: Estimator
    late: Estimator
    is_late: Bool[Array, ""]

    def estimate(
        self,
        residual: Residual,
        u: Any,
        batch: Batch,
        key: Array,
        series: Any = None,
        integrals: dict[str, Array] | None = None,
    ) -> Estimate:
        # As arguments of the branches: what they close over they cannot differentiate.
        given = (residual, u, batch, key, series, integrals)
        arrays, static = eqx.partition(given, eqx.is_array)
        late, early = (
            lambda arrays, e=e: e.estimate(*eqx.combine(arrays, static)).loss
            for e in (self.late, self.early)
        )
        return Estimate(jax.lax.cond(self.is_late, late, early, arrays), None)
