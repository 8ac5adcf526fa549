"""Invariants: integrals of a field over its domain, with the values they must have.

One class per file. Nothing here depends on JAX or PyTorch.
"""

from ._invariant import Invariant as Invariant
from ._invariant import Target as Target
from ._invariant import densities as densities
from ._invariant import relative_error as relative_error
from ._invariant import time_list as time_list
from ._mass import Mass as Mass
from ._squared_norm import SquaredNorm as SquaredNorm
from ._variance import Variance as Variance

# What users find here; the other names are for the rest of the library.
# fmt: off
__all__ = [
    "Invariant", "Mass", "SquaredNorm", "Variance",
]
# fmt: on
