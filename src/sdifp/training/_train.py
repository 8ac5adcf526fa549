"""train: a problem, a method and a recipe, to a field with prescribed integrals."""

from collections.abc import Callable

from jaxtyping import Array

from ..problems import Problem
from ._methods import SDIFP, Method
from ._recipe import Recipe
from ._training import Training


def train(
    problem: Problem,
    method: Method = SDIFP(),
    *,
    recipe: Recipe | None = None,
    network: Callable[..., Array] | None = None,
    every: int | None = None,
    check: bool = True,
    key: Array,
) -> Training:
    """Train a network on a problem.

    Iterate over what is returned for `Metrics` while the training goes on; `result()`
    runs it to the end and returns the field with its certificate. The same key gives
    the same numbers.

    **Arguments:**

    - `problem`: one of `sdifp.problems`, or a `Problem` of your own.
    - `method`: `SDIFP()`, `PostHoc()`, `Plain()`, `Soft(weight)`,
        `AugmentedLagrangian()`, `GridProjection()` or, for steady problems,
        `PinAndRescale()`.
    - `recipe`: the settings; by default `sdifp.training.recipe_for(problem)`. One with
        `LevenbergMarquardt()`, the default up to three dimensions, needs float64.
    - `network`: a function of one point, shape (d,), and one time that begins at 0, or
        of one point if the problem is steady; it returns one number. By default the
        one of the recipe.
    - `every`: how many steps lie between metrics; by default a twentieth of all. The
        first ones come after the first step.
    - `check`: whether data, targets and reference must agree, as `Problem.check` says.
        Noisy data, for one, need not have the integrals that they should.
    - `key`: for the network, the points, and all other randomness.
    """
    return Training(
        problem,
        method,
        recipe=recipe,
        network=network,
        every=every,
        check=check,
        key=key,
    )
