"""Ways to train a network on a problem with prescribed integrals, one a file."""

from ._augmented_lagrangian import AugmentedLagrangian as AugmentedLagrangian
from ._grid_projection import GridProjection as GridProjection
from ._method import Instant as Instant
from ._method import Method as Method
from ._method import errors_of as errors_of
from ._method import integral_errors as integral_errors
from ._method import integrals_at as integrals_at
from ._pin_and_rescale import PinAndRescale as PinAndRescale
from ._plain import Plain as Plain
from ._post_hoc import PostHoc as PostHoc
from ._sdifp import SDIFP as SDIFP
from ._soft import Soft as Soft
