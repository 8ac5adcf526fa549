"""Fields with groups of invariants in training: gradient modes, rows of second order,
tables in time; and what is known of them afterwards."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from group_fields import BOX, SETS, conserved, net, points, uniform
from jax.flatten_util import ravel_pytree
from quick import once, only
from test_groups import by_hand

import sdifp
from sdifp.field import (
    Detached,
    Exact,
    FrozenField,
    Interpolated,
    Lagged,
    MiniBatch,
    Subsampled,
)
from sdifp.invariants import Mass, Moment, Quadratic
from sdifp.training._coupled import rows_and_derivatives

KEY = jax.random.key(8)
XS = jnp.linspace(0.1, 1.9, 3)[:, None]
T = jnp.asarray(0.3)
REPEATS = 1000


def residual_loss(u):
    """The square of `u_t + u_x`, summed over components."""

    def residual(x, t):
        rate = jax.jvp(lambda t: u(x, t), (t,), (jnp.ones_like(t),))[1]
        return rate + jax.jvp(lambda x: u(x, t), (x,), (jnp.ones_like(x),))[1]

    return jnp.mean(jax.vmap(lambda x: residual(x, T))(XS) ** 2)


def flat(tree):
    return ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0]


@functools.cache
def oracle(name):
    """The gradient through the whole graph."""
    loss = lambda p: residual_loss(by_hand(name, p, points()))
    return np.asarray(flat(once(jax.grad(loss))(net(SETS[name][0]))))


def gradient(u):
    return flat(eqx.filter_grad(residual_loss)(u))


def scores(name, mode):
    """Mean error of the gradient over its standard error, for each parameter."""
    u = conserved(name, points(), gradient=mode)
    run = once(jax.vmap(lambda key: gradient(u.resample(key))))
    samples = np.asarray(run(jax.random.split(KEY, REPEATS)))
    size = samples.std(0, ddof=1) / np.sqrt(REPEATS)
    return np.abs(samples.mean(0) - oracle(name)) / np.maximum(size, 1e-12)


NAMES = only(["metric", "moments", "profile"], "metric")


@pytest.mark.parametrize("name", NAMES)
def test_the_subsampled_gradient_is_unbiased_and_the_detached_one_is_not(name):
    # 30 parameters: under the null one exceeds 4.5 once in five thousand tests.
    assert np.all(scores(name, Subsampled(8)) < 4.5)
    assert not np.all(scores(name, Detached()) < 4.5)


def test_the_gradient_of_a_mini_batch_is_biased():
    # Where nothing is scaled its bias is too small for so many draws.
    assert not np.all(scores("metric", MiniBatch(8)) < 4.5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "mode", only([Exact(7), Subsampled(8), MiniBatch(8)], Exact(7)), ids=repr
)
def test_the_gradient_is_that_of_the_graph(name, mode):
    # Without a key the random modes use all nodes.
    got = once(gradient)(conserved(name, points(), gradient=mode))
    want = oracle(name)
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9 * abs(want).max())


def interpolated(name, n, mode=Exact()):
    u = conserved(name, gradient=Interpolated(n, mode))
    return once(lambda u: u.tabulated(0.5, 1.5))(u)


@once
def values(u, ts):
    return jax.vmap(lambda t: jax.vmap(u.at(t).value)(XS))(ts)


@pytest.mark.parametrize("name", only(["moments", "metric", "wave"], "moments"))
def test_a_table_is_exact_at_its_times_and_spectral_between(name):
    angles = np.pi * (np.arange(6) + 0.5) / 6
    times = jnp.asarray(1.25 + 0.75 * np.cos(angles))
    exact = conserved(name)
    want = values(exact, times)
    np.testing.assert_allclose(values(interpolated(name, 6), times), want, rtol=1e-11)
    ts = jnp.asarray([0.7, 1.3, 1.9])
    want = values(exact, ts)
    off = [np.abs(values(interpolated(name, n), ts) - want).max() for n in (5, 10, 20)]
    assert off[0] > 10.0 * off[1] > 100.0 * off[2]


def test_lagged_moments_of_the_network_itself_are_the_exact_ones():
    u = conserved("metric", gradient=Lagged(3, k=8, times=24)).resample(KEY)
    ts = jnp.asarray([0.7, 1.3])
    got = values(once(lambda u: u.tabulated(0.5, 1.5))(u), ts)
    np.testing.assert_allclose(got, values(conserved("metric"), ts), rtol=1e-7)


@pytest.mark.parametrize(
    "name", only(["moments", "metric", "wave", "profile"], "metric")
)
def test_rows_of_second_order_have_the_derivatives_of_the_graph(name):
    u = conserved(name)
    params, unravel = ravel_pytree(u.net)

    def row(u, x, t):
        rate = jax.jvp(lambda t: u(x, t), (t,), (jnp.ones_like(t),))[1]
        return jnp.sum(rate + u(x, t) ** 2)

    at = lambda p: u.over(unravel(p))
    x, t = jnp.stack([XS, XS + 0.05]), jnp.asarray([0.2, 0.7])
    rows, slopes = once(lambda p: rows_and_derivatives(row, at, p, x, t, order=1))(
        params
    )
    brute = lambda p: jax.vmap(jax.vmap(functools.partial(row, at(p)), (0, None)))(x, t)
    want = once(lambda p: brute(p).reshape(-1))(params)
    np.testing.assert_allclose(rows, want, rtol=1e-10, atol=1e-11)
    whole = once(jax.jacrev(lambda p: brute(p).reshape(-1)))(params)
    np.testing.assert_allclose(slopes, whole, rtol=1e-8, atol=1e-9)


def test_the_certificate_holds_and_its_interval_covers_the_continuum():
    """Of weights and a field that eight nodes do not resolve."""
    weight = lambda x: jnp.exp(jnp.sin(jnp.pi * x[0]))
    still = lambda x: jnp.stack(
        [jnp.cos(jnp.pi * x[0]), jnp.exp(jnp.cos(jnp.pi * x[0]))]
    )
    u = sdifp.conserve(
        still,
        uniform(8),
        invariants=[
            Moment(lambda x: jnp.stack([weight(x), 1.0 + 0.0 * x[0]]), 0.4, name="m"),
            Quadratic(weight, 3.0, name="q"),
        ],
    )
    found = u.certificate(key=KEY)
    assert found.holds
    assert [row.invariant for row in found.rows] == ["m", "q"]
    now, fine = u.at(), uniform(400)
    psi = lambda x: jnp.stack([weight(x), 1.0])
    moment = fine.integrate(lambda x: psi(x) @ now(x)) - 0.4
    square = fine.integrate(lambda x: weight(x) * jnp.sum(now(x) ** 2)) / 3.0 - 1.0
    norm = uniform(8).integrate(lambda x: jnp.stack([psi(x) @ psi(x), now(x) @ now(x)]))
    wanted = [float(moment / jnp.sqrt(norm[0] * norm[1])), float(square)]
    for row, want in zip(found.rows, wanted, strict=True):
        assert abs(want) > 1e-8
        assert row.on_rule <= 1e-14
        assert abs(row.continuum - want) <= 1.5 * row.continuum_margin + 1e-12


FROZEN = ["moments", "groups", "metric", "profile", "wave"]


@pytest.mark.parametrize("name", only(FROZEN, "groups"))
def test_a_frozen_field_is_the_field(name, tmp_path):
    u = conserved(name)
    frozen = u.freeze((0.0, 1.0))
    assert frozen.accuracy <= 1e-9
    xs = BOX.sample(KEY, 7)
    for t in (0.0, 0.3, 1.0):
        got = jax.vmap(frozen.at(t))(xs)
        np.testing.assert_allclose(got, jax.vmap(u.at(t))(xs), rtol=1e-7, atol=1e-8)
    frozen.save(tmp_path / "f.npz")
    blank = u.over(jax.tree.map(jnp.zeros_like, u.net))
    again = FrozenField.load(tmp_path / "f.npz", blank)
    assert bool(eqx.tree_equal(again, frozen))
    np.testing.assert_array_equal(again(xs[0], 0.3), frozen(xs[0], 0.3))


def test_a_frozen_field_is_exported_and_needs_its_invariants(tmp_path, as_user):
    u = conserved("metric")
    frozen = u.freeze((0.0, 1.0), tolerance=1e-6)
    frozen.export(tmp_path / "f")
    program = jax.export.deserialize(bytearray((tmp_path / "f").read_bytes()))
    want = jax.vmap(frozen.at(0.3))(XS)
    np.testing.assert_allclose(program.call(XS, 0.3), want, rtol=1e-12)
    file = tmp_path / "f.npz"
    frozen.save(file)
    with pytest.raises(ValueError, match=r"it has no scales or no shifts.*invariants"):
        FrozenField.load(file, u.net)
    with pytest.raises(ValueError, match=r"its multiples have shape \(1,\)"):
        FrozenField.load(file, conserved("linear alone"))
    with pytest.raises(ValueError, match="net must have the structure of the saved"):
        FrozenField.load(file, conserved("moments"))
    with pytest.raises(ValueError, match="profile must be left out"):
        FrozenField.load(file, u, lambda x: x[0])


def test_a_frozen_field_without_time():
    still = lambda x: net(2)(x, jnp.zeros(()))
    u = sdifp.conserve(still, uniform(), invariants=[Mass(0.5)])
    got, want = jax.vmap(u.freeze())(XS), jax.vmap(u)(XS)
    np.testing.assert_allclose(got, want, rtol=1e-13)
