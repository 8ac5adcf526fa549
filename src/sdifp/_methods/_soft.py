"""A penalty on the errors of the integrals."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._quadrature import QuadratureRule
from ..problems import Problem
from ._method import Method, integral_errors


class Soft(Method):
    """The loss has `weight / 2` times the squares of the relative errors of the
    integrals: the paper's PINN-SC.

    **Arguments:**

    - `weight`: of the penalty beside half the mean squared residual.
    """

    weight: float = eqx.field(static=True, default=1.0)

    def __check_init__(self) -> None:
        if not 0.0 < self.weight < float("inf"):
            raise ValueError(f"weight must be positive and finite, got {self.weight!r}")

    def rows(
        self,
        problem: Problem,
        field: Any,
        rule: QuadratureRule,
        t: Float[Array, ""],
        multipliers: Float[Array, " n"],
    ) -> Float[Array, " m"]:
        return jnp.sqrt(self.weight) * integral_errors(problem, field, rule, t)
