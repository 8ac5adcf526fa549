"""Networks with moments, totals and quadratic forms of several components."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sdifp
from sdifp.invariants import (
    DirichletEnergy,
    Mass,
    Moment,
    Quadratic,
    QuadraticForm,
    SquaredNorm,
)

KEY = jax.random.key(4)
BOX = sdifp.Box([0.0], [2.0], periodic=True)


class Net(eqx.Module):
    """Any number of components of x and t; of x alone without."""

    inner: jax.Array
    outer: jax.Array
    flat: bool = eqx.field(static=True, default=False)

    def __call__(self, x, t=0.3):
        wave = jnp.pi * x[0]
        features = jnp.stack([jnp.sin(wave), jnp.cos(wave), jnp.asarray(t, x.dtype)])
        out = self.outer @ jnp.tanh(self.inner @ features) + 0.3
        return out[0] if self.flat else out


def net(count, width=6):
    """`count` components; 0 for a number."""
    keys = jax.random.split(KEY)
    outer = jax.random.normal(keys[1], (max(count, 1), width))
    return Net(jax.random.normal(keys[0], (width, 3)), outer, count == 0)


def points(size=30, decades=2.0):
    """A rule with weights over some decades."""
    rng = np.random.default_rng(1)
    weights = 10.0 ** rng.uniform(-decades, 0.0, size)
    nodes = np.sort(rng.random((size, 1)) * 2, axis=0)
    return sdifp.from_points(BOX, nodes, weights / weights.sum())


def uniform(size=24):
    return sdifp.quadrature.trapezoid(BOX, size)


def bump(x):
    return jnp.sin(0.5 * jnp.pi * x[0])


def hump(x):
    return 1.0 + 0.5 * jnp.cos(jnp.pi * x[0])


def moving(x, t):
    return jnp.cos(jnp.pi * (x[0] - t))


def both(x):
    return jnp.stack([x[0], 1.0 - 0.5 * x[0]])


def metric(x):
    off = 0.5 * jnp.sin(jnp.pi * x[0])
    return jnp.stack([jnp.stack([2.0 + x[0], off]), jnp.stack([off, 1.0 + off**2])])


def wave_energy(u, grad):
    return 0.5 * (u[1] ** 2 + 4.0 * jnp.sum(grad[0] ** 2))


def drift(t):
    return 0.4 + 0.1 * jnp.sin(t)


# Components of the network (0 for a number), invariants, profile.
SETS = {
    "moments": (
        0,
        [
            Mass(drift),
            Moment(moving, lambda t: 0.2 * t, name="wave"),
            SquaredNorm(lambda t: 5.0 + t),
        ],
        None,
    ),
    "linear alone": (2, [Mass(0.3), Moment(both, drift)], None),
    "totals": (3, [Mass(0.7), Mass(0.2, 1), SquaredNorm(6.0)], None),
    "metric": (
        2,
        [Moment(both, 0.5), Quadratic(metric, lambda t: 8.0 + t)],
        None,
    ),
    "weighted": (
        1,
        [Mass(0.5), Moment(lambda x: x[0], 0.0, name="centre"), Quadratic(hump, 6.0)],
        None,
    ),
    "groups": (
        4,
        [
            SquaredNorm(2.5, 3),
            Moment(both, 0.3, components=(2, 0), name="pair"),
            Quadratic(metric, 4.0, components=(2, 0)),
        ],
        None,
    ),
    "profile": (
        0,
        [Mass(drift), Moment(hump, 0.6), Quadratic(hump, 7.0)],
        bump,
    ),
    "wave": (
        2,
        [Mass(0.3, 1), QuadraticForm(wave_energy, lambda t: 5.0 - t, name="energy")],
        None,
    ),
    "dirichlet": (2, [Mass(0.3), Moment(both, 0.1), DirichletEnergy(9.0)], bump),
}


def conserved(name, rule=None, **options):
    count, invariants, profile = SETS[name]
    return sdifp.conserve(
        net(count),
        uniform() if rule is None else rule,
        invariants=invariants,
        profile=profile,
        **options,
    )


def on_nodes(u, ts):
    """Values and gradients of a field on the nodes of its rule, at some times."""

    def at(t):
        now = u.at(t)
        value = lambda x: jnp.atleast_1d(now.value(x))
        nodes = jnp.asarray(u.rule.nodes)
        return jax.vmap(value)(nodes), jax.vmap(jax.jacfwd(value))(nodes)

    return jax.vmap(at)(ts)


def densities(one, count, t, u, slope, x):
    """What an invariant integrates at a point, and what its error is relative to."""
    own = np.asarray(one.among(count))
    v = u[own]
    if one.needs_gradient:
        form = one.form_at(v, slope[own], x)
        return form, form
    weight = one.weight_at(x, t, count)
    if one.is_linear:
        psi = jnp.atleast_1d(jnp.asarray(weight))
        return psi @ v, (psi @ psi, v @ v)
    if weight is None or jnp.ndim(weight) == 0:
        weight = (1.0 if weight is None else weight) * jnp.eye(len(own))
    form = v @ weight @ v
    return form, form


def errors(u, ts, found):
    """The worst error of each invariant, by sums in long doubles: of a form relative to
    its target, of a moment relative to the norms of its weight and of its components.
    """
    nodes, volume = jnp.asarray(u.rule.nodes), u.rule.domain.volume
    weights = np.asarray(u.rule.weights, np.longdouble)
    total = lambda a: volume * (weights * np.asarray(a, np.longdouble)).sum()
    out = {}
    for one in u.prescribed.invariants:
        count, worst = u.prescribed.components, 0.0
        for t, values, slopes in zip(np.asarray(ts), *found, strict=True):
            at = functools.partial(densities, one, count, t)
            density, squares = jax.vmap(at)(values, slopes, nodes)
            target = float(one.target.value(t))
            unit = target
            if one.is_linear:
                unit = np.sqrt(np.prod([total(a) for a in squares]))
            worst = max(worst, float(abs((total(density) - target) / unit)))
        out[one.name] = worst
    return out
