"""The plain physics-informed network."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...problems import Problem
from ...quadrature import QuadratureRule
from ._method import Instant, RawTraining


class Plain(RawTraining):
    """The network as it is: its integrals are not prescribed."""

    needs_targets = False
    multiplier_rate = 0.0

    def trained_field(self, problem: Problem, net: Any, rule: QuadratureRule) -> Any:
        del problem, rule
        return net

    def rows(self, at: Instant) -> Float[Array, " m"]:
        del at
        return jnp.zeros(0)
