"""Optimisers behind one interface. Knows no problem and no field: an objective is
given as a loss, or as the rows of a least-squares problem."""

from ._gradient import LBFGS as LBFGS
from ._gradient import Adam as Adam
from ._gradient import Constant as Constant
from ._gradient import Cosine as Cosine
from ._gradient import Decay as Decay
from ._gradient import Linear as Linear
from ._gradient import Optax as Optax
from ._levenberg_marquardt import LevenbergMarquardt as LevenbergMarquardt
from ._optimiser import Objective as Objective
from ._optimiser import Optimiser as Optimiser
