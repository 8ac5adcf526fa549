"""A value at one point in place of an integral, and a rescaling afterwards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from make_problem import make_problem
from quick import once

import sdifp
from sdifp.operators import Functional
from sdifp.problems import Dirichlet, Free
from sdifp.training import MLP, LevenbergMarquardt, PinAndRescale, RandomPoints

RECIPE = sdifp.Recipe(
    MLP(8, 1),
    LevenbergMarquardt(),
    steps=25,
    points=RandomPoints(1, 24),
    nodes=32,
)
PROFILE = Dirichlet(lambda x: 4.0 * x[0] * (1.0 - x[0]))


def string(**rest):
    """-u'' = pi^2 u with the squared norm 2: u = 2 sin(pi x), and zero solves it."""
    wave = lambda x: 2.0 * jnp.sin(jnp.pi * x[0])
    given = {
        "conditions": [PROFILE],
        "squared_norm": 2.0,
        "reference": (wave, lambda x: -wave(x)),
        **rest,
    }
    return sdifp.Problem(
        sdifp.Box([0.0], [1.0]),
        sdifp.Residual(sdifp.laplacian(), lambda u, grad, x: np.pi**2 * u),
        **given,
    )


def density(**rest):
    """u'' + (u x)' = 0 with mass 1: a Gauss function."""
    gauss = lambda x: jnp.exp(-0.5 * x[0] ** 2)
    total = float(np.sqrt(2.0 * np.pi))
    return sdifp.Problem(
        sdifp.Box([-8.0], [8.0]),
        sdifp.Residual(sdifp.laplacian(), lambda u, grad, x: x[0] * grad[0] + u),
        [Free()],
        mass=1.0,
        positive=True,
        reference=lambda x: gauss(x) / total,
        **rest,
    )


def training(problem, method=PinAndRescale(), recipe=RECIPE):
    return sdifp.train(problem, method, recipe=recipe, key=jax.random.key(0))


@pytest.mark.parametrize("make", [string, density])
def test_the_value_at_the_point_is_one_in_training(make, getkey):
    problem = make()
    point = [0.3]
    run = training(problem, PinAndRescale(point))
    u = run.field
    assert np.isclose(u(jnp.array(point)), 1.0, rtol=1e-14)
    walls = problem.domain.lower, problem.domain.upper
    if problem.profile is not None:
        assert all(float(u(jnp.asarray(w))) == 0.0 for w in walls)
    assert np.isclose(training(problem).field(jnp.asarray(sum(walls) / 2)), 1.0)


def test_a_linear_problem_is_solved_and_scaled_to_its_norm():
    run = training(string())
    found = run.result()
    assert found.metrics.l2_error < 1e-4
    rule = sdifp.quadrature.gauss_legendre(string().domain, 32)
    # On the rule of the method, and in the continuum.
    assert max(found.metrics.errors.values()) < 1e-12
    norm = once(lambda: rule.mean(lambda x: found.field(x) ** 2))()
    assert np.isclose(norm, 2.0, rtol=1e-10)
    # The ratio of the result to what was trained is one number.
    x = jnp.linspace(0.1, 0.9, 7)[:, None]
    ratio = jax.vmap(found.field)(x) / jax.vmap(run.field)(x)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)


def test_a_positive_density_is_scaled_to_its_mass(as_user):
    run = training(density(), recipe=RECIPE.replace(steps=3))
    found = run.result()
    x = jnp.linspace(-7.0, 7.0, 9)[:, None]
    values, raw = jax.vmap(found.field)(x), jax.vmap(run.field)(x)
    assert np.all(np.asarray(values) > 0.0)
    np.testing.assert_allclose(values / raw, (values / raw)[0], rtol=1e-12)
    nodes, weights = jnp.asarray(run.final_rule.nodes), run.final_rule.weights
    assert np.isclose(16.0 * weights @ np.asarray(jax.vmap(found.field)(nodes)), 1.0)


def test_it_takes_a_functional():
    problem = sdifp.Problem(
        sdifp.Box([0.0], [1.0]),
        Functional(lambda u, grad: 0.5 * jnp.sum(grad**2)),
        [PROFILE],
        squared_norm=1.0,
    )
    found = training(problem, recipe=RECIPE.replace(steps=2)).result()
    # In one dimension a point holds u: the trained one is a hat, and no wave.
    assert found.functional.value > 0.5 * np.pi**2
    assert max(found.metrics.errors.values()) < 1e-10


def in_time():
    return make_problem(
        domain=sdifp.Box([0.0], [1.0], periodic=True),
        equation=sdifp.Residual(sdifp.time_derivative() - sdifp.laplacian()),
        initial=lambda x: 1.0 + 0.0 * x[0],
        mass=1.0,
    )


@pytest.mark.parametrize(
    ("make", "method", "message"),
    [
        (in_time, PinAndRescale(), "PinAndRescale is for steady problems"),
        (
            lambda: string(mass=4.0 / np.pi, reference=None),
            PinAndRescale(),
            r"can rescale to one integral.*prescribes mass, squared_norm",
        ),
        (
            lambda: string(squared_norm=None, mass=1.0, reference=None),
            PinAndRescale(),
            "can rescale to one integral.*problem prescribes mass",
        ),
        (
            lambda: string(squared_norm=None),
            PinAndRescale(),
            "PinAndRescale needs invariants, and problem has none",
        ),
        (string, PinAndRescale([0.0]), r"point must not lie on a wall.*\(0\.0,\)"),
        (string, PinAndRescale([1.5]), r"point must have one coordinate.*\[1\.5\]"),
        (string, PinAndRescale([0.2, 0.3]), r"one coordinate for each of the 1 axes"),
        (string, PinAndRescale([np.nan]), "point must have one coordinate.*nan"),
    ],
)
@pytest.mark.filterwarnings("ignore:problem is solved by u = 0")
def test_what_it_cannot_do_is_refused(make, method, message):
    with pytest.raises(ValueError, match=message):
        training(make(), method)
