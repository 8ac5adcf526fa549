"""The ground state of the Gross-Pitaevskii equation, against its equation, published
energies and an adaptive solver of boundary value problems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from quick import only
from steady import first, jet, means, points, targets

from sdifp import problems
from sdifp.problems._gross_pitaevskii import ground_state

# (problem, beta, points on each axis, relative size of the residual). The Laplacian of
# a truncated series loses digits: the function itself is far more accurate.
CASES = {
    "1": (lambda: problems.gross_pitaevskii(1), 500.0, 400, 1e-11),
    "2": (lambda: problems.gross_pitaevskii(2), 200.0, 120, 1e-9),
    "3": (lambda: problems.gross_pitaevskii(3), 100.0, 60, 2e-6),
    "weak": (lambda: problems.gross_pitaevskii(2, beta=0.1, width=9), 0.1, 80, 1e-9),
    "tight": (lambda: problems.gross_pitaevskii(1, width=16), 500.0, 400, 1e-9),
}


@pytest.mark.parametrize("case", only(CASES, "1", "2", "weak", "tight"))
def test_it_is_the_positive_solution(case, rng, record_property):
    """A positive solution with this norm is the ground state: it is the only one."""
    make, beta, n, tolerance = CASES[case]
    problem = make()
    d, u = problem.domain.dimension, first(problem)
    x = points(problem, rng)
    value, _, bend = jet(u, x)
    assert value.min() > 0.0
    applied = (
        -0.5 * np.trace(bend, axis1=1, axis2=2)
        + 0.5 * (x**2).sum(1) * value
        + beta * value**3
    )
    residual = np.abs(applied - u.multiplier * value).max()
    found = float(residual / (u.multiplier * value.max()))
    record_property(f"gross-pitaevskii {case}", found)
    assert residual < tolerance * u.multiplier * value.max()
    assert np.array_equal(jet(problem.reference[1], x)[0], -value)

    at_wall = x.copy()
    at_wall[:, 0] = problem.domain.upper[0]
    assert np.abs(jet(u, at_wall)[0]).max() < 1e-12 * value.max()
    assert np.abs(jax.vmap(problem.profile)(jnp.asarray(at_wall))).max() < 1e-12
    assert jax.vmap(problem.profile)(jnp.asarray(x)).min() > 0.0
    check_integrals(problem, u, beta, n)
    assert targets(problem) == {"squared_norm": 1.0, "multiplier": None}
    assert problem.name == f"gross-pitaevskii-{d}d"


def check_integrals(problem, u, beta, n):
    measured = problem.invariants[1].function

    def densities(x):
        at = jnp.asarray(x)
        value, grad = jax.vmap(jax.value_and_grad(u))(at)
        linear = 0.5 * (grad**2).sum(1) + 0.5 * (at**2).sum(1) * value**2
        by_problem = [
            jax.vmap(lambda x, u, g, f=f: f(x=x, u=u, grad=g))(at, value, grad)
            for f in (problem.equation.density, measured)
        ]
        return [value**2, linear, beta * value**4, *by_problem]

    found = [problem.domain.volume * v for v in means(problem, densities, n)]
    square, linear, quartic, energy, multiplier = found
    assert square == pytest.approx(1.0, rel=1e-11)
    assert problem.minimum == pytest.approx(linear + 0.5 * quartic, rel=1e-11)
    assert energy == pytest.approx(problem.minimum, rel=1e-11)
    # The multiplier is E + beta/2 int u^4.
    assert multiplier == pytest.approx(problem.minimum + 0.5 * quartic, rel=1e-11)
    assert u.multiplier == pytest.approx(multiplier, rel=1e-11)


def test_published_energies():
    assert problems.gross_pitaevskii(1).minimum == pytest.approx(24.7811, abs=5e-5)
    assert problems.gross_pitaevskii(2).minimum == pytest.approx(5.46246, abs=5e-6)


@pytest.mark.parametrize(
    ("d", "beta", "width", "count"),
    [(1, 500.0, 20.0, None), (2, 20.0, 14.0, None), (3, 10.0, 12.0, 26)],
)
def test_it_agrees_with_an_adaptive_solver(d, beta, width, count):
    """For the radial equation: in boxes so wide that the shape of their walls is seen
    near the walls only."""
    end = 0.5 * width
    sphere = (2.0, 2.0 * np.pi, 4.0 * np.pi)[d - 1]

    def rate(r, y, p):
        u, slope, _ = y
        (mu,) = p
        bend = 2.0 * (0.5 * r**2 + beta * u**2 - mu) * u
        return np.stack([slope, bend, sphere * r ** (d - 1) * u**2])

    def ends(a, b, p):
        return np.array([a[1], b[0], a[2], b[2] - 1.0])

    r = np.linspace(0.0, end, 201)
    radius = (d * (d + 2) * beta / sphere) ** (1.0 / (d + 2))
    u = np.sqrt(np.maximum(radius**2 - r**2, 0.01) / (2.0 * beta))
    grown = scipy.integrate.cumulative_simpson(sphere * r ** (d - 1) * u**2, x=r)
    done = scipy.integrate.solve_bvp(
        rate,
        ends,
        r,
        np.stack([u, np.gradient(u, r), np.append(0.0, grown)]),
        p=[0.5 * radius**2 + 0.5],
        # The term -(d - 1) u' / r.
        S=np.diag([0.0, 1.0 - d, 0.0]) if d > 1 else None,
        tol=1e-9,
        max_nodes=100_000,
    )
    assert done.success
    state = ground_state(d, beta, width, count)
    along = np.linspace(0.0, end if d == 1 else 0.6 * end, 50)
    x = np.zeros((50, d))
    x[:, d - 1] = along
    assert np.allclose(jet(state, x)[0], done.sol(along)[0], atol=1e-8)
    assert state.multiplier == pytest.approx(done.p[0], rel=1e-8)


def test_more_functions_change_nothing():
    few, many = (ground_state(1, 500.0, 20.0, n) for n in (64, 100))
    x = np.linspace(-10.0, 10.0, 101)[:, None]
    assert np.abs(jet(few, x)[0] - jet(many, x)[0]).max() < 1e-12
    assert few.energy == pytest.approx(many.energy, rel=1e-13)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dimension": 4}, "dimension must be at most 3, got 4"),
        ({"beta": -1.0}, "beta must be a positive number, got -1.0"),
        ({"width": np.inf}, "width must be a positive number, got inf"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        problems.gross_pitaevskii(**arguments)
