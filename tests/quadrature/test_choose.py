"""rule_for: the choice, the budget, the tolerance, the explanation, the errors."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from sdifp import Box, rule_for
from sdifp.quadrature import GaussLegendre, Midpoint, Trapezoid

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("box", "neumann", "name"),
    [
        (Box([0.0], [2.0], periodic=True), False, "trapezoid"),
        (Box([0.0], [2.0], periodic=True), True, "trapezoid"),
        (Box([0.0], [2.0]), True, "midpoint"),
        (Box([0.0], [2.0]), [True], "midpoint"),
        (Box([0.0], [2.0]), False, "gauss_legendre"),
        (Box.cube(3), False, "gauss_legendre"),
        (Box.cube(3, periodic=[True, False, False]), False, "tensor"),
        (Box.cube(4), False, "lattice"),
        (Box.cube(8, periodic=True), False, "lattice"),
        (Box.cube(200), False, "sobol"),
        (Box.cube(30_000), False, "monte_carlo"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("budget", [100, 1000])
def test_the_choice_follows_the_dimension_and_keeps_the_budget(
    box, neumann, name, budget
):
    rule = rule_for(box, budget, neumann=neumann, key=KEY)
    assert rule.name == name
    assert rule.domain == box
    assert budget / 4 < rule.size <= budget


def test_a_mixed_box_has_a_family_for_each_axis():
    box = Box.cube(3, periodic=[True, False, False])
    rule = rule_for(box, 64, neumann=[False, True, False])
    assert rule.axes == (Trapezoid(4), Midpoint(4), GaussLegendre(4))


@pytest.mark.parametrize(
    ("dimension", "budget", "size"),
    [
        (1, 1, 1),
        (2, 24, 16),
        (2, 25, 25),
        (3, 124, 64),
        (3, 125, 125),
        (3, 999_999, 99**3),
        (3, 10**6, 10**6),
        (2, 10_000, 10_000),
        (3, 7, 1),
        (5, 1, 1),
        (5, 1023, 512),
        (5, 1024, 1024),
    ],
)
def test_the_whole_budget_is_used_where_it_can_be(dimension, budget, size):
    box = Box.cube(dimension, periodic=True)
    assert rule_for(box, budget, key=KEY).size == size


def test_a_large_budget_in_one_dimension_is_affordable():
    rule = rule_for(Box([0.0], [1.0], periodic=True), 10**6)
    assert rule.size == 10**6


def test_no_key_is_needed_for_tensor_products_and_one_is_needed_beyond():
    assert rule_for(Box.cube(3), 8).size == 8
    with pytest.raises(ValueError, match="key must be given in 4 dimensions"):
        rule_for(Box.cube(4), 64)


def relative_errors(rule, function, mean, square):
    both = lambda x: jnp.stack([function(x), function(x) ** 2])
    found = jax.jit(lambda: rule.mean(both))()
    size = np.array([math.sqrt(square), square])
    return np.abs(np.asarray(found) - [mean, square]) / size


@pytest.mark.parametrize("tolerance", [1e-3, 1e-10])
def test_the_tolerance_holds_for_a_periodic_field(tolerance):
    box = Box([-1.0], [3.0], periodic=True)
    function = lambda x: jnp.exp(3.0 * jnp.cos(jnp.pi * x[0] / 2))
    mean, square = scipy.special.i0(3.0), scipy.special.i0(6.0)
    rule = rule_for(box, tolerance=tolerance, integrand=function)
    assert np.all(relative_errors(rule, function, mean, square) <= tolerance)
    assert rule.size <= 64


def test_the_tolerance_holds_for_a_field_with_a_layer():
    rate = 40.0
    function = lambda x: jnp.exp(-rate * x[0]) + x[1]
    mean = -math.expm1(-rate) / rate + 0.5
    square = -math.expm1(-2 * rate) / (2 * rate) - math.expm1(-rate) / rate + 1 / 3
    rule = rule_for(Box.cube(2), tolerance=1e-8, integrand=function)
    assert rule.name == "gauss_legendre"
    assert np.all(relative_errors(rule, function, mean, square) <= 1e-8)


@pytest.mark.parametrize(("dimension", "name"), [(5, "lattice"), (120, "sobol")])
def test_the_tolerance_holds_in_many_dimensions(dimension, name):
    c = 1.0 / math.sqrt(dimension)
    function = lambda x: jnp.exp(c * jnp.sum(2.0 * x - 1.0))
    mean = (math.sinh(c) / c) ** dimension
    square = (math.sinh(2 * c) / (2 * c)) ** dimension
    rule = rule_for(Box.cube(dimension), tolerance=2e-2, integrand=function, key=KEY)
    assert rule.name == name
    # The error was measured as a root mean square, of which a single rule is a draw.
    assert np.all(relative_errors(rule, function, mean, square) <= 3 * 2e-2)


def test_a_wave_that_two_nested_grids_alias_alike_is_not_taken_as_converged():
    box = Box([0.0], [1.0], periodic=True)
    function = lambda x: 1.0 + jnp.cos(64 * jnp.pi * x[0])
    rule = rule_for(box, tolerance=1e-6, integrand=function)
    assert np.all(relative_errors(rule, function, 1.0, 1.5) <= 1e-6)


@pytest.mark.parametrize(("dimension", "tolerance"), [(1, 1e-3), (2, 2e-2), (6, 1e-3)])
def test_a_jump_is_not_taken_as_converged_because_two_counts_agree(
    dimension, tolerance
):
    box = Box.cube(dimension, periodic=True)
    jump = lambda x: jnp.where(x[0] < 1 / math.pi, 1.0, 0.0)
    rule = rule_for(box, tolerance=tolerance, integrand=jump, key=KEY)
    errors = relative_errors(rule, jump, 1 / math.pi, 1 / math.pi)
    assert np.all(errors <= 3 * tolerance)


@pytest.mark.parametrize(
    ("box", "neumann"),
    [(Box.cube(2, periodic=True), False), (Box.cube(2), True), (Box.cube(2), False)],
    ids=["periodic", "neumann", "plain"],
)
def test_the_default_field_suits_the_axes(box, neumann):
    assert rule_for(box, tolerance=1e-12, neumann=neumann).size <= 64**2


def test_the_explanation_is_one_line(capsys):
    rule_for(Box.cube(5), 100, key=KEY, explain=True)
    rule_for(Box.cube(1, periodic=True), tolerance=1e-6, explain=True)
    rule_for(Box.cube(5), tolerance=0.1, key=KEY, explain=True)
    rule_for(Box.cube(30_000), 10, key=KEY, explain=True)
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert first.startswith("lattice, 64 nodes: 5 dimensions, so a shifted rank-1")
    assert second.startswith("trapezoid, 16 nodes: 1 dimension, so a tensor product")
    assert "by two finer grids" in second
    assert "by 8 independent randomisations" in third
    assert fourth.startswith("monte_carlo, 10 nodes: 30000 dimensions")


def test_nothing_is_printed_unless_asked(capsys):
    rule_for(Box.cube(2), 16)
    assert capsys.readouterr().out == ""


def noise(x):
    """Too rough to be integrated with any affordable number of nodes."""
    return jnp.sin(1e9 * jnp.sum(x * jnp.sqrt(2.0 + jnp.arange(x.size))))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "either budget or tolerance, got budget = None"),
        ({"budget": 9, "tolerance": 0.1}, ValueError, "got budget = 9 and tol.*= 0.1"),
        ({"budget": 0}, ValueError, "budget must be between 1 and"),
        ({"budget": 9.0}, TypeError, "budget must be an integer, got 9.0"),
        ({"tolerance": 0.0}, ValueError, "tolerance must be positive, got 0.0"),
        ({"tolerance": -1.0}, ValueError, "tolerance must be positive, got -1.0"),
        ({"tolerance": math.nan}, ValueError, "tolerance must be positive, got nan"),
        ({"budget": 9, "neumann": [True]}, ValueError, "each of the 2 axes"),
        ({"budget": 9, "neumann": [0, 1]}, ValueError, "neumann must be one bool"),
        (
            {"tolerance": 1e-3, "integrand": lambda x: x},
            ValueError,
            r"integrand must return one number, got shape \(2,\)",
        ),
        (
            {"tolerance": 1e-3, "integrand": lambda x: x[0] * jnp.nan},
            ValueError,
            "integrand must be finite",
        ),
        (
            {"tolerance": 1e-3, "integrand": lambda x: 0.0 * x[0]},
            ValueError,
            "not zero everywhere",
        ),
    ],
)
def test_bad_requests_are_refused(as_user, arguments, error, message):
    with pytest.raises(error, match=message):
        rule_for(Box.cube(2, periodic=True), **arguments)


@pytest.mark.parametrize(
    ("dimension", "how"), [(2, "two finer grids"), (6, "8 independent")]
)
def test_a_tolerance_beyond_reach_is_refused(dimension, how, monkeypatch):
    monkeypatch.setattr("sdifp.quadrature._choose._LARGEST", 2**8)
    with pytest.raises(
        ValueError, match=rf"1e-09 was not reached.*256 nodes.*by {how}"
    ):
        rule_for(Box.cube(dimension), tolerance=1e-9, integrand=noise, key=KEY)


def test_single_precision_is_enough_for_a_choice():
    with jax.enable_x64(False):
        key = jax.random.key(1)
        assert rule_for(Box.cube(2), tolerance=1e-4).size <= 64
        assert rule_for(Box.cube(5), tolerance=3e-2, key=key).name == "lattice"


def test_very_many_nodes_are_not_searched_for(capsys):
    rule = rule_for(Box.cube(5), 2**23, key=KEY, explain=True)
    assert (rule.name, rule.size) == ("sobol", 2**23)
    assert "more nodes than a lattice is searched for" in capsys.readouterr().out
