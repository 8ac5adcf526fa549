"""sdifp: exact global conservation for neural PDE solvers.

The public names, and nothing else.
"""

from ._domain import Box as Box
from ._field import Certificate as Certificate
from ._field import CertificateRow as CertificateRow
from ._field import ConservedField as ConservedField
from ._field import Detached as Detached
from ._field import Exact as Exact
from ._field import FieldAt as FieldAt
from ._field import FrozenField as FrozenField
from ._field import FrozenFieldAt as FrozenFieldAt
from ._field import GradientMode as GradientMode
from ._field import MiniBatch as MiniBatch
from ._field import Subsampled as Subsampled
from ._field import conserve as conserve
from ._projection import AbsoluteFloor as AbsoluteFloor
from ._projection import Correction as Correction
from ._projection import Moments as Moments
from ._projection import Projection as Projection
from ._projection import RelativeFloor as RelativeFloor
from ._projection import Status as Status
from ._projection import coefficient_derivatives as coefficient_derivatives
from ._projection import continuum_errors as continuum_errors
from ._projection import correct as correct
from ._projection import floor_perturbation as floor_perturbation
from ._projection import least_second_moment as least_second_moment
from ._projection import merge_moments as merge_moments
from ._projection import moments as moments
from ._projection import moments_of_part as moments_of_part
from ._projection import project as project
from ._projection import project_euclidean as project_euclidean
from ._quadrature import AxisRule as AxisRule
from ._quadrature import GaussLegendre as GaussLegendre
from ._quadrature import Midpoint as Midpoint
from ._quadrature import QuadratureRule as QuadratureRule
from ._quadrature import Trapezoid as Trapezoid
from ._quadrature import from_points as from_points
from ._quadrature import gauss_legendre as gauss_legendre
from ._quadrature import halton as halton
from ._quadrature import importance as importance
from ._quadrature import lattice as lattice
from ._quadrature import midpoint as midpoint
from ._quadrature import monte_carlo as monte_carlo
from ._quadrature import rule_for as rule_for
from ._quadrature import sobol as sobol
from ._quadrature import tensor as tensor
from ._quadrature import trapezoid as trapezoid

__version__ = "0.1.0"
