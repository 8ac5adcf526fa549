"""How a problem is trained: everything that the methods have in common."""

import dataclasses

from .._checks import check_count, check_positive
from ..estimators import Estimator, Full
from ..field import Exact, GradientMode
from ._networks import MLP
from ._optimisers import Adam, Optimiser
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
        full = isinstance(self.estimator, Full)
        if self.causal is not None and not full:
            raise ValueError(
                f"causal needs the residual at each time, so estimator must be Full(), "
                f"got {self.estimator!r}"
            )
        if self.optimiser.uses_rows and not full:
            raise ValueError(
                f"{type(self.optimiser).__name__} needs the residual at each point, so "
                f"estimator must be Full(), got {self.estimator!r}"
            )

    def replace(self, **changes: object) -> "Recipe":
        """The same recipe with some settings changed.

        Examples:
            >>> import sdifp
            >>> sdifp.Recipe().replace(steps=100).steps
            100
        """
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]
