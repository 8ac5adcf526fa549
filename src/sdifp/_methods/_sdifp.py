"""The paper's method: training through the correction."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._field import ConservedField, Exact, FieldAt, GradientMode
from .._operators import Estimator
from .._quadrature import QuadratureRule
from ..problems import Problem, Recipe
from ._method import Instant, Method, conserved


class SDIFP(Method):
    """The residual is that of the corrected field: integrals hold on the rule in every
    step of the training.

    **Arguments:**

    - `gradient`: how the moments are differentiated; by default as the recipe says.
    - `estimator`: how the residual is estimated; by default as the recipe says.
    - `rule`: the rule of the training, and of the integrals afterwards; by default the
        one that suits the box, with as many nodes as the recipe says, redrawn in every
        step above three dimensions.
    - `gauge`: the weight in the loss that keeps scale and offset of the raw network
        near those of the corrected one.
    """

    gradient: GradientMode | None = None
    given_estimator: Estimator | None = None
    given_rule: QuadratureRule | None = None
    gauge: float = eqx.field(static=True, default=0.01)

    def __init__(
        self,
        gradient: GradientMode | None = None,
        estimator: Estimator | None = None,
        rule: QuadratureRule | None = None,
        gauge: float = 0.01,
    ):
        if not 0.0 <= gauge < float("inf"):
            raise ValueError(f"gauge must be finite and not negative, got {gauge!r}")
        for name, given, kind in (
            ("gradient", gradient, GradientMode),
            ("estimator", estimator, Estimator),
            ("rule", rule, QuadratureRule),
        ):
            if given is not None and not isinstance(given, kind):
                raise TypeError(f"{name} must be a {kind.__name__}, got {given!r}")
        self.gradient = gradient
        self.given_estimator = estimator
        self.given_rule = rule
        self.gauge = gauge

    def check(self, problem: Problem) -> None:
        super().check(problem)
        rule = self.given_rule
        if rule is not None and rule.domain != problem.box:
            raise ValueError(
                f"rule must live on the box of {problem.name}, {problem.box}, got "
                f"{rule.domain}"
            )

    def rule(self, problem: Problem, nodes: int, key: Array) -> QuadratureRule:
        if self.given_rule is not None:
            return self.given_rule
        return problem.rule(nodes, key)

    def estimator(self, recipe: Recipe) -> Estimator:
        return self.given_estimator or recipe.estimator

    def field(
        self, problem: Problem, net: Any, rule: QuadratureRule, recipe: Recipe
    ) -> ConservedField:
        return conserved(problem, net, rule, self.gradient or recipe.gradient)

    def redraw(self, field: ConservedField, key: Array) -> ConservedField:
        return field.redraw(key)

    def finish(
        self, problem: Problem, net: Any, rule: QuadratureRule
    ) -> ConservedField:
        return conserved(problem, net, rule, Exact())

    def rows(self, at: Instant) -> Float[Array, " m"]:
        if self.gauge == 0.0:
            return jnp.zeros(0)
        assert isinstance(at.u, FieldAt)
        return jnp.sqrt(2.0 * self.gauge) * at.u.gauge_rows()
