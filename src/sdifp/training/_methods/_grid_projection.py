"""Projection on a fixed uniform grid."""

from typing import Any

import equinox as eqx
from jaxtyping import Array

from ..._checks import check_count
from ...field import ConservedField, Exact
from ...problems import Problem
from ...quadrature import AxisRule, Midpoint, QuadratureRule, Trapezoid, tensor
from .._points import check_grid
from .._recipe import Recipe
from ._method import Method, conserved, corrected, no_rows, same_field


class GridProjection(Method):
    """The projection of PINN-proj, on a fixed uniform grid (at most 6 dimensions).

    Its weights are equal, and all of it is in the graph of the gradient; its scale and
    shift are applied to whatever points the residual is taken at.

    **Arguments:**

    - `nodes`: the most nodes of the grid in all axes together; by default as many as
        the rule of the recipe has.
    """

    nodes: int | None = eqx.field(static=True, default=None)

    needs_targets = True
    estimator = None
    multiplier_rate = 0.0
    resample = same_field
    trained_field = corrected
    rows = no_rows

    def __check_init__(self) -> None:
        if self.nodes is not None:
            check_count("nodes", self.nodes)

    def training_rule(self, problem: Problem, nodes: int, key: Array) -> QuadratureRule:
        check_grid("GridProjection", problem.domain)
        d = problem.domain.dimension
        n = max(2, int((self.nodes or nodes) ** (1.0 / d) + 1e-9))
        axes: list[AxisRule] = [
            Trapezoid(n) if periodic else Midpoint(n)
            for periodic in problem.domain.periodic
        ]
        return tensor(problem.domain, axes)

    def training_field(
        self, problem: Problem, net: Any, rule: QuadratureRule, recipe: Recipe
    ) -> ConservedField:
        return conserved(problem, net, rule, Exact())
