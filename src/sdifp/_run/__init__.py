"""A run: a configuration, and a training in a folder that survives."""

from ..problems._sketch import sketch as sketch
from ._build import Built as Built
from ._build import ProblemFileError as ProblemFileError
from ._build import build as build
from ._build import describe as describe
from ._build import devices_for as devices_for
from ._build import load_problem as load_problem
from ._build import precision_for as precision_for
from ._build import where as where
from ._evaluation import values as values
from ._predict import predict as predict
from ._processes import RunError as RunError
from ._processes import by_first as by_first
from ._processes import check_alike as check_alike
from ._processes import check_devices as check_devices
from ._processes import is_first as is_first
from ._run import Run as Run
from ._run import versions as versions
from ._tensorboard import TensorBoard as TensorBoard
from ._unchanged import read_unchanged as read_unchanged
