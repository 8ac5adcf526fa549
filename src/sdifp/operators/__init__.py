"""Linear differential operators, exact or sampled, and residuals of equations.

Operators are small objects that add up and can be multiplied by numbers: `op(u)(x, t)`
is the operator applied to a conserved field or to any function of a point and a time,
and `op.sample(key, n)` an unbiased estimate of it from n of its terms. A `Residual` is
an operator, a nonlinear local term and a source.

Names that are not in `__all__` serve the other packages of this library.
"""

from ._apply import AppliedOperator as AppliedOperator
from ._apply import Evaluation as Evaluation
from ._apply import Plan as Plan
from ._batch import Batch as Batch
from ._batch import PointFunction as PointFunction
from ._batch import batch_of as batch_of
from ._batch import in_chunks as in_chunks
from ._batch import mapped_over as mapped_over
from ._functional import Functional as Functional
from ._named import advection as advection
from ._named import biharmonic as biharmonic
from ._named import derivative as derivative
from ._named import fokker_planck as fokker_planck
from ._named import laplacian as laplacian
from ._named import mixed_derivative as mixed_derivative
from ._named import mixed_derivatives as mixed_derivatives
from ._named import reaction as reaction
from ._named import third_derivatives as third_derivatives
from ._named import time_derivative as time_derivative
from ._operator import Operator as Operator
from ._residual import Residual as Residual
from ._samplers import Coordinates as Coordinates
from ._samplers import Gaussian as Gaussian
from ._samplers import Rademacher as Rademacher
from ._samplers import Sampler as Sampler
from ._samplers import groups_of as groups_of

# fmt: off
__all__ = [
    "AppliedOperator", "Coordinates", "Functional", "Gaussian", "Operator", "Plan",
    "Rademacher", "Residual", "Sampler", "advection", "biharmonic", "derivative",
    "fokker_planck", "laplacian", "mixed_derivative", "mixed_derivatives", "reaction",
    "third_derivatives", "time_derivative",
]
# fmt: on
