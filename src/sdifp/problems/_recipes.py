"""What converges, by dimension: the recipes that problems begin with."""

from .._field import Subsampled
from .._networks import Architecture
from .._optimisers import Adam, Cosine, LevenbergMarquardt
from ._points import RandomPoints
from ._recipe import Recipe

# One dimension: a small network, all of it in float64, and a second-order optimiser.
SMALL = Recipe(
    network=Architecture(32, 3, harmonics=8),
    optimiser=LevenbergMarquardt(),
    steps=120,
    points=RandomPoints(20, 48),
    nodes=128,
)


def low_dimensional(dimension: int) -> Recipe:
    """Two to six dimensions: a coarse rule in training, where it need not be exact, and
    a fine one afterwards; few times, for each has its quadrature."""
    kind = min(dimension, 4) - 2
    return Recipe(
        network=Architecture(64, 3, harmonics=2),
        optimiser=Adam(5e-3, Cosine()),
        steps=2000,
        points=RandomPoints(4, 128),
        nodes=(16**2, 6**3, 2**8)[kind],
        final_nodes=(24**2, 16**3, 2**12)[kind],
        gradient=Subsampled(32),
    )


def high_dimensional(dimension: int, neumann: bool) -> Recipe:
    """A hundred dimensions or a thousand: the nodes of the rule are redrawn in every
    step, so that the network cannot learn its noise."""
    large = dimension > 300
    return Recipe(
        # One whole wave, which is the second harmonic of a Neumann axis.
        network=Architecture(64, 3, harmonics=2 if neumann else 1, bottleneck=16),
        optimiser=Adam(1e-3 if large else 3e-3, Cosine()),
        steps=1800 if large else 2500,
        points=RandomPoints(2, 128),
        nodes=512,
        final_nodes=2**16,
        gradient=Subsampled(32),
    )


def recipe_for(dimension: int, *, neumann: bool = False) -> Recipe:
    """The recipe for a dimension."""
    if dimension == 1:
        return SMALL
    if dimension <= 6:
        return low_dimensional(dimension)
    return high_dimensional(dimension, neumann)
