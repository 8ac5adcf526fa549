"""How the moments of a network on a rule are differentiated by its parameters.

Every mode has the exact moments as its value, and exact derivatives in x and t, on all
nodes of the rule. They differ in the gradient with respect to the parameters, and in
its cost.
"""

import dataclasses

from .._core import check_count

# Rows of one evaluation of the network, times and nodes together.
_CHUNK = 4096


@dataclasses.dataclass(frozen=True)
class Exact:
    """The gradient on all nodes, in memory proportional to `chunk` and not to the size
    of the rule.

    **Arguments:**

    - `chunk`: how many rows, nodes times times, the network is evaluated on at once.
    """

    chunk: int = _CHUNK

    def __post_init__(self) -> None:
        check_count("chunk", self.chunk)


@dataclasses.dataclass(frozen=True)
class Subsampled:
    """An unbiased gradient from `k` random nodes; value and derivatives in time stay
    exact on all of them.

    Needs fresh randomness in every step: call `u.resample()` before it. Without it the
    gradient is the exact one.

    **Arguments:**

    - `k`: how many nodes the gradient is estimated from.
    - `stratified`: nodes that are spread as evenly as the rule knows how, instead of
        `k` nodes at random; see `Rule.sample`.
    - `chunk`: as for `Exact`.
    """

    k: int
    stratified: bool = True
    chunk: int = _CHUNK

    def __post_init__(self) -> None:
        check_count("k", self.k)
        check_count("chunk", self.chunk)


@dataclasses.dataclass(frozen=True)
class Detached:
    """No gradient through the moments. **Biased**: the network is trained as if scale
    and shift were given numbers, which can run away. For comparison, and for networks
    that are only evaluated.

    **Arguments:**

    - `chunk`: as for `Exact`.
    """

    chunk: int = _CHUNK

    def __post_init__(self) -> None:
        check_count("chunk", self.chunk)


GradientMode = Exact | Subsampled | Detached
