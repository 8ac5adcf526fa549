"""Invariants: integrals of a field over its domain, with the values they must have.

One class per file. Nothing here depends on JAX or PyTorch.
"""

from ._arguments import parameters as parameters
from ._arguments import shown as shown
from ._arguments import value_of as value_of
from ._density import Density as Density
from ._dirichlet_energy import DirichletEnergy as DirichletEnergy
from ._errors import Drift as Drift
from ._errors import drift as drift
from ._errors import relative_errors as relative_errors
from ._integral import Integral as Integral
from ._integral import check_asked_for as check_asked_for
from ._integral import integrals_from as integrals_from
from ._integral import taken_by as taken_by
from ._integral import unknown_arguments as unknown_arguments
from ._invariant import At as At
from ._invariant import ComponentInvariant as ComponentInvariant
from ._invariant import Invariant as Invariant
from ._invariant import Measured as Measured
from ._invariant import Target as Target
from ._invariant import WeightedInvariant as WeightedInvariant
from ._invariant import densities as densities
from ._invariant import entries as entries
from ._invariant import invariants_from as invariants_from
from ._invariant import read_rows as read_rows
from ._invariant import relative_error as relative_error
from ._invariant import time_list as time_list
from ._mass import Mass as Mass
from ._moment import Moment as Moment
from ._quadratic import Quadratic as Quadratic
from ._quadratic_form import QuadraticForm as QuadraticForm
from ._squared_norm import SquaredNorm as SquaredNorm
from ._variance import Variance as Variance

# What users find here; the other names are for the rest of the library.
# fmt: off
__all__ = [
    "Density", "DirichletEnergy", "Invariant", "Mass", "Moment", "Quadratic",
    "QuadraticForm", "SquaredNorm", "Variance",
]
# fmt: on
