"""Quadratic forms with the gradient: backward and forward derivatives on the nodes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once, only

import sdifp
from sdifp.invariants import DirichletEnergy, Mass

T = jnp.asarray(0.4)


# Of components in dimensions: backward, forward, and at the border between them.
@pytest.mark.parametrize("shape", only([(1, 3), (2, 1), (2, 2)], (1, 3), (2, 1)))
def test_dirichlet_energy_and_its_derivatives(shape):
    n, d = shape
    box = sdifp.Box.cube(d, periodic=True)
    rule = sdifp.quadrature.monte_carlo(box, 40, key=jax.random.key(0))
    net = eqx.nn.MLP(d + 1, n, 6, 1, jnp.tanh, key=jax.random.key(1))
    masses = [0.3 + k for k in range(n)]
    nodes, weights = map(np.asarray, rule.block(0, rule.size))

    def field(net):
        given = [Mass(m, k if n > 1 else None) for k, m in enumerate(masses)]
        raw = jax.tree_util.Partial(lambda net, x, t: net(jnp.append(x, t)), net)
        return sdifp.conserve(
            raw, rule, invariants=[*given, DirichletEnergy(lambda t: 2.0 + t)]
        )

    u = field(net)
    scale_of_field = lambda net, t: jnp.max(
        u.over(jax.tree_util.Partial(u.net.func, net)).at(t).scale
    )

    def by_definition(net, t):
        slopes = jax.vmap(jax.jacrev(lambda x: net(jnp.append(x, t))))(nodes)
        energy = box.volume * jnp.sum(weights[:, None, None] * slopes**2)
        return jnp.sqrt((2.0 + t) / energy)

    @once
    def derivatives(net):
        def both(scale):
            value = lambda net: jax.jvp(lambda t: scale(net, t), (T,), (1.0,))
            return value(net), eqx.filter_grad(lambda net: sum(value(net)))(net)

        return both(scale_of_field), both(by_definition)

    @once
    def measured(u):
        now = u.at(T)
        slopes = jax.vmap(jax.jacfwd(now))(nodes)
        values = jax.vmap(now)(nodes)
        return jnp.sum(weights[:, None, None] * slopes**2), weights @ values

    energy, mean = measured(u)
    np.testing.assert_allclose(box.volume * energy, 2.4, rtol=1e-13)
    np.testing.assert_allclose(box.volume * mean, masses, rtol=1e-13)
    found, wanted = map(jax.tree.leaves, derivatives(net))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * (1 + np.abs(b).max()))
