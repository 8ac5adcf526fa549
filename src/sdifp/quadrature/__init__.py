"""Quadrature rules: nodes and positive weights on a box."""

from ._choose import rule_for as rule_for
from ._lattice import MOST_SEARCHED_NODES as MOST_SEARCHED_NODES
from ._lattice import lattice as lattice
from ._monte_carlo import monte_carlo as monte_carlo
from ._points import from_points as from_points
from ._points import halton as halton
from ._points import importance as importance
from ._rule import QuadratureRule as QuadratureRule
from ._sobol import sobol as sobol
from ._stream import listed as listed
from ._stream import streamed as streamed
from ._tensor import AxisRule as AxisRule
from ._tensor import GaussLegendre as GaussLegendre
from ._tensor import Midpoint as Midpoint
from ._tensor import TensorRule as TensorRule
from ._tensor import Trapezoid as Trapezoid
from ._tensor import TwoPieces as TwoPieces
from ._tensor import gauss_legendre as gauss_legendre
from ._tensor import midpoint as midpoint
from ._tensor import tensor as tensor
from ._tensor import trapezoid as trapezoid

# What users find here; the other names are for the rest of the library.
# fmt: off
__all__ = [
    "AxisRule", "GaussLegendre", "Midpoint", "QuadratureRule", "Trapezoid",
    "TwoPieces", "from_points", "gauss_legendre", "halton", "importance", "lattice",
    "midpoint", "monte_carlo", "rule_for", "sobol", "tensor", "trapezoid",
]
# fmt: on
