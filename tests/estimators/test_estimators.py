"""Estimators of the gradient of a residual: values, bias, memory, bad input."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once

import sdifp

D = 6
KEY = jax.random.key(3)


class Net(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self, d=D, width=6):
        self.mlp = eqx.nn.MLP(d + 1, "scalar", width, 1, jnp.tanh, key=KEY)

    def __call__(self, x, t):
        return self.mlp(jnp.concatenate([jnp.sin(x), t[None]]))


def residual(operator, with_time=False):
    source = lambda x, t: jnp.sin(jnp.sum(x)) * t
    if not with_time:
        return sdifp.Residual(
            operator, None, source, remainder=lambda u, x, t: u(x, t) ** 2
        )
    # From one pass: u_t, and a term that needs value, gradient, point and time.
    local = lambda u, grad, x, t: u**2 + t * u * grad @ jnp.cos(x)
    return sdifp.Residual(sdifp.time_derivative() + operator, local, source)


X = jax.random.uniform(KEY, (2, 3, D))
T = jnp.array([0.2, 0.7])
RULE = sdifp.quadrature.sobol(sdifp.Box.cube(D, periodic=True), 32, key=KEY)
WEIGHTS = jnp.arange(1.0, D + 1)


def field(**options):
    return sdifp.conserve(Net(), RULE, 1.0, 2.0, **options)


def flat(tree):
    leaves = eqx.filter(tree, eqx.is_inexact_array)
    return jax.flatten_util.ravel_pytree(leaves)[0]


def brute_force(u, x, t, with_time=False):
    """Half the mean square of u^2 - sum_k w_k u_kk + u/2 - source, with time plus
    u_t + t u sum_k cos(x_k) u_k."""

    def one(x, t):
        hessian = jax.hessian(lambda x: u(x, t))(x)
        value = u(x, t)
        out = -WEIGHTS @ jnp.diagonal(hessian) + 0.5 * value + value**2
        if with_time:
            out = out + jax.jvp(lambda t: u(x, t), (t,), (jnp.ones(()),))[1]
            out = out + t * value * jax.grad(u)(x, t) @ jnp.cos(x)
        return out - jnp.sin(jnp.sum(x)) * t

    r = jax.vmap(lambda xs, t: jax.vmap(lambda x: one(x, t))(xs))(x, t)
    return 0.5 * jnp.mean(r**2)


OPERATOR = sdifp.operators.reaction(0.5) - sdifp.laplacian(WEIGHTS)


@pytest.mark.parametrize("kind", ["net", "field"])
def test_full_is_the_exact_gradient(kind):
    u = Net() if kind == "net" else field(profile=lambda x: 1.0 + x[0] ** 2 * x[1])
    estimator = sdifp.estimators.Full(chunk=4)

    @once
    def both(u):
        ours = eqx.filter_value_and_grad(
            lambda u: estimator(residual(OPERATOR, True), u, X, T, key=KEY).loss
        )(u)
        return ours, eqx.filter_value_and_grad(lambda u: brute_force(u, X, T, True))(u)

    (value, slope), (true, truth) = both(u)
    assert abs(value - true) <= 1e-12 * abs(true)
    scale = jnp.max(jnp.abs(flat(truth)))
    assert jnp.max(jnp.abs(flat(slope) - flat(truth))) <= 1e-11 * scale


def test_residual_itself_agrees_with_full():
    u = field()
    r = once(residual(OPERATOR))(u, X, T)
    assert r.shape == X.shape[:2]
    np.testing.assert_allclose(
        0.5 * jnp.mean(r**2), once(brute_force)(u, X, T), rtol=1e-12
    )
    one = once(residual(OPERATOR))(u, X[1, 2], T[1])
    np.testing.assert_allclose(one, r[1, 2], rtol=1e-11)


def draws(estimator, u, count, operator=OPERATOR):
    """Gradients and losses over many independent keys."""

    @once
    def run(u, keys):
        def one(key):
            def loss(u):
                out = estimator(residual(operator), u, X, T, key=key)
                return out.loss, out.mean_square

            (value, square), slope = eqx.filter_value_and_grad(loss, has_aux=True)(u)
            return value, square, flat(slope)

        return jax.lax.map(one, keys, batch_size=256)

    return run(u, jax.random.split(KEY, count))


def truth(u):
    value, slope = once(eqx.filter_value_and_grad(lambda u: brute_force(u, X, T)))(u)
    return value, flat(slope)


def covariance_direction(u):
    """The direction of sum_k (a_k - mean) grad (a_k - mean), by brute force."""

    def centred(u):
        def terms(x, t):
            return -WEIGHTS * jnp.diagonal(jax.hessian(lambda x: u(x, t))(x))

        a = jax.vmap(lambda xs, t: jax.vmap(lambda x: terms(x, t))(xs))(X, T)
        a = a - jnp.mean(a, -1, keepdims=True)
        return 0.5 * jnp.mean(jnp.sum(a**2, -1))

    return flat(once(eqx.filter_grad(centred))(u))


COUNT = 20_000


@pytest.fixture(scope="module")
def bare():
    u = Net()
    direction = covariance_direction(u)
    return u, *truth(u), direction


def score(errors, direction):
    """Mean error along a direction in standard errors, and in units of its norm."""
    along = np.asarray(errors @ (direction / (direction @ direction)))
    return along.mean() / (along.std(ddof=1) / np.sqrt(along.size)), along.mean()


@pytest.mark.parametrize(
    ("estimator", "unbiased", "factor"),
    [
        (sdifp.estimators.Independent(2, 3), True, 0.0),
        (sdifp.estimators.Symmetric(1), True, 0.0),
        pytest.param(
            sdifp.estimators.Independent(1, directions=sdifp.operators.Rademacher()),
            True,
            None,
            marks=pytest.mark.cases,
        ),
        (sdifp.estimators.Shared(2), False, D * (D - 2) / (2 * (D - 1))),
        (sdifp.estimators.Disjoint(1, 2), False, -D / (D - 1)),
        pytest.param(
            sdifp.estimators.Shared(1, sdifp.operators.Gaussian()),
            False,
            None,
            marks=pytest.mark.cases,
        ),
    ],
    ids=str,
)
def test_independent_draws_are_unbiased_and_the_same_test_fails_others(
    bare, estimator, unbiased, factor
):
    u, value, gradient, covariance = bare
    losses, squares, gradients = draws(estimator, u, COUNT)
    errors = gradients - gradient[None]
    z, bias = score(errors, covariance)
    z_gradient, _ = score(errors, gradient)
    if unbiased:
        assert max(abs(z), abs(z_gradient)) < 4.5
        spread = jnp.std(losses) / jnp.sqrt(COUNT)
        assert abs(jnp.mean(losses) - value) < 4.5 * spread
        np.testing.assert_allclose(squares, 2.0 * losses, rtol=1e-10)
    else:
        assert abs(z) > 8.0
        assert squares is None
        if factor is not None:
            # The covariance formula of the paper, with its finite-population factor.
            assert abs(bias - factor) < 5.0 * abs(bias / z)


def test_nodes_of_the_fields_gradient_are_independent_of_the_terms():
    u = field(gradient=sdifp.field.Subsampled(4))
    value, gradient = truth(field())
    count = 4096
    losses, _, gradients = draws(sdifp.estimators.Independent(3), u, count)
    z, _ = score(gradients - gradient[None], gradient)
    assert abs(z) < 4.5
    assert abs(jnp.mean(losses) - value) < 4.5 * jnp.std(losses) / jnp.sqrt(count)


def test_a_network_in_a_closure_is_differentiated_too():
    net = Net()

    def loss(params, wrap):
        own = eqx.combine(params, static)
        u = (lambda x, t: own(x, t)) if wrap else own
        return sdifp.estimators.Independent(2)(
            residual(OPERATOR), u, X, T, key=KEY
        ).loss

    params, static = eqx.partition(net, eqx.is_inexact_array)
    a, b = once(
        lambda params: [jax.grad(loss)(params, wrap) for wrap in (True, False)]
    )(params)
    np.testing.assert_allclose(flat(a), flat(b), rtol=1e-12)
    assert jnp.max(jnp.abs(flat(a))) > 0.0


def test_chunks_change_nothing_but_rounding():
    values = [
        draws(sdifp.estimators.Symmetric(2, chunk=chunk), Net(), 2)
        for chunk in (4, 100)
    ]
    for other in values[1:]:
        np.testing.assert_allclose(values[0][2], other[2], rtol=1e-11, atol=1e-11)


def test_stde_is_the_shared_mode_with_another_evaluation():
    ours = draws(sdifp.estimators.Shared(2), Net(), 2)
    theirs = draws(sdifp.estimators.stde(2), Net(), 2)
    np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-10, atol=1e-12)


def temporaries(d, count, ansatz=False):
    """Bytes of temporaries of one gradient in float32, with 100 points."""
    mlp = eqx.nn.MLP(d, "scalar", 32, 2, jnp.tanh, key=KEY, dtype=jnp.float32)
    params, static = eqx.partition(mlp, eqx.is_inexact_array)

    def loss(params, x):
        own = eqx.combine(params, static)
        u = lambda x: ((1.0 - jnp.sum(x**2)) if ansatz else 1.0) * own(x)
        estimator = sdifp.estimators.Independent(count, chunk=100)
        return estimator(sdifp.Residual(sdifp.laplacian()), u, x, key=KEY).loss

    x = jax.ShapeDtypeStruct((100, d), jnp.float32)
    done = jax.jit(jax.grad(loss)).lower(params, x).compile()
    return done.memory_analysis().temp_size_in_bytes


@pytest.mark.validate
def test_memory_is_linear_in_terms_and_flat_in_dimension():
    few, many, wide = temporaries(64, 16), temporaries(64, 64), temporaries(6400, 16)
    assert 2.5 < many / few < 4.5
    # Flat but for one value for each coordinate of the first layer.
    assert wide - few < 3 * 4 * 6400 * 32


def test_a_hundred_thousand_dimensions_fit():
    assert temporaries(100_000, 16, ansatz=True) < 2e8


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda r, u: sdifp.estimators.Independent(7)(r, u, X, T, key=KEY),
            "at most the 6 terms",
        ),
        (
            lambda r, u: sdifp.estimators.Shared(0),
            "n must be a positive integer, got 0",
        ),
        (
            lambda r, u: sdifp.estimators.Disjoint(4)(r, u, X, T, key=KEY),
            "6 terms .* got 8",
        ),
        (
            lambda r, u: sdifp.estimators.Full()(r, u, X, key=KEY),
            "cannot be evaluated as u.x.",
        ),
        (
            lambda r, u: sdifp.estimators.Full()(r, u, X, T[:1], key=KEY),
            "t must be one time",
        ),
        (
            lambda r, u: sdifp.estimators.Full()(
                sdifp.Residual(OPERATOR, remainder=lambda u, x, t: x), u, X, T, key=KEY
            ),
            "remainder must return one number",
        ),
        (
            lambda r, u: sdifp.estimators.Full()(
                sdifp.Residual(OPERATOR, lambda u, grad, x, t: grad), u, X, T, key=KEY
            ),
            "local must return one number",
        ),
        (
            lambda r, u: sdifp.estimators.Full()(
                sdifp.Residual(OPERATOR, None, lambda x, t: x), u, X, T, key=KEY
            ),
            "source must return one number",
        ),
    ],
)
def test_bad_input(as_user, make, message):
    with pytest.raises(ValueError, match=message):
        make(residual(OPERATOR), Net())


def test_operator_of_a_residual_is_checked(as_user):
    with pytest.raises(TypeError, match="operator must be an Operator"):
        sdifp.Residual(lambda u: u)


def test_points_are_constants_and_many_chunks_mix_precisions():
    slope = once(
        jax.grad(
            lambda x: (
                sdifp.estimators.Full()(residual(OPERATOR), Net(), x, T, key=KEY).loss
            )
        )
    )
    assert jnp.array_equal(slope(X), jnp.zeros_like(X))
    u = lambda x: jnp.sum(jnp.sin(x)) * jnp.asarray(1.5, jnp.float64)
    r = sdifp.Residual(sdifp.laplacian(), None, lambda x: u(x))
    single = X[0].astype(jnp.float32)
    loss, whole = once(
        lambda x: [
            sdifp.estimators.Full(chunk=c)(r, u, x, key=KEY).loss for c in (2, None)
        ]
    )(single)
    assert loss == pytest.approx(float(whole), rel=1e-6)


def test_a_field_at_one_time_has_no_time():
    u = field()
    r = sdifp.Residual(OPERATOR, remainder=lambda u, x: u(x) ** 2)
    with_time = sdifp.Residual(OPERATOR, lambda u, grad, x, t: u**2)
    a, b = once(lambda u: (r(u.at(0.2), X[0]), with_time(u, X[0], 0.2)))(u)
    np.testing.assert_allclose(a, b, rtol=1e-11)


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (ValueError, "j must be a positive", lambda: sdifp.estimators.Disjoint(3, -1)),
        (
            ValueError,
            "i must be a positive",
            lambda: sdifp.estimators.Independent(True),
        ),
        (ValueError, "n must be a positive", lambda: sdifp.estimators.Symmetric(1.5)),
        (TypeError, "local must be a f", lambda: sdifp.Residual(OPERATOR, 3.0)),
        (
            TypeError,
            "must be a Residual",
            lambda: sdifp.estimators.Full()(OPERATOR, 0, X, key=KEY),
        ),
    ],
)
def test_wrong_arguments(as_user, error, message, make):
    with pytest.raises(error, match=message):
        make()
