"""The public functions of Taylor mode, on functions that are not fields."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from quick import once

from sdifp import taylor
from sdifp.taylor import Automatic, ByDirections, Directions, Nested, ThroughLayer
from sdifp.taylor._rules import RULES

KEYS = jax.random.split(jax.random.key(7), 4)
LAYER = jax.random.normal(KEYS[0], (3, 6)) / 2.0
ROWS = jax.random.normal(KEYS[1], (4, 6))
SQUARE = jax.random.normal(KEYS[2], (6, 6))
METRIC = SQUARE + SQUARE.T
X = jnp.linspace(-0.6, 0.9, 6)


def vector(x):
    """A matrix of values."""
    h = jnp.tanh(LAYER @ x)
    return jnp.outer(h, h) * x[0] + jnp.sum(jnp.sin(x))


def along(f, x, v, order):
    """`D^p f(x)[v, ..., v]` by nested autodiff."""
    slope = lambda g, _: lambda x: jax.jvp(g, (x,), (v,))[1]
    return functools.reduce(slope, range(order), f)(x)


def agree(got, want, rtol=1e-11):
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= rtol * max(1.0, np.abs(want).max())


@pytest.mark.parametrize("path", [ByDirections(), Automatic(), Nested()], ids=str)
def test_sums_of_derivatives_of_an_array(path):
    weights = jnp.array([1.0, -2.0, 0.5, 3.0])
    places = jnp.array([[0, 2], [1, 5], [3, 4], [4, 0]])
    sets = [
        Directions({3: weights, 1: 0.7}, ROWS),
        Directions({2: weights}, ROWS[:, :2], places),
        Directions({2: 0.3}, metric=METRIC),
        Directions({1: jnp.arange(6.0)}),
    ]

    @once
    def run(x):
        few = jnp.zeros((4, 6)).at[jnp.arange(4)[:, None], places].add(ROWS[:, :2])
        second = jax.jacfwd(jax.jacfwd(vector))(x)
        want = jnp.tensordot(second, METRIC + 0.3 * jnp.eye(6), 2)
        want = want + jax.jacfwd(vector)(x) @ jnp.arange(6.0)
        for w, v, s in zip(weights, ROWS, few, strict=True):
            want = want + w * along(vector, x, v, 3) + 0.7 * along(vector, x, v, 1)
            want = want + w * along(vector, x, s, 2)
        return taylor.derivatives(vector, x, sets, path=path).total, want

    agree(*run(X))


def test_value_and_gradient_come_with_all_coordinates():
    @once
    def run(x):
        found = [
            taylor.derivatives(vector, x, Directions({2: 1.0}), path=path)
            for path in (ByDirections(), ThroughLayer())
        ]
        return found, (vector(x), jax.jacfwd(vector)(x))

    found, (value, slope) = run(X)
    for one in found:
        agree(one.value, value)
        agree(one.gradient, slope)


@pytest.mark.parametrize("order", [1, 2, 5, 6])
def test_any_order(order):
    f = lambda x: jnp.exp(x @ jnp.arange(3.0)) / (1.0 + x[0] ** 2)
    x = jnp.array([0.3, 0.1, -0.2])

    @once
    def run(x):
        terms = [along(f, x, v, order) for v in jnp.eye(3)]
        return taylor.derivatives(f, x, Directions({order: 1.0})).total, sum(terms)

    agree(*run(x), rtol=1e-10 * math.factorial(order))


def test_other_arguments_have_a_first_derivative():
    f = lambda x, s: jnp.sin(s[0] * x[0]) * x[1] ** 2 + s[1] ** 3
    at, tangent = (X[:2], jnp.array([0.4, 2.0])), jnp.array([1.0, -1.0])

    @once
    def run():
        laplacian = Directions({2: 1.0})
        both = taylor.derivatives(f, at, laplacian, first=(None, tangent)).total
        alone = taylor.derivatives(f, at, [], first=(None, tangent)).total
        slope = jax.jvp(lambda s: f(at[0], s), (at[1],), (tangent,))[1]
        trace = jnp.trace(jax.hessian(f)(*at))
        return (both, alone), (trace + slope, slope)

    agree(*run())


def test_a_token_changes_nothing_but_the_products():
    xs = jnp.stack([X, 2.0 * X, -X])
    at = lambda x, token: taylor.derivatives(
        vector, x, Directions({2: 1.0}), token=token
    )

    @once
    def run(xs):
        with_token = jax.vmap(lambda x: at(x, x).total)(xs)
        return with_token, jax.vmap(lambda x: at(x, None).total)(xs)

    agree(*run(xs))


def test_arguments_that_do_not_fit(as_user):
    with pytest.raises(ValueError, match=r"function must return one array, got 2"):
        taylor.derivatives(lambda x: (x, x), X, Directions({2: 1.0}))
    for weights in ({}, {0: 1.0}):
        with pytest.raises(ValueError, match=rf"weights .* got {weights}"):
            Directions(weights)
    with pytest.raises(ValueError, match=r"metric .* rows"):
        Directions(rows=ROWS, metric=METRIC)


def primitive(name, function, slope):
    """A primitive with a derivative, as a user of JAX makes one."""
    out = Primitive(name)
    out.def_impl(function)
    out.def_abstract_eval(lambda x: x)
    ad.defjvp(out, slope)
    batching.defvectorized(out)
    mlir.register_lowering(out, mlir.lower_fun(function, multiple_results=False))
    return out


def squared(arguments, collapse):
    (x,) = arguments
    return taylor.multiply(x, x, collapse, jnp.multiply)


@pytest.mark.parametrize(
    "rule", [{"elementwise": True}, {"jets": squared}], ids=["property", "function"]
)
def test_a_rule_for_a_primitive_of_ones_own(rule, monkeypatch):
    square = primitive("my_square", lambda x: x * x, lambda v, x: 2.0 * x * v)
    f = lambda x: jnp.sum(
        jnp.sin(square.bind(LAYER @ x)) * square.bind(jnp.cos(LAYER @ x))
    )
    cubes = Directions({3: 1.0})
    monkeypatch.delitem(RULES, "my_square", raising=False)

    def run():
        found = taylor.derivatives(f, X, cubes)
        return found.total, found.steps[0].fallbacks

    total, names = run()
    assert names == ("my_square",)
    agree(total, sum(along(f, X, v, 3) for v in jnp.eye(6)))
    monkeypatch.setitem(RULES, "my_square", None)
    taylor.register_rule("my_square", **rule)
    again, names = run()
    assert names == ()
    agree(again, total)
