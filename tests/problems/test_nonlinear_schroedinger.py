"""The cubic Schrödinger equation, against an integrator of another kind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from circle import grid, integral, measured, pieces, points, residual, values
from quick import once

from sdifp import problems
from sdifp.problems import _check


def complex_residual(problem, x, t):
    """`i h_t + 1/2 h_xx + |h|^2 h` and h_xx, from the definition."""
    u, rate, _, bend = (a[0] + 1j * a[1] for a in pieces(problem.reference, x, t))
    return 1j * rate + 0.5 * bend + abs(u) ** 2 * u, bend


def start(x, wrapped):
    moved = x[:, None] + 10.0 * (np.arange(-6, 7) if wrapped else np.zeros(1))
    return np.sum(2.0 / np.cosh(moved), 1)


# What is left with a kink at the wall, whose harmonics are not all resolved.
@pytest.mark.parametrize(("wrapped", "tolerance"), [(True, 5e-5), (False, 1e-3)])
def test_it_solves_the_equation(wrapped, tolerance, rng):
    problem = problems.nonlinear_schroedinger(wrapped=wrapped)
    x, t = points(problem, 100, rng)
    known, bend = complex_residual(problem, x, t)
    assert np.abs(known).max() < tolerance < 1e-4 * np.abs(bend).max()
    own = residual(problem, x, t)
    assert np.allclose(own[0] + 1j * own[1], known / 1j, rtol=0.0, atol=1e-7)


# Without images the relative norm of what the data lack.
@pytest.mark.parametrize(
    ("wrapped", "n", "tolerance"), [(True, 256, 1e-7), (False, 2048, 1e-5)]
)
def test_it_agrees_with_split_steps(wrapped, n, tolerance):
    """Strang's splitting with extrapolation to the step zero."""
    problem = problems.nonlinear_schroedinger(wrapped=wrapped)
    x, end = grid(problem, n), problem.duration
    k = 2.0 * np.pi * np.fft.fftfreq(n, 10.0 / n)

    def strang(steps):
        dt = end / steps
        turn, h = np.exp(-0.5j * dt * k**2), start(x, wrapped) + 0.0j
        h *= np.exp(0.5j * dt * abs(h) ** 2)
        for _ in range(steps):
            h = np.fft.ifft(turn * np.fft.fft(h))
            h *= np.exp(1j * dt * abs(h) ** 2)
        return h * np.exp(-0.5j * dt * abs(h) ** 2)

    few, more = strang(2500), strang(5000)
    wanted = more + (more - few) / 3.0
    found = values(problem, x, end)
    error = np.linalg.norm(found[0] + 1j * found[1] - wanted)
    assert error < tolerance * np.linalg.norm(wanted)


@pytest.mark.parametrize("wrapped", [True, False])
def test_its_integrals_are_constant(wrapped):
    problem = problems.nonlinear_schroedinger(wrapped=wrapped)
    square = lambda x: start(np.array([x]), wrapped)[0] ** 2
    exact, _ = scipy.integrate.quad(square, -5.0, 5.0)
    (norm,) = (float(one.target.value(None)) for one in problem.prescribed)
    assert norm == pytest.approx(exact, rel=1e-8)
    energies = []
    for t in (0.0, 0.8, problem.duration):
        squares = integral(problem, lambda u, slope: np.sum(u**2, 0), t, 1024)
        assert squares == pytest.approx(norm, rel=1e-9)
        energies.append(measured(problem, "hamiltonian", t))
    # The points are too few for the kink.
    rel = 1e-8 if wrapped else 1e-4
    assert energies == pytest.approx([energies[0]] * 3, rel=rel)
    if not wrapped:
        slope = lambda x: (2.0 * np.tanh(x) / np.cosh(x)) ** 2
        both = lambda x: slope(x) - (2.0 / np.cosh(x)) ** 4
        energy = 0.5 * scipy.integrate.quad(both, -5.0, 5.0)[0]
        assert energies[0] == pytest.approx(energy, rel=1e-4)


@pytest.mark.parametrize(
    ("wrapped", "worst", "norm"), [(True, 1e-13, 1e-14), (False, 1e-4, 3e-6)]
)
def test_it_starts_at_the_data(wrapped, worst, norm):
    problem = problems.nonlinear_schroedinger(wrapped=wrapped)
    x = np.linspace(-5.0, 5.0, 4001)
    wanted = start(x, wrapped)
    data = np.asarray(jax.vmap(problem.initial)(jnp.asarray(x)[:, None]))
    assert np.allclose(data, values(problem, x, 0.0).T, atol=1e-10)
    assert np.all(data[:, 1] == 0.0)
    assert np.abs(data[:, 0] - wanted).max() < worst
    assert np.linalg.norm(data[:, 0] - wanted) < norm * np.linalg.norm(wanted)
    assert problem.components == ("re", "im")


def test_it_nearly_returns():
    """On the whole axis 2 sech(x) is a bound state of two solitons (Satsuma and Yajima,
    1974): |h| at 0 has its maximum 4 at pi / 4, and the period is pi / 2."""
    problem = problems.nonlinear_schroedinger(wrapped=False)
    at = lambda t: np.hypot(*values(problem, np.zeros(1), t))[0]
    assert at(np.pi / 4.0) == pytest.approx(4.0, rel=0.02)
    assert at(np.pi / 2.0) == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("duration", [0.0, -1.0, np.inf])
def test_bad_arguments_are_refused(duration):
    with pytest.raises(ValueError, match=f"duration must be .* got {duration}"):
        problems.nonlinear_schroedinger(duration=duration)


def test_its_parts_agree(monkeypatch):
    monkeypatch.setattr(_check, "once", once)
    problems.nonlinear_schroedinger().check()
