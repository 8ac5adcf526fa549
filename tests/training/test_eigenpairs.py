"""Eigenpairs in turn, and what is refused."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once

import sdifp
from sdifp.operators import Functional
from sdifp.problems import oscillator
from sdifp.training import (
    MLP,
    LevenbergMarquardt,
    TrainingDiverged,
    _eigenpairs,
    eigenpairs,
)

RECIPE = sdifp.Recipe(MLP(6, 1), LevenbergMarquardt(), steps=4, nodes=40)
KEY = jax.random.key(0)


def gram(functions, rule, volume):
    """The inner products of functions on a rule."""
    values = lambda x: jnp.stack([f(x) for f in functions])
    of = lambda x: jnp.outer(values(x), values(x))
    return volume * np.asarray(once(lambda rule: rule.mean(of))(rule))


# After so few steps the states need not be in order.
@pytest.mark.filterwarnings("ignore:.*so was not the lowest")
def test_states_are_orthogonal_on_the_rule_and_combinations_are_the_fields():
    problem = oscillator(1)
    found = list(eigenpairs(problem, 3, recipe=RECIPE, key=KEY))
    last = found[-1].trained.field
    fields = [one.trained.field for one in found]
    for one, field in zip(found, fields, strict=True):
        x = jnp.linspace(-6.0, 6.0, 9)[:, None]
        np.testing.assert_allclose(
            jax.vmap(one.function)(x), jax.vmap(field)(x), rtol=1e-9, atol=1e-12
        )
    matrix = gram([one.function for one in found], last.rule, 14.0)
    np.testing.assert_allclose(matrix, np.eye(3), atol=1e-12)
    # Each value is the functional of its function, over the norm.
    energy = once(lambda: problem.functional(found[1].function, last.rule))()
    assert np.isclose(found[1].value.value, energy, rtol=1e-2)
    assert found[0].overlap == 0.0
    independent = sdifp.quadrature.gauss_legendre(problem.domain, 300)
    products = gram([one.function for one in found], independent, 14.0)
    worst = np.abs(products[2, :2]).max()
    assert np.isclose(found[2].overlap, worst, rtol=1e-2, atol=1e-10)
    assert [one.trained.metrics.steps for one in found] == [4, 4, 4]


@pytest.mark.validate
def test_the_first_states_of_the_oscillator():
    recipe = RECIPE.replace(network=MLP(16, 2), steps=80, nodes=64)
    for k, one in enumerate(eigenpairs(oscillator(1), 4, recipe=recipe, key=KEY)):
        assert abs(one.value.value - (k + 0.5)) < 1e-3
        assert one.value.value > k + 0.5 - 1e-8
        assert one.overlap < 1e-8


@pytest.mark.validate
def test_another_norm_scales_the_function_and_not_the_eigenvalue():
    box = sdifp.Box([0.0], [1.0], periodic=True)
    problem = sdifp.Problem(
        box, Functional(lambda u, grad: jnp.sum(grad**2) + 2.0 * u**2), squared_norm=9.0
    )
    first, second = eigenpairs(problem, 2, recipe=RECIPE.replace(steps=30), key=KEY)
    assert np.isclose(first.value.value, 2.0, atol=1e-6)
    assert np.isclose(second.value.value, 2.0 + 4.0 * np.pi**2, rtol=1e-3)
    assert np.isclose(abs(first.function(jnp.array([0.3]))), 3.0, rtol=1e-3)


def test_states_that_the_rule_cannot_hold_apart_are_named():
    # Four nodes: orthogonal there, and nowhere else.
    recipe = RECIPE.replace(nodes=4, steps=1)
    with pytest.warns(UserWarning, match="oscillator-1d-state-1 is not held apart"):
        found = list(eigenpairs(oscillator(1), 2, recipe=recipe, key=KEY))
    assert found[1].overlap > 1e-2


def test_a_state_that_diverges_is_named(monkeypatch):
    def result(self):
        raise TrainingDiverged("the loss has grown", self.so_far())

    monkeypatch.setattr(sdifp.training.Training, "result", result)
    with pytest.raises(TrainingDiverged, match="oscillator-1d: the loss has grown"):
        next(eigenpairs(oscillator(1), 2, recipe=RECIPE, key=KEY))


def functional(**rest):
    return sdifp.Problem(
        sdifp.Box([0.0], [1.0]), Functional(lambda grad: jnp.sum(grad**2)), **rest
    )


@pytest.mark.parametrize(
    ("make", "count", "message"),
    [
        (lambda: oscillator(1), 0, "count must be a positive integer, got 0"),
        (lambda: oscillator(1), 41, "count must be at most the 40 nodes.*got 41"),
        (
            sdifp.problems.fredholm,
            2,
            "must have a Functional for eigenpairs.*fredholm-1d has a Residual",
        ),
        (functional, 2, "squared_norm alone for eigenpairs.*prescribes nothing"),
        (lambda: functional(mass=1.0), 2, "squared_norm alone.*prescribes mass"),
        (
            lambda: functional(mass=1.0, squared_norm=2.0),
            2,
            "squared_norm alone.*prescribes mass, squared_norm",
        ),
    ],
)
def test_what_has_no_eigenpairs_is_refused_at_once(make, count, message):
    with pytest.raises(ValueError, match=message):
        eigenpairs(make(), count, recipe=RECIPE, key=KEY)


def test_a_state_below_one_that_was_found_before_is_warned_of():
    before = [_eigenpairs.Interval(v, 1e-6) for v in (1.0, 4.0, 4.001)]
    words = "third has the value 3, less than state 1, which has 4 and so was not the"
    with pytest.warns(UserWarning, match=words):
        _eigenpairs._warn_of_order("third", _eigenpairs.Interval(3.0, 1e-6), before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Of one eigenvalue, to the accuracy of the trainings, or to that of the rule.
        _eigenpairs._warn_of_order("third", _eigenpairs.Interval(3.99, 1e-6), before)
        _eigenpairs._warn_of_order("third", _eigenpairs.Interval(3.0, 2.0), before)
