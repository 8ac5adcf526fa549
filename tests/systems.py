"""A system for tests: the wave equation as two equations of first order, `u_t = v_x`
and `v_t = u_x`, on a circle. It is a problem file of a user, too."""

import jax.numpy as jnp
import numpy as np

import sdifp

SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])


def wave(x, t):
    """The sum and the difference of two waves that travel towards each other."""
    left, right = jnp.sin(x[0] + t), 0.5 * jnp.cos(x[0] - t)
    return jnp.stack([left + right, left - right + 0.3])


def system(**changes):
    """With the mass of the first component and the norm of both, and other settings
    where they are given."""
    settings = {
        "domain": sdifp.Box([0.0], [2.0 * np.pi], periodic=True),
        "equation": sdifp.Residual(
            sdifp.time_derivative() - SWAP @ sdifp.operators.advection(1.0)
        ),
        "conditions": [sdifp.problems.Initial(lambda x: wave(x, 0.0))],
        "interval": (0.0, 1.0),
        "invariants": [
            sdifp.Mass(0.0, component=0),
            sdifp.SquaredNorm(2.68 * np.pi),
            sdifp.invariants.Density(lambda u: u[0] * u[1], name="momentum"),
        ],
        "reference": wave,
        "components": ("height", "flow"),
        "units": ("m", "m/s"),
        "name": "two-waves",
    }
    return sdifp.Problem(**{**settings, **changes})


problem = system()
