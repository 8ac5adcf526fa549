"""The Taylor-Green vortex, against the Navier-Stokes equations written anew."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from exact_systems import equidistant, jet, residuals, sample, targets
from quick import once

from sdifp import problems


def navier_stokes(u, x, t, viscosity):
    """The two momentum equations and the divergence."""
    value, rate, gradient, laplacian = jet(u, x, t)
    (a, b, _), (da, db, dp) = value.T, np.moveaxis(gradient, 0, -1)
    return np.stack(
        [
            rate[:, 0] + a * da[0] + b * da[1] + dp[0] - viscosity * laplacian[:, 0],
            rate[:, 1] + a * db[0] + b * db[1] + dp[1] - viscosity * laplacian[:, 1],
            da[0] + db[1],
        ],
        1,
    )


@pytest.mark.parametrize("viscosity", [0.0, 0.1, 2.0])
def test_the_reference_is_a_solution(viscosity, rng):
    problem = problems.taylor_green(viscosity=viscosity)
    x, t = sample(problem, rng)
    u = problem.reference
    assert np.abs(navier_stokes(u, x, t, viscosity)).max() < 1e-13
    assert np.abs(residuals(problem, u, x, t)).max() < 1e-13
    value = jet(u, x, t)[0]
    assert np.abs(value).max(0).min() > 1e-3


def test_the_residuals_are_those_of_the_equations(rng):
    problem = problems.taylor_green(viscosity=0.3)
    u = lambda x, t: jnp.sin(jnp.array([1.0, 2.0, -1.0]) * (x[0] + x[1] ** 2) + t)
    x, t = sample(problem, rng)
    wanted = navier_stokes(u, x, t, 0.3)
    assert np.abs(residuals(problem, u, x, t) - wanted).max() < 1e-11
    assert np.abs(wanted).max(0).min() > 1.0


def test_the_integrals_are_those_of_a_fine_rule():
    problem = problems.taylor_green(viscosity=0.2)
    nodes, weight = equidistant(problem, 32)
    for time in (0.0, 0.7):
        value = jet(problem.reference, nodes, np.full(len(nodes), time))[0]
        energy = 0.5 * (value[:, :2] ** 2).sum()
        found = weight * np.array([*value.sum(0), energy])
        wanted = targets(problem, time)
        assert list(wanted) == ["mass[0]", "mass[1]", "mass[2]", "kinetic_energy"]
        assert np.allclose(found, list(wanted.values()), atol=1e-11)
    decay = targets(problem, 1.0)["kinetic_energy"] / np.pi**2
    assert decay == pytest.approx(np.exp(-0.8), rel=1e-12)


def test_the_energy_is_that_of_an_adaptive_rule():
    problem = problems.taylor_green()
    at = once(lambda x: 0.5 * jnp.sum(problem.reference(x, jnp.asarray(0.4))[:2] ** 2))
    on_line = lambda y: scipy.integrate.fixed_quad(
        np.vectorize(lambda x: float(at(jnp.array([x, y])))), 0.0, 2.0 * np.pi, n=20
    )[0]
    found, _ = scipy.integrate.quad(on_line, 0.0, 2.0 * np.pi, epsabs=1e-10)
    assert found == pytest.approx(targets(problem, 0.4)["kinetic_energy"], rel=1e-10)


def test_it_agrees_with_itself(getkey):
    problem = problems.taylor_green()
    assert problem.name == "taylor-green-2d"
    assert problem.components == ("u", "v", "p")
    assert "u_x + v_y = 0" in problem.description
    problem.check(getkey())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"viscosity": -1.0}, "viscosity must be finite and not negative, got -1.0"),
        ({"viscosity": np.nan}, "viscosity must be finite and not negative, got nan"),
        ({"duration": -1.0}, r"interval must begin at 0 .* got \(0.0, -1.0\)"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        problems.taylor_green(**arguments)
