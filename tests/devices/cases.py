"""Fields whose scale and shift are compared, here and in processes of their own."""

import equinox as eqx
import jax
import jax.numpy as jnp

import sdifp

KEY = jax.random.key(5)


class Net(eqx.Module):
    """A network of x and t."""

    mlp: eqx.nn.MLP

    def __call__(self, x, t):
        return self.mlp(jnp.concatenate([jnp.sin(x), t[None]]))


def field(rule, width, **options):
    net = Net(
        eqx.nn.MLP(rule.dimension + 1, "scalar", width, 2, jnp.tanh, key=KEY),
    )
    u = sdifp.conserve(net, rule, 0.3, lambda t: 1.0 + t, **options)
    return u.resample(KEY)


class Pair(eqx.Module):
    """Two components of x and t."""

    mlp: eqx.nn.MLP

    def __call__(self, x, t):
        return self.mlp(jnp.concatenate([jnp.sin(x), t[None]]))


def group(rule, width):
    """A total, a moment whose weight moves, and the norm of both components."""
    wave = lambda x, t: jnp.stack([jnp.cos(x[0] - t), x[1]])
    invariants = [
        sdifp.Mass(0.3),
        sdifp.invariants.Moment(wave, 0.2),
        sdifp.SquaredNorm(lambda t: 2.0 + t),
    ]
    net = Pair(eqx.nn.MLP(rule.dimension + 1, 2, width, 2, jnp.tanh, key=KEY))
    return sdifp.conserve(net, rule, invariants=invariants)


def bump(x):
    return jnp.prod(x * (1.0 - x))


CASES = {
    # 20001 nodes are no multiple of five parts.
    "padded": lambda: field(
        sdifp.quadrature.monte_carlo(sdifp.Box.cube(3), 20001, key=KEY),
        32,
        profile=bump,
    ),
    "in chunks": lambda: field(
        sdifp.quadrature.sobol(sdifp.Box.cube(4), 2**15, key=KEY),
        16,
        gradient=sdifp.field.Exact(400),
    ),
    "subsampled": lambda: field(
        sdifp.quadrature.lattice(sdifp.Box.cube(3), 2**15, key=KEY),
        32,
        gradient=sdifp.field.Subsampled(50),
    ),
    "groups": lambda: group(
        sdifp.quadrature.monte_carlo(sdifp.Box.cube(3), 9001, key=KEY), 16
    ),
    # Two parts for up to eight devices, and one.
    "few parts": lambda: field(sdifp.quadrature.midpoint(sdifp.Box.cube(2), 80), 16),
    "one part": lambda: field(
        sdifp.quadrature.midpoint(sdifp.Box.cube(1), 300),
        16,
        gradient=sdifp.field.Exact(7),
    ),
}


def coefficients(u, times):
    """Scale, level, pivot and offset with their first derivatives by t."""
    found = jax.vmap(lambda t: u.expand(t, 1).series)(times)
    return jnp.concatenate([c.reshape(-1) for c in jax.tree.leaves(found)])
