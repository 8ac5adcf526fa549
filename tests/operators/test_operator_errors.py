"""Bad input to operators: one sentence that names the argument and what is accepted."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdifp
from sdifp.operators import Coordinates, Gaussian, Rademacher
from sdifp.taylor import Nested, ThroughLayer, VmappedJet

pytestmark = pytest.mark.usefixtures("as_user")

KEY = jax.random.key(0)
X = jnp.linspace(0.1, 0.7, 4)
LAPLACIAN = sdifp.laplacian()


def smooth(x):
    return jnp.sum(jnp.sin(x))


def fails(error, match, function, *arguments, **options):
    with pytest.raises(error, match=match):
        function(*arguments, **options)


@pytest.mark.parametrize("order", [0, 5, -1, 2.0, "2", None])
def test_orders(order):
    fails(
        ValueError, "order must be from 1 to 4, got", sdifp.operators.derivative, order
    )


def test_order_zero_points_to_reaction():
    fails(ValueError, r"for order 0 use reaction\(\)", sdifp.operators.derivative, 0)


@pytest.mark.parametrize("axis", [-1, [0, -2], [], 1.5, "0"])
def test_axes_that_are_none(axis):
    fails(
        ValueError,
        "axis must (be an integer of at least 0|name a coordinate)",
        sdifp.operators.derivative,
        2,
        axis,
    )


def test_axes_that_are_repeated_or_out_of_range():
    fails(
        ValueError, "several different ones", sdifp.operators.derivative, 2, [1, 0, 1]
    )
    message = "axis must be below the dimension of the point, 4, got 4"
    fails(ValueError, message, sdifp.operators.derivative(2, 4)(smooth), X)
    fails(ValueError, message, sdifp.operators.derivative(1, [0, 4])(smooth), X)
    fails(
        ValueError,
        message,
        sdifp.operators.derivative(3, [0, 4]).sample(KEY, 1)(smooth),
        X,
    )


def test_pairs_of_axes():
    fails(
        ValueError,
        "j must be an integer of at least 0",
        sdifp.operators.mixed_derivative,
        -1,
        0,
    )
    fails(
        ValueError,
        "k must be an integer of at least 0",
        sdifp.operators.mixed_derivative,
        0,
        1.0,
    )
    message = "axis must be below the dimension of the point, 4, got 7"
    fails(ValueError, message, sdifp.operators.mixed_derivative(1, 7)(smooth), X)


@pytest.mark.parametrize("n", [0, -1, 1.0, True])
def test_numbers_of_terms(n):
    fails(ValueError, "n must be a positive integer, got", LAPLACIAN.sample, KEY, n)


def test_more_terms_than_there_are():
    message = "n must be at most the 4 terms of the operator in 4 dimensions, got 5"
    fails(ValueError, message, LAPLACIAN.sample(KEY, 5)(smooth), X)
    some = sdifp.operators.derivative(2, [0, 2]).sample(KEY, 3)
    fails(ValueError, "at most the 2 terms of the operator in 4", some(smooth), X)
    pairs = sdifp.operators.biharmonic().sample(KEY, 17)
    fails(ValueError, "at most the 16 terms of the operator in 4", pairs(smooth), X)


def test_sampling_twice():
    once = LAPLACIAN.sample(KEY, 1)
    fails(ValueError, "sampled already; sample the exact one", once.sample, KEY, 1)
    both = once + sdifp.operators.reaction(1.0)
    fails(ValueError, "sampled already; sample the exact one", both.sample, KEY, 1)


@pytest.mark.parametrize("sampler", [Rademacher(), Gaussian()], ids=repr)
def test_random_directions_of_third_order(sampler):
    op = sdifp.operators.third_derivatives().sample(KEY, 2, sampler)
    message = "order 1 and 2, got order 3; sample coordinates instead"
    fails(ValueError, message, op(smooth), X)


def test_rademacher_directions_of_the_biharmonic():
    op = sdifp.operators.biharmonic().sample(KEY, 2, Rademacher())
    fails(ValueError, "from coordinates, not from Rademacher directions", op(smooth), X)


@pytest.mark.parametrize(
    ("make", "name", "accepted"),
    [
        (sdifp.laplacian, "coefficient", r"one number or an array of shape \(d,\)"),
        (
            sdifp.operators.advection,
            "velocity",
            r"one number or an array of shape \(d,\)",
        ),
        (sdifp.operators.reaction, "coefficient", "one number"),
        (sdifp.operators.biharmonic, "coefficient", "one number"),
    ],
)
def test_coefficients_of_wrong_rank(make, name, accepted):
    message = rf"{name} must be {accepted}, got shape \(2, 2\)"
    fails(ValueError, message, make, jnp.ones((2, 2)))


def test_coefficients_of_wrong_rank_that_need_one():
    make = sdifp.operators.mixed_derivatives
    fails(ValueError, r"of shape \(d, d\), got shape \(4,\)", make, jnp.ones(4))
    make = lambda b: sdifp.operators.fokker_planck(b, 1.0)
    message = r"drift must be an array of shape \(d,\), got shape \(\)"
    fails(ValueError, message, make, 2.0)
    make = lambda c: sdifp.operators.fokker_planck(jnp.ones(4), c)
    message = r"diffusion must be .*, got shape \(2, 2, 2\)"
    fails(ValueError, message, make, jnp.ones((2, 2, 2)))


@pytest.mark.parametrize("bad", [None, "1", True, 1j, {}], ids=repr)
def test_coefficients_that_are_no_numbers(bad):
    fails(TypeError, "coefficient must be", sdifp.laplacian, bad)


def test_coefficients_that_are_not_finite():
    fails(ValueError, "coefficient must be finite, got", sdifp.laplacian, np.nan)
    bad = jnp.array([1.0, jnp.inf])
    fails(
        ValueError,
        r"velocity must be finite, got velocity\[1\]",
        sdifp.operators.advection,
        bad,
    )


def test_coefficients_of_another_dimension():
    message = (
        r"coefficient must be .*\(4,\) at a point of dimension 4, got shape \(3,\)"
    )
    fails(ValueError, message, sdifp.laplacian(jnp.ones(3))(smooth), X)
    fails(ValueError, message, sdifp.laplacian(jnp.ones(3))(smooth), X[None])
    op = sdifp.laplacian(jnp.ones(3))
    fails(ValueError, message, op.sample(KEY, 1)(smooth), X)
    fails(ValueError, message, op.sample(KEY, 1, Rademacher())(smooth), X)
    message = r"drift must be .*\(4,\) at a point of dimension 4, got shape \(3,\)"
    fails(
        ValueError, message, sdifp.operators.fokker_planck(jnp.ones(3), 1.0)(smooth), X
    )
    message = r"coefficient must be of shape \(4, 4\) .*, got shape \(3, 3\)"
    fails(ValueError, message, sdifp.operators.mixed_derivatives(jnp.eye(3))(smooth), X)


def test_coefficient_functions_of_wrong_shape():
    three = lambda x: jnp.ones(3)
    message = r"drift must return .*\(4,\) at a point of dimension 4, got shape \(3,\)"
    fails(ValueError, message, sdifp.operators.fokker_planck(three, 1.0)(smooth), X)
    number = sdifp.operators.fokker_planck(jnp.sum, 1.0)
    fails(ValueError, r"drift must return .*, got shape \(\)", number(smooth), X)
    message = r"diffusion must return .*, got shape \(3,\)"
    fails(ValueError, message, sdifp.operators.fokker_planck(X, three)(smooth), X)
    message = r"velocity must return .*, got shape \(3,\)"
    fails(ValueError, message, sdifp.operators.advection(three)(smooth), X)


@pytest.mark.parametrize("factor", [smooth, LAPLACIAN], ids=["function", "operator"])
def test_factors_that_are_functions(factor):
    message = "multiplied by one finite number.* go into its coefficients"
    fails(TypeError, message, lambda: LAPLACIAN * factor)


def test_factors_that_are_arrays():
    message = r"multiplied by one finite number, got .*\[1\., 1\.\].*matrix @ operator"
    fails(TypeError, message, lambda: LAPLACIAN * jnp.ones(2))
    fails(TypeError, message, lambda: jnp.ones(2) * LAPLACIAN)
    fails(TypeError, message, lambda: LAPLACIAN * np.ones(2))
    fails(TypeError, message, lambda: LAPLACIAN / np.ones(2))


def test_a_numpy_array_on_the_left():
    fails(TypeError, "one finite number", lambda: np.ones(2) * LAPLACIAN)


def test_factors_that_are_strings():
    fails(TypeError, "multiplied by one finite number", lambda: LAPLACIAN * "2")
    fails(TypeError, "multiplied by one finite number", lambda: LAPLACIAN / "2")


def test_sums_with_other_things():
    fails(TypeError, "unsupported operand", lambda: LAPLACIAN + 1.0)
    fails(TypeError, "unsupported operand", lambda: LAPLACIAN - smooth)


@pytest.mark.parametrize(
    "u", [3.0, X, None, "u"], ids=["number", "array", "none", "str"]
)
def test_functions_that_are_none(u):
    fails(TypeError, r"u must be a function of \(x, t\), got", LAPLACIAN, u)


def test_functions_with_other_values():
    at = lambda u: lambda: LAPLACIAN(u)(X)
    message = r"one JAX number for one point of shape \(4,\), or a vector .*, got"
    fails(ValueError, rf"{message} shape \(2, 2\)", at(lambda x: x.reshape(2, 2)))
    fails(ValueError, rf"{message} shape \(0,\)", at(lambda x: x[:0]))
    fails(ValueError, f"u must return {message} tuple", at(lambda x: (x[0], 1.0)))
    message = "u must return floating-point numbers, got"
    fails(TypeError, message + " bool", at(lambda x: x[0] > 0.0))
    fails(TypeError, message + " int", at(jnp.argmax))
    message = "u must return real numbers, got complex128: write .* two real components"
    fails(TypeError, message, at(lambda x: 1j * x[0]))
    fails(TypeError, message, at(lambda x: 1j * x))


def test_vectors_of_components_are_accepted():
    np.testing.assert_allclose(LAPLACIAN(jnp.sin)(X), -jnp.sin(X), rtol=1e-12)
    assert LAPLACIAN(lambda x: x[:1])(X).shape == (1,)


def test_functions_that_want_a_time_or_none():
    moving = lambda x, t: t * jnp.sum(x)
    message = r"u cannot be evaluated as u\(x\) at one point of shape \(4,\): TypeError"
    fails(ValueError, message, LAPLACIAN(moving), X)
    message = (
        r"u cannot be evaluated as u\(x, t\) at one point of shape \(4,\): TypeError"
    )
    fails(ValueError, message, LAPLACIAN(smooth), X, 0.3)


def test_coefficients_that_want_a_time_where_there_is_none():
    op = sdifp.laplacian(lambda x, t: t * x)
    message = r"coefficient cannot be evaluated as coefficient\(x\)"
    fails(ValueError, message, op(smooth), X)


def test_functions_of_another_dimension():
    u = lambda x: jnp.sum(jnp.ones((2, 3)) @ x)
    message = r"u cannot be evaluated as u\(x\) at one point of shape \(4,\): TypeError"
    fails(ValueError, message, LAPLACIAN(u), X)


def test_fields():
    rule = sdifp.quadrature.gauss_legendre(sdifp.Box([0.0, 0.0], [1.0, 1.0]), 4)
    moving = sdifp.conserve(lambda x, t: smooth(x) + t * x[0], rule, 1.0)
    still = sdifp.conserve(smooth, rule, 1.0)
    message = "dimension of the field, 2, got points of dimension 4"
    fails(ValueError, message, LAPLACIAN(still), X)
    fails(ValueError, "t must be given, got None", LAPLACIAN(moving), X[:2])
    fails(ValueError, "t must be left out", LAPLACIAN(still), X[:2], 0.3)
    message = "t must be left out: u is at one time already, got 0.3"
    fails(ValueError, message, LAPLACIAN(moving.at(0.1)), X[:2], 0.3)
    vector = sdifp.conserve(lambda x: jnp.sin(x), rule, [1.0, 2.0])
    assert LAPLACIAN(vector)(X[:2]).shape == (2,)


@pytest.mark.parametrize("shape", [(), (2, 2, 2, 4), (0,), (0, 4), (3, 0)])
def test_points(shape):
    message = r"x must have shape \(d,\), \(n, d\) or \(n_t, n_x, d\), got"
    fails(ValueError, message, LAPLACIAN(smooth), jnp.ones(shape))


@pytest.mark.parametrize(
    ("x", "t"), [((3, 4), (2,)), ((2, 3, 4), (3,)), ((4,), (1,)), ((3, 4), (3, 1))]
)
def test_times_that_do_not_fit(x, t):
    u = lambda x, t: t * smooth(x)
    message = "t must be one time, or one for each entry of the first axis of x"
    fails(ValueError, message, LAPLACIAN(u), jnp.ones(x), jnp.ones(t))


@pytest.mark.parametrize("chunk", [0, -3, 2.5, "all"])
def test_chunks(chunk):
    message = "chunk must be a positive integer, got"
    fails(ValueError, message, LAPLACIAN, smooth, chunk=chunk)


def test_paths_that_do_not_apply():
    through = {"path": ThroughLayer()}
    message = r"ThroughLayer\(\) needs a second-order operator over all coordinates"
    fails(
        ValueError, message, sdifp.operators.third_derivatives()(smooth, **through), X
    )
    fails(ValueError, message, sdifp.operators.derivative(2, 0)(smooth, **through), X)
    sampled = LAPLACIAN.sample(KEY, 1, Coordinates())
    fails(ValueError, message, sampled(smooth, **through), X)
    mixed = sdifp.operators.mixed_derivatives(jnp.eye(4))
    message = r"VmappedJet\(\) cannot evaluate mixed derivatives"
    fails(ValueError, message, mixed(smooth, path=VmappedJet()), X)


@jax.custom_vjp
def reverse_only(x):
    return jnp.sin(x)


reverse_only.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))


def called_back(x):
    return jax.pure_callback(lambda x: np.sum(x), jax.ShapeDtypeStruct((), x.dtype), x)


@pytest.mark.parametrize(
    "op", [LAPLACIAN, sdifp.operators.third_derivatives()], ids=["2", "3"]
)
def test_primitives_without_forward_derivative(op):
    message = "cannot be differentiated through the primitive '{}"
    u = lambda x: jnp.sum(reverse_only(x))
    fails(ValueError, message.format("custom_vjp_call"), op(u), X)
    fails(ValueError, message.format("custom_vjp_call"), op(u), X[None])
    fails(ValueError, message.format("pure_callback"), op(called_back), X)


def test_primitives_without_derivative_in_first_order():
    u = lambda x: jnp.sum(reverse_only(x))
    message = "cannot be differentiated through the primitive 'custom_vjp_call"
    fails(ValueError, message, sdifp.operators.advection(1.0)(u), X)


def test_callbacks_that_no_derivative_passes_through():
    table = lambda x: called_back(jax.lax.stop_gradient(x))
    u = lambda x: table(x) * smooth(x)

    @eqx.filter_jit
    def run(x):
        return LAPLACIAN(u)(x), jnp.trace(jax.hessian(u)(x)), -u(x)

    assert np.ptp(run(X)) < 1e-12


def test_printing_callbacks_are_no_matter(capsys):
    def u(x):
        jax.debug.print("first: {}", x[0])
        return smooth(x)

    got = eqx.filter_jit(LAPLACIAN(u))(X)
    assert float(got) == pytest.approx(-float(smooth(X)), rel=1e-12)
    jax.effects_barrier()
    assert "first: 0.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (TypeError, "path must be a Path", lambda: LAPLACIAN(smooth, path=Nested)),
        (TypeError, "path must be a Path", lambda: LAPLACIAN(smooth, path="nested")),
        (TypeError, "directions must be", lambda: LAPLACIAN.sample(KEY, 1, "gauss")),
        (ValueError, "chunk must be a pos", lambda: LAPLACIAN(smooth, chunk=True)),
        (
            ValueError,
            "order must be from 1 to 4",
            lambda: sdifp.operators.derivative(True),
        ),
        (TypeError, "by one finite number", lambda: LAPLACIAN * float("nan")),
        (TypeError, "by one finite number", lambda: LAPLACIAN / np.float64(0.0)),
        (TypeError, "x must hold real num", lambda: LAPLACIAN(smooth)(X * 1j)),
        (ValueError, "one JAX number", lambda: LAPLACIAN(lambda x: 1.0)(X)),
    ],
)
def test_other_wrong_arguments(as_user, error, message, make):
    fails(error, message, make)


def test_integers_of_numpy_and_sums_of_lists():
    total = sum([LAPLACIAN, sdifp.operators.derivative(np.int64(2), np.int64(1))])
    assert LAPLACIAN.sample(KEY, np.int64(1)).samples[0].n == 1
    u = lambda x: jnp.sum(x**2)
    assert float(total(u)(X)) == pytest.approx(2.0 * X.size + 2.0)


MATRICES = [
    (ValueError, r"array of numbers of shape \(residuals, components\)", np.ones(2)),
    (ValueError, "of shape .residuals, components., got array", np.ones((2, 2, 1))),
    (ValueError, r"must not be empty, got shape \(0, 2\)", np.ones((0, 2))),
    (ValueError, "must be an array of numbers", np.array([["a", "b"]])),
    (ValueError, "must be an array of numbers", np.ones((2, 2), bool)),
    (TypeError, "must be real, got complex .* two real components", 1j * np.eye(2)),
    (ValueError, "in front of an operator must be finite", np.full((2, 2), np.nan)),
]


@pytest.mark.parametrize(("error", "message", "matrix"), MATRICES)
def test_matrices_that_are_none(error, message, matrix):
    fails(error, message, lambda: matrix @ LAPLACIAN)


def test_matrices_that_do_not_fit():
    pair = lambda x: jnp.stack([smooth(x), x[0]])
    three = np.ones((2, 3)) @ LAPLACIAN
    message = r"a column for each of the 2 components of u, got shape \(2, 3\)"
    fails(ValueError, message, three(pair), X)
    fails(ValueError, "each of the 1 components of u, got", three(smooth), X)
    both = np.ones((3, 2)) @ LAPLACIAN + LAPLACIAN
    message = r"as many rows, got matrices of shapes \(2, 2\) and \(3, 2\)"
    fails(ValueError, message, both(pair), X)
    message = r"a matrix of shape \(2, 2\) cannot be in front of .* shape \(3, 2\)"
    fails(ValueError, message, lambda: np.eye(2) @ (np.ones((3, 2)) @ LAPLACIAN))


LOCALS = [
    (lambda u, grad, x: [[u[0], u[1]]], r"array of 2 numbers .*, got shape \(1, 2\)"),
    (lambda u, grad, x: [u[0], [u[1]]], "of 2 numbers .*, got a list; jnp.stack makes"),
    (lambda u, grad, x: u[0], r"one for each residual, got shape \(\)"),
    (lambda u, grad, x: grad, r"one for each residual, got shape \(2, 4\)"),
    (lambda u, grad, x: None, "one for each residual, got None"),
    (lambda u, grad, x: {"a": u}, "one for each residual, got a dict"),
]


@pytest.mark.parametrize(("local", "message"), LOCALS)
def test_residuals_of_a_system_that_are_no_vectors(local, message):
    pair = lambda x: jnp.stack([smooth(x), x[0]])
    message = f"local must return an .*{message}"
    fails(ValueError, message, sdifp.Residual(LAPLACIAN, local), pair, X)


def test_complex_terms_and_wrong_weights():
    pair = lambda x: jnp.stack([smooth(x), x[0]])
    local = lambda u, grad, x: 1j * u
    message = "local must return real numbers, got complex128: .* two real components"
    fails(TypeError, message, sdifp.Residual(LAPLACIAN, local), pair, X)
    three = sdifp.Residual(LAPLACIAN, weights=[1.0, 2.0, 3.0])
    fails(ValueError, "for each residual .* there are 2, got 3", three, pair, X)
    fails(ValueError, "for each residual .* there are 1, got 3", three, smooth, X)
    for bad in ([1.0, -1.0], [1.0, np.inf], 2.0, [], "ab"):
        make = lambda bad=bad: sdifp.Residual(LAPLACIAN, weights=bad)
        fails(ValueError, "weights must be finite and positive, one for each", make)
