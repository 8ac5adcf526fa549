"""Oracles for references of systems in time: derivatives by autodiff, integrals by a
rule of their own."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from quick import once


def sample(problem, rng, n=40):
    """Random points and times, as NumPy arrays."""
    box = problem.domain
    x = box.lower + box.width * rng.uniform(size=(n, box.dimension))
    return x, problem.duration * rng.uniform(size=n)


def jet(u, x, t):
    """Values, time derivatives, gradients and Laplacians of all components."""

    def at(x, t):
        hessian = jax.hessian(u)(x, t)
        laplacian = jnp.trace(hessian, axis1=1, axis2=2)
        return u(x, t), jax.jacfwd(u, 1)(x, t), jax.jacfwd(u)(x, t), laplacian

    return tuple(map(np.asarray, once(jax.vmap(at))(jnp.asarray(x), jnp.asarray(t))))


def residuals(problem, u, x, t):
    """Those of the equation of a problem."""
    at = lambda x, t: problem.equation(u, x, t)
    return np.asarray(once(jax.vmap(at))(jnp.asarray(x), jnp.asarray(t)))


def equidistant(problem, n):
    """Points of a torus, shifted off the nodes of the package, and their weight."""
    box = problem.domain
    axis = (np.arange(n) + 0.3) / n
    unit = np.array(list(itertools.product(axis, repeat=box.dimension)))
    return box.lower + box.width * unit, float(np.prod(box.width)) / len(unit)


def targets(problem, t):
    """The targets of the invariants at a time, by name."""
    return {i.name: float(i.target.value(jnp.asarray(t))) for i in problem.invariants}
