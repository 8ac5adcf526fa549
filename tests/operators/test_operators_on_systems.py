"""Operators and residuals of fields with several components, against brute force."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once

import sdifp
from sdifp.estimators import Full, Independent, Shared, Symmetric
from sdifp.operators import advection, mixed_derivatives, reaction

KEY = jax.random.key(4)
D, N = 3, 2
A = jnp.array([[0.0, 1.5], [-0.5, 0.2]])
B = jnp.array([[1.0, 0.3], [0.0, -2.0]])
TALL = jnp.array([[1.0, 2.0], [0.5, 0.0], [-1.0, 1.0]])
SPEED = jnp.array([1.0, -0.5, 2.0])
X = jax.random.uniform(KEY, (4, D))
T = jnp.array([0.1, 0.4, 0.6, 0.9])


class Net(eqx.Module):
    """Two components that depend on each other."""

    mlp: eqx.nn.MLP

    def __init__(self, d=D):
        self.mlp = eqx.nn.MLP(d + 1, N, 6, 1, jnp.tanh, key=KEY)

    def __call__(self, x, t):
        return self.mlp(jnp.concatenate([jnp.sin(x), t[None]]))


class Still(eqx.Module):
    """The same at one time."""

    net: Net

    def __call__(self, x):
        return self.net(x, jnp.asarray(0.3))


def laplace(u, x, t):
    """Of each component."""
    return jnp.trace(jax.hessian(u)(x, t), axis1=1, axis2=2)


def slopes(u, x, t):
    """Of shape (n, d)."""
    return jax.jacfwd(u)(x, t)


def rate(u, x, t):
    return jax.jvp(lambda t: u(x, t), (t,), (jnp.ones_like(t),))[1]


OPERATOR = (
    sdifp.time_derivative()
    + A @ sdifp.laplacian()
    - 2.0 * (B @ advection(SPEED))
    + reaction(0.5)
)


def brute_force(u, x, t):
    value = rate(u, x, t) + A @ laplace(u, x, t) + 0.5 * u(x, t)
    return value - 2.0 * B @ (slopes(u, x, t) @ SPEED)


RULE = sdifp.quadrature.sobol(sdifp.Box.cube(D, periodic=True), 32, key=KEY)
INVARIANTS = [sdifp.Mass(0.3, component=0), sdifp.SquaredNorm(lambda t: 2.0 + t)]
FIELDS = {
    "net": Net,
    "by component": lambda: sdifp.conserve(
        Net(), RULE, [0.5, 0.1], [1.0, lambda t: 2.0 + t]
    ),
    "together": lambda: sdifp.conserve(Net(), RULE, invariants=INVARIANTS),
}


@pytest.mark.parametrize("kind", FIELDS)
def test_matrices_mix_the_components(kind):
    u = FIELDS[kind]()
    got = once(lambda u: OPERATOR(u, chunk=3)(X, T))(u)
    wanted = once(lambda u: jax.vmap(lambda x, t: brute_force(u, x, t))(X, T))(u)
    assert got.shape == (4, N)
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)
    one = OPERATOR(u)(X[0], T[0])
    np.testing.assert_allclose(one, wanted[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shape", [(D,), (4, D), (2, 2, D)])
def test_components_are_on_the_last_axis(shape):
    x = jnp.resize(X, shape)
    t = T[:2] if len(shape) == 3 else T[0]
    assert OPERATOR(Net())(x, t).shape == (*shape[:-1], N)


def test_a_matrix_may_have_more_rows_than_columns():
    op = TALL @ sdifp.laplacian() + TALL @ reaction(1.0)
    got = op(Net())(X, T)
    at = lambda x, t: TALL @ (laplace(Net(), x, t) + Net()(x, t))
    np.testing.assert_allclose(got, jax.vmap(at)(X, T), rtol=1e-10)
    # A row alone makes one residual of them.
    row = jnp.array([[1.0, -1.0]]) @ reaction(1.0)
    assert row(Net())(X, T).shape == (4, 1)


def test_a_column_makes_several_residuals_of_one_number():
    column = jnp.array([[1.0], [3.0]]) @ sdifp.laplacian()
    u = lambda x: jnp.sum(x**2)
    np.testing.assert_allclose(column(u)(X[0]), [2.0 * D, 6.0 * D])


def test_operators_with_equal_matrices_are_evaluated_together():
    same = A @ sdifp.laplacian() + np.asarray(A) @ advection(1.0)
    assert len(same.mixtures) == 1
    assert len((same + B @ reaction(1.0)).mixtures) == 2
    separate = (A @ sdifp.laplacian())(Net())(X, T) + (A @ advection(1.0))(Net())(X, T)
    np.testing.assert_allclose(same(Net())(X, T), separate, rtol=1e-10)


def test_products_with_matrices_and_numbers():
    twice, whole = B @ (A @ sdifp.laplacian()), (B @ A) @ sdifp.laplacian()
    wanted = whole(Net())(X, T)
    np.testing.assert_allclose(twice(Net())(X, T), wanted, rtol=1e-10, atol=1e-12)
    half = -(twice / 2.0)
    np.testing.assert_allclose(half(Net())(X, T), -0.5 * wanted, rtol=1e-10, atol=1e-12)
    both = A @ (sdifp.time_derivative() + B @ reaction(1.0))
    found = both(Net())(X[0], T[0])
    u = Net()
    wanted = A @ (rate(u, X[0], T[0]) + B @ u(X[0], T[0]))
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_second_derivatives_in_time_are_mixed():
    op = sdifp.time_derivative(2) - A @ sdifp.time_derivative(2)
    u = lambda x, t: jnp.stack([t**2 * x[0], t**3 + x[1]])
    second = jnp.array([2.0 * X[0, 0], 6.0 * T[0]])
    np.testing.assert_allclose(op(u)(X[0], T[0]), second - A @ second, rtol=1e-12)


def test_the_mean_over_all_terms_is_the_operator():
    op = A @ sdifp.laplacian() + B @ advection(SPEED) + 0.3 * sdifp.laplacian(SPEED)
    u, exact = Still(Net()), op(Still(Net()))(X)
    terms = [op.only(jnp.asarray(k))(u)(X) for k in range(D)]
    np.testing.assert_allclose(sum(terms), exact, rtol=1e-9, atol=1e-11)
    # All parts draw the same coordinates, each with the factor of the estimate.
    for key in jax.random.split(KEY, 4):
        got = op.sample(key, 1)(u)(X)
        assert any(np.allclose(got, D * term, rtol=1e-9, atol=1e-11) for term in terms)
    whole = op.sample(KEY, D)(u)(X)
    np.testing.assert_allclose(whole, exact, rtol=1e-9, atol=1e-11)


def test_parts_with_other_numbers_of_terms_are_estimated_without_bias():
    op = A @ sdifp.laplacian() + B @ mixed_derivatives(jnp.ones((D, D)) / 9.0)
    u, exact = Still(Net()), op(Still(Net()))(X[0])
    draw = lambda key: op.sample(key, 2)(u)(X[0])
    draws = once(lambda keys: jax.vmap(draw)(keys))
    found = np.asarray(draws(jax.random.split(KEY, 2000)))
    margin = 4.5 * found.std(0) / np.sqrt(len(found))
    assert np.all(margin < 0.2 * np.abs(exact).max())
    assert np.all(np.abs(found.mean(0) - exact) < margin)


WEIGHTS = jnp.array([0.5, 3.0])
MIXED = A @ sdifp.laplacian() + B @ sdifp.laplacian(SPEED)


def residual(**changes):
    return sdifp.Residual(
        **{
            "operator": sdifp.time_derivative() + MIXED,
            "local": lambda u, grad, x, t: jnp.stack(
                [u[0] * grad[1] @ x, t * u[1] ** 2]
            ),
            "source": lambda x, t: t * x[:N],
            "weights": WEIGHTS,
            **changes,
        }
    )


def residual_by_hand(u, x, t):
    value, grad = u(x, t), slopes(u, x, t)
    local = jnp.stack([value[0] * grad[1] @ x, t * value[1] ** 2])
    second = jnp.diagonal(jax.hessian(u)(x, t), axis1=1, axis2=2)
    linear = A @ second.sum(1) + B @ (second @ SPEED)
    return rate(u, x, t) + linear + local - t * x[:N]


def half_mean_square(u):
    r = jax.vmap(lambda x, t: residual_by_hand(u, x, t))(X, T)
    return 0.5 * jnp.mean(jnp.sum(WEIGHTS[None] * r**2, 1))


def flat(tree):
    leaves = eqx.filter(tree, eqx.is_inexact_array)
    return jax.flatten_util.ravel_pytree(leaves)[0]


def test_the_value_of_a_residual_has_no_weights():
    got = residual()(Net(), X, T)
    wanted = jax.vmap(lambda x, t: residual_by_hand(Net(), x, t))(X, T)
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)


EXACT = [(Full(), kind) for kind in FIELDS] + [
    (estimator, "net") for estimator in (Independent(D), Symmetric(D), Shared(D))
]


@pytest.mark.parametrize(("estimator", "kind"), EXACT, ids=repr)
def test_estimators_with_all_terms_are_exact(estimator, kind):
    u = FIELDS[kind]()

    @once
    def both(u):
        ours = eqx.filter_value_and_grad(
            lambda u: estimator(residual(), u, X, T, key=KEY).loss
        )
        return ours(u), eqx.filter_value_and_grad(half_mean_square)(u)

    (value, slope), (wanted, exact) = both(u)
    assert float(value) == pytest.approx(float(wanted), rel=1e-10)
    np.testing.assert_allclose(flat(slope), flat(exact), rtol=1e-8, atol=1e-10)


def test_independent_and_symmetric_samples_have_no_bias_and_shared_ones_do():
    equation, net, key = residual(), Net(), jax.random.key(0)
    operator = sdifp.time_derivative() + MIXED
    batch, _ = sdifp.operators.batch_of(net, X, T)
    # What one term of three, drawn, gives.
    term = lambda k: sdifp.time_derivative() + D * MIXED.only(k)

    def gradients(estimator, pairs):
        def loss(net, k, j):
            parts = [term(k), term(j)][: len(estimator.draw(operator, key))]
            return estimator.combine(*equation.evaluations(net, batch, parts)).loss

        over = jax.vmap(eqx.filter_grad(loss), (None, 0, 0))
        found = once(lambda net, pairs: over(net, *pairs))(net, jnp.asarray(pairs).T)
        return jax.vmap(flat)(found)

    every = [(k, j) for k in range(D) for j in range(D)]
    exact = once(lambda net: flat(eqx.filter_grad(half_mean_square)(net)))(net)
    independent = gradients(Independent(1), every)
    symmetric = gradients(Symmetric(1), every)
    for mean in (jnp.mean(independent, 0), jnp.mean(symmetric, 0)):
        np.testing.assert_allclose(mean, exact, rtol=1e-8, atol=1e-10)
    shared = jnp.mean(gradients(Shared(1), [(k, k) for k in range(D)]), 0)
    size = np.linalg.norm(exact)
    bias = np.linalg.norm(shared - exact) / size
    assert bias > 0.1
    # The formulas of an audit, which must see the terms behind the matrices.
    own = {"independent": Independent(1), "shared": Shared(1)}
    found = sdifp.estimators.audit(
        equation, net, X, T, key=key, estimators=own, repeats=8
    )
    first, second = found.rows
    off = independent - exact[None]
    noise = np.sqrt(np.mean(np.sum(off**2, 1))) / size
    assert first.predicted == 0.0
    assert first.predicted_noise == pytest.approx(noise, rel=1e-8)
    assert second.predicted == pytest.approx(bias, rel=1e-8)


def test_an_audit_refuses_what_is_sampled_behind_a_matrix():
    sampled = sdifp.Residual((A @ sdifp.laplacian()).sample(KEY, 1))
    with pytest.raises(ValueError, match="sampled operator; give the exact one"):
        sdifp.estimators.audit(sampled, Net(), X, T, key=KEY)


@pytest.mark.parametrize("d", [2, 6])
def test_the_gradient_has_a_row_for_each_component(d):
    # In forward mode and in reverse mode.
    net, seen = Net(d), []
    x, t = jnp.linspace(0.1, 0.8, d), jnp.asarray(0.4)

    def local(u, grad, x, t):
        seen.append((u.shape, grad.shape))
        return grad @ jnp.cos(x) + u

    equation = sdifp.Residual(reaction(0.0), local)
    wanted = slopes(net, x, t) @ jnp.cos(x) + net(x, t)
    np.testing.assert_allclose(equation(net, x, t), wanted, rtol=1e-10)
    assert set(seen) == {((N,), (N, d))}
