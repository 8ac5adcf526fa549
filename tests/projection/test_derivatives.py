"""Closed-form derivatives, autodiff and finite differences agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdifp


@pytest.fixture
def case(rng):
    weights = rng.random(12) + 0.05
    return rng.standard_normal(12) + 0.5, weights / weights.sum()


def test_coefficient_jacobian_is_that_of_the_closed_form():
    def coefficients(mu, mu2):
        scale = jnp.sqrt(1.7 / (mu2 - mu**2))
        return {"scale": scale, "shift": 0.3 - scale * mu}

    mu, mu2 = 0.8, 2.0
    got = sdifp.correction.coefficient_derivatives(
        scale=coefficients(mu, mu2)["scale"], rule_mean=mu, rule_variance=mu2 - mu**2
    )
    want_mean, want_second = (
        jax.jacfwd(coefficients, argnums=k)(mu, mu2) for k in (0, 1)
    )
    for name in ("scale", "shift"):
        assert float(got[name]["mean"]) == pytest.approx(
            float(want_mean[name]), rel=1e-13
        )
        second = float(want_second[name])
        assert float(got[name]["second_moment"]) == pytest.approx(second, rel=1e-13)


def test_autodiff_of_scale_and_shift_is_the_paper_formula(case):
    f, w = case

    def coefficients(f):
        out = sdifp.project(f, w, mean=0.3, variance=1.7)
        return out.scale, out.shift

    scale_grad, shift_grad = jax.jacrev(coefficients)(jnp.asarray(f))
    mean, variance = w @ f, w @ f**2 - (w @ f) ** 2
    d = sdifp.correction.coefficient_derivatives(
        scale=np.sqrt(1.7 / variance), rule_mean=mean, rule_variance=variance
    )
    for got, name in ((scale_grad, "scale"), (shift_grad, "shift")):
        want = float(d[name]["mean"]) * w + float(d[name]["second_moment"]) * 2 * w * f
        assert np.allclose(got, want, rtol=1e-11)


@pytest.mark.parametrize("targets", ["both", "mean", "second_moment"])
def test_jacobian_of_values_against_differences_and_in_both_modes(case, targets):
    f, w = case
    kwargs = {"mean": 0.3, "second_moment": 1.9}
    kwargs = kwargs if targets == "both" else {targets: kwargs[targets]}

    def run(f):
        return sdifp.project(f, w, **kwargs).values

    forward, reverse = jax.jacfwd(run)(f), jax.jacrev(run)(f)
    assert np.allclose(forward, reverse, rtol=1e-12, atol=1e-14)
    step = 1e-6
    columns = [
        (np.asarray(run(f + step * e)) - np.asarray(run(f - step * e))) / (2 * step)
        for e in np.eye(12)
    ]
    assert np.allclose(forward, np.stack(columns, 1), atol=1e-8)


def test_jacobian_by_the_closed_form(case):
    f, w = case
    out = sdifp.project(f, w, mean=0.3, variance=1.7)
    g = f - w @ f
    a, sigma2 = float(out.scale), w @ g**2
    want = a * (np.eye(12) - w[None, :] - np.outer(g, w * g) / sigma2)
    got = jax.jacrev(lambda f: sdifp.project(f, w, mean=0.3, variance=1.7).values)(f)
    assert np.allclose(got, want, rtol=1e-11, atol=1e-13)


def test_derivative_keeps_its_digits_where_the_mean_is_large(rng):
    w = np.full(64, 1 / 64)
    shape, direction = rng.standard_normal((2, 64))
    # The values as rounded, then recentred exactly: the same field with mean near 0.
    f = 1e4 + 1e-2 * shape
    small = f - 1e4

    def derivative(f):
        return jax.jvp(
            lambda f: sdifp.project(f, w, mean=0.0, variance=1.0).values,
            (jnp.asarray(f),),
            (jnp.asarray(direction),),
        )[1]

    got, want = derivative(f), derivative(small)
    assert np.allclose(got, want, rtol=1e-11, atol=1e-10)


def test_derivative_by_the_targets(case):
    f, w = case

    def run(mean, variance):
        return sdifp.project(f, w, mean=mean, variance=variance).values

    by_mean, by_variance = jax.jacfwd(run, (0, 1))(0.3, 1.7)
    g = f - w @ f
    assert np.allclose(by_mean, 1.0)
    want = g / (2 * np.sqrt(1.7 * (w @ g**2)))
    assert np.allclose(by_variance, want, rtol=1e-12)


def test_second_derivative_in_time_against_differences(case):
    f, w = case
    h = np.cos(np.arange(12.0))

    def run(t):
        values = f * jnp.cos(t) + h * t**2
        return sdifp.project(
            values, w, mean=jnp.sin(t), variance=1.0 + 0.1 * t**2
        ).values

    second = jax.jacfwd(jax.jacfwd(run))(0.4)
    step = 1e-4
    want = (
        np.asarray(run(0.4 + step))
        - 2 * np.asarray(run(0.4))
        + np.asarray(run(0.4 - step))
    ) / step**2
    assert np.allclose(second, want, atol=1e-5)


def test_gradient_memory_is_a_few_arrays_of_the_rule():
    size = 100_000
    values = jax.ShapeDtypeStruct((size,), np.float64)

    def loss(f, w, target):
        out = sdifp.project(f, w, mean=0.0, variance=1.0).values
        return jnp.sum((out - target) ** 2)

    compiled = jax.jit(jax.grad(loss)).lower(values, values, values).compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= 4 * 8 * size
