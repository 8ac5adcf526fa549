"""The wave equation as a first-order system, against formulas written anew."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from exact_systems import equidistant, jet, residuals, sample, targets
from quick import once

from sdifp import problems


@pytest.mark.parametrize(("d", "speed"), [(1, 1.0), (2, 0.7)])
def test_the_reference_is_a_solution_with_these_integrals(d, speed, rng):
    problem = problems.wave_system(d, speed=speed)
    u = problem.reference
    x, t = sample(problem, rng)
    value, rate, _, laplacian = jet(u, x, t)
    assert np.abs(rate[:, 0] - value[:, 1]).max() < 1e-13
    assert np.abs(rate[:, 1] - speed**2 * laplacian[:, 0]).max() < 1e-12
    assert np.abs(laplacian).max() > 0.5
    assert np.abs(residuals(problem, u, x, t)).max() < 1e-12
    # The other way round: a residual that is not zero is what it should be.
    other = lambda x, t: u(x, 2.0 * t) + jnp.sin(x[0])
    value, rate, _, laplacian = jet(other, x, t)
    wanted = [rate[:, 0] - value[:, 1], rate[:, 1] - speed**2 * laplacian[:, 0]]
    found = residuals(problem, other, x, t)
    assert np.abs(found - np.stack(wanted, 1)).max() < 1e-12
    assert np.abs(found).max() > 0.5

    nodes, weight = equidistant(problem, 48)
    for time in (0.0, 0.6, 1.0):
        value, _, gradient, _ = jet(u, nodes, np.full(len(nodes), time))
        energy = 0.5 * value[:, 1] ** 2
        energy += 0.5 * speed**2 * (gradient[:, 0] ** 2).sum(1)
        found = weight * np.array([*value.sum(0), energy.sum()])
        assert list(targets(problem, time)) == ["mass[0]", "mass[1]", "energy"]
        assert np.allclose(found, list(targets(problem, time).values()), rtol=1e-13)
    assert targets(problem, 1.0)["mass[0]"] > 1.3 * targets(problem, 0.0)["mass[0]"]
    assert problem.name == f"wave-system-{d}d"
    assert problem.components == ("u", "v")
    assert "u_t = v, v_t = c^2" in problem.description


def test_the_energy_is_that_of_an_adaptive_rule():
    problem = problems.wave_system()
    u = lambda x: problem.reference(x, jnp.asarray(1.3))
    density = once(lambda x: 0.5 * u(x)[1] ** 2 + 0.5 * jax.jacfwd(u)(x)[0, 0] ** 2)
    found, _ = scipy.integrate.quad(
        lambda x: float(density(jnp.array([x]))), 0.0, 2.0 * np.pi, epsabs=1e-12
    )
    assert found == pytest.approx(targets(problem, 1.3)["energy"], rel=1e-12)


@pytest.mark.parametrize("d", [1, 2])
def test_it_agrees_with_itself(d, getkey):
    problems.wave_system(d).check(getkey())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dimension": 3}, "dimension must be 1 or 2, got 3"),
        ({"dimension": 0}, "dimension must be a positive integer, got 0"),
        ({"speed": 0.0}, "speed must be positive and finite, got 0.0"),
        ({"duration": 0.0}, r"interval must begin at 0 .* got \(0.0, 0.0\)"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        problems.wave_system(**arguments)
