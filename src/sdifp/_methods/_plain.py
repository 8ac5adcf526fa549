"""The plain physics-informed network."""

from typing import Any

from .._quadrature import QuadratureRule
from ..problems import Problem, Recipe
from ._method import Method


class Plain(Method):
    """The network as it is: nothing holds its integrals."""

    @property
    def needs_targets(self) -> bool:
        return False

    def field(
        self, problem: Problem, net: Any, rule: QuadratureRule, recipe: Recipe
    ) -> Any:
        return net
