"""A penalty on the errors of the integrals."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import check_positive
from ._method import Instant, Method


class Soft(Method):
    """The loss has `weight / 2` times the squares of the relative errors of the
    integrals: the paper's PINN-SC.

    **Arguments:**

    - `weight`: of the penalty beside half the mean squared residual.
    """

    weight: float = eqx.field(static=True, default=1.0)

    def __check_init__(self) -> None:
        check_positive("weight", self.weight)

    def rows(self, at: Instant) -> Float[Array, " m"]:
        return jnp.sqrt(self.weight) * at.errors()
