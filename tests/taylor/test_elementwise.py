"""Functions with a derivative rule of their own: right whatever the rule is, and quick
where it acts on each entry alone."""

import functools

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import once, only

import sdifp

ORDERS = (2, 3, 4)
SQUARE = jax.random.normal(jax.random.key(0), (5, 5)) / 2.0
X = jnp.array([0.1, 0.5, 0.9, -0.4, 1.3])


def ruled(primal, rule, **options):
    """A function whose derivative along v is `rule(x, v)`."""
    function = jax.custom_jvp(primal)
    tangent = lambda x, v: (function(*x), rule(*x, *v))
    function.defjvp(tangent, **options)
    return function


def norm(x):
    return jnp.sqrt(1.0 + jnp.sum(x**2))


same = lambda x: x + 0.0
straight = ruled(same, lambda x, v: v / norm(x))
hidden = ruled(same, lambda x, v: straight(x) * v)
inside_jit = ruled(same, jax.jit(lambda x, v: v * jax.nn.softmax(x)))
by_scan = ruled(same, lambda x, v: v * jax.lax.scan(lambda c, a: (c + a, c), 0.0, x)[1])


@functools.partial(ruled, lambda x, a: a * x)
def of_two(x, a, v, b):
    return a * v / norm(x) + b * x


class _Zero:
    @staticmethod
    def rule(x, v):
        if type(v) is jax.custom_derivatives.SymbolicZero:
            return jnp.zeros_like(x)
        return v / norm(x)


@jax.custom_jvp
def ruled_exp(x):
    return jnp.exp(x)


ruled_exp.defjvps(lambda v, value, x: value * v)

MIXING = {
    "rule": straight,
    "rule of the rule": hidden,
    "in jit": lambda x: jax.jit(straight)(jnp.sin(x)),
    "jit in the rule": inside_jit,
    "scan in the rule": by_scan,
    "reversed": ruled(jnp.sin, lambda x, v: jnp.cos(x) * v[::-1]),
    "sum of the tangent": ruled(jnp.sin, lambda x, v: jnp.cos(x) * jnp.sum(v)),
    "sorted": ruled(jnp.sin, lambda x, v: v * jnp.cos(jnp.sort(x))),
    "two arguments": lambda x: of_two(x, 2.0),
    "two that vary": lambda x: of_two(x, jnp.cos(x)),
    "symbolic zeros": ruled(same, _Zero.rule, symbolic_zeros=True),
    "checkpoint": jax.checkpoint(lambda x: straight(x) * x),
    "in a scan": lambda x: jax.lax.scan(
        lambda h, a: (straight(h) * a, None), x, jnp.ones(2)
    )[0],
    "column": lambda x: straight(x[:, None])[:, 0],
}

ENTRIES = {
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "silu": jax.nn.silu,
    "swish": jax.nn.swish,
    "gelu": jax.nn.gelu,
    "exact gelu": functools.partial(jax.nn.gelu, approximate=False),
    "softplus": jax.nn.softplus,
    "mish": jax.nn.mish,
    "log sigmoid": jax.nn.log_sigmoid,
    "logaddexp": lambda x: jnp.logaddexp(x, 2.0 * x),
    "logaddexp2": lambda x: jnp.logaddexp2(x, 0.3),
    "sinc": jnp.sinc,
    "xlogy": lambda x: special.xlogy(x**2 + 1.0, x**2 + 2.0),
    "log_ndtr": special.log_ndtr,
    "own rule": ruled(jnp.sin, lambda x, v: jnp.cos(x) * v),
    "calls itself": ruled_exp,
    "straight through": ruled(
        lambda x: jnp.round(x), lambda x, v: jax.nn.softplus(x) * v
    ),
    "of entries": jax.vmap(ruled(jnp.sin, lambda x, v: jnp.cos(x) * v)),
    # Its derivative is that of its own rule, not of what it is made of.
    "made of one that mixes": ruled(
        lambda x: jnp.sin(straight(x)), lambda x, v: jnp.cos(x) * v
    ),
}


def field(function):
    """The function on the coordinates, and behind a layer."""
    return lambda x: jnp.sum(jnp.sin(function(SQUARE @ x))) + jnp.sum(function(x) ** 3)


def by_nested_jvp(u, x, order):
    """`sum_k d^p u / dx_k^p` at one point."""

    def term(direction):
        along = lambda f: lambda x: jax.jvp(f, (x,), (direction,))[1]
        return functools.reduce(lambda f, _: along(f), range(order), u)(x)

    return jnp.sum(jax.vmap(term)(jnp.eye(x.size)))


def agree(u, x, orders=ORDERS, rtol=1e-9):
    @once
    def run(x):
        got = [sdifp.operators.derivative(p)(u)(x[None])[0] for p in orders]
        return got, [by_nested_jvp(u, x, p) for p in orders]

    np.testing.assert_allclose(*run(x), rtol=rtol, atol=1e-9)


def fallbacks(u, order):
    plan = sdifp.operators.derivative(order).plan(u, X[None])
    return [name for step in plan.steps for name in step.fallbacks]


@pytest.mark.parametrize(
    "name", only(MIXING, "rule", "rule of the rule", "two arguments", "in a scan")
)
def test_a_rule_that_mixes_entries(name):
    agree(field(MIXING[name]), X)


@pytest.mark.parametrize(
    "name",
    only(
        ENTRIES,
        "gelu",
        "softplus",
        "own rule",
        "calls itself",
        "made of one that mixes",
    ),
)
def test_a_rule_that_acts_on_entries_is_right_and_quick(name):
    u = field(ENTRIES[name])
    assert fallbacks(u, 4) == []
    agree(u, X)


def test_a_rule_that_mixes_entries_in_the_second_derivative_only():
    found = [fallbacks(field(hidden), p) for p in (1, *ORDERS)]
    assert found == [[], *[["custom_jvp_call"]] * 3]


def test_through_a_narrow_first_layer():
    narrow = jax.random.normal(jax.random.key(1), (2, 8)) / 3.0
    x = jnp.linspace(-0.7, 0.9, 8)
    for u in (
        lambda x: jnp.sum(jnp.sin(straight(narrow @ x))),
        lambda x: jnp.sum(jnp.sin(narrow @ straight(x))),
    ):
        agree(u, x, [2])


def test_the_example_with_known_numbers():
    u = lambda x: jnp.sum(jnp.sin(straight(x)))
    x = jnp.array([0.1, 0.5, 0.9])
    # By hand: the derivative of cos(x_k) / r along x_k, with r = sqrt(1 + |x|^2).
    r = float(norm(x))
    want = sum(-np.sin(a) / r**2 - np.cos(a) * a / r**3 for a in map(float, x))
    got = float(sdifp.laplacian()(u)(x[None])[0])
    assert got == pytest.approx(want, rel=1e-12)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(ORDERS),
    st.sampled_from([jnp.sin, jnp.tanh, same, jax.nn.softplus]),
    st.floats(0.0, 2.0),
    st.floats(-1.0, 1.0),
    st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=4),
)
def test_any_rule(order, primal, mixed, linear, x):
    # Nested `jax.jvp` is the definition; with mixed = 0 no entry meets another one.
    rule = lambda x, v: v * jnp.cos(linear * x) / (1.0 + mixed * jnp.sum(x**2))
    u = lambda x: jnp.sum(jnp.sin(ruled(primal, rule)(2.0 * x)))
    agree(u, jnp.array(x), [order])
