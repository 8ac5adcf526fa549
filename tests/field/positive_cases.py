"""Positive fields, and the same by textbook formulas that autodiff goes through."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sdifp
from sdifp.invariants import Mass, Moment, SquaredNorm

BOX = sdifp.Box([0.0], [2.0], periodic=True)
KEY = jax.random.key(8)


class Net(eqx.Module):
    inner: jax.Array
    outer: jax.Array

    def __call__(self, x, t):
        wave = jnp.pi * x[0]
        features = jnp.stack([jnp.sin(wave), jnp.cos(wave), t])
        return self.outer @ jnp.tanh(self.inner @ features)


NET = Net(
    jax.random.normal(KEY, (4, 3)),
    0.7 * jax.random.normal(jax.random.split(KEY)[0], (4,)),
)


def points_rule(size, decades, seed=1):
    rng = np.random.default_rng(seed)
    weights = 10.0 ** rng.uniform(-decades, 0.0, size)
    nodes = np.sort(rng.random((size, 1)) * 2, axis=0)
    return sdifp.from_points(BOX, nodes, weights / weights.sum())


RULE = points_rule(24, 1.0)


def mass(t):
    return 0.5 + 0.2 * t


def norm(t):
    return 0.75 * mass(t) ** 2 * (1.0 + 0.1 * t)


def psi(x, t):
    return jnp.stack([jnp.sin(jnp.pi * x[0] + t), jnp.cos(jnp.pi * x[0])])


def goals(t):
    return mass(t) * jnp.stack([0.1 + 0.2 * t, jnp.asarray(-0.15)])


FAMILIES = {
    "scale": [Mass(mass)],
    "power": [Mass(mass), SquaredNorm(norm)],
    "tilt": [
        Mass(mass),
        Moment(lambda x, t: psi(x, t)[0], lambda t: goals(t)[0], name="sine"),
        Moment(lambda x: psi(x, 0.0)[1], lambda t: goals(t)[1], name="cosine"),
    ],
}

MAPS = {
    "exp": (jnp.exp, jnp.exp),
    "softplus": (jax.nn.softplus, lambda z: jnp.log1p(jnp.exp(z))),
    "square": (jnp.square, lambda z: z**2),
}


def conserved(family, function="exp", rule=RULE, net=NET, **options):
    raw = sdifp.positive(net, MAPS[function][0])
    return sdifp.conserve(raw, rule, invariants=FAMILIES[family], **options)


def in_graph(family, function="exp", rule=RULE, net=NET):
    """The same field by Newton steps that are all differentiated."""
    f = lambda x, t: MAPS[function][1](net(x, t))
    nodes, w = jnp.asarray(rule.nodes), jnp.asarray(rule.weights)

    def u(x, t):
        on_nodes = jax.vmap(lambda x: f(x, t))(nodes)
        m, s = mass(t) / 2.0, norm(t) / 2.0
        if family == "scale":
            return m * f(x, t) / jnp.sum(w * on_nodes)
        if family == "power":
            ratio = lambda q: (
                jnp.sum(w * on_nodes ** (2 * q)) / jnp.sum(w * on_nodes**q) ** 2
            )
            q = jnp.asarray(1.0)
            for _ in range(9):
                value, slope = jax.jvp(ratio, (q,), (1.0,))
                q = q - (value - s / m**2) / slope
            return m * f(x, t) ** q / jnp.sum(w * on_nodes**q)
        table = jax.vmap(lambda x: psi(x, t))(nodes)
        tilted = lambda v: w * on_nodes * jnp.exp(table @ v)
        convex = lambda v: jnp.log(jnp.sum(tilted(v))) - v @ (goals(t) / 2.0 / m)
        v = jnp.zeros(2)
        for _ in range(9):
            v = v - jnp.linalg.solve(jax.hessian(convex)(v), jax.grad(convex)(v))
        return m * f(x, t) * jnp.exp(psi(x, t) @ v) / jnp.sum(tilted(v))

    u.at = lambda t: lambda x: u(x, t)
    return u
