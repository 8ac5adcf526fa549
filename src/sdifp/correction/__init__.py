"""The moment projection: pure mathematics on arrays, no networks."""

from .._core import AbsoluteFloor as AbsoluteFloor
from .._core import Correction as Correction
from .._core import Moments as Moments
from .._core import RelativeFloor as RelativeFloor
from .._core import Status as Status
from ._exponential import Exponential as Exponential
from ._exponential import TestFunctions as TestFunctions
from ._exponential import Wanted as Wanted
from ._exponential import most_ratio as most_ratio
from ._exponential import residuals as residuals
from ._exponential import solve_exponential as solve_exponential
from ._identities import coefficient_derivatives as coefficient_derivatives
from ._identities import continuum_errors as continuum_errors
from ._identities import floor_perturbation as floor_perturbation
from ._invariants import InvariantProjection as InvariantProjection
from ._invariants import project_invariants as project_invariants
from ._maps import Exp as Exp
from ._maps import PositiveMap as PositiveMap
from ._maps import Softplus as Softplus
from ._maps import Square as Square
from ._moments import accumulator as accumulator
from ._moments import merge_moments as merge_moments
from ._moments import moments as moments
from ._moments import moments_about as moments_about
from ._moments import moments_of_part as moments_of_part
from ._positive import PositiveProjection as PositiveProjection
from ._positive import project_positive as project_positive
from ._project import Projection as Projection
from ._project import correct as correct
from ._project import least_second_moment as least_second_moment
from ._project import project as project
from ._project import project_euclidean as project_euclidean

# What users find here; the other names are for the rest of the library.
# fmt: off
__all__ = [
    "AbsoluteFloor", "Correction", "InvariantProjection", "Moments",
    "PositiveProjection", "Projection", "RelativeFloor", "Status",
    "coefficient_derivatives", "continuum_errors", "correct", "floor_perturbation",
    "least_second_moment", "merge_moments", "moments", "moments_of_part", "project",
    "project_euclidean", "project_invariants", "project_positive",
]
# fmt: on
