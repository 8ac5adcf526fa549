"""Fields with groups of invariants whose numbers are all in the nodes of their rule: a
case is another array, and no other program."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sdifp
from sdifp.invariants import Moment, Quadratic
from sdifp.quadrature import QuadratureRule

STRESSES = ("weights", "mean", "condition", "metric")

# Of every invariant: each case is scaled to it.
TARGET = 0.7


class ArrayRule(QuadratureRule):
    """Nodes and weights as leaves."""

    arrays: tuple[jax.Array, jax.Array]

    is_randomised = False

    @property
    def nodes(self):
        return self.arrays[0]

    @property
    def weights(self):
        return self.arrays[1]

    def at(self, index):
        return tuple(jnp.asarray(a)[index] for a in self.arrays)

    def resample(self, key):
        raise NotImplementedError

    _spread = resample


def rule_of(nodes, weights):
    box = sdifp.Box.cube(nodes.shape[1], -1e9, 1e9, normalised=True)
    return ArrayRule(box, "arrays", len(weights), (nodes, weights))


def draw(shape, stresses, excess, seed):
    """Values (n, m), weights, psi (p, n, m), metric, scaled to the targets."""
    rng = np.random.default_rng(seed)
    n, p, size = shape
    weights = rng.uniform(0.1, 1.0, size)
    if "weights" in stresses:
        weights = 10.0 ** rng.uniform(-6.0, 0.0, size)
        weights[:2] = 1e-6, 1.0
    weights /= weights.sum()
    psi = rng.normal(size=(p, n, size))
    if p:
        psi[0] = 1.0
    if "condition" in stresses and p > 1:
        # The scaled Gram matrix has a condition of about 1e8.
        psi[1] = psi[0] + 1e-4 * psi[1]
    values = rng.normal(size=(n, size))
    if "mean" in stresses:
        values = 1e4 * (1.0 + rng.uniform(size=(n, 1))) + 1e-2 * values
    metric = np.eye(n)[:, :, None] * np.ones(size)
    if "metric" in stresses:
        root = 0.5 * rng.normal(size=(n, n, size))
        metric = np.einsum("ijm,kjm->ikm", root, root) + 0.1 * metric
    other = rng.normal(size=(n, size))
    means, form = invariants(other, weights, psi, metric)
    psi = psi * (TARGET / means.astype(float))[:, None, None]
    # More than the least, by three decades to either side of the field's own.
    metric = metric * (TARGET / (float(form) * (1.0 + 10.0**excess)))
    return values, weights, psi, metric


def nodes_of(values, psi, metric):
    """All that is known of a node as its coordinates."""
    size = values.shape[-1]
    rows = [a.reshape(-1, size) for a in (values, psi, metric)]
    return np.concatenate(rows).T


class Table(eqx.Module):
    """The network: the first coordinates, times one parameter."""

    factor: jax.Array
    n: int = eqx.field(static=True)

    def __call__(self, x):
        return self.factor * x[: self.n]


def field(shape, case, gradient):
    """A field of n components with p moments, and a quadratic form of all."""
    n, p, _ = shape
    values, weights, psi, metric = case

    def moment(k):
        first = n + k * n
        return Moment(lambda x: x[first : first + n], TARGET, name=f"m{k}")

    first = n + p * n
    form = Quadratic(lambda x: x[first:].reshape(n, n), TARGET)
    return sdifp.conserve(
        Table(jnp.ones(()), n),
        rule_of(nodes_of(values, psi, metric), weights),
        invariants=[*(moment(k) for k in range(p)), form],
        gradient=gradient,
    )


def with_case(u, case):
    """The same field on another rule, of other values, weights and metric."""
    values, weights, psi, metric = case
    arrays = (nodes_of(values, psi, metric), weights)
    return eqx.tree_at(lambda u: u.rule.arrays, u, arrays)


@eqx.filter_jit
def corrected(u):
    """The field on the nodes of its rule, and its status."""
    now = u.at()
    return jax.vmap(now.value, out_axes=-1)(u.rule.nodes), now.status


def invariants(u, weights, psi, metric):
    """By sums in long doubles, without any of the library's code."""
    u, w = (np.asarray(a).astype(np.longdouble) for a in (u, weights))
    lowered = np.einsum("ijm,jm->im", metric.astype(np.longdouble), u)
    moments = np.einsum("knm,nm,m->k", psi.astype(np.longdouble), u, w)
    return moments, (u * lowered * w).sum()


def worst(u, case):
    """The worst error: of a moment relative to the norms of weight and field, and of
    the form relative to its target."""
    _, weights, psi, metric = case
    moments, form = invariants(u, weights, psi, metric)
    by_node = np.linalg.inv(np.moveaxis(metric, -1, 0))
    raised = np.einsum("mij,kjm->kim", by_node, psi)
    norms = np.einsum("knm,knm,m->k", psi, raised, weights)
    off = np.abs(moments - TARGET) / np.sqrt(norms * TARGET)
    return max([float(a) for a in off] + [float(abs(form / TARGET - 1.0))])
