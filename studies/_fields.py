"""What the studies share: the four equations, and networks that are not trained."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sdifp import Problem, problems
from sdifp.field import ConservedField
from sdifp.quadrature import QuadratureRule
from sdifp.training import MLP

EQUATIONS: dict[str, Callable[[int], Problem]] = {
    "advection": problems.advection,
    "reaction-diffusion": problems.reaction_diffusion,
    "wave": problems.wave,
    "KdV": problems.kdv,
}


def problem_of(equation: str, dimension: int) -> Problem:
    """One object for each problem and precision, so that nothing is compiled twice."""
    return _problem_of(equation, dimension, jnp.result_type(float).name)


@functools.cache
def _problem_of(equation: str, dimension: int, precision: str) -> Problem:
    del precision  # of the arrays that it may hold
    return EQUATIONS[equation](dimension)


@functools.cache
def network(
    equation: str, dimension: int, seed: int, width: int = 32, depth: int = 2
) -> Any:
    """A network of a problem as training begins with it: a raw field whose integrals
    are wrong."""
    problem = problem_of(equation, dimension)
    return MLP(width, depth).build(
        problem.domain,
        problem.duration,
        neumann=problem.neumann,
        key=jax.random.key(seed),
    )


@eqx.filter_jit
def _on_points(u: Any, x: Array, t: Array) -> Array:
    now = u.at(t) if isinstance(u, ConservedField) else lambda x: u(x, t)
    return jax.vmap(now)(x)


def values(u: Any, x: Array | np.ndarray, t: float) -> np.ndarray:
    """A function of one point and one time at many points of one time."""
    return np.asarray(_on_points(u, jnp.asarray(x), jnp.asarray(t, float)))


def nodes_of(rule: QuadratureRule) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights as NumPy has them."""
    return np.asarray(rule.nodes), np.asarray(rule.weights)


def targets(problem: Problem, t: float) -> tuple[float, float]:
    """Mean and second moment at a time."""
    mean, square = (problem.mean_target(i, t) for i in problem.invariants)
    return float(mean), float(square)
