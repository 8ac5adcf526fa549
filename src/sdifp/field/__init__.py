"""Networks that conserve."""

from .._core import Certificate as Certificate
from .._core import CertificateRow as CertificateRow
from .._core import MeasuredRow as MeasuredRow
from ._certificate import check_densities as check_densities
from ._certificate import independent_rule as independent_rule
from ._certificate import means_of as means_of
from ._conserve import conserve as conserve
from ._field import ConservedField as ConservedField
from ._freeze import FrozenField as FrozenField
from ._freeze import FrozenFieldSlice as FrozenFieldSlice
from ._gradient import Detached as Detached
from ._gradient import Exact as Exact
from ._gradient import GradientMode as GradientMode
from ._gradient import MiniBatch as MiniBatch
from ._gradient import Subsampled as Subsampled
from ._integrals import Jets as Jets
from ._integrals import integrals_at as integrals_at
from ._integrals import jets_at as jets_at
from ._integrals import sum_at as sum_at
from ._integrals import sums_at as sums_at
from ._integrals import value_and_gradient as value_and_gradient
from ._interpolated import Interpolated as Interpolated
from ._lagged import Lagged as Lagged
from ._positive_network import Positive as Positive
from ._positive_network import positive as positive
from ._protocol import Expansion as Expansion
from ._protocol import Field as Field
from ._protocol import PlainField as PlainField
from ._protocol import PlainSlice as PlainSlice
from ._protocol import as_field as as_field
from ._protocol import at_time as at_time
from ._protocol import evaluate as evaluate
from ._protocol import over_times as over_times
from ._slice import FieldSlice as FieldSlice
from ._slice import TargetLike as TargetLike
from ._slice import target_at as target_at
from ._table import MomentTable as MomentTable
from ._table import chebyshev_times as chebyshev_times
from ._table import moments_over as moments_over
from ._table import times_between as times_between

# What users find here; the other names are for the rest of the library.
# fmt: off
__all__ = [
    "Certificate", "CertificateRow", "ConservedField", "Detached", "Exact",
    "FieldSlice", "FrozenField", "FrozenFieldSlice", "GradientMode", "Interpolated",
    "Lagged", "MeasuredRow", "MiniBatch", "Positive", "Subsampled", "conserve",
    "positive",
]
# fmt: on
