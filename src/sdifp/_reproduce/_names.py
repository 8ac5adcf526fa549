"""The experiments by name; nothing here loads JAX."""

import importlib

from .._config import nearest
from ._experiment import Experiment

# Each with its line in `sdifp list` and the paper's labels.
EXPERIMENTS = {
    "collocation": "integral error of a shift, on a fixed grid and on random points",
    "weighted-metric": "the correction in the rule's norm and in the unweighted one",
    "grid-equivalence": "SDIFP and PINN-proj on a uniform grid",
    "quadrature-exactness": "errors on the rule and in the continuum, three rules",
    "variance-floor": "amplification with and without a floor",
    "conservation": "all methods in one, two and three dimensions",
    "integrals-over-time": "mass and energy of all methods over time",
    "dimension": "memory, error and time against the dimension",
    "coefficient-gradient": "the gradient from a sample of the nodes",
    "cost": "what each part of a step costs",
    "estimator-bias": "bias and noise of sampled operators",
    "pinet": "Pinet on the linear constraint beside the closed form",
}


def load_experiment(name: str) -> Experiment:
    """The experiment of a name. Raises `ValueError` if there is none."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}; {nearest(name, EXPERIMENTS)}")
    module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
    found: Experiment = module.EXPERIMENT
    return found
