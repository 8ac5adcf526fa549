"""What the methods add to the loss, their rules, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from make_problem import make_problem
from quick import once

import sdifp
from sdifp.training import Instant

BOX = sdifp.Box([0.0], [2.0], periodic=True)
RULE = sdifp.quadrature.trapezoid(BOX, 8)
RECIPE = sdifp.Recipe(sdifp.training.MLP(3, 1), steps=1, nodes=16)
MOMENTS = {"mass": 3.0, "squared_norm": lambda t: 7.0 + t}


def problem_on(box, **targets):
    return make_problem(
        box,
        sdifp.Residual(sdifp.laplacian()),
        lambda x: jnp.ones((), x.dtype),
        name="mine",
        **targets,
    )


def field(x, t):
    return jnp.sin(np.pi * x[0]) + t + 0.5 * x[0]


def errors_by_hand(t, kinds):
    nodes = np.arange(8) / 4.0
    values = np.sin(np.pi * nodes) + t + 0.5 * nodes
    mass, squared_norm = 1.5, (7.0 + t) / 2.0
    # The size of a field with both targets is at least the root of the squared norm.
    unit = max(mass, np.sqrt(squared_norm)) if "squared_norm" in kinds else mass
    found = {
        "mass": (values.mean() - mass) / unit,
        "squared_norm": ((values**2).mean() - squared_norm) / squared_norm,
    }
    return np.array([found[k] for k in ("mass", "squared_norm") if k in kinds])


@pytest.mark.parametrize(
    "kinds", [("mass",), ("squared_norm",), ("mass", "squared_norm")]
)
def test_rows_are_the_errors_of_the_integrals(kinds):
    problem = problem_on(BOX, **{k: MOMENTS[k] for k in kinds})
    multipliers = jnp.asarray([0.4, -0.2][: len(kinds)])
    soft, lagrangian = (
        sdifp.training.Soft(9.0),
        sdifp.training.AugmentedLagrangian(4.0, 0.1),
    )
    assert lagrangian.multipliers(problem).shape == (len(kinds),)
    assert soft.multipliers(problem).shape == (0,)

    @once
    def look(t):
        at = Instant(problem, lambda x: field(x, t), RULE, t, multipliers)
        return soft.rows(at), lagrangian.rows(at), lagrangian.update(at)

    penalty, completed, updated = look(jnp.asarray(0.3))
    h, m = errors_by_hand(0.3, kinds), np.asarray(multipliers)
    assert np.allclose(penalty, 3.0 * h, rtol=1e-13)
    # Half their squares are `m h + penalty / 2 h^2`, but for a constant.
    lagrange = np.sum(m * h + 2.0 * h**2)
    assert np.isclose(0.5 * np.sum(completed**2), lagrange + np.sum(m**2) / 8.0)
    assert np.allclose(updated, m + 0.1 * h, rtol=1e-13)


def test_error_of_a_mass_of_zero_is_relative_to_the_size_of_the_field():
    problem = problem_on(BOX, mass=0.0)
    now = lambda t: Instant(problem, lambda x: field(x, t), RULE, t, jnp.zeros(0))
    rows = once(lambda t: sdifp.training.Soft(1.0).rows(now(t)))
    nodes = np.arange(8) / 4.0
    values = np.sin(np.pi * nodes) + 0.5 * nodes
    expected = values.mean() / np.sqrt(np.mean(values**2))
    assert np.allclose(rows(jnp.zeros(())), expected)


@pytest.mark.parametrize("periodic", [True, False, [True, False]])
def test_grid_of_the_projection_is_uniform_with_equal_weights(periodic, getkey):
    box = sdifp.Box([0.0, -1.0], [2.0, 1.0], periodic=periodic)
    problem = problem_on(box, mass=1.0)
    rule = sdifp.training.GridProjection().training_rule(problem, 30, getkey())
    flags = np.broadcast_to(periodic, 2)
    axes = [
        low + 2.0 * (np.arange(5) + (0.0 if flag else 0.5)) / 5
        for low, flag in zip((0.0, -1.0), flags, strict=True)
    ]
    wanted = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    assert np.allclose(rule.nodes, wanted, atol=1e-14)
    assert np.allclose(rule.weights, 1.0 / 25.0, rtol=1e-14)
    own = sdifp.training.GridProjection(nodes=9).training_rule(problem, 30, getkey())
    assert own.nodes.shape == (9, 2)


def test_grids_of_many_dimensions_are_refused():
    six, seven = sdifp.Box.cube(6), sdifp.Box.cube(7)
    words = "uniform grid, which has two nodes an axis at the least.* 6 dim.*, got 7"
    for refuses in (
        lambda box: sdifp.training.GridProjection().training_rule(
            problem_on(box, mass=1.0), 30, jax.random.key(0)
        ),
        lambda box: sdifp.training.GridPoints().check(box),
    ):
        refuses(six)
        with pytest.raises(ValueError, match=words):
            refuses(seven)


@pytest.mark.parametrize(
    "method",
    [
        sdifp.training.SDIFP(),
        sdifp.training.PostHoc(),
        sdifp.training.Soft(),
        sdifp.training.AugmentedLagrangian(),
        sdifp.training.GridProjection(),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_problem_without_targets_is_refused(method):
    problem = problem_on(BOX)
    sdifp.training.Plain().check(problem)
    name = type(method).__name__
    words = f"{name} needs invariants, and mine has none .*; Plain"
    with pytest.raises(ValueError, match=words):
        method.check(problem)
    method.check(problem_on(BOX, squared_norm=1.0))


def test_the_rule_of_a_user(getkey):
    problem = problem_on(BOX, mass=1.0)
    method = sdifp.training.SDIFP(rule=RULE)
    assert method.training_rule(problem, 100, getkey()) is RULE
    other = sdifp.Box([0.0], [3.0], periodic=True)
    with pytest.raises(ValueError, match=r"rule must live on the box of mine, .*3\.0"):
        sdifp.training.SDIFP(rule=sdifp.quadrature.trapezoid(other, 8)).training_rule(
            problem, 100, getkey()
        )
    assert sdifp.training.SDIFP().training_rule(problem, 100, getkey()).nodes.shape == (
        100,
        1,
    )


def test_what_a_method_says_goes_before_what_the_recipe_says():
    sampled = sdifp.estimators.Independent(2)
    assert sdifp.training.SDIFP(estimator=sampled).estimator is sampled
    assert sdifp.training.SDIFP().estimator is None
    assert sdifp.training.Plain().estimator is None
    problem = problem_on(BOX, mass=1.0)
    recipe = RECIPE.replace(gradient=sdifp.field.Subsampled(4))
    own = sdifp.training.SDIFP(gradient=sdifp.field.Detached()).training_field(
        problem, field, RULE, recipe
    )
    shared = sdifp.training.SDIFP().training_field(problem, field, RULE, recipe)
    assert isinstance(own.gradient, sdifp.field.Detached)
    assert isinstance(shared.gradient, sdifp.field.Subsampled)
    # What comes out is exact, however it was trained.
    finished = sdifp.training.SDIFP().trained_field(problem, field, RULE)
    assert isinstance(finished.gradient, sdifp.field.Exact)


def test_fields_before_and_after_training():
    problem = problem_on(BOX, mass=3.0)
    for method in (
        sdifp.training.Plain(),
        sdifp.training.Soft(),
        sdifp.training.AugmentedLagrangian(),
    ):
        assert method.training_field(problem, field, RULE, RECIPE) is field
        assert method.trained_field(problem, field, RULE) is field
    assert (
        sdifp.training.PostHoc().training_field(problem, field, RULE, RECIPE) is field
    )
    corrected = sdifp.training.PostHoc().trained_field(problem, field, RULE)
    assert isinstance(corrected, sdifp.field.ConservedField)
    at = once(lambda t: RULE.mean(lambda x: corrected(x, t)))
    assert np.isclose(at(jnp.asarray(0.4)), 1.5, rtol=1e-14)


def test_a_profile_serves_no_energy_alone():
    # An squared_norm is reached by scale alone, and the profile multiplies the shift.
    sine = lambda x: jnp.sin(np.pi * x[0]) ** 2
    problem = make_problem(
        BOX,
        sdifp.Residual(sdifp.laplacian()),
        sine,
        squared_norm=0.75,
        profile=sine,
    )
    assert sdifp.training.SDIFP().trained_field(problem, field, RULE).profile is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: sdifp.training.Soft(0.0),
            "weight must be positive and finite, got 0.0",
        ),
        (
            lambda: sdifp.training.Soft(-1.0),
            "weight must be positive and finite, got -1.0",
        ),
        (lambda: sdifp.training.Soft(float("nan")), "weight must be .* got nan"),
        (lambda: sdifp.training.AugmentedLagrangian(0.0), "penalty must be .* got 0.0"),
        (
            lambda: sdifp.training.AugmentedLagrangian(1.0, -2.0),
            "rate must be .* got -2.0",
        ),
        (
            lambda: sdifp.training.GridProjection(0),
            "nodes must be a positive integer, got 0",
        ),
        (
            lambda: sdifp.training.SDIFP(gauge=-0.1),
            "gauge must be finite and .* got -0.1",
        ),
        (
            lambda: sdifp.training.SDIFP(gauge=float("inf")),
            "gauge must be finite .* got inf",
        ),
        (
            lambda: sdifp.training.RandomPoints(0, 3),
            "n_t must be a positive integer, got 0",
        ),
        (
            lambda: sdifp.training.GridPoints(3, 0),
            "n_x must be a positive integer, got 0",
        ),
    ],
)
def test_bad_settings_are_named(make, words, as_user):
    with pytest.raises(ValueError, match=words):
        make()


SAMPLED = sdifp.estimators.Independent(2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 0}, "steps must be a positive integer, got 0"),
        ({"nodes": -1}, "nodes must be a positive integer, got -1"),
        ({"final_nodes": 0}, "final_nodes must be a positive integer, got 0"),
        ({"windows": 0}, "windows must be a positive integer, got 0"),
        (
            {"initial_weight": -1.0},
            "initial_weight must be positive and finite, got -1.0",
        ),
        ({"causal": -0.5}, "causal must .*not negative, got -0.5"),
        ({"causal": 1.0, "estimator": SAMPLED}, r"causal needs .* Full\(\), got Indep"),
        (
            {"optimiser": sdifp.training.LevenbergMarquardt(), "estimator": SAMPLED},
            r"LevenbergMarquardt needs the residual at each .* Full\(\), got Indep",
        ),
    ],
)
def test_recipes_that_cannot_work_are_refused(changes, words, as_user):
    with pytest.raises(ValueError, match=words):
        sdifp.Recipe(**changes)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (RECIPE.replace(causal=1.0), "causal needs"),
        (
            RECIPE.replace(optimiser=sdifp.training.LevenbergMarquardt()),
            "LevenbergMarquardt needs",
        ),
    ],
)
def test_an_estimator_of_the_method_is_refused_likewise(recipe, words, getkey):
    problem = problem_on(BOX, mass=2.0)
    with pytest.raises(ValueError, match=words):
        sdifp.train(
            problem,
            sdifp.training.SDIFP(estimator=SAMPLED),
            recipe=recipe,
            key=getkey(),
        )


def drawn(points, box, start=0.0, length=1.0):
    """A function of keys."""
    return once(lambda key: points.draw(key, box, start, length))


def test_random_points_have_one_in_each_part(getkey):
    box = sdifp.Box([-1.0], [3.0])
    x, t = drawn(sdifp.training.RandomPoints(7, 11), box, 0.5, 2.0)(getkey())
    assert x.shape == (7, 11, 1)
    assert np.array_equal(np.floor((np.asarray(t) - 0.5) / 2.0 * 7), np.arange(7))
    strata = np.floor((np.asarray(x)[..., 0] + 1.0) / 4.0 * 11)
    assert np.array_equal(strata, np.tile(np.arange(11), (7, 1)))
    # The times do not share their points.
    assert np.all(np.ptp(np.asarray(x), axis=0) > 0.0)


def test_random_points_lie_in_the_box_and_follow_the_key(getkey):
    box = sdifp.Box([-1.0, 2.0, 0.0], [3.0, 2.5, 1.0])
    draw, key = drawn(sdifp.training.RandomPoints(4, 50), box), getkey()
    x, t = draw(key)
    assert x.shape == (4, 50, 3)
    assert np.all(box.contains(x))
    assert np.all(np.ptp(np.asarray(x).reshape(-1, 3), axis=0) > 0.8 * box.width)
    same, other = draw(key), draw(getkey())
    assert np.array_equal(x, same[0])
    assert np.array_equal(t, same[1])
    assert not np.any(np.asarray(x) == other[0])


def test_grid_points_are_the_same_whatever_the_key(getkey):
    box = sdifp.Box([0.0, 0.0], [1.0, 1.0], periodic=[True, False])
    draw = drawn(sdifp.training.GridPoints(2, 9), box, 1.0, 2.0)
    (x, t), again = draw(getkey()), draw(getkey())
    assert np.array_equal(x, again[0])
    assert np.array_equal(t, again[1])
    assert np.allclose(t, [1.5, 2.5])
    assert x.shape == (2, 9, 2)
    x = np.asarray(x)
    assert np.allclose(np.unique(np.round(x[..., 0], 12)), [0.0, 1 / 3, 2 / 3])
    assert np.allclose(np.unique(np.round(x[..., 1], 12)), [1 / 6, 0.5, 5 / 6])
