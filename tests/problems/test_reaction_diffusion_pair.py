"""Two species that turn into each other, against an integrator of another kind."""

import numpy as np
import pytest
from circle import (
    differences,
    grid,
    integral,
    integrated,
    pieces,
    points,
    residual,
    values,
)
from quick import once

from sdifp import problems
from sdifp.problems import _check


def exchange(a, b):
    return (0.067 + a**2 / (1.0 + a**2)) * b - a


@pytest.mark.parametrize(
    "arguments", [{}, {"slow": 0.01, "fast": 10.0, "duration": 8.0}]
)
def test_it_solves_the_equations(arguments, rng):
    problem = problems.reaction_diffusion_pair(**arguments)
    slow, fast = arguments.get("slow", 0.05), arguments.get("fast", 1.0)
    x, t = points(problem, 200, rng)
    (a, b), (a_t, b_t), _, (a_xx, b_xx) = pieces(problem.reference, x, t)
    assert np.abs(a_t - slow * a_xx - exchange(a, b)).max() < 1e-8
    assert np.abs(b_t - fast * b_xx + exchange(a, b)).max() < 1e-8
    assert np.abs(residual(problem, x, t)).max() < 1e-8
    assert a.min() > 0.0 < b.min()


def test_it_agrees_with_another_integrator():
    problem = problems.reaction_diffusion_pair()
    x = grid(problem, 48)
    _, second = differences(48, 2.0 * np.pi)

    def rate(t, both):
        a, b = both.reshape(2, -1)
        turned = exchange(a, b)
        return np.concatenate([0.05 * second @ a + turned, second @ b - turned])

    a = 0.6 + 0.3 * np.cos(x) + 0.2 * np.sin(2.0 * x)
    start = np.concatenate([a, 1.8 - 0.2 * np.cos(x)])
    wanted = integrated(rate, start, problem.duration)
    found = values(problem, x, problem.duration)
    assert np.allclose(found.ravel(), wanted, rtol=0.0, atol=1e-8)


def test_only_the_total_is_constant():
    problem = problems.reaction_diffusion_pair()
    (total,) = problem.prescribed
    assert (total.name, total.component) == ("mass", None)
    parts = []
    for t in np.linspace(0.0, problem.duration, 4):
        parts.append([integral(problem, lambda u, s, k=k: u[k], t) for k in (0, 1)])
        wanted = float(total.target.value(None))
        assert sum(parts[-1]) == pytest.approx(wanted, rel=1e-12)
    assert np.ptp(parts, axis=0).min() > 0.05
    assert [one.name for one in problem.measured] == ["mass[0]"]


@pytest.mark.parametrize("name", ["slow", "fast", "duration"])
def test_bad_arguments_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be .* got 0.0"):
        problems.reaction_diffusion_pair(**{name: 0.0})


def test_its_parts_agree(monkeypatch):
    monkeypatch.setattr(_check, "once", once)
    problems.reaction_diffusion_pair().check()
