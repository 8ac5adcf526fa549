"""What every quadrature rule must do, checked on every family."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quick import once, only

from sdifp import Box, from_points
from sdifp.quadrature import (
    GaussLegendre,
    Trapezoid,
    gauss_legendre,
    halton,
    importance,
    lattice,
    midpoint,
    monte_carlo,
    sobol,
    tensor,
    trapezoid,
)
from sdifp.quadrature._rule import equal_weights

ULP = 2.0**-52
BOX = Box([-1.0, 2.0], [3.0, 2.5], periodic=[True, False])
TORUS = Box([-1.0, 2.0], [3.0, 2.5], periodic=True)
KEY = jax.random.key(11)


def sample(key):
    return BOX.sample(key, 1)[0]


def stored():
    rng = np.random.default_rng(5)
    weights = rng.random(60) + 0.1
    return from_points(
        BOX, BOX.lower + BOX.width * rng.random((60, 2)), weights / weights.sum()
    )


FAMILIES = {
    "trapezoid": lambda: trapezoid(TORUS, [8, 7]),
    "midpoint": lambda: midpoint(BOX, [7, 9]),
    "gauss_legendre": lambda: gauss_legendre(BOX, [5, 12]),
    "tensor": lambda: tensor(BOX, [Trapezoid(8), GaussLegendre(9)]),
    "points": stored,
    "lattice": lambda: lattice(BOX, 64, key=KEY),
    "sobol": lambda: sobol(BOX, 64, key=KEY),
    "halton": lambda: halton(BOX, 60, key=KEY),
    "monte_carlo": lambda: monte_carlo(BOX, 60, key=KEY),
    "importance": lambda: importance(
        BOX, 60, sample, lambda x: 1.0 + 0.0 * x[0], key=KEY
    ),
}
FIXED = ["midpoint", "gauss_legendre", "tensor", "points"]
RANDOMISED = [name for name in FAMILIES if name not in FIXED]

each_family = pytest.mark.parametrize("name", FAMILIES)
each_randomised = pytest.mark.parametrize("name", RANDOMISED)


@functools.cache
def build(name):
    return FAMILIES[name]()


@each_family
def test_no_optimiser_can_move_the_nodes(name):
    rules = [build(name)]
    if name in RANDOMISED:
        rules.append(once(lambda r: r.resample(KEY))(rules[0]))
    for rule in rules:
        assert not jax.tree.leaves(eqx.filter(rule, eqx.is_inexact_array))


@each_family
def test_single_nodes_are_those_of_the_whole(name):
    index = np.array([3, 0, build(name).size - 1, 3])
    nodes, weights = eqx.filter_jit(lambda rule, i: rule.at(i))(build(name), index)
    all_nodes, all_weights = build(name).nodes, build(name).weights
    np.testing.assert_array_equal(nodes, np.asarray(all_nodes)[index])
    np.testing.assert_allclose(weights, np.asarray(all_weights)[index], rtol=1e-15)


@functools.cache
def stored_table(name):
    """All nodes and weights of a family, as NumPy arrays."""
    return np.asarray(build(name).nodes), np.asarray(build(name).weights)


def exact_mean(nodes, weights):
    u = (np.asarray(nodes, float) - BOX.lower) / BOX.width
    return math.fsum(np.asarray(weights, float) * np.exp(u[:, 1]) * (1 + u[:, 0] ** 2))


def field(x):
    u = (x - jnp.asarray(BOX.lower, x.dtype)) / jnp.asarray(BOX.width, x.dtype)
    return jnp.exp(u[1]) * (1.0 + u[0] ** 2)


EXACT = math.expm1(1.0) * 4 / 3


@each_family
def test_nodes_lie_in_the_box_and_weights_are_positive_with_sum_one(name):
    rule = build(name)
    assert rule.name == name
    assert rule.dimension == 2
    nodes, weights = stored_table(name)
    assert nodes.shape == (rule.size, 2)
    assert nodes.dtype == np.float64
    assert np.all((nodes >= BOX.lower) & (nodes <= BOX.upper))
    assert weights.shape == (rule.size,)
    assert weights.dtype == np.float64
    assert np.all(weights > 0.0)
    assert abs(math.fsum(weights) - 1.0) <= ULP


@given(size=st.integers(1, 100_000))
def test_equal_weights_of_any_size_sum_to_one(size):
    assert abs(math.fsum(equal_weights(size)) - 1.0) <= ULP


@each_family
def test_blocks_are_slices_of_the_nodes_and_weights(name):
    rule = build(name)
    nodes, weights = stored_table(name)
    blocks = eqx.filter_jit(
        lambda rule, start: (rule.block(start, 5), rule.block(start // 2, 20))
    )
    for start in (0, 1, 7, rule.size - 5):
        for (some, their), i, n in zip(
            blocks(rule, jnp.asarray(start)), (start, start // 2), (5, 20), strict=True
        ):
            np.testing.assert_allclose(some, nodes[i : i + n], rtol=1e-15)
            np.testing.assert_allclose(their, weights[i : i + n], rtol=1e-15)


@each_family
def test_the_mean_is_the_weighted_sum_whatever_the_chunk(name):
    rule = build(name)
    exact = exact_mean(*stored_table(name))
    found = eqx.filter_jit(
        lambda rule: jnp.stack([rule.mean(field, chunk=c) for c in (None, 7)])
    )(rule)
    np.testing.assert_allclose(found, exact, rtol=2e-15)


@each_family
def test_a_constant_is_its_own_mean_and_the_integral_is_volume_times_mean(name):
    both = lambda x: jnp.stack([0.1 + 0.0 * x[0], field(x)])
    constant, value = eqx.filter_jit(lambda r: r.integrate(both, chunk=13))(build(name))
    assert math.isclose(constant, 2.0 * 0.1, rel_tol=4 * ULP)
    assert math.isclose(value, 2.0 * exact_mean(*stored_table(name)), rel_tol=4e-15)


def test_chunks_agree_to_rounding_on_a_large_rule():
    rule = halton(BOX, 100_003, key=KEY)
    found = eqx.filter_jit(
        lambda rule: jnp.stack([rule.mean(field, chunk=c) for c in (64, 1000, 10**6)])
    )(rule)
    np.testing.assert_allclose(found, found[0], rtol=1e-15)


def test_functions_of_any_shape_and_precision_are_averaged():
    rule = build("gauss_legendre")
    matrix, single = eqx.filter_jit(
        lambda rule: (
            rule.mean(lambda x: jnp.outer(x, x)),
            rule.mean(lambda x: x[0].astype(jnp.float32)),
        )
    )(rule)
    assert matrix.shape == (2, 2)
    assert math.isclose(single, 1.0, rel_tol=1e-6)


def test_functions_that_return_integers_are_refused():
    with pytest.raises(TypeError, match="must return floating-point numbers, got int"):
        build("midpoint").mean(lambda x: 1)


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_chunk_below_one_is_refused(chunk):
    with pytest.raises(
        ValueError, match=f"chunk must be a positive integer, got {chunk}"
    ):
        build("midpoint").mean(field, chunk=chunk)


def compiled_bytes(rule, function):
    lowered = jax.jit(lambda key, a: function(rule.resample(key), a)).lower(KEY, 1.0)
    return lowered.compile().memory_analysis().temp_size_in_bytes


def gaussian(rule, a):
    return rule.mean(lambda x: jnp.exp(-a * jnp.sum(x * x)), chunk=1000)


@pytest.mark.parametrize("order", only([0, 1], 0))
def test_memory_grows_neither_with_the_size_nor_by_the_gradient(order):
    function = jax.grad(gaussian, argnums=1) if order else gaussian
    box = Box.cube(10)
    small, large = (
        compiled_bytes(monte_carlo(box, size, key=KEY), function)
        for size in (64_000, 1_024_000)
    )
    # A few sums for each further chunk are allowed, nodes and values are not.
    assert large - small <= 4 * 8 * 1000
    assert small < 8 * 10**4 * 10


def test_gradients_through_the_mean_are_those_of_the_weighted_sum():
    rule = sobol(Box.cube(3), 1024, key=KEY)
    value, slope = jax.jit(
        jax.value_and_grad(
            lambda a: rule.mean(lambda x: jnp.exp(-jnp.sum(a * x**2)), chunk=300)
        )
    )(jnp.array([0.5, 1.0, 2.0]))
    nodes = np.asarray(rule.nodes)
    g = np.exp(-(nodes**2) @ [0.5, 1.0, 2.0])
    assert math.isclose(value, g.mean(), rel_tol=1e-14)
    np.testing.assert_allclose(slope, -(g[:, None] * nodes**2).mean(0), rtol=1e-13)


def test_nodes_that_do_not_fit_are_refused_with_their_size():
    rule = monte_carlo(Box.cube(100_000), 100_000, key=KEY)
    with pytest.raises(ValueError, match=r"100000 nodes.*take 74.5 GiB; use rule.mean"):
        _ = rule.nodes


ONE_NODE = {
    "trapezoid": lambda: trapezoid(TORUS, 1),
    "midpoint": lambda: midpoint(BOX, 1),
    "gauss_legendre": lambda: gauss_legendre(BOX, 1),
    "points": lambda: from_points(BOX, np.array([[0.0, 2.2]])),
    "lattice": lambda: lattice(Box.cube(1), 1, key=KEY),
    "sobol": lambda: sobol(BOX, 1, key=KEY),
    "halton": lambda: halton(BOX, 1, key=KEY),
    "monte_carlo": lambda: monte_carlo(BOX, 1, key=KEY),
    "importance": lambda: importance(
        BOX, 1, sample, lambda x: 1.0 + 0.0 * x[0], key=KEY
    ),
}


@pytest.mark.parametrize("name", ONE_NODE)
def test_one_node_is_enough(name):
    rule = ONE_NODE[name]()
    assert (rule.name, rule.size) == (name, 1)
    assert rule.weights.tolist() == [1.0]
    node, mean = once(lambda r: (r.block(0, 1)[0], r.mean(jnp.sum)))(rule)
    assert np.all(rule.domain.contains(node))
    assert math.isclose(mean, np.sum(node), rel_tol=1e-15)


@each_randomised
def test_redraws_inside_jit_are_those_outside(name):
    rule = build(name)
    keys = jax.random.split(KEY, 2)
    inside = eqx.filter_jit(lambda rule, key: rule.resample(key).block(0, rule.size))
    one, other = inside(rule, keys[0])[0], inside(rule, keys[1])[0]
    fresh = rule.resample(keys[0])
    np.testing.assert_allclose(one, fresh.nodes, rtol=1e-14)
    assert not np.any(np.isclose(one, other, rtol=1e-9, atol=0))
    assert np.all(rule.domain.contains(one))
    assert (fresh.name, fresh.size, fresh.domain) == (name, rule.size, rule.domain)


@pytest.mark.parametrize("name", FIXED)
def test_rules_that_are_not_randomised_refuse_to_be_redrawn(name):
    with pytest.raises(ValueError, match=f"the rule {name} is not randomised.*sobol, "):
        build(name).resample(KEY)


def redrawn_means(rule, n, change=lambda rule: rule):
    keys = jax.random.split(jax.random.key(23), n)
    mean = lambda rule, key: change(rule.resample(key)).mean(field)
    found = once(
        lambda rule: jax.lax.map(lambda k: mean(rule, k), keys, batch_size=500)
    )(rule)
    return np.asarray(found)


def looks_unbiased(means):
    spread = means.std(ddof=1) / math.sqrt(len(means))
    return abs(means.mean() - EXACT) <= 5 * spread + 1e-15


SMALL = {
    "trapezoid": lambda: trapezoid(TORUS, [4, 2]),
    "lattice": lambda: lattice(BOX, 8, key=KEY),
    "sobol": lambda: sobol(BOX, 8, key=KEY),
    "halton": lambda: halton(BOX, 8, key=KEY),
    "monte_carlo": lambda: monte_carlo(BOX, 8, key=KEY),
}


@pytest.mark.parametrize("name", SMALL)
def test_redraws_are_unbiased_and_uncorrelated(name):
    means = redrawn_means(SMALL[name](), 4000)
    assert looks_unbiased(means)
    correlation = np.corrcoef(means[1:], means[:-1])[0, 1]
    assert abs(correlation) < 5 / math.sqrt(4000)


def halve_cells(rule):
    """A shift that reaches only the first half of each cell."""
    if rule.name == "sobol":
        return eqx.tree_at(lambda r: r.shift, rule, rule.shift >> 4)
    cells = np.array([4, 2] if rule.name == "trapezoid" else [8, 8], np.uint32)
    return eqx.tree_at(lambda r: r.shift, rule, rule.shift // (2 * cells))


@pytest.mark.parametrize("name", ["trapezoid", "lattice", "sobol"])
def test_shifts_over_half_a_cell_would_be_found_biased(name):
    assert not looks_unbiased(redrawn_means(SMALL[name](), 4000, halve_cells))


@pytest.mark.parametrize("name", SMALL)
def test_a_rule_that_is_never_redrawn_would_be_found_biased(name):
    frozen = SMALL[name]()
    mean = float(once(lambda: frozen.mean(field))())
    assert not looks_unbiased(np.full(4000, mean))


@each_randomised
def test_replicates_are_all_different_and_repeatable(name):
    rule, key = build(name), jax.random.key(12)
    start = once(lambda rule: rule.block(0, 4)[0])
    first = [np.asarray(start(r)) for r in rule.replicates(key, 3)]
    again = [np.asarray(start(r)) for r in rule.replicates(key, 3)]
    np.testing.assert_array_equal(first, again)
    assert len(np.unique([*first, stored_table(name)[0][:4]], axis=0)) == 4


def test_no_replicates_are_refused():
    with pytest.raises(ValueError, match="n must be a positive integer, got 0"):
        build("sobol").replicates(KEY, 0)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_works_in_single_precision(name):
    with jax.enable_x64(False):
        rule = FAMILIES[name]()
        if name in RANDOMISED:
            rule = rule.resample(jax.random.key(2))
        nodes, weights, found = eqx.filter_jit(
            lambda rule: (*rule.block(0, rule.size), rule.mean(field, chunk=25))
        )(rule)
        assert nodes.dtype == weights.dtype == found.dtype == jnp.float32
        assert np.all(rule.domain.contains(nodes))
    assert abs(float(found) - EXACT) < 0.4
    assert math.isclose(found, exact_mean(nodes, weights), rel_tol=1e-6)


def test_rules_are_arguments_of_jit_without_tracing_again():
    traces = []

    @eqx.filter_jit
    def mean(rule):
        traces.append(rule)
        return rule.mean(field)

    rule = build("sobol")
    found = {float(mean(r)) for r in rule.replicates(KEY, 4)}
    assert len(found) == 4
    assert len(traces) == 1


@pytest.mark.parametrize("k", [0, 9, -1])
def test_a_sample_of_too_many_nodes_is_refused(k):
    rule = sobol(Box.cube(2), 8, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"k must be .*got"):
        rule.sample(jax.random.key(0), k)
