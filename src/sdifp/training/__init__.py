"""Training: recipes, points, networks, methods, optimisers, the step and the loop."""

from .._mesh import mesh as mesh
from ._eigenpairs import Combination as Combination
from ._eigenpairs import Eigenpair as Eigenpair
from ._eigenpairs import eigenpairs as eigenpairs
from ._methods import SDIFP as SDIFP
from ._methods import AugmentedLagrangian as AugmentedLagrangian
from ._methods import GridProjection as GridProjection
from ._methods import Instant as Instant
from ._methods import Method as Method
from ._methods import PinAndRescale as PinAndRescale
from ._methods import Plain as Plain
from ._methods import PostHoc as PostHoc
from ._methods import Soft as Soft
from ._metrics import Interval as Interval
from ._metrics import MeasuredDrift as MeasuredDrift
from ._metrics import Metrics as Metrics
from ._metrics import Trained as Trained
from ._metrics import TrainingDiverged as TrainingDiverged
from ._networks import MLP as MLP
from ._networks import Ansatz as Ansatz
from ._networks import Network as Network
from ._networks import PiecewiseInTime as PiecewiseInTime
from ._networks import Series as Series
from ._optimisers import LBFGS as LBFGS
from ._optimisers import Adam as Adam
from ._optimisers import Constant as Constant
from ._optimisers import Cosine as Cosine
from ._optimisers import Decay as Decay
from ._optimisers import LevenbergMarquardt as LevenbergMarquardt
from ._optimisers import Linear as Linear
from ._optimisers import Objective as Objective
from ._optimisers import Optax as Optax
from ._optimisers import Optimiser as Optimiser
from ._points import GridPoints as GridPoints
from ._points import Points as Points
from ._points import RandomPoints as RandomPoints
from ._recipe import Recipe as Recipe
from ._recipe import recipe_for as recipe_for
from ._recipe import recipe_of as recipe_of
from ._train import train as train
from ._training import Training as Training

# What users find here; the other names are for the rest of the library.
# fmt: off
__all__ = [
    "LBFGS", "MLP", "SDIFP", "Adam", "AugmentedLagrangian", "Constant", "Cosine",
    "Decay", "Eigenpair", "GridPoints", "GridProjection", "Interval",
    "LevenbergMarquardt", "Linear", "MeasuredDrift", "Method", "Metrics", "Network",
    "Optax", "Optimiser", "PinAndRescale", "Plain", "Points", "PostHoc", "RandomPoints",
    "Recipe", "Soft", "Trained", "Training", "TrainingDiverged", "eigenpairs", "mesh",
    "recipe_for", "train",
]
# fmt: on
