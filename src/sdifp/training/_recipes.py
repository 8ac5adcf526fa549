"""What converges, by dimension: the recipes of problems that are given none."""

from ..field import Subsampled
from ..problems import Problem
from ._networks import MLP
from ._optimisers import Adam, Cosine, LevenbergMarquardt
from ._points import RandomPoints
from ._recipe import Recipe

# One dimension: a small network, all of it in float64, and a second-order optimiser.
SMALL = Recipe(
    network=MLP(32, 3, harmonics=8),
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
        network=MLP(64, 3, harmonics=2),
        optimiser=Adam(5e-3, Cosine()),
        steps=2000,
        points=RandomPoints(4, 128),
        nodes=(16**2, 6**3, 2**8)[kind],
        final_nodes=(24**2, 16**3, 2**12)[kind],
        gradient=Subsampled(32),
    )


def high_dimensional(dimension: int, neumann: bool) -> Recipe:
    """A hundred dimensions or a thousand: the nodes of the rule are resampled in every
    step, so that the network cannot learn its noise."""
    large = dimension > 300
    return Recipe(
        # One whole wave, which is the second harmonic of a Neumann axis.
        network=MLP(64, 3, harmonics=2 if neumann else 1, bottleneck=16),
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
        network=MLP(32, 3, harmonics=4 if two else 2),
        optimiser=LevenbergMarquardt(),
        steps=100,
        points=RandomPoints(12, 80) if two else RandomPoints(8, 112),
        nodes=16**2 if two else 8**3,
        final_nodes=24**2 if two else 16**3,
    )


def _library_recipe(dimension: int, neumann: bool) -> Recipe:
    """The recipe that the published numbers of the library's problems are measured
    with."""
    if dimension == 1:
        return SMALL
    if dimension <= 6:
        return low_dimensional(dimension)
    return high_dimensional(dimension, neumann)


# The problems of the library whose recipes were chosen by measuring, and the steps of
# their accurate recipe in one dimension.
_CHOSEN = {
    "advection": 400,
    "fokker-planck": 250,
    "heat-dirichlet": 250,
    "kdv": 80,
    "manufactured": 250,
    "reaction-diffusion": 250,
    "wave": 250,
}


def recipe_for(problem: Problem, recipe: str = "fast") -> Recipe:
    """The recipe of a problem that is given none, by its dimension.

    **Arguments:**

    - `recipe`: `fast`, about a minute, or `accurate`, minutes.

    Examples:
        >>> import sdifp
        >>> recipe = sdifp.training.recipe_for(sdifp.problems.kdv(), "accurate")
        >>> recipe.windows, recipe.steps
        (10, 80)
    """
    d, neumann = problem.domain.dimension, any(problem.neumann)
    return recipe_of(problem.name, d, neumann, recipe)


def recipe_of(name: str, d: int, neumann: bool, recipe: str) -> Recipe:
    """The recipe of a problem before it is made, by its name and dimension."""
    if recipe not in ("fast", "accurate"):
        raise ValueError(f"recipe must be fast or accurate, got {recipe!r}")
    stem, _, end = name.rpartition("-")
    if stem not in _CHOSEN or end != f"{d}d":
        fast = _second_order(d) if d in (2, 3) else _library_recipe(d, neumann)
        return fast if recipe == "fast" else fast.replace(steps=3 * fast.steps)
    fast = _library_recipe(d, neumann)
    if stem == "kdv":
        if d > 1:
            return fast
        # The data are narrow beside the circle, so that they need many harmonics.
        fast = fast.replace(network=MLP(32, 3, harmonics=24))
    if recipe == "fast":
        return fast
    if stem == "kdv":
        return fast.replace(windows=10, steps=_CHOSEN[stem])
    return fast.replace(steps=_CHOSEN[stem] if d == 1 else 3 * fast.steps)
