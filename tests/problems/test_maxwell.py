"""Maxwell's equations in vacuum, against the curls of vectors in three dimensions."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from exact_systems import equidistant, jet, residuals, sample, targets
from quick import once

from sdifp import problems


def electric(d, a):
    """Components of E, on the last axis, from those of the problem."""
    zero = np.zeros_like(a[..., 0])
    return np.stack([zero, a[..., 0], zero] if d == 1 else [zero, zero, a[..., 0]], -1)


def magnetic(d, a):
    zero = np.zeros_like(a[..., 0])
    return np.stack(
        [zero, zero, a[..., 1]] if d == 1 else [a[..., 1], a[..., 2], zero], -1
    )


def curl_and_divergence(slopes):
    """From derivatives of shape (points, axes, components)."""
    n, d, _ = slopes.shape
    full = np.zeros((n, 3, 3))
    full[:, :d] = slopes
    curl = np.stack(
        [full[:, j, k] - full[:, k, j] for j, k in ((1, 2), (2, 0), (0, 1))], 1
    )
    return curl, np.trace(full, axis1=1, axis2=2)


@pytest.mark.parametrize(("d", "speed"), [(1, 1.0), (1, 2.5), (2, 0.7)])
def test_the_reference_is_a_solution(d, speed, rng):
    problem = problems.maxwell(d, speed=speed)
    x, t = sample(problem, rng)
    u = problem.reference
    _, rate, gradient, _ = jet(u, x, t)
    slopes = np.swapaxes(gradient, 1, 2)
    curl_e, div_e = curl_and_divergence(electric(d, slopes))
    curl_b, div_b = curl_and_divergence(magnetic(d, slopes))
    assert np.abs(electric(d, rate) - speed * curl_b).max() < 1e-13
    assert np.abs(magnetic(d, rate) + speed * curl_e).max() < 1e-13
    assert max(np.abs(div_e).max(), np.abs(div_b).max()) < 1e-13
    assert np.abs(residuals(problem, u, x, t)).max() < 1e-13
    assert min(np.abs(curl_e).max(), np.abs(curl_b).max()) > 0.5


@pytest.mark.parametrize("d", [1, 2])
def test_the_residuals_are_those_of_the_equations(d, rng):
    problem = problems.maxwell(d, speed=1.5)
    u = lambda x, t: jnp.sin((1.0 + jnp.arange(d + 1.0)) * jnp.sum(x**2) - t)
    x, t = sample(problem, rng)
    _, rate, gradient, _ = jet(u, x, t)
    slopes = np.swapaxes(gradient, 1, 2)
    curl_e, _ = curl_and_divergence(electric(d, slopes))
    curl_b, div_b = curl_and_divergence(magnetic(d, slopes))
    in_e = electric(d, rate) - 1.5 * curl_b
    in_b = magnetic(d, rate) + 1.5 * curl_e
    wanted = [in_e[:, d], *([in_b[:, 2]] if d == 1 else [in_b[:, 0], in_b[:, 1]])]
    wanted += [1.5 * div_b] if d == 2 else []
    found = residuals(problem, u, x, t)
    assert found.shape == (40, (2, 4)[d - 1])
    assert np.abs(found - np.stack(wanted, 1)).max() < 1e-11


@pytest.mark.parametrize("d", [1, 2])
def test_the_integrals_are_those_of_a_fine_rule(d):
    problem = problems.maxwell(d)
    nodes, weight = equidistant(problem, 48)
    for time in (0.0, 1.3):
        value = jet(problem.reference, nodes, np.full(len(nodes), time))[0]
        found = weight * np.array([*value.sum(0), (value**2).sum()])
        assert np.allclose(found, list(targets(problem, time).values()), atol=1e-11)
    assert targets(problem, 0.0)["squared_norm"] > 8.0


def test_the_energy_is_that_of_an_adaptive_rule():
    problem = problems.maxwell()
    at = once(lambda x: jnp.sum(problem.reference(x, jnp.asarray(0.4)) ** 2))
    found, _ = scipy.integrate.quad(
        lambda x: float(at(jnp.array([x]))), 0.0, 2.0 * np.pi, epsabs=1e-12
    )
    assert found == pytest.approx(targets(problem, 0.4)["squared_norm"], rel=1e-12)


@pytest.mark.parametrize("d", [1, 2])
def test_it_agrees_with_itself(d, getkey):
    problem = problems.maxwell(d)
    assert problem.name == f"maxwell-{d}d"
    assert problem.components == (("E", "B"), ("E", "Bx", "By"))[d - 1]
    assert ("div B = 0" in problem.description) == (d == 2)
    problem.check(getkey())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dimension": 3}, "dimension must be 1 or 2, got 3"),
        ({"dimension": 0}, "dimension must be a positive integer, got 0"),
        ({"speed": -1.0}, "speed must be positive and finite, got -1.0"),
        ({"speed": np.inf}, "speed must be positive and finite, got inf"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        problems.maxwell(**arguments)
