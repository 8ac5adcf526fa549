"""Integrals of a field in its own equation: values, and their gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from quick import once

import sdifp
from sdifp.field import Detached, Exact, Interpolated, Lagged, Subsampled, integrals_at
from sdifp.invariants import Mass, SquaredNorm
from sdifp.quadrature import gauss_legendre, sobol

BOX = sdifp.Box([-1.0], [2.0])
KERNEL = lambda x, y: jnp.exp(x[0] * y[0])
INTEGRALS = {
    "mass": lambda u: u,
    "moment": lambda x, t, u: x[0] ** 2 * jnp.cos(t) * u,
    "slopes": lambda u, grad: u**2 * grad[0] ** 2,
    "memory": lambda x, y, u: KERNEL(x, y) * u**2,
}
POINTS = jnp.linspace(-0.9, 1.9, 5)[:, None]


def residual(integrals=INTEGRALS, **rest):
    """The sum of all integrals, each with a factor."""
    return sdifp.Residual(
        0.0 * sdifp.laplacian(),
        lambda u, grad, x, t, mass, moment, slopes, memory: (
            mass + 10.0 * moment + 100.0 * slopes + 1000.0 * memory
        ),
        integrals=integrals,
        **rest,
    )


def wave(x, t):
    return jnp.sin(2.0 * x[0] + t) + 0.5


def of_scipy(x, t):
    """The residual of `wave` by SciPy."""
    quad = lambda f: scipy.integrate.quad(f, -1.0, 2.0, epsabs=1e-13)[0]
    u = lambda y: np.sin(2.0 * y + t) + 0.5
    slope = lambda y: 2.0 * np.cos(2.0 * y + t)
    return (
        quad(u)
        + 10.0 * quad(lambda y: y**2 * np.cos(t) * u(y))
        + 100.0 * quad(lambda y: (u(y) * slope(y)) ** 2)
        + 1000.0 * quad(lambda y: np.exp(x * y) * u(y) ** 2)
    )


def test_integrals_are_those_of_scipy():
    rule = gauss_legendre(BOX, 32)
    times = jnp.array([0.1, 0.7])
    batch = jnp.stack([POINTS, POINTS[::-1]])
    found = residual()(wave, batch, times, rule=rule)
    exact = [
        [of_scipy(float(x), float(t)) for x in at[:, 0]]
        for at, t in zip(batch, times, strict=True)
    ]
    np.testing.assert_allclose(found, exact, rtol=1e-11)
    # At one point, and at many with one time.
    one = residual()(wave, POINTS[1], 0.1, rule=rule)
    np.testing.assert_allclose(one, exact[0][1], rtol=1e-11)
    many = residual()(wave, POINTS, 0.7, rule=rule)
    np.testing.assert_allclose(many, exact[1][::-1], rtol=1e-11)


def test_without_a_rule_a_function_has_no_integrals(as_user):
    with pytest.raises(
        ValueError, match="rule must be given for the integrals mass, moment, slopes"
    ):
        residual()(wave, POINTS, 0.1)


class Net(eqx.Module):
    weights: jax.Array

    def __call__(self, x, t):
        a, b, c = self.weights
        return jnp.tanh(a * x[0] + b * t) + c * x[0] ** 2


def field_of(weights, mode, rule):
    return sdifp.conserve(
        Net(weights), rule, mass=lambda t: 1.0 + t, squared_norm=9.0, gradient=mode
    )


WEIGHTS = jnp.array([1.3, -0.4, 0.8])


def brute(weights, rule, x, t):
    """All integrals of the corrected field, from its values on the nodes."""
    nodes, w = jnp.asarray(rule.nodes), 3.0 * jnp.asarray(rule.weights)
    net = lambda y: Net(weights)(y, t)
    f, slope = jax.vmap(net)(nodes), jax.vmap(jax.grad(net))(nodes)[:, 0]
    mean = w @ f / 3.0
    scale = jnp.sqrt((9.0 / 3.0 - ((1.0 + t) / 3.0) ** 2) / (w @ (f - mean) ** 2 / 3.0))
    u, slope = (1.0 + t) / 3.0 + scale * (f - mean), scale * slope
    memory = jnp.exp(x @ nodes.T) @ (w * u**2)
    others = (w @ u, w @ (nodes[:, 0] ** 2 * jnp.cos(t) * u), w @ (u * slope) ** 2)
    return jnp.concatenate([jnp.stack(others), memory])


@pytest.mark.parametrize(
    "mode",
    [Exact(), Exact(chunk=3), Subsampled(4), Interpolated(4), Lagged(2, k=4)],
    ids=repr,
)
def test_values_and_gradients_are_those_of_brute_force(mode):
    # Without a key the gradient of `Subsampled` is exact; those that interpolate the
    # moments do not interpolate integrals.
    rule, t = gauss_legendre(BOX, 12), jnp.asarray(0.3)

    def by_library(weights):
        u = field_of(weights, mode, rule)
        integrals = residual().integrals
        found = integrals_at(integrals, u.at(t), rule, mode, POINTS, t)
        return jnp.concatenate([jnp.ravel(a) for a in found.values()])

    def by_hand(weights):
        return brute(weights, rule, POINTS, t)

    both = once(lambda w: (by_library(w), jax.jacrev(by_library)(w)))(WEIGHTS)
    other = once(lambda w: (by_hand(w), jax.jacfwd(by_hand)(w)))(WEIGHTS)
    np.testing.assert_allclose(both[0], other[0], rtol=1e-12)
    np.testing.assert_allclose(both[1], other[1], rtol=1e-10, atol=1e-11)
    assert np.isclose(both[0][0], 1.3, rtol=1e-13)


def test_the_gradient_of_a_residual_is_that_of_brute_force():
    rule = gauss_legendre(BOX, 12)

    def loss(weights):
        u = field_of(weights, Exact(), rule)
        return jnp.sum(jnp.sin(residual()(u, POINTS, 0.3) / 1e4))

    step = 1e-5
    ends = [
        once(loss)(WEIGHTS + sign * step * e)
        for e in jnp.eye(3)
        for sign in (1.0, -1.0)
    ]
    numerical = (np.array(ends[0::2]) - np.array(ends[1::2])) / (2 * step)
    np.testing.assert_allclose(once(jax.grad(loss))(WEIGHTS), numerical, rtol=1e-7)


def gradients(mode, count, key):
    """Gradients of a nonlinear function of two integrals with fresh randomness, and the
    exact one."""
    rule = gauss_legendre(BOX, 16)
    equation = sdifp.Residual(
        0.0 * sdifp.laplacian(),
        lambda u, grad, x, t, cubes, memory: cubes + memory,
        integrals={"cubes": lambda u: u**3, "memory": INTEGRALS["memory"]},
    )

    def value(weights, key):
        u = field_of(weights, mode, rule).resample(key)
        # Linear in the integrals: of a product no estimate of one kind is unbiased.
        found = integrals_at(
            equation.integrals, u.at(0.3), rule, u.gradient, POINTS, jnp.asarray(0.3)
        )
        return found["cubes"] + jnp.sum(found["memory"])

    def exact(weights):
        u = field_of(weights, Exact(), rule)
        found = integrals_at(
            equation.integrals, u.at(0.3), rule, Exact(), POINTS, jnp.asarray(0.3)
        )
        return found["cubes"] + jnp.sum(found["memory"])

    keys = jax.random.split(key, count)
    at = lambda key: jax.grad(value)(WEIGHTS, key)
    draws = once(lambda keys: jax.lax.map(at, keys, batch_size=250))(keys)
    return np.asarray(draws), np.asarray(once(jax.grad(exact))(WEIGHTS))


def looks_unbiased(draws, exact):
    spread = draws.std(0, ddof=1) / np.sqrt(len(draws))
    return np.all(np.abs(draws.mean(0) - exact) <= 5 * spread + 1e-9)


def test_the_gradient_from_some_nodes_is_unbiased(getkey):
    draws, exact = gradients(Subsampled(5), 1500, getkey())
    assert np.all(draws.std(0) > 1e-3 * np.abs(exact).max())
    assert looks_unbiased(draws, exact)


def test_the_test_of_the_bias_finds_that_of_detached_integrals(getkey):
    draws, exact = gradients(Detached(), 50, getkey())
    assert not looks_unbiased(draws, exact)
    assert np.all(draws == 0.0)


def test_the_memory_of_a_kernel_is_bounded():
    rule = sobol(BOX, 2**15, key=jax.random.key(0))
    kernel = {"memory": INTEGRALS["memory"]}
    equation = sdifp.Residual(
        0.0 * sdifp.laplacian(),
        lambda u, grad, x, t, memory: memory,
        integrals=kernel,
    )
    x = jnp.zeros((20_000, 1))

    def loss(weights):
        u = field_of(weights, Exact(), rule)
        return jnp.sum(equation(u, x, jnp.asarray(0.3)))

    for function in (loss, jax.grad(loss)):
        done = jax.jit(function).lower(WEIGHTS).compile()
        # All pairs of a point and a node would be 5 GiB, those of one block 0.6 GiB.
        assert done.memory_analysis().temp_size_in_bytes < 2**28


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, y, u: x * u, r"integral memory must return one.*got shape \(1,\)"),
        (lambda x, y, u: jnp.outer(x, y) * u, r"integral memory.*got shape \(1, 1\)"),
        (lambda x, y, u: (u, u), "integral memory must return one.*type tuple"),
        (lambda x, y, u: u * 1j, "integral memory must return one.*complex numbers"),
        (
            lambda x, y, u: u @ y,
            r"integral memory cannot be evaluated with \(x, y, u\)",
        ),
    ],
)
def test_a_kernel_of_the_wrong_shape_is_refused(function, message, as_user):
    equation = residual({**INTEGRALS, "memory": function})
    with pytest.raises(ValueError, match=message):
        equation(wave, POINTS, 0.3, rule=gauss_legendre(BOX, 4))


def test_an_integral_that_has_no_part_of_the_field_or_that_nobody_takes(as_user):
    with pytest.raises(
        ValueError, match=r"integral mass must be a function of u or grad.*of \(x\)"
    ):
        residual({**INTEGRALS, "mass": lambda x: x[0]})
    with pytest.raises(ValueError, match=r"integral k must be .* got one of \(x, y\)"):
        residual({"k": KERNEL})
    with pytest.raises(ValueError, match="integrals have no effect without a local"):
        sdifp.Residual(sdifp.laplacian(), integrals={"mass": lambda u: u})
    with pytest.raises(
        ValueError,
        match="integrals must be asked for by name in local, and mass is not",
    ):
        sdifp.Residual(
            sdifp.laplacian(),
            lambda u, grad, x: u,
            integrals={"mass": lambda u: u},
        )
    steady = sdifp.Residual(
        sdifp.laplacian(),
        lambda u, grad, x, mass: mass,
        integrals={"mass": lambda u, t: u * t},
    )
    with pytest.raises(ValueError, match="must not take t for a field without time"):
        steady(lambda x: x[0], POINTS, rule=gauss_legendre(BOX, 4))


def test_a_local_term_may_take_every_integral_by_one_argument():
    equation = sdifp.Residual(
        sdifp.laplacian(),
        lambda u, grad, x, **known: known["mass"],
        integrals={"mass": lambda u: u},
    )
    found = equation(lambda x: x[0], POINTS, rule=gauss_legendre(BOX, 4))
    np.testing.assert_allclose(found, 1.5, rtol=1e-14)


def test_integrals_of_a_field_with_other_invariants():
    rule = gauss_legendre(BOX, 8)
    u = sdifp.conserve(Net(WEIGHTS), rule, invariants=[Mass(1.0), SquaredNorm(4.0)])
    equation = sdifp.Residual(
        0.0 * sdifp.laplacian(),
        lambda u, grad, x, t, mass, square: mass + 10.0 * square,
        integrals={"mass": lambda u: u, "square": lambda u: u**2},
    )
    np.testing.assert_allclose(equation(u, POINTS, 0.4), 41.0, rtol=1e-12)
