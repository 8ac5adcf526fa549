import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import once

import sdifp


def reference(values, weights):
    w, f = weights.astype(np.longdouble), values.astype(np.longdouble)
    mean = (w * f).sum(-1) / w.sum()
    variance = (w * (f - mean[..., None]) ** 2).sum(-1) / w.sum()
    return mean, variance


def draw(rng, *shape, mean=0.0, std=1.0, decades=2.0):
    weights = 10.0 ** rng.uniform(-decades, 0.0, shape[-1])
    return mean + std * rng.standard_normal(shape), weights / weights.sum()


def test_moments_agree_with_extended_precision(rng):
    values, weights = draw(rng, 5000, mean=1e4, std=1e-2, decades=6.0)
    mean, variance = reference(values, weights)
    got = sdifp.correction.moments(values, weights)
    assert abs(float(got.mean) / mean - 1) < 1e-15
    assert abs(float(got.variance) / variance - 1) < 5e-15
    assert abs(float(got.second_moment) / (variance + mean**2) - 1) < 1e-15


def test_level_and_offset_keep_the_digits_that_the_mean_loses(rng):
    values, weights = draw(rng, 5000, mean=1e4, std=1e-2)
    got = sdifp.correction.moments(values, weights)
    left = values - float(got.pivot) - float(got.offset)
    assert abs((weights.astype(np.longdouble) * left).sum()) < 1e-17
    assert abs((weights.astype(np.longdouble) * (values - float(got.mean))).sum()) > 0


@given(
    cuts=st.lists(st.integers(1, 399), min_size=0, max_size=6, unique=True),
    seed=st.integers(0, 1000),
    profiled=st.booleans(),
)
@settings(max_examples=30)
def test_merged_parts_equal_the_whole(cuts, seed, profiled):
    # Cuts on a coarse grid, so that few shapes are compiled.
    cuts = sorted({50 * (c // 50) for c in cuts if c >= 50})
    rng = np.random.default_rng(seed)
    values, weights = draw(rng, 400, mean=1e3, std=1e-1, decades=4.0)
    profile = np.sin(np.linspace(-0.2, 3.0, 400)) if profiled else None
    whole = sdifp.correction.moments(values, weights, profile)
    bounds = [0, *cuts, 400]
    parts = [
        sdifp.correction.moments_of_part(
            values[a:b], weights[a:b], None if profile is None else profile[a:b]
        )
        for a, b in itertools.pairwise(bounds)
    ]
    merged = functools.reduce(sdifp.correction.merge_moments, parts)
    for name in ("mean", "spread", "second_moment"):
        a, b = float(getattr(merged, name)), float(getattr(whole, name))
        assert a == pytest.approx(b, rel=2e-12 if profiled else 5e-14), name
    a, b = float(merged.variance), float(whole.variance)
    size = float(whole.second_moment) if profiled else b
    assert abs(a - b) <= 5e-14 * size
    exact = merged.about(whole.pivot)
    assert float(exact.offset) == pytest.approx(
        float(whole.offset), abs=1e-16 * float(abs(whole.level)) * 10
    )


def test_merging_in_one_order_gives_the_same_bits_inside_a_scan(rng):
    values, weights = draw(rng, 512, mean=10.0)
    f, w = values.reshape(8, 64), weights.reshape(8, 64)
    parts = [sdifp.correction.moments_of_part(a, b) for a, b in zip(f, w, strict=True)]
    stepwise = functools.reduce(jax.jit(sdifp.correction.merge_moments), parts)

    @jax.jit
    def scanned(f, w):
        def body(carry, part):
            return sdifp.correction.merge_moments(
                carry, sdifp.correction.moments_of_part(*part)
            ), None

        first = sdifp.correction.moments_of_part(f[0], w[0])
        return jax.lax.scan(body, first, (f[1:], w[1:]))[0]

    got = scanned(f, w)
    assert float(got.variance) == pytest.approx(float(stepwise.variance), rel=1e-15)


def test_part_without_profile_support_is_merged(rng):
    values, weights = draw(rng, 100)
    profile = np.where(np.arange(100) < 50, 0.0, 1.0)
    parts = [
        sdifp.correction.moments_of_part(values[s], weights[s], profile[s])
        for s in (slice(0, 50), slice(50, 100))
    ]
    merged = sdifp.correction.merge_moments(*parts)
    whole = sdifp.correction.moments(values, weights, profile)
    assert float(merged.spread) == pytest.approx(float(whole.spread), rel=1e-13)
    assert float(merged.level) == pytest.approx(float(whole.level), rel=1e-13)


def test_profile_moments_against_definition(rng):
    values, weights = draw(rng, 300, mean=2.0)
    profile = rng.random(300)
    got = sdifp.correction.moments(values, weights, profile)
    level = (weights @ values) / (weights @ profile)
    g = values - level * profile
    assert float(got.level) == pytest.approx(level, rel=1e-13)
    assert float(got.spread) == pytest.approx(weights @ g**2, rel=1e-13)
    assert float(got.overlap) == pytest.approx(weights @ (g * profile), rel=1e-12)
    assert float(got.mean) == pytest.approx(weights @ values, rel=1e-13)
    variance = weights @ values**2 - (weights @ values) ** 2
    assert float(got.variance) == pytest.approx(variance, rel=1e-11)


def test_batches_and_vmap_agree(rng):
    values, weights = draw(rng, 3, 4, 100)
    batched = sdifp.correction.moments(values, weights)
    mapped = jax.vmap(jax.vmap(lambda f: sdifp.correction.moments(f, weights)))(values)
    assert batched.variance.shape == (3, 4)
    assert np.allclose(batched.variance, mapped.variance, rtol=1e-15)
    assert np.allclose(batched.mean, mapped.mean, rtol=1e-15)


@pytest.mark.parametrize("profiled", [False, True])
def test_derivatives_equal_those_of_the_textbook_formula(rng, profiled):
    values, weights = draw(rng, 40)
    direction = rng.standard_normal(40)
    profile = jnp.asarray(rng.random(40)) if profiled else None
    phi = 1.0 if profile is None else profile

    def ours(t):
        f = jnp.asarray(values) * jnp.cos(t) + t**2 * jnp.asarray(direction)
        m = sdifp.correction.moments(f, weights, profile)
        return jnp.stack([m.mean, m.variance, m.spread, m.level])

    def textbook(t):
        f = jnp.asarray(values) * jnp.cos(t) + t**2 * jnp.asarray(direction)
        w = jnp.asarray(weights)
        mean = jnp.sum(w * f)
        level = mean / jnp.sum(w * phi)
        variance = jnp.sum(w * f * f) - mean**2
        spread = jnp.sum(w * (f - level * phi) ** 2)
        return jnp.stack([mean, variance, spread, level])

    def derivatives(f, t):
        out = []
        for _ in range(4):
            out.append(f(t))
            f = jax.jacfwd(f)
        return out

    run = once(lambda t: (derivatives(ours, t), derivatives(textbook, t)))
    for order, (got, want) in enumerate(zip(*run(jnp.asarray(0.7)), strict=True)):
        assert np.allclose(got, want, rtol=1e-11), order


def test_gradient_reverse_mode_by_values_and_weights(rng):
    values, weights = draw(rng, 30)

    def ours(f, w):
        return sdifp.correction.moments(f, w).variance

    def textbook(f, w):
        total = jnp.sum(w)
        mean = jnp.sum(w * f) / total
        return jnp.sum(w * (f - mean) ** 2) / total

    args = jnp.asarray(values), jnp.asarray(weights)
    got, want = (jax.grad(f, (0, 1))(*args) for f in (ours, textbook))
    assert np.allclose(got[0], want[0], rtol=1e-12)
    assert np.allclose(got[1], want[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("profiled", [False, True])
def test_extra_memory_does_not_grow_with_the_nodes(dtype, profiled):
    def extra(size):
        values = jax.ShapeDtypeStruct((size,), dtype)
        profile = values if profiled else None

        def run(values, weights, profile):
            return sdifp.project(
                values, weights, mean=0.0, variance=1.0, profile=profile
            ).values

        compiled = jax.jit(run).lower(values, values, profile).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert extra(30_000_000) <= extra(3_000_000) + 10_000
