"""Functionals: their values, and their derivatives by the values on the nodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from quick import once

import sdifp
from sdifp.field import Jets
from sdifp.quadrature import gauss_legendre

BOX = sdifp.Box([-1.0, 0.0], [1.0, 3.0])
RULE = gauss_legendre(BOX, [5, 4])
NODES, WEIGHTS = jnp.asarray(RULE.nodes), jnp.asarray(RULE.weights)
KERNEL = lambda x, y: jnp.exp(-jnp.sum((x - y) ** 2))


def wave(x):
    return jnp.sin(x[0]) * jnp.cos(x[1]) + 0.3 * x[0]


def plain():
    return sdifp.Functional(
        lambda u, grad, x: 0.5 * (grad @ grad) + x[0] * u**2 * grad[1] + u**4
    )


def quotient():
    """A density with integrals of the field, and of its gradient."""
    return sdifp.Functional(
        lambda u, grad, norm, slopes: (grad @ grad) / norm + slopes * u**2,
        integrals={
            "norm": lambda u, x: (1.0 + x[0] ** 2) * u**2 + 0.1,
            "slopes": lambda grad: grad[0] * grad[1],
        },
    )


def interaction():
    """A mean field: half the double integral of a kernel."""
    return sdifp.Functional(
        lambda u, grad, potential: 0.5 * u * potential + 0.5 * (grad @ grad),
        integrals={"potential": lambda x, y, u: KERNEL(x, y) * u},
    )


MAKE = {"plain": plain, "quotient": quotient, "kernel": interaction}


def by_hand(name, nodes, weights, u, grad):
    """The functional in NumPy, from values and gradients on the nodes."""
    w = 6.0 * np.asarray(weights)
    x, u, grad = (np.asarray(a) for a in (nodes, u, grad))
    squares = np.sum(grad**2, 1)
    if name == "plain":
        return w @ (0.5 * squares + x[:, 0] * u**2 * grad[:, 1] + u**4)
    if name == "quotient":
        norm = w @ ((1.0 + x[:, 0] ** 2) * u**2 + 0.1)
        return w @ (squares / norm + (w @ (grad[:, 0] * grad[:, 1])) * u**2)
    pairs = np.exp(-np.sum((x[:, None] - x[None]) ** 2, -1))
    return w @ (0.5 * u * (pairs @ (w * u)) + 0.5 * squares)


@pytest.mark.parametrize("name", MAKE)
def test_values_are_those_of_the_sum_by_hand(name, rng):
    functional = MAKE[name]()
    value = once(lambda: functional(wave, RULE))()
    u, grad = jax.vmap(jax.value_and_grad(wave))(NODES)
    assert np.isclose(value, by_hand(name, NODES, WEIGHTS, u, grad), rtol=1e-13)
    jets = Jets(*map(jnp.asarray, (rng.normal(size=20), rng.normal(size=(20, 2)))))
    found = once(lambda jets: functional.of_jets(NODES, WEIGHTS, jets, 6.0))(jets)
    assert np.isclose(found, by_hand(name, NODES, WEIGHTS, *jets), rtol=1e-12)


def test_a_value_is_the_integral_of_scipy():
    density = lambda u, grad, x: 0.5 * (grad @ grad) + x[1] * u**2
    rule = gauss_legendre(BOX, 24)
    value = float(once(lambda: sdifp.Functional(density)(wave, rule))())

    def at(b, a):
        u = np.sin(a) * np.cos(b) + 0.3 * a
        slopes = np.cos(a) * np.cos(b) + 0.3, -np.sin(a) * np.sin(b)
        return 0.5 * (slopes[0] ** 2 + slopes[1] ** 2) + b * u**2

    exact = scipy.integrate.dblquad(at, -1, 1, 0, 3, epsabs=1e-12)[0]
    assert np.isclose(value, exact, rtol=1e-12)


@pytest.mark.parametrize("name", MAKE)
def test_local_derivatives_are_those_of_the_discrete_functional(name, rng):
    functional = MAKE[name]()
    flat = jnp.asarray(rng.normal(size=(20, 3)))
    split = lambda z: Jets(z[:, 0], z[:, 1:])
    of = lambda z: functional.of_jets(NODES, WEIGHTS, split(z), 6.0)

    @once
    def both(z):
        found = functional.local_jets(NODES, WEIGHTS, split(z), 6.0)
        return found, jax.grad(of)(z), jax.hessian(of)(z)

    (slope, bend), gradient, hessian = both(flat)
    # Against the sum by hand as well, by finite differences.
    step, entry = 1e-5, (7, 1)
    ends = []
    for sign in (1.0, -1.0):
        moved = np.asarray(flat).copy()
        moved[entry] += sign * step
        ends.append(by_hand(name, NODES, WEIGHTS, moved[:, 0], moved[:, 1:]))
    assert np.isclose(gradient[entry], (ends[0] - ends[1]) / (2 * step), rtol=1e-6)
    own = np.concatenate([slope.u[:, None], slope.grad], 1)
    np.testing.assert_allclose(own * np.asarray(WEIGHTS)[:, None], gradient, rtol=1e-10)
    # Of each node by itself. What two integrals add is of second order in the weights.
    blocks = np.stack([hessian[m, :, m] for m in range(20)])
    own = np.asarray(bend) * np.asarray(WEIGHTS)[:, None, None]
    if name == "plain":
        np.testing.assert_allclose(own, blocks, rtol=1e-10, atol=1e-12)
    else:
        # The rest, w_m^2 times derivatives of integrals, is small and not zero.
        rest, size = np.abs(own - blocks).max((1, 2)), np.abs(blocks).max((1, 2))
        assert np.max(rest / size) < 12.0 * np.max(WEIGHTS)


def test_what_integrals_add_to_the_curvature_is_counted(rng):
    # Half the square of an integral: with it held the density has no curvature.
    square = sdifp.Functional(
        lambda u, mean: 0.5 * mean * u**2, integrals={"mean": lambda u: u**2}
    )
    jets = Jets(jnp.asarray(rng.normal(size=20)), jnp.zeros((20, 2)))
    _, bend = once(lambda j: square.local_jets(NODES, WEIGHTS, j, 6.0))(jets)
    mean = 6.0 * float(WEIGHTS @ jets.u**2)
    # F = mean^2 / 2, and its second derivative without the rank-one part.
    np.testing.assert_allclose(bend[:, 0, 0], 6.0 * 2.0 * mean, rtol=1e-12)


def test_many_nodes_are_evaluated_some_at_a_time(monkeypatch):
    from sdifp.field import _integrals

    functional = interaction()
    rule = gauss_legendre(BOX, [9, 7])
    value = lambda s: functional(lambda x: s * wave(x), rule)
    whole = once(jax.value_and_grad(value))(1.2)
    monkeypatch.setattr(_integrals, "CHUNK", 10)
    monkeypatch.setattr(_integrals, "_PAIRS", 200)
    pieces = once(jax.value_and_grad(lambda s: value(s)))(1.2)
    np.testing.assert_allclose(pieces, whole, rtol=1e-13)


def test_the_memory_of_a_kernel_does_not_grow_with_the_square_of_the_nodes():
    functional, sizes = interaction(), []
    for n in (64, 128):
        rule = gauss_legendre(BOX, n)
        value = lambda s, rule=rule: functional(lambda x: s * wave(x), rule)
        done = jax.jit(jax.grad(value)).lower(1.2).compile()
        sizes.append(done.memory_analysis().temp_size_in_bytes)
    # 16384^2 pairs would be 2 GiB.
    assert sizes[1] < 2**28
    assert sizes[1] < 6 * sizes[0]


def test_one_node_and_a_thousand_dimensions():
    one = gauss_legendre(sdifp.Box([0.0], [2.0]), 1)
    functional = sdifp.Functional(lambda u, grad: u**2 + grad @ grad)
    assert float(functional(lambda x: x[0] ** 2, one)) == 2.0 * (1.0 + 4.0)
    box = sdifp.Box.cube(1000, 0.0, 1.0)
    rule = sdifp.rule_for(box, 64, key=jax.random.key(0))
    value = once(lambda: functional(lambda x: jnp.sum(x) / 1000.0, rule))()
    assert np.isclose(value, 0.25 + 1e-3, rtol=1e-3)


def test_a_density_of_the_gradient_alone_and_of_the_value_alone():
    rule = gauss_legendre(sdifp.Box([0.0], [1.0]), 4)
    u = lambda x: 3.0 * x[0]
    slope = sdifp.Functional(lambda grad: jnp.sum(grad**2))
    value = sdifp.Functional(lambda u: u)
    assert np.isclose(slope(u, rule), 9.0, rtol=1e-14)
    assert np.isclose(value(u, rule), 1.5, rtol=1e-14)


@pytest.mark.parametrize(
    ("density", "message"),
    [
        (lambda u, grad: grad, r"density must return one real number .* shape \(1,\)"),
        (lambda u: (u, u), "density must return one real number.*type tuple"),
        (lambda u: None, "density must return one real number.*type NoneType"),
        (lambda u: u + 1j, "density must return one real number.*complex numbers"),
        (lambda u, grad: u @ grad, r"density cannot be evaluated with \(u, grad\)"),
    ],
)
def test_a_density_that_returns_something_else_is_refused(density, message, as_user):
    rule = gauss_legendre(sdifp.Box([0.0], [1.0]), 4)
    with pytest.raises(ValueError, match=message):
        sdifp.Functional(density)(lambda x: x[0], rule)


@pytest.mark.parametrize(
    ("density", "integrals", "message"),
    [
        (lambda x: x[0], None, r"density must be a function of u or grad.*\(x\)"),
        (lambda u, t: u, None, r"density must be a function of u or grad.*\(u, t\)"),
        (lambda u, mass: u, None, r"density must be a function.*\(u, mass\)"),
        (
            lambda u: u**2,
            {"mass": lambda u: u},
            "integrals must be asked for by name in density, and mass is not",
        ),
        (
            lambda u, mass: u * mass,
            {"mass": lambda x: x[0]},
            r"integral mass must be a function of u or grad.*got one of \(x\)",
        ),
        (
            lambda u, mass: u * mass,
            {"mass": lambda v: v},
            r"integral mass must be a function of u or grad.*got one of \(v\)",
        ),
        (
            lambda u, mass: u * mass,
            {"not a name": lambda u: u},
            "names that can be arguments of a function, got 'not a name'",
        ),
    ],
)
def test_what_a_functional_cannot_be_is_refused(density, integrals, message):
    with pytest.raises(ValueError, match=message):
        sdifp.Functional(density, integrals)


def test_a_density_may_take_every_argument_by_name():
    rule = gauss_legendre(sdifp.Box([0.0], [1.0]), 4)
    density = lambda u, **known: u * known["x"][0] * known["mass"] + known["grad"][0]
    found = sdifp.Functional(density, {"mass": lambda u: u})(lambda x: x[0], rule)
    assert np.isclose(found, 0.5 / 3.0 + 1.0, rtol=1e-14)


def test_other_types_are_refused(as_user):
    with pytest.raises(TypeError, match="density must be a function, got 3"):
        sdifp.Functional(3)
    with pytest.raises(TypeError, match=r"integrals must be a dict.*got 3"):
        sdifp.Functional(lambda u: u, 3)
    with pytest.raises(TypeError, match="functions, got 3 for mass"):
        sdifp.Functional(lambda u, mass: u, {"mass": 3})
    with pytest.raises(ValueError, match="name must be text, got ''"):
        sdifp.Functional(lambda u: u, name="")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x, y, u: x * u,
            r"integral k must return one real number.*shape \(1,\)",
        ),
        (lambda x, y, u: u + 1j, "integral k must return one real.*complex numbers"),
        (lambda x, y, u, t: u * t, "integral k must not take t for a field without"),
    ],
)
def test_a_kernel_of_the_wrong_shape_is_refused(function, message, as_user):
    rule = gauss_legendre(sdifp.Box([0.0], [1.0]), 4)
    functional = sdifp.Functional(lambda u, k: u * k, {"k": function})
    with pytest.raises(ValueError, match=message):
        functional(lambda x: x[0], rule)
