"""Tensor rules: what each family integrates exactly, and what it refuses."""

import math
import tracemalloc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
from hypothesis import example, given
from hypothesis import strategies as st

from sdifp import Box
from sdifp.quadrature import (
    GaussLegendre,
    Midpoint,
    Trapezoid,
    gauss_legendre,
    midpoint,
    tensor,
    trapezoid,
)

ULP = 2.0**-52
LINE = Box([-1.0], [3.0])
CIRCLE = Box([-1.0], [3.0], periodic=True)
MIXED = Box([-1.0, 2.0], [3.0, 2.5], periodic=[True, False])
TORUS = Box([-1.0, 2.0], [3.0, 2.5], periodic=True)


def mean(rule, function):
    return eqx.filter_jit(lambda rule: rule.mean(function))(rule)


def unit(x, box):
    return (x - jnp.asarray(box.lower)) / jnp.asarray(box.width)


@pytest.mark.parametrize("n", [1, 2, 7, 16])
def test_trapezoid_is_exact_below_degree_n_and_not_at_n(n):
    degrees, phase = np.arange(n + 1), 0.3
    found = mean(
        trapezoid(CIRCLE, n),
        lambda x: jnp.cos(2 * jnp.pi * degrees * unit(x, CIRCLE)[0] + phase),
    )
    exact = np.where(degrees == 0, math.cos(phase), 0.0)
    np.testing.assert_allclose(found[:n], exact[:n], rtol=0, atol=1e-14)
    assert math.isclose(found[n], math.cos(phase), rel_tol=1e-13)


def test_trapezoid_converges_faster_than_any_power_on_a_smooth_periodic_field():
    def error(n):
        found = mean(
            trapezoid(CIRCLE, n),
            lambda x: jnp.exp(jnp.cos(2 * jnp.pi * unit(x, CIRCLE)[0])),
        )
        return float(found) - scipy.special.i0(1.0)

    # Aliasing: the error is twice the sum of the Bessel functions I_n, I_2n, ...
    for n in (2, 4, 6, 8, 10):
        aliased = 2 * sum(scipy.special.iv(j * n, 1.0) for j in range(1, 20))
        assert math.isclose(error(n), aliased, rel_tol=1e-5, abs_tol=1e-15)
    assert abs(error(16)) < 1e-15


@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_midpoint_is_exact_for_cosines_below_2n_and_not_at_2n(n):
    k = np.arange(2 * n + 1)
    found = mean(midpoint(LINE, n), lambda x: jnp.cos(jnp.pi * k * unit(x, LINE)[0]))
    np.testing.assert_allclose(found[: 2 * n], k[: 2 * n] == 0, rtol=0, atol=1e-14)
    assert math.isclose(found[2 * n], -1.0, rel_tol=1e-13)


def test_midpoint_is_spectral_on_an_even_field_and_second_order_on_others():
    even = mean(
        midpoint(LINE, 12), lambda x: jnp.exp(jnp.cos(jnp.pi * unit(x, LINE)[0]))
    )
    assert math.isclose(even, scipy.special.i0(1.0), rel_tol=1e-14)
    errors = [
        float(mean(midpoint(LINE, n), lambda x: jnp.exp(unit(x, LINE)[0])))
        - math.expm1(1.0)
        for n in (16, 32)
    ]
    assert 3.95 < errors[0] / errors[1] < 4.05


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_gauss_legendre_is_exact_to_degree_2n_minus_1_and_not_at_2n(n):
    powers = np.arange(2 * n + 1)
    found = mean(
        gauss_legendre(LINE, n),
        lambda x: unit(x, LINE)[0] ** jnp.asarray(powers, float),
    )
    error = np.asarray(found) - 1.0 / (powers + 1)
    np.testing.assert_allclose(error[: 2 * n], 0.0, rtol=0, atol=4e-16)
    known = -(math.factorial(n) ** 4) / ((2 * n + 1) * math.factorial(2 * n) ** 2)
    assert math.isclose(error[2 * n], known, rel_tol=1e-6)


@pytest.mark.parametrize("n", [20, 64, 200])
def test_gauss_legendre_agrees_with_legendre_orthogonality_for_many_nodes(n):
    nodes, weights = GaussLegendre(n).on_unit_interval()
    means = weights @ np.polynomial.legendre.legvander(2 * nodes - 1, 2 * n)
    np.testing.assert_allclose(means[0], 1.0, rtol=0, atol=2 * ULP)
    np.testing.assert_allclose(means[1:-1], 0.0, rtol=0, atol=1e-13)
    assert abs(means[-1]) > 1e-4


def test_gauss_legendre_nodes_take_memory_linear_in_their_number():
    n = 512
    tracemalloc.start()
    GaussLegendre(n).on_unit_interval()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 8 * n


def test_families_mix_across_axes_and_agree_with_adaptive_quadrature():
    box = Box([-1.0, 2.0, 0.0], [3.0, 2.5, 2.0], periodic=[True, False, False])

    def field(x, y, z, xp):
        return xp.exp(xp.sin(np.pi * x / 2) * y) / (1 + y * y) * xp.cos(np.pi * z) ** 2

    rule = tensor(box, [Trapezoid(24), GaussLegendre(8), Midpoint(3)])
    exact, _ = scipy.integrate.nquad(
        lambda x, y: field(x, y, 0.0, np), [(-1.0, 3.0), (2.0, 2.5)]
    )
    assert rule.name == "tensor"
    assert rule.size == 24 * 8 * 3
    found = rule.integrate(lambda x: field(*x, jnp))
    # The average of the squared cosine on the third axis is 1/2, its width 2.
    assert math.isclose(found, exact, rel_tol=1e-9)


def test_mixed_families_are_each_exact_on_their_own_axis_only():
    rule = tensor(MIXED, [Trapezoid(4), GaussLegendre(2)])
    found = mean(
        rule,
        lambda x: jnp.stack(
            [
                jnp.cos(6 * jnp.pi * unit(x, MIXED)[0]) * unit(x, MIXED)[1] ** 3,
                jnp.cos(8 * jnp.pi * unit(x, MIXED)[0]) * unit(x, MIXED)[1] ** 3,
                unit(x, MIXED)[1] ** 4,
            ]
        ),
    )
    np.testing.assert_allclose(found[:2], [0.0, 0.25], rtol=0, atol=1e-15)
    assert math.isclose(found[2], 1 / 5 - 1 / 180, rel_tol=1e-12)


def test_the_first_axis_varies_slowest():
    nodes = midpoint(Box.cube(2), [2, 3]).nodes
    np.testing.assert_allclose(nodes[:, 0], np.repeat([0.25, 0.75], 3))
    np.testing.assert_allclose(nodes[:, 1], np.tile([1 / 6, 0.5, 5 / 6], 2))


@given(
    family=st.sampled_from([Trapezoid, Midpoint, GaussLegendre]),
    n=st.integers(1, 200),
)
def test_axis_rules_have_positive_weights_of_sum_one_and_sorted_nodes(family, n):
    nodes, weights = family(n).on_unit_interval()
    assert nodes.shape == weights.shape == (n,)
    assert np.all(weights > 0.0)
    assert abs(math.fsum(weights) - 1.0) <= ULP
    assert np.all(np.diff(nodes) > 0.0)
    assert nodes[0] >= 0.0
    assert nodes[-1] <= 1.0
    if family is not Trapezoid:
        np.testing.assert_allclose(nodes + nodes[::-1], 1.0, rtol=0, atol=2 * ULP)


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=3))
@example(counts=[49, 49, 49])
def test_tensor_weights_sum_to_one_within_one_ulp(counts):
    d = len(counts)
    for rule in (
        trapezoid(Box.cube(d, periodic=True), counts),
        gauss_legendre(Box.cube(d), counts),
    ):
        weights = rule.weights
        assert weights.shape == (math.prod(counts),)
        assert np.all(weights > 0.0)
        assert abs(math.fsum(weights) - 1.0) <= ULP


def test_one_count_an_axis_is_the_same_as_a_list():
    one, other = gauss_legendre(MIXED, 3), gauss_legendre(MIXED, [3, 3])
    np.testing.assert_array_equal(one.nodes, other.nodes)
    assert repr(one) == "gauss_legendre(9 nodes, 2 dimensions)"


def test_redrawing_a_trapezoid_shifts_the_whole_grid(getkey):
    rule = trapezoid(TORUS, [4, 8])
    moved = rule.resample(getkey())
    shift = (moved.nodes - rule.nodes) / TORUS.width[None, :] % 1.0
    np.testing.assert_allclose(shift, np.broadcast_to(shift[0], (32, 2)), atol=1e-14)
    assert np.all(shift[0] * (1.0 - shift[0]) > 0.0)
    assert np.all(TORUS.contains(moved.nodes))


@pytest.mark.parametrize(
    "rule",
    [
        midpoint(LINE, 3),
        gauss_legendre(LINE, 3),
        tensor(MIXED, [Trapezoid(3), GaussLegendre(3)]),
    ],
    ids=lambda rule: rule.name,
)
def test_grids_that_are_not_randomised_refuse_to_be_redrawn(rule, getkey):
    with pytest.raises(ValueError, match=f"rule {rule.name} is not randomised"):
        rule.resample(getkey())
    with pytest.raises(ValueError, match=f"rule {rule.name} is not randomised"):
        rule.replicates(getkey(), 2)


def test_trapezoid_refuses_an_axis_that_is_not_periodic():
    with pytest.raises(ValueError, match="axis 0 of the box is not periodic"):
        trapezoid(LINE, 4)
    with pytest.raises(ValueError, match=r"axis 1.*use midpoint or gauss_legendre"):
        trapezoid(MIXED, 4)


@pytest.mark.parametrize(
    ("dimension", "n", "size"),
    [(4, 200, "1,600,000,000"), (100, 10, r"10\^100"), (10_000, 2, r"10\^3010")],
)
def test_a_grid_that_cannot_fit_is_refused_with_its_size_and_an_alternative(
    dimension, n, size
):
    box = Box.cube(dimension)
    with pytest.raises(ValueError, match=f"{size} nodes.*use lattice, sobol"):
        midpoint(box, n)


def test_one_node_an_axis_works_in_many_dimensions():
    rule = midpoint(Box.cube(40), 1)
    assert rule.size == 1
    np.testing.assert_array_equal(rule.nodes, np.full((1, 40), 0.5))
    assert mean(rule, lambda x: jnp.sum(x)) == 20.0


@pytest.mark.parametrize(
    ("n", "error", "message"),
    [
        (0, ValueError, "n must be between 1 and"),
        (-3, ValueError, "n must be between 1 and"),
        (2**31, ValueError, "n must be between 1 and"),
        (2.5, TypeError, "n must be an integer, got 2.5"),
        ([3, 2.5], TypeError, "n must be an integer, got 2.5"),
        (True, TypeError, "n must be an integer, got True"),
        ([3], ValueError, "each of the 2 axes of the box, got 1"),
        ([3, 3, 3], ValueError, "each of the 2 axes of the box, got 3"),
    ],
)
def test_bad_numbers_of_nodes_are_refused(as_user, n, error, message):
    with pytest.raises(error, match=message):
        midpoint(MIXED, n)


def test_a_tensor_rule_is_differentiable_inside_jit():
    rule = gauss_legendre(LINE, 5)
    slope = jax.jit(jax.grad(lambda a: rule.mean(lambda x: jnp.exp(a * x[0]))))(0.5)
    exact = scipy.integrate.quad(lambda x: x * math.exp(0.5 * x), -1.0, 3.0)[0] / 4
    assert math.isclose(slope, exact, rel_tol=1e-6)
