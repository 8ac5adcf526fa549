"""The paper's method: training through the correction."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...estimators import Estimator
from ...field import ConservedField, GradientMode, Interpolated
from ...problems import Problem
from ...quadrature import QuadratureRule
from .._recipe import Recipe
from ._method import Instant, Method, conserved, corrected

# From so many times in a batch on, moments are interpolated between fewer ones: four
# times as many as `Interpolated` has.
_MANY_TIMES = 48


class SDIFP(Method):
    """Training through the correction: integrals hold on the rule in every step.

    **Arguments:**

    - `gradient`: how the moments are differentiated; by default as the recipe says,
        and interpolated in time (`Interpolated`) where a batch has 48 times or more.
    - `estimator`: how the residual is estimated; by default as the recipe says.
    - `rule`: the rule of the training, and of the integrals afterwards; by default the
        one that suits the box, with as many nodes as the recipe says, resampled in
        every step above three dimensions.
    - `gauge`: the weight in the loss that keeps scale and offset of the raw network
        near those of the corrected one.
    """

    gradient: GradientMode | None = None
    estimator: Estimator | None = None
    rule: QuadratureRule | None = None
    gauge: float = eqx.field(static=True, default=0.01)

    needs_targets = True
    multiplier_rate = 0.0
    trained_field = corrected

    def __check_init__(self) -> None:
        if not 0.0 <= self.gauge < float("inf"):
            raise ValueError(
                f"gauge must be finite and not negative, got {self.gauge!r}"
            )
        for name, kind in (
            ("gradient", GradientMode),
            ("estimator", Estimator),
            ("rule", QuadratureRule),
        ):
            given = getattr(self, name)
            if given is not None and not isinstance(given, kind):
                raise TypeError(f"{name} must be a {kind.__name__}, got {given!r}")

    def training_rule(self, problem: Problem, nodes: int, key: Array) -> QuadratureRule:
        if self.rule is None:
            return problem.rule(nodes, key)
        if self.rule.domain != problem.domain:
            raise ValueError(
                f"rule must live on the box of {problem.name}, {problem.domain}, got "
                f"{self.rule.domain}"
            )
        return self.rule

    def training_field(
        self, problem: Problem, net: Any, rule: QuadratureRule, recipe: Recipe
    ) -> ConservedField:
        mode = self.gradient
        if mode is None:
            mode = recipe.gradient
            many = not problem.is_steady and recipe.points.n_t >= _MANY_TIMES
            if many and not hasattr(mode, "table"):
                mode = Interpolated(gradient=mode)
        if problem.is_steady and hasattr(mode, "table"):
            raise ValueError(
                f"gradient must not be {type(mode).__name__}, which keeps moments over "
                f"time, for a problem without time; Exact() or Subsampled(32) are "
                f"accepted"
            )
        return conserved(problem, net, rule, mode)

    def resample(self, field: ConservedField, key: Array) -> ConservedField:
        return field.resample(key)

    def rows(self, at: Instant) -> Float[Array, " m"]:
        if self.gauge == 0.0:
            return jnp.zeros(0)
        return jnp.sqrt(2.0 * self.gauge) * at.u.gauge_rows()
