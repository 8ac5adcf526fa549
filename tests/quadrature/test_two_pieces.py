"""Gauss-Legendre on two pieces: what stays exact when the border moves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from quick import once

from sdifp import Box
from sdifp.quadrature import Trapezoid, TwoPieces, rule_for, tensor

LINE = Box([-1.0], [3.0])
MIXED = Box([-1.0, 2.0], [3.0, 2.5], periodic=[True, False])
ULP = 2.0**-52


def monomials(x, n):
    """Powers of the coordinate on the unit interval."""
    return ((x[0] + 1.0) / 4.0) ** jnp.arange(n)


def resampled(rule, count):
    """The rule and some resamples of it."""
    return [rule, *rule.replicates(jax.random.key(3), count)]


@pytest.mark.parametrize("n", [2, 4, 8])
def test_every_resample_is_exact_to_degree_n_minus_1_and_not_beyond(n):
    rule = tensor(LINE, [TwoPieces(n)])
    mean = once(lambda rule: rule.mean(lambda x: monomials(x, n + 1)))
    exact = 1.0 / np.arange(1, n + 2)
    # Between the piece in the middle and the shortest one the error at degree n, of
    # the border b, is proportional to b^(n + 1) + (1 - b)^(n + 1): least in the middle.
    errors = [np.asarray(mean(one)) - exact for one in resampled(rule, 4)]
    np.testing.assert_allclose([e[:n] for e in errors], 0.0, atol=4 * ULP)
    least = abs(errors[0][n])
    assert least > 0.0
    assert all(abs(e[n]) >= 0.999 * least for e in errors)
    assert max(abs(e[n]) for e in errors) > 1.001 * least


def test_the_border_of_the_first_rule_is_in_the_middle_and_of_others_at_random():
    rule = tensor(LINE, [TwoPieces(8)])
    unit = lambda rule: (np.asarray(rule.nodes).ravel() + 1.0) / 4.0
    nodes, half = unit(rule), 0.5 * (1.0 + np.polynomial.legendre.leggauss(4)[0])
    np.testing.assert_allclose(
        nodes, np.concatenate([0.5 * half, 0.5 + 0.5 * half]), atol=4 * ULP
    )
    borders = []
    for one in rule.replicates(jax.random.key(0), 200):
        own = unit(one)
        border = own[0] / half[0]
        np.testing.assert_allclose(own[:4], border * half, rtol=1e-13)
        np.testing.assert_allclose(own[4:], border + (1 - border) * half, rtol=1e-13)
        borders.append(border)
    assert 0.3 <= min(borders) < 0.32
    assert 0.68 < max(borders) <= 0.7
    assert abs(np.mean(borders) - 0.5) < 5 * 0.4 / np.sqrt(12 * 200)


def test_weights_are_positive_with_sum_one_and_belong_to_the_nodes(getkey):
    for axes in ([Trapezoid(4), TwoPieces(6)], [Trapezoid(3), TwoPieces(2)]):
        for rule in resampled(tensor(MIXED, axes), 3):
            nodes, weights = rule.at(jnp.arange(rule.size))
            np.testing.assert_allclose(weights, rule.weights, rtol=4 * ULP)
            np.testing.assert_array_equal(nodes, rule.nodes)
            assert np.min(weights) > 0.0
            assert abs(np.sum(rule.weights) - 1.0) < 8 * ULP
            assert np.all(MIXED.contains(nodes))


def test_resamples_of_a_polynomial_have_no_bias_and_beyond_it_a_small_one():
    # The border changes the error of a rule and not its sign: a resample is unbiased
    # where it is exact, and elsewhere as good as the rule.
    field = lambda x: jnp.exp(jnp.sin(2.0 * x[0]))
    exact = scipy.integrate.quad(lambda x: np.exp(np.sin(2 * x)), -1, 3, epsabs=1e-14)[
        0
    ]
    errors = []
    for n in (8, 16, 32):
        rules = resampled(tensor(LINE, [TwoPieces(n)]), 20)
        mean = once(lambda rule: rule.mean(field))
        errors.append(max(abs(float(mean(rule)) - exact / 4.0) for rule in rules))
    assert errors[1] < 1e-2 * errors[0]
    assert errors[2] < 1e-4 * errors[1]
    assert errors[2] < 1e-9


def test_a_shift_of_a_periodic_axis_is_unbiased_and_that_of_both_is_independent():
    rule = tensor(MIXED, [Trapezoid(2), TwoPieces(4)])
    # Aliased on two nodes, so that one grid is wrong by its whole amplitude.
    wave = lambda x: jnp.cos(jnp.pi * (x[0] + 1.0) + 0.3) * (1.0 + x[1])
    keys = jax.random.split(jax.random.key(5), 4000)
    of = lambda key: rule.resample(key).mean(wave)
    means = np.asarray(once(lambda keys: jax.lax.map(of, keys, batch_size=500))(keys))
    spread = means.std(ddof=1) / np.sqrt(len(means))
    assert abs(means.mean()) < 5 * spread
    assert abs(float(once(lambda: rule.mean(wave))())) > 50 * spread
    borders = [np.asarray(r.nodes) for r in resampled(rule, 300)[1:]]
    first = np.array([b[0, 0] for b in borders]) % 2.0
    second = np.array([b[0, 1] for b in borders])
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(300)


def test_an_odd_number_is_refused_and_rule_for_takes_the_even_one_below():
    with pytest.raises(ValueError, match="n must be a multiple of 2 for two_pieces"):
        TwoPieces(5)
    rule = rule_for(LINE, 9, randomised=True)
    assert (rule.name, rule.size, rule.is_randomised) == ("two_pieces", 8, True)
    assert rule_for(LINE, 1, randomised=True).size == 2
    assert rule_for(LINE, 9).name == "gauss_legendre"
    mixed = rule_for(MIXED, 16, randomised=True)
    assert [axis.name for axis in mixed.axes] == ["trapezoid", "two_pieces"]


def test_some_nodes_of_a_resample_estimate_its_mean_without_bias():
    rule = tensor(LINE, [TwoPieces(8)]).resample(jax.random.key(1))
    values = jnp.exp(rule.nodes[:, 0])

    def estimate(key):
        index, factor = rule.sample(key, 3)
        _, weights = rule.at(index)
        return jnp.sum(factor * weights * values[index])

    keys = jax.random.split(jax.random.key(2), 4000)
    found = np.asarray(once(jax.vmap(estimate))(keys))
    spread = found.std(ddof=1) / np.sqrt(len(found))
    assert abs(found.mean() - rule.weights @ np.asarray(values)) < 5 * spread
