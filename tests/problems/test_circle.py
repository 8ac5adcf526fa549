"""The spectral solver on a circle, against closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest

from sdifp.problems._circle import lobatto, solve

CIRCLE = {"lower": -1.0, "period": 2.0, "duration": 1.5}


def test_a_matrix_fits_polynomials():
    nodes, fit = lobatto(7)
    wanted = np.array([0.3, -1.0, 0.0, 2.0, 0.1, 0.0, 0.7])
    values = np.polynomial.chebyshev.chebval(nodes, wanted)
    assert np.allclose(fit @ values, wanted, atol=1e-14)
    assert np.array_equal(nodes[[0, -1]], [-1.0, 1.0])


def test_stiff_decay_and_transport_are_exact():
    """u_t = u_xx and v_t = -v_x, of which only the first is in the linear part."""

    def transport(modes, k):
        return np.stack([0.0 * modes[:, 0], -1j * k * modes[:, 1]], 1)

    found = solve(
        lambda x: np.stack([np.cos(np.pi * x) + np.sin(4 * np.pi * x)] * 2),
        lambda k: -np.stack([k**2, 0.0 * k]),
        transport,
        **CIRCLE,
    )
    for x, t in [(-0.9, 0.0), (0.2, 0.01), (0.7, 0.4), (0.1, 1.5)]:
        u, v = found(jnp.array([x]), jnp.array(t))
        damped = np.exp(-np.array([1.0, 16.0]) * np.pi**2 * t)
        waves = lambda x: np.array([np.cos(np.pi * x), np.sin(4.0 * np.pi * x)])
        assert u == pytest.approx(damped @ waves(x), abs=1e-11)
        assert v == pytest.approx(waves(x - t).sum(), abs=1e-10)


def test_a_nonlinear_equation_has_as_many_modes_as_it_needs():
    """u_t + u u_x = 0, along its characteristics, before it breaks at 1."""
    steepening = lambda modes, k: -0.5j * k * np.fft.rfft(np.fft.irfft(modes) ** 2)
    start = lambda x: -np.sin(np.pi * x) / np.pi
    none = lambda k: np.zeros((1, k.size))
    by = lambda duration: solve(
        lambda x: start(x)[None], none, steepening, **CIRCLE | {"duration": duration}
    )
    found = by(0.8)
    assert found.cosines.shape[-1] > by(0.1).cosines.shape[-1]
    origin = np.linspace(-1.0, 1.0, 41)
    for t in (0.2, 0.8):
        for y in origin:
            value = found(jnp.array([y + t * start(y)]), jnp.array(t))
            assert value == pytest.approx(start(y), abs=1e-9)
    with pytest.raises(ValueError, match=r"must be smooth .* duration 1.5"):
        by(1.5)
