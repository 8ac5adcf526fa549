"""The command line: a thin shell over the public names. Nothing here loads JAX before
a command needs it."""

from ._main import main as main
