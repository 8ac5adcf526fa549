"""Monte Carlo rules: independent uniform nodes, streamed in any dimension."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdifp import Box
from sdifp.quadrature import monte_carlo

HUGE = 100_000


def test_nodes_are_uniform_and_uncorrelated(getkey):
    n, box = 20_000, Box([-1.0, 2.0, 0.0], [3.0, 2.5, 1.0])
    nodes = np.asarray(monte_carlo(box, n, key=getkey()).nodes)
    unit = (nodes - box.lower) / box.width
    assert np.all(np.abs(unit.mean(0) - 1 / 2) < 5 * np.sqrt(1 / 12 / n))
    assert np.all(np.abs(unit.var(0) - 1 / 12) < 5 * np.sqrt(1 / 180 / n))
    centred = unit - 0.5
    across_axes = (centred.T @ centred)[np.triu_indices(3, 1)] / n
    across_nodes = np.mean(centred[1:] * centred[:-1], axis=0)
    bound = 5 / 12 / np.sqrt(n)
    assert np.all(np.abs(across_axes) < bound)
    assert np.all(np.abs(across_nodes) < bound)


def test_a_node_does_not_depend_on_the_size_of_the_rule(getkey):
    key, box = getkey(), Box.cube(2)
    few, many = monte_carlo(box, 10, key=key), monte_carlo(box, 2**31 - 1, key=key)
    np.testing.assert_array_equal(few.nodes, many.block(0, 10)[0])


def test_the_last_nodes_of_the_largest_rule_are_distinct_points_of_the_box(getkey):
    rule = monte_carlo(Box.cube(2), 2**31 - 1, key=getkey())
    nodes = rule.block(2**31 - 6, 5)[0]
    assert len(np.unique(nodes)) == 10
    assert np.all(rule.domain.contains(nodes))


def two_moments(rule):
    return jax.jit(
        lambda key: rule.resample(key).mean(
            lambda x: jnp.stack([x.mean(), jnp.mean(x * x)])
        )
    )


def test_a_hundred_thousand_dimensions_stream_in_the_memory_of_a_few_blocks(getkey):
    rule = monte_carlo(Box.cube(HUGE), 10**6, key=getkey())
    compiled = two_moments(rule).lower(getkey()).compile()
    block = 8 * rule.chunk * rule.dimension
    assert block < 2**26
    assert compiled.memory_analysis().temp_size_in_bytes < 6 * block


def test_the_moments_of_a_hundred_thousand_coordinates_are_right(getkey):
    rule = monte_carlo(Box.cube(HUGE, -1.0, 2.0), 64, key=getkey())
    found = two_moments(rule)(getkey())
    numbers = rule.size * rule.dimension
    assert abs(float(found[0]) - 0.5) < 5 * np.sqrt(9 / 12 / numbers)
    assert abs(float(found[1]) - 1.0) < 5 * np.sqrt(1.2 / numbers)


def test_integrals_beyond_float64_are_refused_and_means_are_not(getkey):
    rule = monte_carlo(Box.cube(HUGE, 0.0, 2.0), 2, key=getkey())
    with pytest.raises(OverflowError, match=r"rule\.mean"):
        rule.integrate(lambda x: x[0])


@pytest.mark.parametrize(
    ("size", "error", "message"),
    [
        (0, ValueError, "size must be between 1 and"),
        (2**31, ValueError, "size must be between 1 and"),
        (1e4, TypeError, "size must be an integer, got 10000.0"),
        (True, TypeError, "size must be an integer, got True"),
    ],
)
def test_bad_sizes_are_refused(as_user, size, error, message, getkey):
    with pytest.raises(error, match=message):
        monte_carlo(Box.cube(2), size, key=getkey())
