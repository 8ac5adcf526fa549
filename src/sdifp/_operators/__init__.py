"""Differential operators: exact or sampled, and what training on them estimates."""

from ._apply import Applied as Applied
from ._apply import Plan as Plan
from ._operator import Operator as Operator
from ._operator import advection as advection
from ._operator import biharmonic as biharmonic
from ._operator import derivative as derivative
from ._operator import fokker_planck as fokker_planck
from ._operator import laplacian as laplacian
from ._operator import mixed_derivative as mixed_derivative
from ._operator import mixed_derivatives as mixed_derivatives
from ._operator import reaction as reaction
from ._operator import third_derivatives as third_derivatives
from ._paths import Automatic as Automatic
from ._paths import ByDirections as ByDirections
from ._paths import Nested as Nested
from ._paths import Path as Path
from ._paths import ThroughLayer as ThroughLayer
from ._paths import VmappedJet as VmappedJet
from ._samplers import Coordinates as Coordinates
from ._samplers import Gaussian as Gaussian
from ._samplers import Rademacher as Rademacher
from ._samplers import Sampler as Sampler
