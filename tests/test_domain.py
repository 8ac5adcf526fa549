"""Box: its numbers, its samples, its identity, and what it refuses."""

import copy
import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdifp import Box

BOX = Box([0.0, -1.0, 2.0], [2.0, 1.0, 2.5], periodic=[True, False, False])


def test_a_box_knows_its_dimension_widths_and_volume():
    assert BOX.dimension == 3
    np.testing.assert_array_equal(BOX.width, [2.0, 2.0, 0.5])
    assert BOX.volume == 2.0
    assert math.isclose(BOX.log_volume, math.log(2.0), rel_tol=1e-15)


def test_one_periodic_flag_holds_for_all_axes():
    np.testing.assert_array_equal(Box.cube(3, periodic=True).periodic, [True] * 3)
    np.testing.assert_array_equal(Box.cube(2).periodic, [False] * 2)
    np.testing.assert_array_equal(BOX.periodic, [True, False, False])


def test_a_cube_is_the_box_with_equal_bounds():
    assert Box.cube(2, -1.0, 3.0) == Box([-1.0, -1.0], [3.0, 3.0])
    with pytest.raises(ValueError, match="positive integer, got 0"):
        Box.cube(0)


@pytest.mark.parametrize("width", [0.5, 2.0])
def test_a_volume_beyond_float64_says_so_and_its_logarithm_stays_finite(width):
    box = Box.cube(100_000, 0.0, width)
    expected = 100_000 * math.log(width)
    assert math.isclose(box.log_volume, expected, rel_tol=1e-14)
    with pytest.raises(OverflowError, match=r"100000-dimensional.*normalised=True"):
        _ = box.volume


def test_the_volume_of_a_unit_cube_in_100_000_dimensions_is_one():
    assert Box.cube(100_000).volume == 1.0


@pytest.mark.parametrize(
    "widths",
    [[1e200, 1e200, 1e-200, 1e-200], [1e-160, 1e-160, 1e160, 1e160]],
    ids=["overflow", "underflow"],
)
def test_the_volume_does_not_depend_on_the_order_of_long_and_short_axes(widths):
    box = Box([0.0] * 4, widths)
    assert math.isclose(box.volume, 1.0, rel_tol=1e-12)


def test_samples_are_uniform_on_the_box(getkey):
    n = 20_000
    points = np.asarray(BOX.sample(getkey(), n))
    assert points.shape == (n, 3)
    assert np.all((points >= BOX.lower) & (points <= BOX.upper))
    unit = (points - BOX.lower) / BOX.width
    # The variances of u, of (u - 1/2)^2 and of (u - 1/2) (v - 1/2), over n.
    assert np.all(np.abs(unit.mean(0) - 1 / 2) < 5 * np.sqrt(1 / 12 / n))
    assert np.all(np.abs(unit.var(0) - 1 / 12) < 5 * np.sqrt(1 / 180 / n))
    covariance = np.cov(unit.T)[np.triu_indices(3, 1)]
    assert np.all(np.abs(covariance) < 5 / 12 / np.sqrt(n))


def test_samples_depend_on_the_key_alone(getkey):
    one, other = getkey(), getkey()
    np.testing.assert_array_equal(BOX.sample(one, 5), BOX.sample(one, 5))
    assert not np.any(BOX.sample(one, 5) == BOX.sample(other, 5))


def test_the_unit_cube_maps_onto_the_box_and_never_past_its_wall():
    box = Box([0.1, -7.0], [0.1 + 0.7, 1e-3])
    corners = jnp.array([[0.0, 0.0], [1.0, 1.0], [1.0 - 2**-53, 1.0 - 2**-53]])
    image = np.asarray(box.from_unit(corners))
    np.testing.assert_array_equal(image[0], box.lower)
    np.testing.assert_array_equal(image[1], box.upper)
    assert np.all(box.contains(image))


@pytest.mark.parametrize(
    ("point", "inside"),
    [
        ([1.0, 0.0, 2.25], True),
        ([0.0, -1.0, 2.0], True),
        ([2.0, 1.0, 2.5], True),
        ([2.0 + 1e-15, 0.0, 2.25], False),
        ([1.0, -1.0 - 1e-15, 2.25], False),
        ([1.0, 0.0, math.nan], False),
        ([1.0, math.inf, 2.25], False),
    ],
)
def test_containment_is_that_of_the_closed_box(point, inside):
    assert bool(BOX.contains(np.array(point))) is inside


def test_containment_works_on_batches_and_under_jit(getkey):
    points = BOX.sample(getkey(), 12).reshape(3, 4, 3).at[1, 2, 0].set(9.0)
    found = jax.jit(BOX.contains)(points)
    assert found.shape == (3, 4)
    assert np.argwhere(~np.asarray(found)).tolist() == [[1, 2]]


def test_containment_needs_points_of_the_right_dimension(as_user):
    with pytest.raises(ValueError, match=r"3 coordinates.*got shape \(5, 2\)"):
        BOX.contains(np.zeros((5, 2)))


def test_boxes_compare_and_hash_by_value():
    same = Box([0.0, -1.0, 2.0], [2.0, 1.0, 2.5], periodic=[True, False, False])
    assert same == BOX
    assert hash(BOX) == hash(same)
    assert len({BOX, same}) == 1
    for other in (
        Box([0.1, -1.0, 2.0], [2.0, 1.0, 2.5], periodic=[True, False, False]),
        Box([0.0, -1.0, 2.0], [2.0, 1.0, 2.6], periodic=[True, False, False]),
        Box([0.0, -1.0, 2.0], [2.0, 1.0, 2.5], periodic=[True, True, False]),
        Box.cube(2),
        "a box",
    ):
        assert other != BOX


def test_minus_zero_is_zero():
    assert Box([-0.0], [1.0]) == Box([0.0], [1.0])


def test_a_copy_and_an_unpickled_box_are_equal_to_the_original():
    assert copy.deepcopy(BOX) == BOX
    assert pickle.loads(pickle.dumps(BOX)) == BOX


def test_a_box_cannot_be_changed_through_its_arrays():
    for array in (BOX.lower, BOX.upper, BOX.periodic):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_a_box_does_not_share_memory_with_its_arguments(as_user):
    lower, upper, flags = np.zeros(2), np.ones(2), np.array([True, False])
    box = Box(lower, upper, flags)
    lower[:], upper[:], flags[:] = -5.0, 5.0, False
    assert box == Box([0.0, 0.0], [1.0, 1.0], periodic=[True, False])


def test_a_box_has_no_leaves_and_is_a_constant_under_jit():
    traces = []

    @jax.jit
    def scaled(box, x):
        traces.append(box)
        assert isinstance(box.volume, float)
        return box.volume * x

    assert jax.tree.leaves(BOX) == []
    assert scaled(BOX, 3.0) == 6.0
    assert scaled(Box(BOX.lower, BOX.upper, [True, False, False]), 4.0) == 8.0
    assert len(traces) == 1
    assert scaled(Box.cube(1, 0.0, 5.0), 2.0) == 10.0
    assert len(traces) == 2
    assert jax.jit(lambda b, x: b.volume * x, static_argnums=0)(BOX, 1.0) == 2.0


def test_the_text_of_a_box_is_short_in_any_dimension():
    assert repr(Box([0.0], [1.0])) == "Box([0.0], [1.0], periodic=[False])"
    text = repr(Box.cube(100_000, -1.0, 1.0, periodic=True))
    assert "100000 axes" in text
    assert len(text) < 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, 0.0], [1.0]), "one number per axis, got 2 and 1"),
        (([0.0, 1.0], [1.0, 1.0]), r"lower\[1\] = 1.0 and upper\[1\] = 1.0"),
        (([0.0, 2.0], [1.0, 1.0]), r"lower\[1\] = 2.0 and upper\[1\] = 1.0"),
        (([math.nan], [1.0]), "lower must be finite"),
        (([0.0], [math.inf]), "upper must be finite"),
        (([-math.inf], [0.0]), "lower must be finite"),
        (([[0.0, 0.0]], [[1.0, 1.0]]), "lower must be a list of numbers"),
        ((0.0, 1.0), "lower must be a list of numbers"),
        (([], []), "lower must be a list of numbers"),
        (([0.0], [1.0], [True, False]), "each of the 1 axes"),
        (([0.0, 0.0], [1.0, 1.0], [True]), "each of the 2 axes"),
        (([0.0, 0.0], [1.0, 1.0], [0, 1]), "periodic must be one bool"),
        (([0.0], [1.0], None), "periodic must be one bool"),
    ],
)
def test_bad_bounds_and_flags_are_refused(as_user, arguments, message):
    with pytest.raises(ValueError, match=message):
        Box(*arguments)


def test_a_width_beyond_float64_is_refused():
    with pytest.raises(ValueError, match="finite"):
        Box([-1.5e308], [1.5e308])


def test_dimensions_that_do_not_fit_are_refused_with_their_size(as_user):
    assert Box.cube(2**22).dimension == 2**22
    for d in (2**22 + 1, 100_000_000, 10**400):
        with pytest.raises(ValueError, match=f"at most 4194304, for a point of {d} "):
            Box.cube(d)
    with pytest.raises(ValueError, match="at most 4194304"):
        Box(np.zeros(2**22 + 1), np.ones(2**22 + 1))
    with pytest.raises(ValueError, match="takes 762 MiB"):
        Box.cube(100_000_000)
    for bad in (True, 0, -3, 2.0, "2", None):
        with pytest.raises(
            ValueError, match="dimension must be a positive integer, got"
        ):
            Box.cube(bad)


def test_integrals_over_a_normalised_box_are_means():
    box = Box.cube(3, 0.0, 2.0, normalised=True)
    assert (box.volume, box.log_volume) == (1.0, 0.0)
    assert box != Box.cube(3, 0.0, 2.0)
    assert pickle.loads(pickle.dumps(box)) == box
    assert repr(box).endswith("normalised=True)")
    assert Box.cube(100_000, 0.0, 2.0, normalised=True).volume == 1.0


@pytest.mark.usefixtures("as_user")
def test_a_number_does_not_normalise_a_box():
    with pytest.raises(ValueError, match="normalised must be True or False, got 1"):
        Box([0.0], [1.0], normalised=1)
