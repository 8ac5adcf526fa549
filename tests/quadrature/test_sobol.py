"""Sobol rules: SciPy's points, their balance, and their resamples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats.qmc

from sdifp import Box
from sdifp.quadrature import sobol
from sdifp.quadrature._rule import seed_from


@pytest.mark.parametrize(("dimension", "size"), [(1, 1), (2, 64), (40, 256)])
def test_the_nodes_are_those_of_scipy_with_the_same_seed(dimension, size, getkey):
    key = getkey()
    engine = scipy.stats.qmc.Sobol(dimension, bits=32, rng=seed_from(key))
    nodes = sobol(Box.cube(dimension), size, key=key).nodes
    np.testing.assert_allclose(nodes, engine.random(size), rtol=0, atol=2.0**-32)


def test_nodes_are_mapped_onto_the_box(getkey):
    key, box = getkey(), Box([-1.0, 2.0], [3.0, 2.5])
    unit = np.asarray(sobol(Box.cube(2), 16, key=key).nodes)
    nodes = sobol(box, 16, key=key).nodes
    np.testing.assert_allclose(nodes, box.lower + box.width * unit, rtol=1e-14)


@pytest.mark.parametrize("resampled", [False, True])
def test_every_axis_has_one_node_in_each_cell_of_width_one_over_m(resampled, getkey):
    size, dimension = 128, 30
    rule = sobol(Box.cube(dimension), size, key=getkey())
    rules = rule.replicates(getkey(), 4) if resampled else [rule]
    for each in rules:
        cells = np.sort(np.floor(np.asarray(each.nodes) * size), axis=0)
        expected = np.broadcast_to(np.arange(size)[:, None], cells.shape)
        np.testing.assert_array_equal(cells, expected)


@pytest.mark.parametrize("resampled", [False, True])
def test_two_axes_have_one_node_in_each_elementary_rectangle(resampled, getkey):
    m = 6
    rule = sobol(Box.cube(2), 2**m, key=getkey())
    nodes = np.asarray((rule.resample(getkey()) if resampled else rule).nodes)
    for a in range(m + 1):
        columns, rows = 2**a, 2 ** (m - a)
        cell = np.floor(nodes[:, 0] * columns) * rows + np.floor(nodes[:, 1] * rows)
        assert sorted(cell) == list(range(2**m))


def test_the_scramble_and_the_shift_depend_on_the_key_alone(getkey):
    one, other, box = getkey(), getkey(), Box.cube(3)
    rule = sobol(box, 16, key=one)
    np.testing.assert_array_equal(rule.nodes, sobol(box, 16, key=one).nodes)
    assert not np.any(rule.nodes == sobol(box, 16, key=other).nodes)
    moved = rule.resample(other)
    np.testing.assert_array_equal(moved.nodes, rule.resample(other).nodes)
    assert not np.any(rule.nodes == moved.nodes)


def test_keys_of_either_style_are_accepted():
    new, old = jax.random.key(3), jax.random.PRNGKey(3)
    box = Box.cube(2)
    np.testing.assert_array_equal(
        sobol(box, 8, key=new).nodes, sobol(box, 8, key=old).nodes
    )


def test_the_largest_dimension_works_and_the_next_is_refused(getkey):
    most = scipy.stats.qmc.Sobol.MAXDIM
    rule = sobol(Box.cube(most), 2, key=getkey())
    assert abs(float(rule.mean(lambda x: jnp.mean(x))) - 0.5) < 0.01
    with pytest.raises(ValueError, match=f"up to {most} dim.*{most + 1}; use monte_c"):
        sobol(Box.cube(most + 1), 2, key=getkey())


@pytest.mark.parametrize(
    ("size", "error", "message"),
    [
        (100, ValueError, "power of two, got 100; take 64 or 128"),
        (0, ValueError, "size must be between 1 and"),
        (-8, ValueError, "size must be between 1 and"),
        (2**31, ValueError, "size must be between 1 and"),
        (16.0, TypeError, "size must be an integer, got 16.0"),
    ],
)
def test_bad_sizes_are_refused(as_user, size, error, message, getkey):
    with pytest.raises(error, match=message):
        sobol(Box.cube(2), size, key=getkey())
