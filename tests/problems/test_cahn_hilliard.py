"""The Cahn-Hilliard equation, against an integrator of another kind."""

import numpy as np
import pytest
from circle import (
    differences,
    grid,
    integral,
    integrated,
    measured,
    pieces,
    points,
    residual,
    values,
)
from quick import once

from sdifp import problems
from sdifp.problems import _check

CASES = [{}, {"eps": 0.4, "duration": 2.0}]


@pytest.mark.parametrize("arguments", CASES)
def test_it_solves_the_equation(arguments, rng):
    problem = problems.cahn_hilliard(**arguments)
    eps = arguments.get("eps", 0.25)
    x, t = points(problem, 200, rng)
    u, rate, slope, bend = pieces(problem.reference, x, t)
    assert np.abs(rate[0] - bend[1]).max() < 1e-8 < 1e-7 * np.abs(rate[0]).max()
    mu = u[0] ** 3 - u[0] - eps**2 * bend[0]
    assert np.allclose(u[1], mu, rtol=0.0, atol=1e-10)
    second = (3.0 * u[0] ** 2 - 1.0) * slope[0] - slope[1]
    # What is left of the slope of mu is the third derivative of u.
    assert np.abs(second).max() > 1e-3
    assert np.abs(residual(problem, x, t)).max() < 1e-8


def test_it_agrees_with_another_integrator():
    problem = problems.cahn_hilliard(duration=0.5)
    x = grid(problem, 64)
    _, second = differences(64, 2.0 * np.pi)

    def rate(t, u):
        return second @ (u**3 - u - 0.25**2 * second @ u)

    start = 0.1 + 0.1 * np.cos(x) + 0.2 * np.cos(2 * x - 1) + 0.1 * np.sin(3 * x)
    wanted = integrated(rate, start, 0.5)
    assert np.allclose(values(problem, x, 0.5)[0], wanted, rtol=0.0, atol=1e-7)


def test_the_mass_stays_and_the_free_energy_decays():
    problem = problems.cahn_hilliard()
    (mass,) = problem.prescribed
    assert (mass.name, mass.component) == ("mass[0]", 0)
    energies = []
    for t in np.linspace(0.0, problem.duration, 5):
        found = integral(problem, lambda u, slope: u[0], t)
        assert found == pytest.approx(float(mass.target.value(None)), abs=1e-12)
        energies.append(measured(problem, "free energy", t))
        # Its rate is minus the integral of mu_x^2.
        step = 1e-4 * (1.0 if t == 0.0 else -1.0)
        other = measured(problem, "free energy", t + step)
        middle = integral(problem, lambda u, slope: slope[1] ** 2, t + 0.5 * step)
        assert (other - energies[-1]) / step == pytest.approx(-middle, rel=1e-5)
    assert np.all(np.diff(energies) < 0.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"eps": 0.0}, "eps must be .* got 0.0"),
        ({"duration": np.inf}, "duration must be .* got inf"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        problems.cahn_hilliard(**arguments)


def test_its_parts_agree(monkeypatch):
    monkeypatch.setattr(_check, "once", once)
    problems.cahn_hilliard().check()
