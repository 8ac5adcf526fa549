"""Multipliers that learn what penalty each integral needs."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import check_positive
from ..problems import Problem
from ._method import Instant, Method


class AugmentedLagrangian(Method):
    """The loss has `m h + penalty / 2 h^2` for each relative error h of an integral;
    the multipliers m, one for each of the times of a batch, grow by `rate * h` in
    every step.

    **Arguments:**

    - `penalty`: of the squares.
    - `rate`: of the multipliers.
    """

    penalty: float = eqx.field(static=True, default=1.0)
    rate: float = eqx.field(static=True, default=1e-2)

    def __check_init__(self) -> None:
        for name in ("penalty", "rate"):
            check_positive(name, getattr(self, name))

    def multipliers(self, problem: Problem) -> Float[Array, " n"]:
        return jnp.zeros(sum(k is not None for k in (problem.mass, problem.energy)))

    def rows(self, at: Instant) -> Float[Array, " m"]:
        # The square completed: it differs by m^2 / (2 penalty), a constant of the step.
        return jnp.sqrt(self.penalty) * (at.errors() + at.multipliers / self.penalty)

    def update(self, at: Instant) -> Float[Array, " n"]:
        return at.multipliers + self.rate * at.errors()
