"""The configuration of a run, as flags, as a file and as an object. Knows the names of
the library but not the library, so that a wrong one is told before JAX is loaded."""

from ._config import Config as Config
from ._config import load_config as load_config
from ._expression import Expression as Expression
from ._expression import parse as parse
from ._names import LISTED as LISTED
from ._names import NAMES as NAMES
from ._names import nearest as nearest
