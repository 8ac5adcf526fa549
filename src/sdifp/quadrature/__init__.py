"""Quadrature rules: nodes and positive weights on a box."""

from ._choose import rule_for as rule_for
from ._lattice import lattice as lattice
from ._monte_carlo import monte_carlo as monte_carlo
from ._points import from_points as from_points
from ._points import halton as halton
from ._points import importance as importance
from ._rule import QuadratureRule as QuadratureRule
from ._sobol import sobol as sobol
from ._tensor import AxisRule as AxisRule
from ._tensor import GaussLegendre as GaussLegendre
from ._tensor import Midpoint as Midpoint
from ._tensor import Trapezoid as Trapezoid
from ._tensor import gauss_legendre as gauss_legendre
from ._tensor import midpoint as midpoint
from ._tensor import tensor as tensor
from ._tensor import trapezoid as trapezoid
