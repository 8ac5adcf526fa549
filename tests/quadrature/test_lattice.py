"""Lattice rules: the generator, its search, and the balance of the nodes."""

import jax.numpy as jnp
import numpy as np
import pytest

from sdifp import Box
from sdifp.quadrature import lattice
from sdifp.quadrature._lattice import search_generator


def criterion(generator, size, weight):
    """`-1 + mean_k prod_j (1 + weight * omega(k z_j / size))`, term by term."""
    x = np.outer(np.arange(size), generator) % size / size
    omega = 2 * np.pi**2 * (x * x - x + 1 / 6)
    return np.mean(np.prod(1.0 + weight * omega, axis=1)) - 1.0


@pytest.mark.parametrize(("size", "dimension"), [(8, 2), (16, 4), (64, 6), (256, 9)])
def test_every_step_of_the_search_is_as_good_as_brute_force(size, dimension, rng):
    generator = search_generator(size, dimension, rng)
    for j in range(1, dimension):
        before = generator[:j]
        used = np.concatenate([before % size, -before % size])
        free = np.setdiff1d(np.arange(1, size, 2), used)
        values = [criterion([*before, z], size, 1 / dimension) for z in free]
        chosen = criterion(generator[: j + 1], size, 1 / dimension)
        assert np.isclose(chosen, min(values), rtol=1e-12)


def test_the_criterion_tells_a_good_generator_from_a_bad_one(rng):
    size, dimension = 256, 4
    searched = criterion(search_generator(size, dimension, rng), size, 1 / dimension)
    assert searched < 0.1 * criterion(np.array([1, 3, 5, 7]), size, 1 / dimension)


@pytest.mark.parametrize(("size", "dimension"), [(16, 4), (1024, 20), (2048, 300)])
def test_the_generator_is_odd_and_distinct_up_to_sign(size, dimension, rng):
    generator = search_generator(size, dimension, rng)
    assert np.all(generator % 2 == 1)
    assert np.all((generator > 0) & (generator < size))
    folded = np.minimum(generator, size - generator)
    assert len(np.unique(folded)) == dimension


@pytest.mark.parametrize("resampled", [False, True])
def test_every_axis_has_one_node_in_each_cell_of_width_one_over_m(resampled, getkey):
    size, dimension = 128, 30
    rule = lattice(Box.cube(dimension, periodic=True), size, key=getkey())
    if resampled:
        rule = rule.resample(getkey())
    # Rounding at cell walls is kept away by turning the lattice back to its origin.
    unit = (np.asarray(rule.nodes) - np.asarray(rule.nodes)[0]) % 1.0
    cells = np.sort(np.round(unit * size) % size, axis=0)
    expected = np.broadcast_to(np.arange(size)[:, None], cells.shape)
    np.testing.assert_array_equal(cells, expected)


def test_axes_that_are_not_periodic_are_folded_by_the_tent_map(getkey):
    key, size = getkey(), 64
    mixed = Box([0.0, 0.0], [1.0, 1.0], periodic=[True, False])
    plain = np.asarray(lattice(Box.cube(2, periodic=True), size, key=key).nodes)
    folded = np.asarray(lattice(mixed, size, key=key).nodes)
    np.testing.assert_array_equal(folded[:, 0], plain[:, 0])
    np.testing.assert_allclose(folded[:, 1], 1 - np.abs(2 * plain[:, 1] - 1))


def test_nodes_follow_the_definition_for_a_given_generator(getkey):
    box = Box([-1.0, 2.0], [3.0, 2.5], periodic=True)
    rule = lattice(box, 16, key=getkey(), generator=np.array([1, -5]))
    i, shift = np.arange(16)[:, None], (np.asarray(rule.shift) + 0.5) / 2**32
    unit = (i * np.array([1, 11]) / 16 + shift) % 1.0
    np.testing.assert_allclose(rule.nodes, box.lower + box.width * unit, rtol=1e-14)


def test_products_that_wrap_around_32_bits_stay_exact(getkey):
    size, z = 2**20, 2**20 - 3
    box = Box.cube(1, periodic=True)
    rule = lattice(box, size, key=getkey(), generator=np.array([z]))
    start = size - 5
    found = rule.block(start, 5)[0][:, 0]
    exact = [
        ((start + i) * z % size / size + (float(rule.shift[0]) + 0.5) / 2**32) % 1
        for i in range(5)
    ]
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-15)


def test_too_many_dimensions_for_the_size_are_refused(getkey):
    lattice(Box.cube(16), 64, key=getkey())
    with pytest.raises(ValueError, match=r"64 nodes has only 16.*17 dimensions; use"):
        lattice(Box.cube(17), 64, key=getkey())
    with pytest.raises(ValueError, match="too few for 2 dimensions"):
        lattice(Box.cube(2), 4, key=getkey())


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_smallest_lattices_work(size, getkey):
    rule = lattice(Box.cube(1, periodic=True), size, key=getkey())
    wave = rule.mean(lambda x: jnp.exp(0.0 * x[0]) + jnp.cos(2 * jnp.pi * x[0]))
    if size > 1:
        assert abs(float(wave) - 1.0) < 1e-14


@pytest.mark.parametrize(
    "generator",
    [[1, 2], [1], [1, 3, 5], [1.5, 3.0]],
    ids=["even", "few", "many", "fraction"],
)
def test_bad_generators_are_refused(as_user, generator, getkey):
    with pytest.raises(ValueError, match="one odd integer for each of the 2 axes"):
        lattice(Box.cube(2), 64, key=getkey(), generator=np.array(generator))


@pytest.mark.parametrize(
    ("size", "error", "message"),
    [
        (100, ValueError, "lattice rule must be a power of two, got 100; take 64 or"),
        (0, ValueError, "size must be between 1 and"),
        (64.0, TypeError, "size must be an integer"),
    ],
)
def test_bad_sizes_are_refused(as_user, size, error, message, getkey):
    with pytest.raises(error, match=message):
        lattice(Box.cube(2), size, key=getkey())
