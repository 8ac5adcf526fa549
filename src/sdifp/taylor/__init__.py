"""Collapsed Taylor mode: weighted sums of directional derivatives of any JAX function.

Like `jax.experimental.jet`, but collapsed, with a universal fallback. Along the curve
x + s v the Taylor coefficients of every intermediate value follow from those before it.
A differential operator is a weighted sum over directions of the coefficients of the
highest order, and this sum enters every rule linearly: it is carried once, and not once
for each direction. Primitives without a rule are differentiated by nested `jax.jvp`, so
that every function that `jax.jvp` can differentiate works.

This package depends on JAX and Equinox and on nothing else in the library. Names that
are not in `__all__` serve the other packages.

    from sdifp import taylor

    laplacian = taylor.Directions({2: 1.0})          # all coordinates, order 2
    taylor.derivatives(f, x, laplacian).total        # sum_k d^2 f / dx_k^2 at x
"""

from ._jet import Collapse as Collapse
from ._jet import Jet as Jet
from ._jet import add as add
from ._jet import compose as compose
from ._jet import multiply as multiply
from ._paths import Automatic as Automatic
from ._paths import ByDirections as ByDirections
from ._paths import Derivatives as Derivatives
from ._paths import Directions as Directions
from ._paths import Nested as Nested
from ._paths import Path as Path
from ._paths import Step as Step
from ._paths import ThroughLayer as ThroughLayer
from ._paths import VmappedJet as VmappedJet
from ._paths import derivatives as derivatives
from ._rules import register_rule as register_rule

# fmt: off
__all__ = [
    "Automatic", "ByDirections", "Collapse", "Derivatives", "Directions", "Jet",
    "Nested", "Path", "Step", "ThroughLayer", "VmappedJet", "compose",
    "derivatives", "multiply", "register_rule",
]
# fmt: on
