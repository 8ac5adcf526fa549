"""The moving soliton, against its equation and closed forms of its integrals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from circle import integral, measured, points, residual
from test_nonlinear_schroedinger import complex_residual

from sdifp import problems

CASES = [(2.0, 1.0), (0.7, -3.0)]


@pytest.mark.parametrize(("amplitude", "speed"), CASES)
def test_it_solves_the_equation(amplitude, speed, rng):
    # Once around the circle: 48 / A.
    problem = problems.nonlinear_schroedinger_soliton(
        amplitude=amplitude, speed=speed, duration=48.0 / amplitude / abs(speed)
    )
    x, t = points(problem, 200, rng)
    known, _ = complex_residual(problem, x, t)
    assert np.abs(known).max() < 1e-10
    assert np.abs(residual(problem, x, t)).max() < 1e-10
    low = jax.vmap(problem.reference)(x.at[:].set(problem.domain.lower), t)
    high = jax.vmap(problem.reference)(x.at[:].set(problem.domain.upper), t)
    assert np.allclose(low, high, rtol=0.0, atol=1e-9 * amplitude)


@pytest.mark.parametrize(("amplitude", "speed"), CASES)
def test_its_integrals_are_known(amplitude, speed):
    problem = problems.nonlinear_schroedinger_soliton(amplitude=amplitude, speed=speed)
    (norm,) = (float(one.target.value(None)) for one in problem.prescribed)
    assert norm == pytest.approx(2.0 * amplitude, rel=1e-14)
    for t in (0.0, 0.6, 1.0):
        squares = integral(problem, lambda u, slope: np.sum(u**2, 0), t)
        assert squares == pytest.approx(norm, rel=1e-9)
        energy = amplitude * speed**2 - amplitude**3 / 3.0
        assert measured(problem, "hamiltonian", t) == pytest.approx(energy, rel=1e-8)
        momentum = 2.0 * amplitude * speed
        assert measured(problem, "momentum", t) == pytest.approx(momentum, rel=1e-8)


def test_it_moves_without_a_change_of_shape():
    problem = problems.nonlinear_schroedinger_soliton()
    size = lambda x, t: np.hypot(*problem.reference(jnp.array([x]), jnp.array(t)))
    for x in (-1.0, 0.0, 2.5):
        wanted = 2.0 / np.cosh(2.0 * (x - 0.7))
        assert size(x, 0.7) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "value"), [("amplitude", 0.0), ("speed", np.inf), ("duration", -1.0)]
)
def test_bad_arguments_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be .* got {value}"):
        problems.nonlinear_schroedinger_soliton(**{name: value})
