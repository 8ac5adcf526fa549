"""A penalty on the errors of the integrals."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_positive
from ._method import Instant, RawTraining, uncorrected


class Soft(RawTraining):
    """A penalty on the errors of the integrals: the paper's PINN-SC.

    The loss has `weight / 2` times the squares of their relative errors.

    **Arguments:**

    - `weight`: of the penalty beside half the mean squared residual.
    """

    weight: float = eqx.field(static=True, default=1.0)

    needs_targets = True
    trained_field = uncorrected
    multiplier_rate = 0.0

    def __check_init__(self) -> None:
        check_positive("weight", self.weight)

    def rows(self, at: Instant) -> Float[Array, " m"]:
        return jnp.sqrt(self.weight) * at.errors()
