"""Oracles for references of steady problems: derivatives, and integrals by product
rules of their own."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from quick import once


def first(problem):
    """The first of the references."""
    given = problem.reference
    return given[0] if isinstance(given, tuple) else given


def jet(u, x):
    """Values, gradients and Hessians at points, by autodiff."""
    derivatives = lambda x: (u(x), jax.grad(u)(x), jax.hessian(u)(x))
    return tuple(map(np.asarray, once(jax.vmap(derivatives))(jnp.asarray(x))))


def points(problem, rng, n=50):
    """Random points of the domain, as a NumPy array."""
    box = problem.domain
    return box.lower + box.width * rng.uniform(size=(n, box.dimension))


def means(problem, function, n):
    """Of several functions of points in rows, over the domain: Gauss-Legendre nodes, or
    equidistant ones on periodic axes."""
    box = problem.domain
    axes = [_axis(n, bool(periodic)) for periodic in box.periodic]
    unit = np.array(list(itertools.product(*(nodes for nodes, _ in axes))))
    weights = np.array(list(itertools.product(*(w for _, w in axes)))).prod(1)
    values = function(box.lower + box.width * unit)
    return [float(weights @ np.asarray(v)) for v in values]


def _axis(n, periodic):
    if periodic:
        return (np.arange(n) + 0.3) / n, np.full(n, 1.0 / n)
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return 0.5 * (nodes + 1.0), 0.5 * weights


def targets(problem):
    """The invariants of a problem by name, with their targets."""
    given = {i.name: i.target for i in problem.invariants}
    return {k: None if v is None else v.value(None) for k, v in given.items()}


def integrals(problem):
    """The integrals in the equation of a problem, functions by their names."""
    return {one.name: one.function for one in problem.equation.integrals}
