"""Networks that conserve."""

from .._core import Certificate as Certificate
from .._core import CertificateRow as CertificateRow
from ._certificate import independent_rule as independent_rule
from ._field import AtTime as AtTime
from ._field import ConservedField as ConservedField
from ._field import FieldAt as FieldAt
from ._field import at_time as at_time
from ._field import at_with_series as at_with_series
from ._field import conserve as conserve
from ._freeze import FrozenField as FrozenField
from ._freeze import FrozenFieldAt as FrozenFieldAt
from ._gradient import Detached as Detached
from ._gradient import Exact as Exact
from ._gradient import GradientMode as GradientMode
from ._gradient import MiniBatch as MiniBatch
from ._gradient import Subsampled as Subsampled
