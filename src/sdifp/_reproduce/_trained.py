"""One training of one method, and what became of its integrals."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .._field import ConservedField
from .._methods import Method
from .._quadrature import QuadratureRule, monte_carlo
from .._training import Training, train
from ..problems import Problem, Recipe
from ._experiment import Value
from ._fields import nodes_of, targets, values

# Curves have so many times.
TIMES = 17


def run_of(problem: Problem, method: Method, recipe: Recipe, seed: int) -> Training:
    """A training, done."""
    run = train(
        problem,
        method,
        recipe=recipe,
        key=jax.random.key(seed),
        every=recipe.steps,
        check=False,
    )
    run.result()
    return run


def integrals(u: Any, rule: QuadratureRule, times: Sequence[float]) -> np.ndarray:
    """Mean and second moment on a rule, a line for each time."""
    nodes, weights = nodes_of(rule)
    found = [values(u, nodes, t) for t in times]
    return np.asarray([(weights @ v, weights @ v**2) for v in found])


def errors(problem: Problem, found: np.ndarray, times: Sequence[float]) -> np.ndarray:
    """Of both integrals, relative: that of the mass to the root of the energy where it
    is small beside it."""
    wanted = np.asarray([targets(problem, t) for t in times])
    units = np.stack(
        [np.maximum(abs(wanted[:, 0]), np.sqrt(wanted[:, 1])), wanted[:, 1]], 1
    )
    return np.abs(found - wanted) / units


def outcome(run: Training, points: int, seed: int) -> dict[str, Value]:
    """Errors on the rule, in the continuum and on random points, the worst over time,
    and curves."""
    problem, trained = run.problem, run.result()
    times = np.linspace(0.0, problem.duration, TIMES).tolist()
    u = trained.field
    rule = u.rule if isinstance(u, ConservedField) else run.final_rule
    draw = monte_carlo(problem.box, points, key=jax.random.key(10_000 + seed))
    out: dict[str, Value] = {"l2": trained.metrics.l2_error}
    for name, where in (
        ("rule", rule),
        ("continuum", run.independent_rule),
        ("random", draw),
    ):
        found = integrals(u, where, times)
        off = errors(problem, found, times)
        for k, symbol in enumerate(("c1", "c2")):
            out[f"{symbol}_{name}"] = float(off[:, k].max())
            if name != "random":
                out[f"{symbol}_{name}_over_time"] = off[:, k].tolist()
            if name == "continuum":
                out[f"{symbol}_over_time"] = found[:, k].tolist()
    wanted = np.asarray([targets(problem, t) for t in times])
    out |= {"times": times, "c1_target": wanted[:, 0].tolist()}
    return out | {"c2_target": wanted[:, 1].tolist()}
