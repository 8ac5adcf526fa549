"""The configuration of a run, as flags, as a file and as an object. Its fields and the
names that it accepts are those of the library."""

from ._config import Config as Config
from ._config import load_config as load_config
from ._expression import Expression as Expression
from ._expression import parse as parse
from ._objects import PARTS as PARTS
from ._objects import kind_of as kind_of
from ._objects import listed as listed
