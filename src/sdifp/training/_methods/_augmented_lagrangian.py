"""Multipliers that learn what penalty each integral needs."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_positive
from ._method import Instant, RawTraining, uncorrected


class AugmentedLagrangian(RawTraining):
    """A penalty on the errors of the integrals, with multipliers that grow.

    The loss has `m h + penalty / 2 h^2` for each relative error h of an integral; the
    multipliers m, one for each of the times of a batch, grow by `rate * h` in every
    step.

    **Arguments:**

    - `penalty`: of the squares.
    - `rate`: of the multipliers.
    """

    penalty: float = eqx.field(static=True, default=1.0)
    rate: float = eqx.field(static=True, default=1e-2)

    needs_targets = True
    trained_field = uncorrected

    def __check_init__(self) -> None:
        for name in ("penalty", "rate"):
            check_positive(name, getattr(self, name))

    @property
    def multiplier_rate(self) -> float:
        """`rate`."""
        return self.rate

    def rows(self, at: Instant) -> Float[Array, " m"]:
        # The square completed: it differs by m^2 / (2 penalty), a constant of the step.
        return jnp.sqrt(self.penalty) * (at.errors() + at.multipliers / self.penalty)
