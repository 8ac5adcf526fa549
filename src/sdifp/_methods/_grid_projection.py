"""Projection on a fixed uniform grid."""

from typing import Any

import equinox as eqx
from jaxtyping import Array

from .._checks import check_count
from .._field import ConservedField, Exact
from .._quadrature import AxisRule, Midpoint, QuadratureRule, Trapezoid, tensor
from ..problems import Problem, Recipe, check_grid
from ._method import Method, conserved


class GridProjection(Method):
    """The projection of PINN-proj: on a fixed uniform grid with equal weights, all of
    it in the graph of the gradient; its scale and shift are applied to whatever points
    the residual is taken at.

    **Arguments:**

    - `nodes`: the most nodes of the grid in all axes together; by default as many as
        the rule of the recipe has.
    """

    nodes: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.nodes is not None:
            check_count("nodes", self.nodes)

    def check(self, problem: Problem) -> None:
        super().check(problem)
        check_grid("GridProjection", problem.box)

    def rule(self, problem: Problem, nodes: int, key: Array) -> QuadratureRule:
        d = problem.box.dimension
        n = max(2, int((self.nodes or nodes) ** (1.0 / d) + 1e-9))
        axes: list[AxisRule] = [
            Trapezoid(n) if periodic else Midpoint(n)
            for periodic in problem.box.periodic
        ]
        return tensor(problem.box, axes)

    def field(
        self, problem: Problem, net: Any, rule: QuadratureRule, recipe: Recipe
    ) -> ConservedField:
        return conserved(problem, net, rule, Exact())

    def finish(
        self, problem: Problem, net: Any, rule: QuadratureRule
    ) -> ConservedField:
        return conserved(problem, net, rule, Exact())
