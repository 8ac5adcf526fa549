"""How a problem is trained: everything that the methods have in common, and what
converges, by dimension: the recipes of problems that are given none."""

import dataclasses

from .._checks import check_count, check_positive
from ..estimators import Estimator, Full
from ..field import Exact, GradientMode, Subsampled
from ..problems import Problem
from ._networks import MLP
from ._optimisers import Adam, Cosine, LevenbergMarquardt, Optimiser
from ._points import Points, RandomPoints


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of a training run, the same for every method. The default is the
    paper's: 4 hidden layers of 128, Adam with linear decay, 10 000 steps.

    **Arguments:**

    - `network`: the network, such as `MLP(width, depth)`.
    - `optimiser`: the optimiser, such as `Adam(rate, decay)`, `LBFGS()` or
        `LevenbergMarquardt()`; in Python also `Optax(...)`.
    - `steps`: number of steps, in each window.
    - `points`: where the residual is evaluated, `RandomPoints(n_t, n_x)` or
        `GridPoints(n_t, n_x)`.
    - `nodes`: number of nodes of the quadrature rule in training.
    - `final_nodes`: number of its nodes after training; by default the same.
    - `gradient`: how SDIFP differentiates the moments, such as `Subsampled(32)`.
    - `estimator`: how the residual is estimated, such as `Independent(16)`.
    - `windows`: number of equal time windows; each is trained in turn, from the
        parameters of the one before, with its end as initial data.
    - `hard_initial`: whether the initial data hold by construction; otherwise they are
        part of the loss.
    - `initial_weight`: weight of the initial data in the loss.
    - `causal`: rate of the causal weights `exp(-causal * sum of the mean squared
        residuals at earlier times)`; by default all times have the same weight.
    """

    network: MLP = MLP()
    optimiser: Optimiser = Adam()
    steps: int = 10_000
    points: Points = RandomPoints(8, 64)
    nodes: int = 128
    final_nodes: int | None = None
    gradient: GradientMode = Exact()
    estimator: Estimator = Full()
    windows: int = 1
    hard_initial: bool = True
    initial_weight: float = 100.0
    causal: float | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "nodes", "windows"):
            check_count(name, getattr(self, name))
        if self.final_nodes is not None:
            check_count("final_nodes", self.final_nodes)
        check_positive("initial_weight", self.initial_weight)
        if self.causal is not None and not 0.0 <= self.causal < float("inf"):
            raise ValueError(
                f"causal must be finite and not negative, got {self.causal}"
            )
        needing = ["causal"] * (self.causal is not None)
        needing += [type(self.optimiser).__name__] * self.optimiser.uses_rows
        if needing and not isinstance(self.estimator, Full):
            raise ValueError(
                f"{needing[0]} needs the residual at each point, so estimator must be "
                f"Full(), got {self.estimator!r}"
            )

    def check(self, problem: Problem) -> None:
        """Raise `ValueError` for settings that a problem does not allow."""
        if not problem.is_steady:
            return
        if self.windows != 1:
            raise ValueError(
                f"windows must be 1 for a problem without time, got {self.windows}"
            )
        if self.causal is not None:
            raise ValueError(
                f"causal must be left out for a problem without time, got {self.causal}"
            )
        if problem.functional is not None and not isinstance(self.estimator, Full):
            raise ValueError(
                f"estimator must be Full() for a functional, which has no operator to "
                f"sample, got {self.estimator!r}"
            )

    def replace(self, **changes: object) -> "Recipe":
        """The same recipe with some settings changed.

        Examples:
            >>> import sdifp
            >>> sdifp.Recipe().replace(steps=100).steps
            100
        """
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


# One dimension: a small network, all of it in float64, and a second-order optimiser.
_SMALL = Recipe(
    network=MLP(32, 3, harmonics=8),
    optimiser=LevenbergMarquardt(),
    steps=120,
    points=RandomPoints(20, 48),
    nodes=128,
)


def _low_dimensional(dimension: int) -> Recipe:
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


def _high_dimensional(dimension: int, neumann: bool) -> Recipe:
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

    Levenberg-Marquardt is six to thirty times as accurate as `_low_dimensional` here.
    A step costs the square of the number of points, which is therefore about 1000, as
    in one dimension. Fewer of them are times, for each has its quadrature.
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


# Levenberg-Marquardt needs many derivatives of the network at each point: up to here
# it was compared with Adam on steady problems, and was more accurate.
_MOST_SECOND_ORDER = 20


def _steady(dimension: int, neumann: bool) -> Recipe:
    """A residual without time, in less than a minute on two cores: there is only one
    quadrature in each step, so that its rule may be fine."""
    if dimension == 1:
        return _SMALL.replace(steps=250)
    if dimension <= 3:
        side = (24, 12)[dimension - 2]
        final = (64**2, 24**3)[dimension - 2]
        return _second_order(dimension).replace(
            nodes=side**dimension, final_nodes=final
        )
    if dimension > _MOST_SECOND_ORDER:
        return _high_dimensional(dimension, neumann)
    return Recipe(
        network=MLP(32, 2, harmonics=2 if neumann else 1),
        optimiser=LevenbergMarquardt(),
        steps=60,
        points=RandomPoints(1, 1024),
        nodes=2048,
        final_nodes=2**14,
    )


def _functional(dimension: int, neumann: bool) -> Recipe:
    """A functional, in about a minute on two cores. The network must be smaller than
    the number of nodes: otherwise a step fits the noise of its nodes. Above three
    dimensions there is more of it, so that the damping has a lower bound."""
    if dimension == 1:
        return _SMALL.replace(steps=500)
    if dimension <= 3:
        two = dimension == 2
        return Recipe(
            network=MLP(24, 3, harmonics=4 if two else 2),
            optimiser=LevenbergMarquardt(),
            steps=120 if two else 100,
            nodes=40**2 if two else 16**3,
            final_nodes=64**2 if two else 32**3,
        )
    if dimension > _MOST_SECOND_ORDER:
        return _high_dimensional(dimension, neumann)
    return Recipe(
        network=MLP(24, 2, harmonics=2 if neumann else 1),
        optimiser=LevenbergMarquardt(least=1e-3),
        steps=60,
        nodes=2048,
        final_nodes=2**14,
    )


def _library_recipe(dimension: int, neumann: bool) -> Recipe:
    """The recipe that the published numbers of the library's problems are measured
    with."""
    if dimension == 1:
        return _SMALL
    if dimension <= 6:
        return _low_dimensional(dimension)
    return _high_dimensional(dimension, neumann)


# The problems of the library whose recipes were chosen by measuring, and what their
# accurate recipe changes in one dimension.
_CHOSEN: dict[str, dict[str, int]] = {
    "advection": {"steps": 400},
    "fokker-planck": {"steps": 250},
    "heat-dirichlet": {"steps": 250},
    "kdv": {"steps": 80, "windows": 10},
    "manufactured": {"steps": 250},
    "reaction-diffusion": {"steps": 250},
    "wave": {"steps": 250},
}
# Solutions that are narrow beside the circle need many harmonics. Of linear systems two
# hidden layers are three times as accurate as three.
_NARROW = MLP(32, 3, harmonics=24)
_PAIR = Recipe(
    network=MLP(40, 2, harmonics=4),
    optimiser=LevenbergMarquardt(),
    steps=220,
    points=RandomPoints(20, 64),
    nodes=64,
)
_PLANE = Recipe(
    network=MLP(40, 2, harmonics=2),
    optimiser=LevenbergMarquardt(),
    steps=120,
    points=RandomPoints(8, 80),
    nodes=12**2,
    final_nodes=24**2,
)
# Problems with a recipe of their own.
_OWN = {
    "kdv-1d": _SMALL.replace(network=_NARROW),
    "nonlinear-schroedinger-1d": _SMALL.replace(
        network=MLP(32, 3, harmonics=16),
        points=RandomPoints(12, 48),
        steps=50,
        windows=3,
    ),
    "nonlinear-schroedinger-soliton-1d": _SMALL.replace(
        network=_NARROW, points=RandomPoints(12, 48), steps=60
    ),
    "maxwell-1d": _PAIR,
    "maxwell-2d": _PLANE,
    "taylor-green-2d": _PLANE.replace(network=MLP(32, 2, harmonics=2), steps=60),
    "wave-system-1d": _PAIR,
    "wave-system-2d": _PLANE.replace(points=RandomPoints(8, 160)),
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
    if problem.is_steady:
        _check_kind(recipe)
        kind = _steady if problem.functional is None else _functional
        return _longer(kind(d, neumann), recipe)
    return recipe_of(problem.name, d, neumann, recipe)


def recipe_of(name: str, d: int, neumann: bool, recipe: str) -> Recipe:
    """The recipe of a problem in time before it is made, by its name and dimension."""
    _check_kind(recipe)
    stem, _, end = name.rpartition("-")
    is_known = end == f"{d}d"
    chosen = is_known and stem in _CHOSEN
    if is_known and name in _OWN:
        fast = _OWN[name]
    elif d in (2, 3) and not chosen:
        fast = _second_order(d)
    else:
        fast = _library_recipe(d, neumann)
    if chosen and recipe == "accurate":
        if d == 1:
            return fast.replace(**_CHOSEN[stem])
        if stem == "kdv":
            return fast
    return _longer(fast, recipe)


def _check_kind(recipe: str) -> None:
    if recipe not in ("fast", "accurate"):
        raise ValueError(f"recipe must be fast or accurate, got {recipe!r}")


def _longer(fast: Recipe, recipe: str) -> Recipe:
    """Three times the steps, if it is to be accurate."""
    return fast if recipe == "fast" else fast.replace(steps=3 * fast.steps)
