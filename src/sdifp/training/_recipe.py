"""How a problem is trained: everything that the methods have in common."""

import dataclasses

from .._checks import check_count, check_positive
from .._field import Exact, GradientMode
from .._networks import Architecture
from .._operators import Estimator, Full
from .._optimisers import Adam, Optimiser
from ._points import Points, RandomPoints


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of a training run, the same for every method. The default is the
    paper's: 4 hidden layers of 128, Adam with linear decay, 10 000 steps.

    **Arguments:**

    - `network`: the shape of the network.
    - `optimiser`: `Adam()`, `LBFGS()`, `LevenbergMarquardt()` or `Optax(...)`.
    - `steps`: how many steps, in each window.
    - `points`: `RandomPoints(n_t, n_x)` or `GridPoints(n_t, n_x)`.
    - `nodes`: how many nodes the rule has on which integrals are prescribed.
    - `final_nodes`: how many it has after the training; by default as many.
    - `gradient`: how SDIFP differentiates the moments.
    - `estimator`: how the residual is estimated.
    - `windows`: into how many equal parts time is cut; each is trained in turn, from
        the parameters of the one before, with its end as initial data.
    - `hard_initial`: whether the initial data hold by construction; else they are
        part of the loss.
    - `initial_weight`: their weight in the loss then.
    - `causal`: the rate at which times count less while earlier ones are not solved,
        `exp(-causal * sum of the mean squared residuals at the earlier times)`; None
        weighs all times alike.
    """

    network: Architecture = Architecture()
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
        if self.causal is not None and not self.causal >= 0.0:
            raise ValueError(f"causal must not be negative, got {self.causal}")
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

    def but(self, **changes: object) -> "Recipe":
        """The same recipe with some settings changed.

        Examples:
            >>> import sdifp
            >>> sdifp.Recipe().but(steps=100).steps
            100
        """
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]
