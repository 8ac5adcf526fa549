"""Operators: their algebra, what each of them is, fields, and unbiased samples."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once

import sdifp
from sdifp.operators import Coordinates, Gaussian, Rademacher, _samplers

KEY = jax.random.key(5)
D = 3
X = jnp.array([0.4, -0.3, 0.8])
XS = jnp.stack([X, -0.5 * X, X[::-1]])
TS = jnp.array([0.3, -0.6, 1.0])
T = TS[0]
SIGNED = jnp.array([1.5, -2.0, 0.7])
MATRIX = jnp.array([[1.0, 0.3, -0.5], [0.9, -2.0, 0.2], [0.4, 0.1, 0.6]])


def wave(x, t):
    return SIGNED @ jnp.tanh(MATRIX @ x + t)


def still(x):
    return wave(x, T)


def agree(got, want, rtol=1e-12):
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= rtol * max(1.0, np.abs(want).max())


def derivatives(u, x):
    """Gradient, Hessian and third derivatives along the axes."""
    hessian = jax.jacfwd(jax.jacfwd(u))
    third = jnp.einsum("kkk->k", jax.jacfwd(hessian)(x))
    return jax.grad(u)(x), hessian(x), third


def test_each_operator_is_what_it_says():
    slope = lambda x, t: jnp.cos(x) + t
    number = lambda x, t: x[0] - t
    matrix = lambda x, t: MATRIX * x[1] + t

    operators = {
        "laplacian": sdifp.laplacian(),
        "laplacian, number": sdifp.laplacian(-2.5),
        "laplacian, vector": sdifp.laplacian(SIGNED),
        "laplacian, function": sdifp.laplacian(slope),
        "laplacian, function of one number": sdifp.laplacian(number),
        "advection": sdifp.operators.advection(1.5),
        "advection, vector": sdifp.operators.advection(SIGNED),
        "advection, function": sdifp.operators.advection(slope),
        "third": sdifp.operators.third_derivatives(),
        "third, vector": sdifp.operators.third_derivatives(SIGNED),
        "axis": sdifp.operators.derivative(2, 1),
        "axes": sdifp.operators.derivative(3, [2, 0], SIGNED),
        "first on axes": sdifp.operators.derivative(1, (0, 1), slope),
        "pair": sdifp.operators.mixed_derivative(0, 2, number),
        "pair of one": sdifp.operators.mixed_derivative(1, 1),
        "mixed": sdifp.operators.mixed_derivatives(MATRIX),
        "mixed, function": sdifp.operators.mixed_derivatives(matrix),
        "reaction": sdifp.operators.reaction(2.0),
        "reaction, function": sdifp.operators.reaction(number),
    }

    def oracle(x, t):
        g, h, third = derivatives(lambda x: wave(x, t), x)
        second = jnp.diag(h)
        return {
            "laplacian": jnp.sum(second),
            "laplacian, number": -2.5 * jnp.sum(second),
            "laplacian, vector": SIGNED @ second,
            "laplacian, function": slope(x, t) @ second,
            "laplacian, function of one number": number(x, t) * jnp.sum(second),
            "advection": 1.5 * jnp.sum(g),
            "advection, vector": SIGNED @ g,
            "advection, function": slope(x, t) @ g,
            "third": jnp.sum(third),
            "third, vector": SIGNED @ third,
            "axis": second[1],
            "axes": SIGNED[2] * third[2] + SIGNED[0] * third[0],
            "first on axes": slope(x, t)[:2] @ g[:2],
            "pair": number(x, t) * h[0, 2],
            "pair of one": h[1, 1],
            "mixed": jnp.sum(MATRIX * h),
            "mixed, function": jnp.sum(matrix(x, t) * h),
            "reaction": 2.0 * wave(x, t),
            "reaction, function": number(x, t) * wave(x, t),
        }

    @once
    def run():
        got = {k: op(wave, chunk=3)(XS, TS) for k, op in operators.items()}
        return got, jax.vmap(oracle)(XS, TS)

    got, want = run()
    for name in operators:
        np.testing.assert_allclose(got[name], want[name], 1e-11, 1e-12, err_msg=name)


def test_operators_form_a_vector_space():
    a, b = sdifp.laplacian(SIGNED), sdifp.operators.advection(lambda x: x)
    c = sdifp.operators.third_derivatives() + sdifp.operators.reaction(1.5)
    half = jnp.asarray(0.5)

    @once
    def run(half):
        va, vb, vc = (op(still)(X) for op in (a, b, c))
        return [
            ((a + b)(still)(X), va + vb),
            ((a - c)(still)(X), va - vc),
            ((-c)(still)(X), -vc),
            ((3 * a + b / 4.0)(still)(X), 3 * va + vb / 4),
            ((half * (c * 2 - b))(still)(X), vc - vb / 2),
            ((np.float64(2.0) * a)(still)(X), 2 * va),
            ((a - a + c)(still)(X), vc),
        ]

    for got, want in run(half):
        agree(got, want)


def test_operators_are_linear_in_the_function():
    op = (
        sdifp.laplacian(SIGNED)
        + sdifp.operators.derivative(4, 0)
        + sdifp.operators.reaction(2.0)
    )
    other = lambda x: jnp.prod(x) ** 2
    both = lambda x: 3.0 * still(x) - other(x)

    @once
    def run():
        return op(both)(X), 3.0 * op(still)(X) - op(other)(X)

    agree(*run(), rtol=1e-11)


def test_gradient_by_the_numbers_of_an_operator():
    def value(c, factor):
        return (factor * sdifp.laplacian(c))(still)(X)

    @once
    def run(c, factor):
        return jax.grad(value, (0, 1))(c, factor), jnp.diag(jax.hessian(still)(X))

    slopes, second = run(SIGNED, jnp.asarray(2.0))
    agree(slopes[0], 2.0 * second)
    agree(slopes[1], SIGNED @ second)


def test_biharmonic_is_the_laplacian_of_the_laplacian():
    laplacian = lambda u: lambda x: jnp.trace(jax.hessian(u)(x))

    @once
    def run():
        out = []
        for d in (1, 2, 3, 5):
            w = jax.random.normal(KEY, (4, d))
            u = lambda x: jnp.sum(jnp.sin(w @ x) ** 2)  # noqa: B023
            x = jnp.linspace(-0.5, 0.7, d)
            out.append(
                (
                    sdifp.operators.biharmonic(-2.0)(u)(x),
                    -2.0 * laplacian(laplacian(u))(x),
                )
            )
        return out

    for got, want in run():
        agree(got, want, rtol=1e-11)


DIFFUSIONS = {
    "number": 0.7,
    "diagonal": SIGNED,
    "matrix": MATRIX,
    "function to a number": lambda x: 1.0 + x[0] ** 2 * x[1],
    "function to a diagonal": lambda x: jnp.cos(x) + x[::-1] ** 2,
    "function to a matrix": lambda x: MATRIX * jnp.sin(jnp.outer(x, SIGNED)),
}


def drift(x):
    return jnp.sin(MATRIX @ x)


def fluxes(b, diffusion, u, x):
    """`- div(b u) + sum d_jk (D_jk u)` by autodiff of the products."""
    at = lambda c, x: c(x) if callable(c) else c

    def full(x):
        c = at(diffusion, x)
        if jnp.ndim(c) < 2:
            c = jnp.diag(jnp.broadcast_to(c, x.shape))
        return c * u(x)

    first = jnp.trace(jax.jacfwd(lambda x: at(b, x) * u(x))(x))
    return jnp.einsum("jkjk", jax.jacfwd(jax.jacfwd(full))(x)) - first


def test_fokker_planck_is_the_divergence_of_fluxes():
    @once
    def run():
        cases = {name: (drift, c) for name, c in DIFFUSIONS.items()}
        cases["constant drift"] = (SIGNED, 0.7)
        return {
            name: (
                sdifp.operators.fokker_planck(*case)(still)(X),
                fluxes(*case, still, X),
            )
            for name, case in cases.items()
        }

    for name, (got, want) in run().items():
        np.testing.assert_allclose(got, want, 1e-11, err_msg=name)


def test_coefficients_of_fokker_planck_see_the_time():
    op = sdifp.operators.fokker_planck(lambda x, t: t * x, lambda x, t: t * x**2)

    @once
    def run():
        want = fluxes(lambda x: T * x, lambda x: T * x**2, still, X)
        return op(wave)(X, T), want

    agree(*run())


def test_closed_forms():
    exponential = lambda x: jnp.exp(SIGNED @ x)
    gauss = lambda x: jnp.exp(-0.5 * jnp.sum(x**2))
    square = SIGNED @ SIGNED

    @once
    def run():
        return [
            (sdifp.laplacian()(exponential)(X), square * exponential(X)),
            (sdifp.operators.biharmonic()(exponential)(X), square**2 * exponential(X)),
            (sdifp.operators.fokker_planck(lambda x: -x, 1.0)(gauss)(X), 0.0),
        ]

    for got, want in run():
        agree(got, want)


BOX = sdifp.Box([0.0, 0.0], [2.0, 1.0])
PLANE = jnp.array([[[0.3, 0.2], [1.2, 0.9]], [[0.5, 0.5], [1.9, 0.1]]])
TIMES = jnp.array([0.3, -0.4])


class Net(eqx.Module):
    inner: jax.Array
    outer: jax.Array

    def __call__(self, x, t):
        return self.outer @ jnp.tanh(self.inner @ jnp.append(x, t))


NET = Net(jax.random.normal(KEY, (4, 3)), jnp.array([1.0, -0.5, 0.8, 1.2]))
RULE = sdifp.quadrature.gauss_legendre(BOX, 4)


def bump(x):
    return jnp.sin(jnp.pi * x[0] / 2.0) * x[1] * (1.0 - x[1])


def conserved(kind):
    mass = lambda t: 0.5 + 0.2 * t
    return {
        "mass and squared norm": lambda: sdifp.conserve(NET, RULE, mass, 1.5),
        "mass": lambda: sdifp.conserve(NET, RULE, mass),
        "profile": lambda: sdifp.conserve(NET, RULE, mass, 1.5, profile=bump),
    }[kind]()


FIELD_OPERATOR = (
    sdifp.laplacian(lambda x, t: 1.0 + t * x)
    + sdifp.operators.advection(jnp.array([1.0, -2.0]))
    + sdifp.operators.reaction(lambda x, t: x[0] - t)
)


def field_oracle(u, x, t):
    at = lambda x: u(x, t)
    second = jnp.diag(jax.jacfwd(jax.jacrev(at))(x))
    first = jax.grad(at)(x)
    return (1.0 + t * x) @ second + first[0] - 2.0 * first[1] + (x[0] - t) * at(x)


def oracle_on(u, xs, ts):
    at = lambda x, t: field_oracle(u, x, t)
    return jax.vmap(jax.vmap(at, (0, None)))(xs, ts)


@pytest.mark.parametrize("kind", ["mass and squared norm", "mass", "profile"])
def test_fields_as_autodiff_of_them_sees_them(kind):
    @once
    def run(u):
        ours = lambda ts: FIELD_OPERATOR(u, chunk=3)(PLANE, ts)
        oracle = lambda ts: oracle_on(u, PLANE, ts)
        return [jax.jvp(f, (TIMES,), (jnp.ones(2),)) for f in (ours, oracle)]

    for got, want in zip(*run(conserved(kind)), strict=True):
        agree(got, want, rtol=1e-11)


def test_layouts_of_points_on_a_field():
    op = FIELD_OPERATOR

    @once
    def run(u):
        return oracle_on(u, PLANE, TIMES), [
            op(u)(PLANE[0], TIMES[0]),
            op(u)(PLANE[:, 0], TIMES),
            op(u)(PLANE[1, 0], TIMES[1]),
            op(u.at(TIMES[0]))(PLANE[0]),
        ]

    grid, values = run(conserved("profile"))
    wanted = grid[0], grid[:, 0], grid[1, 0], grid[0]
    for got, want in zip(values, wanted, strict=True):
        agree(got, want, rtol=1e-11)


def test_gradient_by_parameters_through_a_field():
    def ours(u):
        return jnp.mean(FIELD_OPERATOR(u)(PLANE, TIMES) ** 2)

    def oracle(u):
        return jnp.mean(oracle_on(u, PLANE, TIMES) ** 2)

    @once
    def gradients(u):
        slopes = [eqx.filter_grad(loss)(u).net for loss in (ours, oracle)]
        return [jax.flatten_util.ravel_pytree(net)[0] for net in slopes]

    agree(*gradients(conserved("profile")), rtol=1e-10)


def test_fields_without_time():
    u = sdifp.conserve(lambda x: NET(x, 0.3), RULE, 1.0, 2.0)
    op = sdifp.laplacian() + sdifp.operators.reaction(lambda x: x[0])

    @once
    def run():
        want = lambda x: jnp.trace(jax.jacfwd(jax.jacrev(u))(x)) + x[0] * u(x)
        return op(u)(PLANE[0]), jax.vmap(want)(PLANE[0])

    agree(*run(), rtol=1e-11)


def test_one_component_of_a_field():
    both = lambda x, t: jnp.stack([NET(x, t), x[0] * NET(x, -t)])
    u = sdifp.conserve(both, RULE, [1.0, None], [2.0, None])
    second = lambda x, t: u(x, t)[1]

    @once
    def run(x, t):
        want = jnp.trace(jax.jacfwd(jax.jacrev(second))(x, t))
        return sdifp.laplacian()(second)(x, t), want

    agree(*run(PLANE[0, 0], TIMES[0]), rtol=1e-11)


def check_unbiased(operators, sampler, n=1, repeats=4000):
    @once
    def run(keys):
        sampled = lambda op: lambda key: op.sample(key, n, sampler)(still)(X)
        return {
            name: (jax.vmap(sampled(op))(keys), op(still)(X))
            for name, op in operators.items()
        }

    for name, (values, exact) in run(jax.random.split(KEY, repeats)).items():
        error = np.std(values, ddof=1) / np.sqrt(repeats)
        assert error > 1e-4, name
        assert abs(np.mean(values) - exact) < 5 * error, name


EVERY = [Coordinates(), Rademacher(), Gaussian()]
SECOND_ORDER = {
    "laplacian": sdifp.laplacian(),
    "signed": sdifp.laplacian(SIGNED),
    "some axes": sdifp.operators.derivative(2, [0, 2], SIGNED),
    "mixed": sdifp.operators.mixed_derivatives(MATRIX),
    "fokker planck, number": sdifp.operators.fokker_planck(
        drift, DIFFUSIONS["function to a number"]
    ),
    "fokker planck, diagonal": sdifp.operators.fokker_planck(
        drift, DIFFUSIONS["function to a diagonal"]
    ),
    "fokker planck, matrix": sdifp.operators.fokker_planck(
        drift, DIFFUSIONS["function to a matrix"]
    ),
}


@pytest.mark.parametrize("sampler", EVERY, ids=repr)
def test_samples_of_second_order_are_unbiased(sampler):
    check_unbiased(SECOND_ORDER, sampler)


def test_samples_of_higher_order_are_unbiased():
    operators = {
        "third": sdifp.operators.third_derivatives(SIGNED),
        "first and third": sdifp.operators.advection(drift)
        + sdifp.operators.third_derivatives(),
        "biharmonic": sdifp.operators.biharmonic(),
    }
    check_unbiased(operators, Coordinates(), 2)
    check_unbiased({"biharmonic": sdifp.operators.biharmonic()}, Gaussian(), 2)


def test_all_terms_are_the_operator():
    smooth = DIFFUSIONS["function to a diagonal"]
    by_axis = sdifp.laplacian(SIGNED) + sdifp.operators.third_derivatives()
    by_axis = by_axis - sdifp.operators.fokker_planck(drift, smooth)
    by_pair = (
        sdifp.operators.mixed_derivatives(MATRIX) + 0.3 * sdifp.operators.biharmonic()
    )

    @once
    def run(key):
        return [
            (op.sample(key, n)(still)(X), op(still)(X))
            for op, n in ((by_axis, D), (by_pair, D * D))
        ]

    for got, want in run(KEY):
        agree(got, want)


def test_one_draw_serves_all_points_and_times():
    op = SECOND_ORDER["fokker planck, diagonal"].sample(KEY, 1)
    u = lambda x: wave(x, T)

    @once
    def run():
        return op(u)(XS), jax.vmap(op(u))(XS)

    agree(*run())


def test_sampled_operators_add_to_exact_ones_and_scale():
    sampled = sdifp.laplacian(SIGNED).sample(KEY, 1)
    other = sdifp.operators.third_derivatives().sample(KEY, 2)
    exact = sdifp.operators.advection(SIGNED) + sdifp.operators.reaction(2.0)

    @once
    def run():
        a, b, c = (op(still)(X) for op in (sampled, other, exact))
        return [
            ((sampled + exact)(still)(X), a + c),
            ((exact - 2.0 * sampled)(still)(X), c - 2.0 * a),
            ((sampled + other / 2.0)(still)(X), a + b / 2.0),
        ]

    for got, want in run():
        agree(got, want)


@pytest.mark.parametrize("sampler", EVERY, ids=repr)
def test_terms_of_one_axis_pair_or_order_zero_are_exact_when_sampled(sampler):
    op = sdifp.laplacian()
    lone = sdifp.operators.reaction(jnp.prod) + sdifp.operators.mixed_derivative(0, 1)
    lone = lone + sdifp.operators.derivative(1, 2) + sdifp.operators.derivative(2, 0)
    lone = lone - sdifp.operators.derivative(3, 1)

    @once
    def run():
        both = (op + lone).sample(KEY, 1, sampler)(still)(X)
        return both - op.sample(KEY, 1, sampler)(still)(X), lone(still)(X)

    agree(*run())


def test_rademacher_is_exact_where_the_hessian_is_diagonal():
    u = lambda x: jnp.sum(jnp.sin(SIGNED * x))

    @once
    def run():
        out = []
        for op in (sdifp.laplacian(), sdifp.laplacian(SIGNED)):
            one = lambda key: op.sample(key, 1, Rademacher())(u)(X)  # noqa: B023
            got = jax.vmap(one)(jax.random.split(KEY, 5))
            out.append((got, jnp.broadcast_to(op(u)(X), 5)))
        return out

    for got, want in run():
        agree(got, want)


def draws(size, n, repeats):
    keys = jax.random.split(KEY, repeats)
    return np.asarray(once(jax.vmap(lambda k: _samplers.draw(k, size, n)))(keys))


def looks_uniform(values, cells):
    """Chi-square within six standard deviations of its mean from above."""
    counts = np.bincount(values, minlength=cells)
    assert len(counts) == cells
    expected = len(values) / cells
    statistic = np.sum((counts - expected) ** 2) / expected
    return statistic < (cells - 1) + 6 * np.sqrt(2 * (cells - 1))


@pytest.mark.parametrize("permuted", [4096, 0], ids=["permutation", "set"])
def test_every_ordered_choice_is_equally_likely(permuted, monkeypatch):
    monkeypatch.setattr(_samplers, "_PERMUTED", permuted)
    chosen = draws(6, 3, 12_000)
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    _, codes = np.unique(chosen @ np.array([36, 6, 1]), return_inverse=True)
    assert looks_uniform(codes, 6 * 5 * 4)
    assert np.array_equal(np.sort(draws(6, 6, 1)[0]), np.arange(6))


@pytest.mark.parametrize("size", [4096, 4097, 10**9])
def test_large_draws_are_different_and_uniform(size):
    chosen = draws(size, 20, 200)
    assert chosen.min() >= 0
    assert chosen.max() < size
    assert all(len(set(row)) == 20 for row in chosen.tolist())
    bins = chosen * 8 // size
    assert looks_uniform(bins.ravel(), 8)
    assert looks_uniform(bins[:, 0], 8)
    assert looks_uniform(bins[:, -1], 8)
