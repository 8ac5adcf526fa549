"""The formulas in the studies of what the paper leaves open, against oracles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from sdifp import Box, Recipe, conserve, rule_for
from sdifp.correction import Status
from sdifp.quadrature import monte_carlo
from studies import (
    boundary,
    dropped_derivative,
    mini_batch_coefficients,
    quadrature_noise,
    warm_up,
)
from studies._fields import problem_of


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def test_the_quadratic_equation_solves_the_moment_equations_of_the_paper():
    """Against a root finder for `Q[u] = m`, `Q[u^2] = s`, begun at another point."""
    box = Box.cube(2, 0.0, 1.0)
    rule = rule_for(box, 20**2)
    phi = boundary.profile
    net = lambda x: phi(x) * (0.3 + jnp.sin(3.0 * x[0]) * jnp.cos(2.0 * x[1]))
    now = conserve(net, rule, mass=0.5, squared_norm=1.0, profile=phi).at()
    nodes, weights = np.asarray(rule.nodes), np.asarray(rule.weights)
    f, p = (np.asarray(jax.vmap(g)(jnp.asarray(nodes))) for g in (net, phi))

    def equations(c):
        u = c[0] * f + c[1] * p
        return [weights @ u - 0.5, weights @ u**2 - 1.0]

    start = [1.3 * float(now.scale), 0.8 * float(now.shift)]
    found = scipy.optimize.root(equations, start, tol=1e-13)
    assert found.success
    np.testing.assert_allclose([now.scale, now.shift], found.x, rtol=1e-9)
    least = boundary.least_second_moment(f, p, weights, 0.5)
    for square, met in ((0.999 * least, False), (1.001 * least, True)):
        now = conserve(net, rule, mass=0.5, squared_norm=square, profile=phi).at()
        assert (int(now.status) == Status.REGULAR) == met


@pytest.mark.parametrize(
    ("condition", "u", "wanted"),
    [
        ("periodic", lambda x: x[0] + jnp.sin(2.0 * np.pi * x[1]), 1.0),
        ("periodic", lambda x: jnp.cos(2.0 * np.pi * (x[0] + x[1])), 0.0),
        ("Neumann", lambda x: jnp.cos(np.pi * x[0]) + 0.5 * x[1] ** 2, 1.0),
        ("Neumann", lambda x: jnp.cos(np.pi * x[0]) * jnp.cos(np.pi * x[1]), 0.0),
        ("Dirichlet", lambda x: boundary.profile(x) + 0.25, 0.25),
        ("Dirichlet", boundary.profile, 0.0),
    ],
)
def test_violations_of_boundary_conditions(condition, u, wanted):
    found = boundary.violation(condition, u, boundary.walls_of(2, 0))
    assert float(found) == pytest.approx(wanted, abs=1e-14)


def test_what_the_time_derivative_lacks_is_what_the_paper_says():
    """`m' + alpha' (f - mu) - alpha mu'`, with moments in closed form."""
    box = Box([0.0], [2.0 * np.pi], periodic=True, normalised=True)
    rule = rule_for(box, 32)
    # On the rule: mean t^2, variance (1 + t)^2 / 2.
    net = lambda x, t: t**2 + (1.0 + t) * jnp.sin(x[0] - t)
    m, variance = (lambda t: jnp.sin(t)), (lambda t: 2.0 + t)
    square = lambda t: variance(t) + m(t) ** 2
    u = conserve(net, rule, mass=m, squared_norm=square)
    x, t = jnp.linspace(0.0, 6.0, 7)[:, None], 0.7
    alpha = np.sqrt(2.0 * (2.0 + t)) / (1.0 + t)
    rate = 0.5 * alpha * (1.0 / (2.0 + t) - 2.0 / (1.0 + t))
    values = np.asarray(jax.vmap(lambda x: net(x, t))(x))
    slope = np.sin(x[:, 0] - t) - (1.0 + t) * np.cos(x[:, 0] - t)
    lacking = np.cos(t) + rate * (values - t**2) - alpha * 2.0 * t
    got, lost = dropped_derivative.dropped_error(u, x, jnp.asarray(t), 1)
    np.testing.assert_allclose(lost, lacking, rtol=1e-12)
    np.testing.assert_allclose(got, lacking + alpha * (slope + 2.0 * t), rtol=1e-12)
    # The second one against differences of the first.
    h = 1e-4
    first = lambda t: dropped_derivative.dropped_error(u, x, jnp.asarray(t), 1)[0]
    second, _ = dropped_derivative.dropped_error(u, x, jnp.asarray(t), 2)
    np.testing.assert_allclose(second, (first(t + h) - first(t - h)) / (2 * h), 1e-6)


@pytest.mark.parametrize("k", [64, 256])
def test_the_predicted_scale_is_the_mean_over_batches(k):
    rng = np.random.default_rng(0)
    values = np.exp(0.5 * rng.standard_normal(1024))
    scales = [
        np.sqrt(2.0 / np.var(rng.choice(values, k, replace=False)))
        for _ in range(20_000)
    ]
    exact = np.sqrt(2.0 / np.var(values))
    predicted = float(mini_batch_coefficients.predicted_scale(values, 2.0, k))
    error = np.std(scales) / np.sqrt(len(scales))
    # Of the bias, what is of higher order.
    allowed = 4.0 * error + 0.4 * abs(predicted - exact)
    assert predicted - exact > 4.0 * error
    assert abs(np.mean(scales) - predicted) < allowed
    whole = mini_batch_coefficients.predicted_scale(values, 2.0, len(values))
    assert float(whole) == pytest.approx(exact, rel=1e-14)


def test_the_fitted_power_and_its_margin():
    sizes = np.asarray([8.0, 32.0, 128.0, 512.0])
    rng = np.random.default_rng(0)
    margin = 0.01 / sizes**0.5
    found = []
    for _ in range(200):
        bias = 2.0 / sizes + 0.2 * margin * rng.standard_normal(4)
        found.append(mini_batch_coefficients.fitted_power(sizes, bias, 0.2 * margin))
    power, error = np.asarray(found).T
    assert np.mean(power) == pytest.approx(-1.0, abs=0.01)
    assert np.std(power) == pytest.approx(np.mean(error), rel=0.2)


@pytest.mark.parametrize("way", ["fixed, sampled", "resampled, sampled"])
def test_fixed_nodes_stay_and_others_do_not(way):
    problem = problem_of("advection", 4)
    rule = monte_carlo(problem.domain, 64, key=jax.random.key(0))
    method = quadrature_noise.method_of(way, rule)
    net = lambda x, t: jnp.sin(x[0] + t)
    field = method.training_field(problem, net, rule, Recipe())
    new = method.resample(field, jax.random.key(1))
    same = np.array_equal(np.asarray(new.rule.nodes), np.asarray(rule.nodes))
    assert same == way.startswith("fixed")
    assert new.gradient.key is not None


def test_curves_are_compared_at_equal_time():
    """Half the time for the same fall of an exponential."""
    seconds = np.linspace(0.0, 8.0, 9)
    one = {"seconds": (0.5 * seconds).tolist(), "values": np.exp(-seconds).tolist()}
    other = {"seconds": seconds.tolist(), "values": np.exp(-seconds).tolist()}
    times = np.asarray([0.3, 1.0, 2.5])
    found = warm_up.at_equal_time(one, other, times)
    np.testing.assert_allclose(found, np.exp(-times), rtol=1e-12)
