"""Networks of embedded coordinates and time, and the initial data that they keep.

Small on purpose: any function of one point and one time will do. Depends on boxes."""

from ._ansatz import Ansatz as Ansatz
from ._ansatz import PiecewiseInTime as PiecewiseInTime
from ._ansatz import Series as Series
from ._ansatz import SteadyAnsatz as SteadyAnsatz
from ._network import MLP as MLP
from ._network import Network as Network
