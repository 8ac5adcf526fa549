"""The Allen-Cahn equation, against an integrator of another kind and a closed form."""

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

CASES = [{}, {"eps": 0.05, "duration": 6.0}]


@pytest.mark.parametrize("arguments", CASES)
def test_it_solves_the_equation(arguments, rng):
    problem = problems.allen_cahn(**arguments)
    eps = arguments.get("eps", 0.1)
    x, t = points(problem, 200, rng)
    u, rate, _, bend = pieces(problem.reference, x, t)
    assert np.abs(rate - eps**2 * bend - u + u**3).max() < 1e-9
    assert np.abs(residual(problem, x, t)).max() < 1e-9
    assert np.abs(rate).max() > 0.1


def test_it_agrees_with_another_integrator():
    problem = problems.allen_cahn()
    x = grid(problem, 64)
    _, second = differences(64, 2.0)
    start = 0.2 + 0.3 * np.cos(np.pi * x) + 0.3 * np.sin(2.0 * np.pi * x)
    rate = lambda t, u: 0.01 * second @ u + u - u**3
    wanted = integrated(rate, start, problem.duration)
    assert np.allclose(values(problem, x, 4.0)[0], wanted, rtol=0.0, atol=1e-8)


def test_without_diffusion_each_point_is_alone():
    """u' = u - u^3 has the solution u0 e^t / sqrt(1 + u0^2 (e^2t - 1))."""
    problem = problems.allen_cahn(eps=1e-7, duration=1.0)
    x = np.linspace(-1.0, 1.0, 33)
    start = 0.2 + 0.3 * np.cos(np.pi * x) + 0.3 * np.sin(2.0 * np.pi * x)
    for t in (0.3, 1.0):
        wanted = start * np.exp(t) / np.sqrt(1.0 + start**2 * np.expm1(2.0 * t))
        assert np.allclose(values(problem, x, t)[0], wanted, rtol=0.0, atol=1e-9)


def test_nothing_is_prescribed_and_the_free_energy_decays():
    problem = problems.allen_cahn()
    assert problem.prescribed == ()
    assert [one.name for one in problem.measured] == ["mass", "free energy"]
    times = np.linspace(0.0, problem.duration, 5)
    energies = [measured(problem, "free energy", t) for t in times]
    assert np.all(np.diff(energies) < 0.0)
    masses = [integral(problem, lambda u, slope: u[0], t) for t in times]
    assert np.ptp(masses) > 0.5


@pytest.mark.parametrize("name", ["eps", "duration"])
def test_bad_arguments_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be .* got -1.0"):
        problems.allen_cahn(**{name: -1.0})


def test_its_parts_agree(monkeypatch):
    monkeypatch.setattr(_check, "once", once)
    problems.allen_cahn().check()
