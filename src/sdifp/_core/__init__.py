"""What the engines share: mathematics and bookkeeping that need no engine.

Arrays may be JAX's or PyTorch's, and neither is imported here.
"""

from ._certificate import Certificate as Certificate
from ._certificate import CertificateRow as CertificateRow
from ._certificate import assemble as assemble
from ._closed_form import AbsoluteFloor as AbsoluteFloor
from ._closed_form import FieldLimits as FieldLimits
from ._closed_form import MomentAlgebra as MomentAlgebra
from ._closed_form import RelativeFloor as RelativeFloor
from ._closed_form import solve as solve
from ._frozen_file import FrozenTables as FrozenTables
from ._frozen_file import fit_arrays as fit_arrays
from ._frozen_file import load_frozen as load_frozen
from ._frozen_file import save_frozen as save_frozen
from ._prescribed import Prescribed as Prescribed
from ._prescribed import prescribe as prescribe
from ._prescribed import variance_of as variance_of
from ._status import Status as Status
from ._tabulate import tabulate as tabulate
from ._targets import Target as Target
from ._targets import targets_for as targets_for
from ._targets import time_list as time_list
