"""Gradients by the parameters: equal to the in-graph ones, or unbiased for them."""

import functools

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once, only

import sdifp

KEY = jax.random.key(8)
BOX = sdifp.Box([0.0], [2.0], periodic=True)
REPEATS = 1500


class Net(eqx.Module):
    inner: jax.Array
    outer: jax.Array

    def __call__(self, x, t):
        wave = jnp.pi * x[0]
        features = jnp.stack([jnp.sin(wave), jnp.cos(wave), t])
        return self.outer @ jnp.tanh(self.inner @ features)


NET = Net(
    jax.random.normal(KEY, (6, 3)), jax.random.normal(jax.random.split(KEY)[0], (6,))
)


def points_rule(decades):
    rng = np.random.default_rng(1)
    weights = 10.0 ** rng.uniform(-decades, 0.0, 48)
    nodes = np.sort(rng.random((48, 1)) * 2, axis=0)
    return sdifp.from_points(BOX, nodes, weights / weights.sum())


RULES = {
    "uniform": sdifp.quadrature.trapezoid(BOX, 48),
    "spread weights": points_rule(2.0),
}
XS = jnp.linspace(0.1, 1.9, 4)[:, None]


def mass(t):
    return 0.5 + 0.2 * t


def residual_loss(u):
    """What training takes the gradient of: the square of u_t + u_x."""

    def residual(x, t):
        u_t = jax.jvp(lambda t: u(x, t), (t,), (1.0,))[1]
        return u_t + jax.grad(lambda x: u(x, t))(x)[0]

    r = jax.vmap(lambda x: residual(x, jnp.asarray(0.3)))(XS)
    return jnp.mean(r**2)


def rate_loss(u):
    """Linear in the time derivative: its gradient is that of u_t alone."""
    rate = jax.jvp(lambda t: jax.vmap(u.at(t))(XS), (0.3,), (1.0,))[1]
    return jnp.sum(rate * jnp.array([1.0, -2.0, 0.5, 1.5]))


LOSSES = {"residual": residual_loss, "rate": rate_loss}


def in_graph(net, rule):
    """The corrected field by the textbook formula, differentiated by autodiff."""

    def u(x, t):
        f = jax.vmap(lambda x: net(x, t))(jnp.asarray(rule.nodes))
        w = jnp.asarray(rule.weights)
        mean = jnp.sum(w * f)
        variance = jnp.sum(w * (f - mean) ** 2)
        m, s = mass(t) / 2.0, 0.75
        return m + jnp.sqrt((s - m * m) / variance) * (net(x, t) - mean)

    u.at = lambda t: lambda x: u(x, t)
    return u


def flat(tree):
    return jax.flatten_util.ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0]


def gradient(loss, u):
    return flat(eqx.filter_grad(loss)(u))


@functools.cache
def oracle(loss, rule):
    run = once(jax.grad(lambda net: LOSSES[loss](in_graph(net, RULES[rule]))))
    return np.asarray(flat(run(NET)))


def conserved(rule, mode):
    return sdifp.conserve(NET, RULES[rule], mass, 1.5, gradient=mode)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "mode",
    [
        sdifp.field.Exact(),
        sdifp.field.Exact(chunk=7),
        sdifp.field.Subsampled(8),
        sdifp.field.MiniBatch(8),
    ],
    ids=repr,
)
def test_exact_gradient_equals_the_in_graph_one(loss, mode):
    # Without a key the random modes use all nodes.
    got = once(gradient)(LOSSES[loss], conserved("spread weights", mode))
    want = oracle(loss, "spread weights")
    assert np.allclose(got, want, rtol=1e-9, atol=1e-10 * abs(want).max())


@pytest.mark.parametrize(
    "mode",
    [sdifp.field.Subsampled(8), sdifp.field.Subsampled(48), sdifp.field.Detached()],
)
def test_value_and_time_derivative_do_not_depend_on_the_mode(mode):
    exact = conserved("spread weights", sdifp.field.Exact())
    other = conserved("spread weights", mode).resample(KEY)
    both = once(lambda u: [loss(u) for loss in LOSSES.values()])
    for got, want in zip(both(other), both(exact), strict=True):
        assert float(got) == pytest.approx(float(want), rel=1e-12)


def test_all_nodes_in_the_sample_give_the_exact_gradient():
    for stratified in (True, False):
        mode = sdifp.field.Subsampled(48, stratified)
        u = conserved("spread weights", mode).resample(KEY)
        got = once(gradient)(residual_loss, u)
        want = oracle("residual", "spread weights")
        assert np.allclose(got, want, rtol=1e-9, atol=1e-10 * abs(want).max())


def scores(rule, loss, mode):
    """Mean error of the gradient over its standard error, for each parameter."""
    u = conserved(rule, mode)
    run = once(jax.vmap(lambda key: gradient(LOSSES[loss], u.resample(key))))
    samples = np.asarray(run(jax.random.split(KEY, REPEATS)))
    error = samples.mean(0) - oracle(loss, rule)
    size = samples.std(0, ddof=1) / np.sqrt(REPEATS)
    return np.abs(error) / np.maximum(size, 1e-12), samples


def looks_unbiased(z):
    # 24 parameters: under the null one exceeds 4.5 once in six thousand tests.
    return bool(np.all(z < 4.5))


@pytest.mark.parametrize("rule", only(RULES, "spread weights"))
@pytest.mark.parametrize("loss", LOSSES)
def test_subsampled_gradient_is_unbiased_and_strata_have_less_noise(rule, loss):
    noise = {}
    for stratified in (True, False):
        z, samples = scores(rule, loss, sdifp.field.Subsampled(8, stratified))
        noise[stratified] = samples.std(0)
        assert noise[stratified].max() > 1e-3
        assert looks_unbiased(z)
    if (rule, loss) == ("uniform", "residual"):
        assert noise[True].sum() < 0.7 * noise[False].sum()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "mode", [sdifp.field.Detached(), sdifp.field.MiniBatch(8)], ids=repr
)
def test_the_biased_modes_fail_the_same_test(loss, mode):
    z, _ = scores("spread weights", loss, mode)
    assert not looks_unbiased(z)


@pytest.mark.validate
def test_forgetting_the_importance_factor_fails_the_same_test(monkeypatch):
    from sdifp.field import _gradient

    choose = _gradient.choose_nodes

    def unweighted(key, rule, k, stratified):
        index, _ = choose(key, rule, k, stratified)
        weights = jnp.asarray(RULES["spread weights"].weights)[index]
        return index, 1.0 / (k * weights)

    monkeypatch.setattr(_gradient, "choose_nodes", unweighted)
    jax.clear_caches()
    z, _ = scores("spread weights", "rate", sdifp.field.Subsampled(8))
    jax.clear_caches()
    assert not looks_unbiased(z)


@pytest.mark.parametrize(
    ("kind", "stratified"),
    [("monte_carlo", False), ("monte_carlo", True), ("sobol", True), ("lattice", True)],
)
@pytest.mark.parametrize(("size", "k"), [(8, 3), (16, 16), (256, 16)])
def test_chosen_nodes_are_different_and_sums_unbiased(kind, size, k, stratified):
    from sdifp.field._gradient import choose_nodes

    rule = getattr(sdifp.quadrature, kind)(sdifp.Box.cube(2), size, key=KEY)
    keys = jax.random.split(KEY, 4000)
    choose = lambda key: choose_nodes(key, rule, k, stratified)
    index, factor = once(jax.vmap(choose))(keys)
    assert all(len(set(row)) == k for row in np.asarray(index[:50]).tolist())
    assert int(index.min()) >= 0
    assert int(index.max()) < size
    values = np.cos(np.arange(size)) ** 3
    sums = np.sum(np.asarray(factor) * values[np.asarray(index)], axis=1)
    error = abs(sums.mean() - values.sum())
    assert error <= 5 * sums.std() / np.sqrt(4000) + 1e-9


@pytest.mark.validate
def test_exact_gradient_takes_memory_that_does_not_grow_with_the_rule():
    def extra(size):
        rule = sdifp.quadrature.monte_carlo(BOX, size, key=KEY)
        u = sdifp.conserve(NET, rule, mass, 1.5, gradient=sdifp.field.Exact(1000))
        params, static = eqx.partition(u, eqx.is_inexact_array)
        run = jax.jit(jax.grad(lambda p: residual_loss(eqx.combine(p, static))))
        return run.lower(params).compile().memory_analysis().temp_size_in_bytes

    small, large = extra(10_000), extra(1_000_000)
    # A few numbers for each of the thousand chunks are all that is kept.
    assert large - small < 1_000 * 8 * 60
    assert large < 1.5 * small + 8 * 60_000


@pytest.mark.validate
def test_subsampled_gradient_takes_memory_of_the_sample_only():
    def extra(mode):
        rule = sdifp.quadrature.monte_carlo(BOX, 100_000, key=KEY)
        u = sdifp.conserve(NET, rule, mass, 1.5, gradient=mode).resample(KEY)
        params, static = eqx.partition(u, eqx.is_inexact_array)
        run = jax.jit(jax.grad(lambda p: residual_loss(eqx.combine(p, static))))
        return run.lower(params).compile().memory_analysis().temp_size_in_bytes

    assert extra(sdifp.field.Subsampled(16, chunk=1000)) < 2 * extra(
        sdifp.field.Exact(1000)
    )


@pytest.mark.parametrize(("size", "k"), [(10, 3), (12, 12), (7, 1), (1000, 64)])
def test_one_node_of_each_run_of_any_length(size, k):
    index, factor = sdifp.quadrature.monte_carlo(BOX, size, key=KEY).sample(KEY, k)
    edges = np.arange(k + 1) * size // k
    assert (
        np.searchsorted(edges, np.asarray(index), "right") == 1 + np.arange(k)
    ).all()
    assert np.asarray(factor).sum() == size


@pytest.mark.parametrize("kind", ["sobol", "lattice"])
@pytest.mark.parametrize("k", [1, 4, 64])
def test_a_sample_of_a_net_or_lattice_is_one_itself(kind, k):
    box = sdifp.Box.cube(3, 0.0, 1.0, periodic=True)
    rule = getattr(sdifp.quadrature, kind)(box, 256, key=KEY)
    for seed in range(5):
        index, _ = rule.sample(jax.random.key(seed), k)
        nodes = np.asarray(rule.at(index)[0])
        # Each of k equal parts of every axis has one node (a lattice has them at
        # equal distances, and may have one just beside an edge).
        places = np.sort(
            (nodes - nodes.min(0)) * k if kind == "lattice" else nodes * k, 0
        )
        if kind == "lattice":
            np.testing.assert_allclose(
                places, np.arange(k)[:, None] + np.zeros(3), atol=1e-6
            )
        else:
            assert (np.floor(places) == np.arange(k)[:, None]).all()


@pytest.mark.parametrize("kind", ["sobol", "lattice"])
def test_a_spread_sample_has_far_less_noise_in_ten_dimensions(kind):
    box = sdifp.Box.cube(10, periodic=True)
    rule = getattr(sdifp.quadrature, kind)(box, 4096, key=KEY)
    nodes = np.asarray(rule.nodes)
    values = np.exp(np.cos(np.pi * nodes).sum(1) / np.sqrt(10.0))

    def noise(stratified):
        from sdifp.field._gradient import choose_nodes

        keys = jax.random.split(KEY, 200)
        choose = jax.vmap(lambda key: choose_nodes(key, rule, 256, stratified)[0])
        return values[np.asarray(once(choose)(keys))].mean(1).std()

    assert noise(True) < 0.5 * noise(False)
