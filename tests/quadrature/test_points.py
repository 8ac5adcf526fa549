"""Stored points, Halton points and importance samples."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats.qmc
from hypothesis import given
from hypothesis import strategies as st

from sdifp import Box, from_points
from sdifp.quadrature import halton, importance
from sdifp.quadrature._rule import seed_from

ULP = 2.0**-52
BOX = Box([-1.0, 2.0], [3.0, 2.5])
LINE = Box([0.0], [1.0])


def points(rng, n):
    return BOX.lower + BOX.width * rng.random((n, 2))


def test_points_are_stored_exactly_with_equal_weights_by_default(rng):
    nodes = points(rng, 7)
    rule = from_points(BOX, nodes)
    np.testing.assert_array_equal(rule.nodes, nodes)
    np.testing.assert_array_equal(rule.weights, np.full(7, 1 / 7))
    assert repr(rule) == "points(7 nodes, 2 dimensions)"
    assert from_points(BOX, nodes, name="mesh").name == "mesh"


def test_points_of_jax_and_on_the_walls_are_accepted():
    corners = jnp.array([[-1.0, 2.0], [3.0, 2.5]])
    np.testing.assert_array_equal(from_points(BOX, corners).nodes, corners)


def test_points_in_single_precision_may_lie_on_a_wall_that_is_rounded():
    box = Box([0.0], [0.1])
    rule = from_points(box, np.array([[0.0], [0.1]], np.float32))
    assert rule.size == 2


def test_weights_in_single_precision_are_normalised_again(rng):
    weights = rng.random(1000).astype(np.float32)
    weights /= weights.sum()
    rule = from_points(BOX, points(rng, 1000), weights)
    assert rule.weights.dtype == np.float64
    assert abs(math.fsum(rule.weights) - 1.0) <= ULP
    np.testing.assert_allclose(rule.weights, weights, rtol=1e-6)


@given(weights=st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=400).map(np.array))
def test_weights_of_any_size_end_up_with_sum_one(weights):
    nodes = np.full((len(weights), 1), 0.5)
    found = from_points(LINE, nodes, weights / weights.sum()).weights
    assert np.all(found > 0.0)
    assert abs(math.fsum(found) - 1.0) <= ULP


def test_the_mean_is_the_weighted_sum(rng):
    nodes, weights = points(rng, 50), rng.random(50)
    rule = from_points(BOX, nodes, weights / weights.sum())
    exact = np.average(np.sin(nodes[:, 0]) * nodes[:, 1], weights=weights)
    found = rule.mean(lambda x: jnp.sin(x[0]) * x[1], chunk=16)
    assert math.isclose(found, exact, rel_tol=1e-14)


def test_stored_points_refuse_to_be_redrawn(rng, getkey):
    with pytest.raises(ValueError, match="rule points is not randomised"):
        from_points(BOX, points(rng, 3)).resample(getkey())


GOOD = np.array([[0.0, 2.25], [1.0, 2.0], [2.0, 2.5]])


@pytest.mark.parametrize(
    ("nodes", "weights", "error", "message"),
    [
        (GOOD - [0.0, -1.0], None, ValueError, r"nodes\[0\] = \[0.0, 3.25\] \(3 of 3"),
        (GOOD - [1.5, 0.0], None, ValueError, r"nodes\[0\].*\(1 of 3 are outside"),
        (GOOD * [1.0, math.nan], None, ValueError, "finite and lie in the box"),
        (GOOD - [math.inf, 0.0], None, ValueError, "finite and lie in the box"),
        (GOOD[:, :1], None, ValueError, r"shape \(M, 2\).*got \(3, 1\)"),
        (GOOD[0], None, ValueError, r"shape \(M, 2\).*got \(2,\)"),
        (GOOD[:0], None, ValueError, r"shape \(M, 2\).*got \(0, 2\)"),
        (np.array([[0, 2]]), None, TypeError, r"nodes must hold floating.*int64"),
        (GOOD, [0.5, 0.7, -0.2], ValueError, r"weights\[2\] = -0.2 \(1 of 3"),
        (GOOD, [0.5, 0.0, 0.5], ValueError, r"weights\[1\] = 0.0"),
        (GOOD, [1.0, 1.0, 1.0], ValueError, "sum to 1, got 3; pass weights / w"),
        (GOOD, [0.3, 0.3, 0.3], ValueError, "sum to 1, got 0.9"),
        (GOOD, [0.5, math.nan, 0.5], ValueError, r"weights\[1\] = nan"),
        (GOOD, [0.5, math.inf, 0.5], ValueError, r"weights\[1\] = inf"),
        (GOOD, [0.5, 0.5], ValueError, r"weights must have shape \(3,\).*\(2,\)"),
        (GOOD, [[0.5], [0.2], [0.3]], ValueError, r"shape \(3,\).*\(3, 1\)"),
        (GOOD, [1, 0, 0], TypeError, r"weights must hold floating.*int64"),
    ],
)
def test_bad_points_and_weights_are_refused(as_user, nodes, weights, error, message):
    weights = None if weights is None else np.array(weights)
    with pytest.raises(error, match=message):
        from_points(BOX, nodes, weights)


def test_halton_nodes_are_those_of_scipy_with_the_same_seed(getkey):
    key = getkey()
    unit = scipy.stats.qmc.Halton(2, rng=seed_from(key)).random(50)
    nodes = halton(BOX, 50, key=key).nodes
    np.testing.assert_allclose(nodes, BOX.lower + BOX.width * unit, atol=4 * 2.0**-32)


def test_redrawing_halton_shifts_all_nodes_alike(getkey):
    rule = halton(BOX, 20, key=getkey())
    moved = rule.resample(getkey())
    shift = np.asarray((moved.nodes - rule.nodes) / BOX.width[None, :] % 1.0)
    np.testing.assert_allclose(shift, np.broadcast_to(shift[0], (20, 2)), atol=1e-13)
    assert np.all(BOX.contains(moved.nodes))


@functools.cache
def tilted(factor=1.0):
    """Samples of the density 1/2 + x on [0, 1]."""
    return importance(
        LINE,
        4096,
        sampler=lambda k: (jnp.sqrt(1.0 + 8.0 * jax.random.uniform(k, (1,))) - 1.0) / 2,
        density=lambda x: factor * (0.5 + x[0]),
        key=jax.random.key(6),
    )


def test_importance_weights_undo_the_density_up_to_a_constant():
    rule, scaled = tilted(), tilted(1e200)
    product = np.asarray(rule.weights) * (0.5 + np.asarray(rule.nodes)[:, 0])
    np.testing.assert_allclose(product, product[0], rtol=1e-13)
    assert abs(math.fsum(rule.weights) - 1.0) <= ULP
    np.testing.assert_allclose(scaled.weights, rule.weights, rtol=1e-13)


def test_importance_means_have_the_error_that_theory_predicts(getkey):
    keys = jax.random.split(getkey(), 64)
    found = eqx.filter_jit(
        lambda rule: jax.vmap(lambda k: rule.resample(k).mean(lambda x: x[0]))(keys)
    )(tilted())
    # The variance of (x - 1/2) / q under the density q = 1/2 + x is log 3 - 1.
    deviation = math.sqrt((math.log(3.0) - 1.0) / 4096)
    rms = np.sqrt(np.mean((np.asarray(found) - 0.5) ** 2))
    assert 0.6 * deviation < rms < 1.4 * deviation
    assert abs(float(np.mean(tilted().nodes)) - 7 / 12) < 0.03


def test_importance_beats_uniform_samples_on_a_peak(getkey):
    c, size = 0.01, 256
    peak = lambda x: 1.0 / (x[0] + c) ** 2
    rule = importance(
        LINE,
        size,
        sampler=lambda k: c * ((1.0 + 1.0 / c) ** jax.random.uniform(k, (1,)) - 1.0),
        density=lambda x: 1.0 / (x[0] + c),
        key=getkey(),
    )
    keys = jax.random.split(getkey(), 64)
    found = eqx.filter_jit(
        lambda rule: jax.vmap(lambda k: rule.resample(k).mean(peak))(keys)
    )(rule)
    mean, square = 1 / c - 1 / (1 + c), (c**-3 - (1 + c) ** -3) / 3
    rms = np.sqrt(np.mean((np.asarray(found) / mean - 1.0) ** 2))
    assert rms < 0.6 * math.sqrt((square / mean**2 - 1.0) / size)


def test_importance_redraws_inside_jit_and_normalises(getkey):
    resample = eqx.filter_jit(lambda rule, key: rule.resample(key))
    one, other = resample(tilted(), getkey()), resample(tilted(), getkey())
    assert not np.any(one.nodes == other.nodes)
    for each in (one, other):
        product = np.asarray(each.weights) * (0.5 + np.asarray(each.nodes)[:, 0])
        np.testing.assert_allclose(product, product[0], rtol=1e-13)
        assert abs(math.fsum(each.weights) - 1.0) <= 8 * ULP


def uniform(k):
    return jax.random.uniform(k, (1,))


@pytest.mark.parametrize(
    ("sampler", "density", "message"),
    [
        (lambda k: uniform(k) + 1.0, lambda x: 1.0 + x[0], "points in the box, got"),
        (lambda k: uniform(k) * jnp.nan, lambda x: 1.0 + x[0], "points in the box"),
        (lambda k: jax.random.uniform(k, (3,)), lambda x: x[0], r"\(1,\), got \(3,\)"),
        (lambda k: jax.random.uniform(k), lambda x: x[0], r"shape \(1,\), got \(\)"),
        (uniform, lambda x: 1.0 + x, r"one number a point, got shape \(1,\)"),
        (uniform, lambda x: 0.0 * x[0], "positive and finite.*got 0.0 at"),
        (uniform, lambda x: -x[0], "density must be positive"),
        (uniform, lambda x: x[0] * jnp.nan, "positive and finite.*got nan"),
        (uniform, lambda x: x[0] * jnp.inf, "positive and finite.*got inf"),
    ],
)
def test_bad_samplers_and_densities_are_refused(sampler, density, message, getkey):
    with pytest.raises(ValueError, match=message):
        importance(LINE, 4, sampler, density, key=getkey())
