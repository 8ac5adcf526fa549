"""The droplet of a prescribed volume, against its equation, an adaptive solver of
boundary value problems and the energies of other states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from steady import first, jet, means, targets

from sdifp import problems
from sdifp.problems._droplet import layer

EPS, VOLUME = 0.06, 0.3
# Others for which there is a minimiser with a layer.
CASES = [(EPS, VOLUME), (0.02, -0.5), (0.15, 0.0)]


@pytest.mark.parametrize(("eps", "volume"), CASES)
def test_it_solves_the_equation(eps, volume):
    problem = problems.droplet(eps=eps, volume=volume)
    u = first(problem)
    x = np.linspace(0.0, 1.0, 101)[:, None]
    value, slope, bend = jet(u, x)
    residual = -(eps**2) * bend[:, 0, 0] + value**3 - value - u.multiplier
    assert np.abs(residual).max() < 1e-9
    assert np.abs(slope[[0, -1]]).max() < 1e-11 / eps
    assert np.all(slope[1:-1, 0] > -1e-10)
    mirrored = jet(problem.reference[1], x)[0]
    assert np.allclose(mirrored, value[::-1], rtol=0.0, atol=1e-12)

    def densities(x):
        value, grad = jax.vmap(jax.value_and_grad(u))(jnp.asarray(x))
        energy = 0.5 * eps**2 * grad[:, 0] ** 2 + 0.25 * (1.0 - value**2) ** 2
        by_problem = jax.vmap(lambda u, g: problem.equation.density(u=u, grad=g))
        (measured,) = problem.invariants[1:]
        multiplier = jax.vmap(lambda u: measured.function(u=u))(value)
        return [value, energy, by_problem(value, grad), multiplier]

    mass, energy, again, multiplier = means(problem, densities, 400)
    assert mass == pytest.approx(volume, abs=1e-12)
    assert energy == pytest.approx(problem.minimum, rel=1e-11)
    assert again == pytest.approx(energy, rel=1e-13)
    assert multiplier == pytest.approx(u.multiplier, abs=1e-11)
    assert targets(problem) == {"mass": volume, "multiplier": None}


def test_it_agrees_with_an_adaptive_solver():
    def rate(x, y, p):
        u, slope, _ = y
        return np.stack([slope, (u**3 - u - p[0]) / EPS**2, u])

    x = np.linspace(0.0, 1.0, 201)
    guess = np.tanh((x - 0.35) / (np.sqrt(2.0) * EPS))
    done = scipy.integrate.solve_bvp(
        rate,
        lambda a, b, p: np.array([a[1], b[1], a[2], b[2] - VOLUME]),
        x,
        np.stack([guess, np.gradient(guess, x), VOLUME * x]),
        p=[0.0],
        tol=1e-9,
        max_nodes=100_000,
    )
    assert done.success
    u = layer(EPS, VOLUME)
    points = np.linspace(0.0, 1.0, 60)
    assert np.allclose(jet(u, points[:, None])[0], done.sol(points)[0], atol=1e-10)
    assert u.multiplier == pytest.approx(done.p[0], abs=1e-10)


def test_other_critical_points_have_more_energy():
    one, two, three = (layer(EPS, VOLUME, n).energy for n in (1, 2, 3))
    constant = 0.25 * (1.0 - VOLUME**2) ** 2
    assert one < 0.51 * two < 0.35 * three < constant
    # About the energy of one layer on the whole axis.
    assert one == pytest.approx(np.sqrt(8.0) / 3.0 * EPS, rel=1e-5)


def test_the_second_variation_is_positive():
    """On functions with the integral 0, which are those without a constant term."""
    k = np.arange(150)
    nodes, weights = np.polynomial.legendre.leggauss(300)
    nodes, weights = 0.5 * (nodes + 1.0), 0.5 * weights
    basis = np.sqrt(np.where(k > 0, 2.0, 1.0)) * np.cos(np.pi * np.outer(nodes, k))
    curvature = 3.0 * jet(layer(EPS, VOLUME), nodes[:, None])[0] ** 2 - 1.0
    form = basis.T @ ((weights * curvature)[:, None] * basis)
    form += np.diag((EPS * np.pi * k) ** 2)
    assert np.linalg.eigvalsh(form[1:, 1:])[0] > 1e-3
    # Without the constraint the layer could move towards a wall.
    assert np.linalg.eigvalsh(form)[0] < -1e-6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"volume": 1.0}, "volume must be between -1 and 1, got 1.0"),
        ({"eps": 0.0}, "eps must be .* got 0.0"),
        ({"eps": 0.5}, "eps and volume must leave room .* got 0.5 and 0.3"),
        ({"volume": 0.95}, "eps and volume must leave room .* got 0.06 and 0.95"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        problems.droplet(**arguments)
