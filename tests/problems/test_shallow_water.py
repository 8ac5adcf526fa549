"""The shallow water equations, against an integrator of another kind and the wave
equation."""

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


@pytest.mark.parametrize("arguments", [{}, {"height": 0.05, "duration": 8.0}])
def test_it_solves_the_equations(arguments, rng):
    problem = problems.shallow_water(**arguments)
    x, t = points(problem, 200, rng)
    (h, q), (h_t, q_t), (h_x, q_x), _ = pieces(problem.reference, x, t)
    # In terms of the velocity: v_t + v v_x + h_x = 0.
    v, v_t, v_x = q / h, (q_t - q / h * h_t) / h, (q_x - q / h * h_x) / h
    assert np.abs(h_t + q_x).max() < 1e-8
    assert np.abs(v_t + v * v_x + h_x).max() < 1e-8
    assert np.abs(residual(problem, x, t)).max() < 1e-8
    assert np.abs(h_x).max() > 0.01


def test_it_agrees_with_another_integrator():
    """Of the Riemann invariants v + 2 c and v - 2 c with c^2 = h."""
    problem = problems.shallow_water()
    x = grid(problem, 128)
    first, _ = differences(128, 10.0)

    def rate(t, both):
        right, left = both.reshape(2, -1)
        v, c = 0.5 * (right + left), 0.25 * (right - left)
        return -np.concatenate([(v + c) * (first @ right), (v - c) * (first @ left)])

    c = np.sqrt(1.0 + 0.2 * np.exp(-(x**2)))
    both = integrated(rate, np.concatenate([2 * c, -2 * c]), problem.duration, "DOP853")
    right, left = both.reshape(2, -1)
    depth = (0.25 * (right - left)) ** 2
    h, q = values(problem, x, problem.duration)
    assert np.allclose(h, depth, rtol=0.0, atol=1e-7)
    assert np.allclose(q, depth * 0.5 * (right + left), rtol=0.0, atol=1e-7)


def test_a_low_hump_obeys_the_wave_equation():
    height = 1e-4
    problem = problems.shallow_water(height=height)
    x = np.linspace(-5.0, 5.0, 51)
    h, q = values(problem, x, 2.0)
    right, left = (0.5 * height * np.exp(-((x - c) ** 2)) for c in (2.0, -2.0))
    assert np.allclose(h - 1.0, right + left, rtol=0.0, atol=3.0 * height**2)
    assert np.allclose(q, right - left, rtol=0.0, atol=3.0 * height**2)


def test_its_integrals_are_constant():
    problem = problems.shallow_water()
    mass, momentum = (float(one.target.value(None)) for one in problem.prescribed)
    assert momentum == 0.0
    energies = []
    for t in (0.0, 1.7, problem.duration):
        found = [integral(problem, lambda u, s, k=k: u[k], t) for k in (0, 1)]
        assert found == pytest.approx([mass, 0.0], abs=1e-11)
        energies.append(measured(problem, "energy", t))
    # Before the waves break.
    assert energies == pytest.approx([energies[0]] * 3, rel=1e-10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"height": 0.0}, "height must be .* got 0.0"),
        ({"duration": -1.0}, "duration must be .* got -1.0"),
        ({"height": 1.0, "duration": 6.0}, "solution must be smooth .* duration 6"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        problems.shallow_water(**arguments)


def test_its_parts_agree(monkeypatch):
    monkeypatch.setattr(_check, "once", once)
    problems.shallow_water().check()
