"""Functionals that are lost in training: without a lower bound, or without a value."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdifp
from sdifp.operators import Functional
from sdifp.problems import Dirichlet
from sdifp.training import (
    LBFGS,
    MLP,
    SDIFP,
    Adam,
    LevenbergMarquardt,
    Plain,
    Soft,
    TrainingDiverged,
    train,
)
from sdifp.training._lower_bound import falls

LM, ADAM = LevenbergMarquardt(), Adam(2e-2)
RECIPE = sdifp.Recipe(MLP(8, 2), LM, steps=30, nodes=32)
WALLS = Dirichlet(lambda x: 4.0 * x[0] * (1.0 - x[0]))
NEGATIVE = lambda u, grad: -jnp.sum(grad**2)


def problem(density, conditions=(WALLS,), **rest):
    return sdifp.Problem(
        sdifp.Box([0.0], [1.0]), Functional(density), conditions, **rest
    )


def training(problem, method, optimiser=LM, steps=30, every=None, **rest):
    recipe = RECIPE.replace(optimiser=optimiser, steps=steps, **rest)
    return train(problem, method, recipe=recipe, every=every, key=jax.random.key(0))


@pytest.mark.parametrize(
    ("density", "rest", "method", "optimiser", "why"),
    [
        (NEGATIVE, {}, Plain(), LM, "the gradient grows"),
        (NEGATIVE, {}, Plain(), ADAM, "the gradient grows"),
        (NEGATIVE, {"squared_norm": 1.0}, SDIFP(), LM, "the gradient grows"),
        (NEGATIVE, {"squared_norm": 1.0}, SDIFP(), ADAM, "the gradient grows"),
        (lambda u: u, {}, Plain(), LM, "u is multiplied by a number"),
        (lambda u: u, {}, Plain(), ADAM, "u is multiplied by a number"),
        (
            lambda u, grad: 0.5 * jnp.sum(grad**2) - 30.0 * u**2,
            {},
            Plain(),
            LM,
            "u is multiplied by a number",
        ),
        (lambda u: -(u**4), {"squared_norm": 1.0}, Plain(), LM, "multiplied"),
    ],
)
def test_a_functional_without_a_lower_bound_stops_the_training(
    density, rest, method, optimiser, why
):
    steps = 30 if optimiser.uses_rows else 600
    run = training(problem(density, **rest), method, optimiser, steps, steps // 30)
    with pytest.raises(
        TrainingDiverged, match=f"energy has no lower bound.*{why}"
    ) as e:
        run.result()
    # The state before, with which all is well.
    assert f"the state of step {run.step} is kept" in str(e.value)
    assert np.isfinite(e.value.trained.functional.value)
    assert e.value.trained.metrics.step == run.step < steps
    assert np.isfinite(e.value.trained.field(jnp.array([0.4])))


@pytest.mark.parametrize(
    ("density", "rest", "method"),
    [
        # A small network falls to an energy of -2.5e3 times its first one and stays.
        (
            lambda u, grad, x: (
                0.5 * jnp.sum(grad**2) - 100.0 * jnp.sin(jnp.pi * x[0]) * u
            ),
            {},
            Plain(),
        ),
        (lambda u, grad: 1e-4 * jnp.sum(grad**2) - u, {}, Plain()),
        (lambda u, grad: 0.5 * jnp.sum(grad**2) + u**4 - 100.0 * u**2, {}, Plain()),
        (lambda u: -u, {"squared_norm": 1.0}, Soft(1.0)),
        (
            lambda u, grad: (jnp.sum(grad**2) - 1.0) ** 2 - 300.0 * u,
            {"squared_norm": 1.0},
            SDIFP(),
        ),
    ],
)
def test_one_that_falls_far_to_its_lower_bound_does_not(density, rest, method):
    run = training(problem(density, **rest), method, steps=12, every=2)
    found = run.result()
    assert np.isfinite(found.functional.value)


def test_held_gradients_bound_what_falls_with_them():
    run = training(
        problem(NEGATIVE, invariants=[sdifp.invariants.DirichletEnergy(5.0)]),
        SDIFP(),
        steps=3,
        every=1,
    )
    assert np.isclose(run.result().functional.value, -5.0, rtol=1e-9)


def test_numbers_that_fall_in_proportion_are_told_from_those_that_stay():
    assert falls(jnp.array([[-1e4], [-1e8]]))
    assert falls(jnp.array([[1.0, -1e8], [2.0, -jnp.inf]]))
    assert not falls(jnp.array([[-1e4], [1e16]]))
    assert not falls(jnp.array([[-1.0], [-1.0]]))
    assert not falls(jnp.array([[-1e4], [jnp.nan]]))


@pytest.mark.parametrize("optimiser", [LM, ADAM], ids=repr)
def test_a_density_that_is_not_finite_is_named_with_its_point(optimiser):
    density = lambda u, x: jnp.where(x[0] > 0.5, jnp.nan, u**2)
    run = training(problem(density, ()), Plain(), optimiser)
    with pytest.raises(
        TrainingDiverged, match=r"density of energy is nan at x = \[0\.5.*where u = "
    ) as e:
        run.result()
    assert "the state of step 0 is kept" in str(e.value)


@pytest.mark.parametrize(
    ("changes", "method", "message"),
    [
        (
            {"windows": 2},
            Plain(),
            "windows must be 1 for a problem without time, got 2",
        ),
        (
            {"causal": 1.0},
            Plain(),
            "causal must be left out for a problem without time",
        ),
        (
            {"estimator": sdifp.estimators.Independent(4)},
            Plain(),
            "estimator must be Full.. for a functional",
        ),
        (
            {},
            SDIFP(estimator=sdifp.estimators.Independent(4)),
            "estimator must be Full.. for a functional",
        ),
    ],
)
def test_settings_that_a_functional_does_not_have_are_refused(changes, method, message):
    density = lambda u, grad: jnp.sum(grad**2)
    with pytest.raises(ValueError, match=message):
        training(problem(density, mass=1.0), method, ADAM, **changes)


@pytest.mark.parametrize(
    ("density", "message"),
    [
        (lambda u, grad: grad, r"density must return one real number.*shape \(1,\)"),
        (lambda u: u * 1j, "density must return one real number.*complex"),
    ],
)
def test_a_density_of_another_kind_is_refused_before_training(density, message):
    with pytest.raises(ValueError, match=message):
        training(problem(density), Plain())


def test_one_node_is_enough():
    # Two pieces have one node each.
    found = training(
        problem(lambda u, grad: jnp.sum(grad**2) + (u - 1.0) ** 2, ()),
        Plain(),
        steps=3,
        nodes=1,
    ).result()
    assert np.isfinite(found.functional.value)


def test_lbfgs_keeps_its_nodes_while_it_keeps_its_history():
    problem_ = problem(lambda u, grad, x: jnp.sum(grad**2) - x[0] * u)
    run = training(problem_, Plain(), LBFGS(refresh=3), steps=9, every=3)
    losses = [metrics.loss for metrics in run]
    assert losses[-1] < losses[0]
    assert run.result().functional.value < 0.0


@pytest.mark.validate
def test_a_thousand_dimensions():
    box = sdifp.Box.cube(1000, 0.0, 1.0, periodic=True)
    functional = Functional(lambda u, grad: jnp.sum(grad**2) + (u**2 - 1.0) ** 2)
    large = sdifp.Problem(box, functional, squared_norm=1.0)
    recipe = sdifp.Recipe(MLP(8, 1), Adam(1e-2), steps=20, nodes=64)
    found = train(large, recipe=recipe, key=jax.random.key(0)).result()
    measured = found.metrics.functional["energy"]
    assert np.isclose(found.functional.value, measured, rtol=2e-2)
    # Exact on the rule, whose 64 nodes are few for the continuum.
    square = found.field.rule.mean(lambda x: found.field(x) ** 2)
    assert np.isclose(square, 1.0, rtol=1e-10)


def test_float32_is_warned_of():
    with jax.enable_x64(False), pytest.warns(UserWarning, match="needs float64"):
        training(problem(lambda u, grad: jnp.sum(grad**2) - u), Plain(), steps=1)


def zero_of(make):
    """The warnings of a check that u = 0 solves the problem."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make().check()
    return [str(w.message) for w in found if "solved by u = 0" in str(w.message)]


ZERO = Functional(lambda u, grad, x: jnp.sum(grad**2) + x[0] ** 2 * u**2)
WELL = Functional(lambda u, grad: jnp.sum(grad**2) + (1.0 - u**2) ** 2)
LINEAR = sdifp.Residual(sdifp.laplacian(), lambda u, grad, x: 3.0 * u)
SOURCE = sdifp.Residual(sdifp.laplacian(), None, lambda x: x[0])


@pytest.mark.parametrize(
    ("equation", "rest", "warned"),
    [
        (ZERO, {}, True),
        (ZERO, {"mass": 0.0}, True),
        (ZERO, {"mass": 1.0}, False),
        (ZERO, {"squared_norm": 1.0}, False),
        (WELL, {}, False),
        (Functional(NEGATIVE), {}, False),
        (Functional(lambda u, grad: jnp.sum(grad**2) - u), {}, False),
        (LINEAR, {}, True),
        (LINEAR, {"squared_norm": 1.0}, False),
        (SOURCE, {}, False),
        (SOURCE, {"mass": 0.0}, False),
    ],
)
@pytest.mark.parametrize("walls", [True, False])
def test_a_problem_that_zero_solves_is_warned_of(equation, rest, warned, walls):
    given = [WALLS] if walls else [sdifp.problems.Free()]
    make = lambda: sdifp.Problem(sdifp.Box([0.0], [1.0]), equation, given, **rest)
    if equation is WELL and walls:
        # The walls keep u from the minima of the density: zero is the best there is.
        warned = True
    found = zero_of(make)
    assert len(found) == warned
    assert all("such as squared_norm=1.0" in one for one in found)


def test_problems_of_the_library_and_problems_in_time_are_not_warned_of():
    library = (
        sdifp.problems.oscillator,
        sdifp.problems.double_well,
        sdifp.problems.neumann_poisson,
        sdifp.problems.kdv,
    )
    for make in library:
        assert zero_of(make) == []


@pytest.mark.parametrize("mass", [0.0, -1.0])
def test_a_positive_field_has_a_positive_mass(mass):
    with pytest.raises(
        ValueError, match=f"mass must be positive for a positive field, got {mass:g}"
    ):
        training(problem(lambda u: u**2, (), mass=mass, positive=True), SDIFP())
