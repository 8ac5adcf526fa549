"""Linear steady problems with a source: solutions that were chosen, found again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from steady import integrals, jet, means, points, targets

from sdifp import problems


@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_neumann_poisson(d, rng):
    problem = problems.neumann_poisson(d)
    u, source = problem.reference, problem.equation.source
    x = points(problem, rng)
    value, _, bend = jet(u, x)
    f = np.asarray(jax.vmap(source)(jnp.asarray(x)))
    assert np.abs(-np.trace(bend, axis1=1, axis2=2) - f).max() < 1e-13 * np.abs(f).max()
    residual = problem.equation(u, jnp.asarray(x))
    assert np.abs(residual).max() < 1e-13 * np.abs(f).max()
    for wall in (0.0, 1.0):
        at_wall = x.copy()
        at_wall[:, 0] = wall
        assert np.abs(jet(u, at_wall)[1][:, 0]).max() < 1e-13
    # Odd about the centre, and so is the source: both have the integral 0.
    assert np.allclose(jet(u, 1.0 - x)[0], -value, atol=1e-13)
    if d <= 2:
        both = lambda x: [jax.vmap(f)(jnp.asarray(x)) for f in (u, source)]
        assert np.abs(means(problem, both, 32)).max() < 1e-13
    assert np.abs(value).max() > 0.3
    assert targets(problem) == {"mass": 0.0}


@pytest.mark.parametrize("strength", [0.0, 10.0])
def test_fredholm(strength):
    problem = problems.fredholm(strength=strength)
    u, equation = problem.reference, problem.equation
    kernel = integrals(problem)["memory"]
    x = np.linspace(0.0, 1.0, 21)
    value, slope, bend = jet(u, x[:, None])
    memory = np.array(
        [
            scipy.integrate.quad(
                lambda y, at=at: float(
                    np.exp(at * y) * (np.sin(np.pi * y) + 0.5 * np.sin(2.0 * np.pi * y))
                ),
                *(0.0, 1.0),
                epsabs=1e-13,
            )[0]
            for at in x
        ]
    )
    source = np.array([equation.source(jnp.array([at])) for at in x])
    residual = -bend[:, 0, 0] + strength * memory - source
    assert np.abs(residual).max() < 1e-12 * np.abs(source).max()
    assert np.abs(value[[0, -1]]).max() < 1e-14
    assert np.abs(value).max() > 0.5

    (mass,) = means(problem, lambda x: [jax.vmap(u)(jnp.asarray(x))], 32)
    assert targets(problem) == {"mass": pytest.approx(mass, rel=1e-13)}

    # The kernel and the local term are those of this equation.
    one, other = np.array([0.3]), np.array([0.7])
    assert kernel(x=one, y=other, u=2.0) == pytest.approx(2.0 * np.exp(0.21))
    local = equation.local(value[5], slope[5], x[5:6], memory=memory[5])
    assert local == pytest.approx(strength * memory[5])


def test_fredholm_is_solved_by_collocation():
    """With the source alone: no other function solves the equation."""
    problem = problems.fredholm()
    n = 24
    theta = np.pi * np.arange(n + 1) / n
    x = 0.5 * (1.0 - np.cos(theta))
    cheb = np.polynomial.chebyshev
    second = np.stack(
        [cheb.chebval(2.0 * x - 1.0, cheb.chebder(c, 2)) * 4.0 for c in np.eye(n + 1)],
        axis=1,
    )
    nodes, weights = np.polynomial.legendre.leggauss(40)
    nodes, weights = 0.5 * (nodes + 1.0), 0.5 * weights
    kernel = np.exp(np.outer(x, nodes)) * weights
    terms = -second + 10.0 * kernel @ cheb.chebvander(2.0 * nodes - 1.0, n)
    terms[[0, -1]] = cheb.chebvander(np.array([-1.0, 1.0]), n)
    right = np.array([problem.equation.source(jnp.array([at])) for at in x])
    right[[0, -1]] = 0.0
    found = cheb.chebval(2.0 * x - 1.0, np.linalg.solve(terms, right))
    assert np.allclose(found, jet(problem.reference, x[:, None])[0], atol=1e-11)


def test_bad_arguments_are_refused(as_user):
    with pytest.raises(ValueError, match=r"strength must be .* got -1.0"):
        problems.fredholm(strength=-1.0)
    with pytest.raises(ValueError, match=r"dimension must be .* got 0"):
        problems.neumann_poisson(0)
