"""Runs: a configuration, and a training in a folder with checkpoints."""

from .._config import Config as Config
from .._config import load_config as load_config
from ..problems import fingerprint as fingerprint
from ._build import Built as Built
from ._build import build as build
from ._build import describe as describe
from ._build import devices_for as devices_for
from ._build import load_problem as load_problem
from ._build import precision_for as precision_for
from ._build import precision_now as precision_now
from ._build import where as where
from ._checkpoint import Unchanged as Unchanged
from ._checkpoint import digest_of as digest_of
from ._checkpoint import read_unchanged as read_unchanged
from ._evaluation import predict as predict
from ._processes import RunError as RunError
from ._processes import check_same_on_all as check_same_on_all
from ._processes import is_primary as is_primary
from ._processes import on_primary as on_primary
from ._run import Run as Run
from ._run import versions as versions
from ._tensorboard import TensorBoard as TensorBoard

# What users find here; the other names are for the rest of the library.
# fmt: off
__all__ = [
    "Config", "Run", "RunError", "load_config",
]
# fmt: on
