"""What the engines share: mathematics and bookkeeping that need no engine.

Arrays may be JAX's or PyTorch's, and neither is imported here.
"""

from ._certificate import Certificate as Certificate
from ._certificate import CertificateRow as CertificateRow
from ._certificate import assemble as assemble
from ._checks import SUM_TOLERANCE as SUM_TOLERANCE
from ._checks import check_count as check_count
from ._checks import check_finite as check_finite
from ._checks import check_known as check_known
from ._checks import check_positive as check_positive
from ._checks import check_profile as check_profile
from ._checks import check_volume as check_volume
from ._checks import check_weights as check_weights
from ._closed_form import Correction as Correction
from ._closed_form import Moments as Moments
from ._closed_form import solve as solve
from ._frozen import FrozenTables as FrozenTables
from ._frozen import fit_arrays as fit_arrays
from ._frozen import load_frozen as load_frozen
from ._frozen import save_frozen as save_frozen
from ._frozen import tabulate as tabulate
from ._group import GroupMoments as GroupMoments
from ._group import Orthonormalised as Orthonormalised
from ._group import check_definite as check_definite
from ._group import check_independent as check_independent
from ._group import forward_substitution as forward_substitution
from ._group import orthonormalised as orthonormalised
from ._group import solve_group as solve_group
from ._group import solve_positive as solve_positive
from ._measured import MeasuredRow as MeasuredRow
from ._prescribed import Group as Group
from ._prescribed import Prescribed as Prescribed
from ._prescribed import explain as explain
from ._prescribed import prescribe as prescribe
from ._prescribed import variance_of as variance_of
from ._scale import AbsoluteFloor as AbsoluteFloor
from ._scale import RelativeFloor as RelativeFloor
from ._scale import Status as Status
