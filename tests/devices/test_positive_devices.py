"""Positive fields on several devices: the same bits, and gradients to rounding."""

import contextlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import KEY, Net
from jax.flatten_util import ravel_pytree
from quick import once, only, optimised

import sdifp
from sdifp.field import Exact, Subsampled
from sdifp.invariants import Mass, Moment, SquaredNorm


def on(devices):
    """Where so many devices compute together; 0 for the usual one."""
    there = sdifp.training.mesh(devices) if devices else None
    return jax.set_mesh(there) if devices else contextlib.nullcontext()


NORM = [SquaredNorm(lambda t: 0.5 + t)]
TILT = [Moment(lambda x: x[0], lambda t: 0.1 + 0.02 * t, name="centre")]
CASES = {
    # 9001 nodes are no multiple of three parts.
    "padded power": (9001, NORM, Exact()),
    "tilt in chunks": (9001, TILT, Exact(400)),
    "sampled power": (9001, NORM, Subsampled(50)),
    "one part": (300, NORM, Exact(7)),
}


def field(name):
    size, besides, mode = CASES[name]
    rule = sdifp.quadrature.monte_carlo(sdifp.Box.cube(3), size, key=KEY)
    net = Net(eqx.nn.MLP(4, "scalar", 8, 2, jnp.tanh, key=KEY))
    invariants = [Mass(0.3), *besides]
    u = sdifp.conserve(sdifp.positive(net), rule, invariants=invariants, gradient=mode)
    return u.resample(KEY)


def coefficients(u, times):
    """With their first derivatives by t."""
    return jax.vmap(lambda t: ravel_pytree(u.expand(t, 1).series)[0])(times)


@pytest.mark.parametrize("name", only(CASES, "padded power"))
def test_coefficients_have_the_same_bits_on_any_number_of_devices(name):
    u, times, found = field(name), jnp.linspace(0.1, 0.9, 3), {}
    for n in (0, 3, 8):
        with on(n):
            found[n] = np.asarray(optimised(coefficients)(u, times))
    assert np.all(np.isfinite(found[0]))
    assert found[3].tobytes() == found[0].tobytes()
    assert found[8].tobytes() == found[0].tobytes()


@pytest.mark.parametrize("name", only(CASES, "sampled power"))
def test_gradients_agree_to_rounding(name):
    params, static = eqx.partition(field(name), eqx.is_inexact_array)
    loss = lambda p: jnp.sum(coefficients(eqx.combine(p, static), jnp.ones(2)) ** 2)
    found = []
    for n in (0, 4):
        with on(n):
            found.append(np.asarray(ravel_pytree(once(jax.grad(loss))(params))[0]))
    assert np.abs(found[0]).max() > 1e-3
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)
