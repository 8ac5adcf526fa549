"""Derivatives by time as terms of an operator, beside those in space."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once, only

import sdifp
from sdifp.operators import Batch

D = 3
KEY = jax.random.key(5)
X = jax.random.uniform(KEY, (2, 4, D))
T = jnp.array([0.2, 0.7])
C = jnp.array([0.5, -1.0, 2.0])


class Net(eqx.Module):
    """Time enters before the first layer, inside it, and after it."""

    mlp: eqx.nn.MLP

    def __call__(self, x, t):
        inside = jnp.concatenate([jnp.sin(x), x * C, jnp.cos(t)[None], t[None]])
        return jnp.sum(jnp.cos(x)) + t * self.mlp(inside) + jnp.sum(jnp.sin(x + t)) ** 2


class Layered(eqx.Module):
    """Coordinates meet in one narrow layer."""

    mlp: eqx.nn.MLP

    def __call__(self, x, t):
        inside = jnp.concatenate([jnp.sin(x), x * C, jnp.cos(t)[None], t[None]])
        return jnp.exp(-t) + t**2 * self.mlp(inside)


NETS = {
    "net": Net(eqx.nn.MLP(2 * D + 2, "scalar", 5, 2, jnp.tanh, key=KEY)),
    "layered": Layered(eqx.nn.MLP(2 * D + 2, "scalar", 2, 2, jnp.tanh, key=KEY)),
}
BOX = sdifp.Box.cube(D, periodic=True)
RULE = sdifp.rule_for(BOX, 4**D)
FIELDS = {
    "constant targets": lambda net: sdifp.conserve(net, RULE, 1.0, 2.0),
    "moving targets, profile": lambda net: sdifp.conserve(
        net,
        RULE,
        lambda t: 1.0 + t,
        lambda t: 4.0 + t**2,
        profile=lambda x: 1.0 + 0.5 * jnp.sin(2.0 * jnp.pi * x[0]),
    ),
    "squared norm alone": lambda net: sdifp.conserve(
        net, RULE, squared_norm=lambda t: 2.0 + t
    ),
}
# The terms in space, and the same by brute force from gradient, Hessian and value.
SPACES = {
    "nothing": (None, lambda u, x, t: 0.0),
    "first": (
        sdifp.operators.advection(C),
        lambda u, x, t: jax.grad(u)(x, t) @ C,
    ),
    "second, zero": (
        sdifp.operators.reaction(lambda x, t: x[0] * t) - sdifp.laplacian(C),
        lambda u, x, t: x[0] * t * u(x, t) - C @ jnp.diagonal(jax.hessian(u)(x, t)),
    ),
    "mixed and third": (
        sdifp.operators.mixed_derivatives(jnp.outer(C, C))
        + sdifp.operators.third_derivatives(),
        lambda u, x, t: (
            C @ jax.hessian(u)(x, t) @ C
            + sum(jax.jacfwd(jax.hessian(u))(x, t)[k, k, k] for k in range(D))
        ),
    ),
}


def by_time(u, x, t, order):
    for _ in range(order):
        u = lambda x, t, u=u: jax.jvp(lambda t: u(x, t), (t,), (jnp.ones_like(t),))[1]
    return u(x, t)


def everywhere(function):
    return jax.vmap(lambda xs, t: jax.vmap(lambda x: function(x, t))(xs))(X, T)


def check(u, operator, space):
    @once
    def both(u):
        ours, one = operator(u)(X, T), operator(u)(X[1, 2], T[1])
        expected = everywhere(lambda x, t: 3.0 * by_time(u, x, t, 1) + space(u, x, t))
        return ours, one, expected

    ours, one, expected = both(u)
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(one, expected[1, 2], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("of", "name"),
    [
        ("moving targets, profile", "second, zero"),
        ("squared norm alone", "nothing"),
        (None, "mixed and third"),
        pytest.param("moving targets, profile", "first", marks=pytest.mark.cases),
        pytest.param(None, "second, zero", marks=pytest.mark.cases),
    ],
)
def test_first_order_beside_every_kind_of_term(of, name):
    operator, space = SPACES[name]
    rate = 3.0 * sdifp.time_derivative()
    net = NETS["net"]
    u = net if of is None else FIELDS[of](net)
    check(u, rate if operator is None else rate + operator, space)


@pytest.mark.parametrize(
    "path",
    [
        sdifp.taylor.ByDirections(),
        sdifp.taylor.ThroughLayer(),
        sdifp.taylor.Nested(),
        sdifp.taylor.VmappedJet(),
    ],
    ids=lambda p: type(p).__name__,
)
@pytest.mark.parametrize("net", only(NETS, "net"))
def test_every_path_and_what_a_local_term_takes_of_it(net, path):
    operator, space = SPACES["second, zero"]
    u = FIELDS["moving targets, profile"](NETS[net])
    r = sdifp.Residual(
        3.0 * sdifp.time_derivative() + operator,
        lambda u, grad, x, t: u * grad @ x,
    )

    def expected(x, t):
        local = u(x, t) * jax.grad(u)(x, t) @ x
        return 3.0 * by_time(u, x, t, 1) + space(u, x, t) + local

    @once
    def both():
        return r(u, X, T, path=path), everywhere(expected)

    np.testing.assert_allclose(*both(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("of", ["moving targets, profile", None])
def test_second_order(of):
    net = NETS["net"]
    u = net if of is None else FIELDS[of](net)
    operator, space = SPACES["second, zero"]

    @once
    def both(u):
        ours = (2.0 * sdifp.time_derivative(2) + operator)(u)(X, T)
        expected = lambda x, t: 2.0 * by_time(u, x, t, 2) + space(u, x, t)
        return ours, everywhere(expected)

    np.testing.assert_allclose(*both(u), rtol=1e-10, atol=1e-10)


def test_time_is_no_direction_of_its_own():
    net, batch = NETS["layered"], Batch(X, T)
    space, both = (
        op(net, path=sdifp.taylor.ThroughLayer()).steps(batch)
        for op in (
            -sdifp.laplacian(),
            sdifp.time_derivative() - sdifp.laplacian(),
        )
    )
    assert both == space


def test_two_precisions_and_primitives_without_a_rule():
    def u(x, t):
        single = t.astype(jnp.float32)
        wave = lambda x: jnp.sum(jnp.sin(x)) * single
        return jax.lax.cond(x[0] > 0.0, wave, lambda x: x[0] ** 2 * single, x)

    x, t = X[0, 0].astype(jnp.float32), jnp.asarray(0.5)
    value = (sdifp.time_derivative() - sdifp.laplacian())(u)(x, t)
    expected = jnp.sum(jnp.sin(x)) * 1.5
    np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_local_terms_of_a_network_without_reverse_mode():
    def u(x, t):
        add = lambda s: (s[0] + 1, s[1] + jnp.sin(x[0]) * t)
        return jax.lax.while_loop(lambda s: s[0] < 3, add, (0, 0.0 * t))[1]

    r = sdifp.Residual(sdifp.operators.reaction(1.0), lambda u, grad, x, t: grad[0])
    x = X[0, 0]
    expected = 1.5 * (jnp.sin(x[0]) + jnp.cos(x[0]))
    np.testing.assert_allclose(r(u, x, 0.5), expected, rtol=1e-12)


def test_a_profile_is_evaluated_in_chunks_too():
    u = FIELDS["moving targets, profile"](lambda x, t: jnp.sin(x[0] + t))
    applied = (sdifp.time_derivative() - sdifp.laplacian())(u, chunk=16)

    def memory(n):
        lowered = jax.jit(lambda x: applied(x, 0.5)).lower(jnp.ones((n, D)))
        return lowered.compile().memory_analysis().temp_size_in_bytes

    few, many = memory(64), memory(1024)
    # Beside a few numbers for each point.
    assert many - few < 1024 * 16 * 8


def test_plan_names_the_second_derivative():
    (step,) = sdifp.time_derivative(2)(NETS["net"]).steps(Batch(X, T))
    assert (step.path, step.order) == ("nested jvp by t", 2)


def test_gradients_have_the_precision_of_the_parameters():
    def loss(scale):
        u = lambda x, t: scale * jnp.sin(x[0]) * t
        r = sdifp.Residual(sdifp.time_derivative())
        return sdifp.estimators.Full()(r, u, X, T, key=KEY).loss

    slope = jax.grad(loss)(jnp.asarray(2.0, jnp.float32))
    assert slope.dtype == jnp.float32
    np.testing.assert_allclose(
        slope, 2.0 * jnp.mean(jnp.sin(X[..., 0]) ** 2), rtol=1e-6
    )


def test_it_is_never_sampled():
    operator = sdifp.time_derivative() + sdifp.laplacian(C)
    u = FIELDS["constant targets"](NETS["net"])

    @once
    def values(u):
        keys = [jax.random.key(k) for k in range(3)]
        drawn = [operator.sample(k, 1)(u)(X, T) for k in keys]
        bare = [sdifp.laplacian(C).sample(k, 1)(u)(X, T) for k in keys]
        return [a - b for a, b in zip(drawn, bare, strict=True)], everywhere(
            lambda x, t: by_time(u, x, t, 1)
        )

    differences, expected = values(u)
    for found in differences:
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_local_terms_in_every_layout():
    u = FIELDS["moving targets, profile"](NETS["net"])
    r = sdifp.Residual(
        sdifp.operators.advection(C),
        lambda u, grad, x, t: u * grad[1] + x[0] * t + grad @ grad,
    )

    def expected(x, t):
        grad = jax.grad(u)(x, t)
        return grad @ C + u(x, t) * grad[1] + x[0] * t + grad @ grad

    @once
    def both():
        return r(u, X, T), r(u, X[0], T[0]), r(u, X[0, 0], T[0]), everywhere(expected)

    many, some, one, wanted = both()
    np.testing.assert_allclose(many, wanted, rtol=1e-10)
    np.testing.assert_allclose(some, wanted[0], rtol=1e-10)
    np.testing.assert_allclose(one, wanted[0, 0], rtol=1e-10)
    # Without a time.
    still = sdifp.Residual(sdifp.laplacian(), lambda u, grad, x: u * grad[0] * x[1])
    square = lambda x: x[0] ** 2 * x[1]
    assert still(square, jnp.array([2.0, 3.0])) == 6.0 + 12.0 * 12.0 * 3.0


def test_coefficients_in_a_local_term_are_trained():
    u = FIELDS["constant targets"](NETS["net"])

    def loss(c):
        r = sdifp.Residual(sdifp.operators.advection(C), lambda u, grad, x, t: c * u**2)
        return sdifp.estimators.Full()(r, u, X, T, key=KEY).loss

    def expected(c):
        r = lambda x, t: jax.grad(u)(x, t) @ C + c * u(x, t) ** 2
        return 0.5 * jnp.mean(everywhere(r) ** 2)

    a, b = once(lambda c: (jax.grad(loss)(c), jax.grad(expected)(c)))(0.7)
    assert a == pytest.approx(float(b), rel=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sdifp.time_derivative(3), "order must be from 1 to 2, got 3"),
        (lambda: sdifp.time_derivative(1.0), "order must be from 1 to 2, got 1.0"),
        (lambda: sdifp.time_derivative(NETS["net"]), "write time_derivative...u."),
        (
            lambda: sdifp.Residual(sdifp.operators.advection(C), lambda u, grad, x: u)(
                NETS["net"], X, T
            ),
            r"local cannot be evaluated as local\(u, grad, x, t\) at .* 4 were given",
        ),
        (
            lambda: sdifp.Residual(
                sdifp.operators.advection(C), lambda u, grad, x, t: None
            )(NETS["net"], X, T),
            "local must return one number for one point, got None",
        ),
        (
            lambda: sdifp.time_derivative()(lambda x: x[0])(X[0, 0]),
            "needs a function of .x, t., and a time",
        ),
        (
            lambda: sdifp.time_derivative()(
                FIELDS["squared norm alone"](NETS["net"]).at(0.5)
            )(X[0, 0]),
            "needs the field",
        ),
    ],
)
def test_bad_input(as_user, make, message):
    with pytest.raises(ValueError, match=message):
        make()
