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
        # A step takes four times as long in a thousand dimensions as in a hundred.
        steps=600 if large else 2500,
        points=RandomPoints(2, 128),
        nodes=512,
        final_nodes=2**16,
        gradient=Subsampled(32),
    )


def _second_order(dimension: int) -> Recipe:
    """Two or three dimensions in about a minute on two cores.

    Levenberg-Marquardt is six to thirty times as accurate as `low_dimensional` here, on
    advection, reaction-diffusion and Fokker-Planck. A step costs the square of the
    number of points, which is therefore about 1000, as in one dimension. Fewer of them
    are times, for each has its quadrature.
    """
    two = dimension == 2
    return Recipe(
        network=Architecture(32, 3, harmonics=4 if two else 2),
        optimiser=LevenbergMarquardt(),
        steps=100,
        points=RandomPoints(12, 80) if two else RandomPoints(8, 112),
        nodes=16**2 if two else 8**3,
        final_nodes=24**2 if two else 16**3,
    )


def default_recipe(dimension: int, *, neumann: bool = False) -> Recipe:
    """The recipe of a problem that brings none.

    Up to three dimensions a small network and a second-order optimiser in float64. The
    library's own problems in two and three have others, which their published numbers
    are measured with; above, the recipe is theirs.
    """
    if dimension in (2, 3):
        return _second_order(dimension)
    return recipe_for(dimension, neumann=neumann)


def recipe_for(dimension: int, *, neumann: bool = False) -> Recipe:
    """The recipe of the library's own problems."""
    if dimension == 1:
        return SMALL
    if dimension <= 6:
        return low_dimensional(dimension)
    return high_dimensional(dimension, neumann)
