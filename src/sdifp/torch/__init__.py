"""The same correction for PyTorch: wrap an `nn.Module`, and its integrals hold.

Needs PyTorch (`pip install "sdifp[torch]"`) and does not import JAX: only making a rule
with `sdifp` and measuring a certificate do.
"""

try:
    import torch as _torch
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        'sdifp.torch needs PyTorch, which is not installed: pip install "sdifp[torch]"'
    ) from _error

from .._core import AbsoluteFloor as AbsoluteFloor
from .._core import Certificate as Certificate
from .._core import CertificateRow as CertificateRow
from .._core import RelativeFloor as RelativeFloor
from .._core import Status as Status
from ._conserve import conserve as conserve
from ._field import ConservedField as ConservedField
from ._freeze import FrozenField as FrozenField
from ._gradient import Detached as Detached
from ._gradient import Exact as Exact
from ._gradient import Subsampled as Subsampled
from ._rule import Rule as Rule
from ._slice import FieldSlice as FieldSlice

del _torch
