"""The theorem: nearest point of the moment shell, unique, with a farthest branch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import sdifp


def draw(seed, size):
    rng = np.random.default_rng(seed)
    weights = rng.random(size) + 0.05
    weights /= weights.sum()
    return (
        rng,
        rng.standard_normal(size) * 2 + 1,
        weights,
        rng.normal(),
        rng.random() + 0.1,
    )


def distance(v, f, w):
    return float(w @ (v - f) ** 2)


def on_shell(rng, w, mean, variance):
    z = rng.standard_normal(len(w))
    z -= w @ z
    return mean + z * np.sqrt(variance / (w @ z**2))


@pytest.mark.parametrize("seed", range(8))
def test_constrained_optimiser_finds_the_same_point(seed):
    rng, f, w, mean, variance = draw(seed, 6)
    second = variance + mean**2
    got = np.asarray(sdifp.project(f, w, mean=mean, second_moment=second).values)
    found = [
        minimize(
            lambda v: 0.5 * distance(v, f, w),
            on_shell(rng, w, mean, variance),
            jac=lambda v: w * (v - f),
            method="SLSQP",
            constraints=[
                {"type": "eq", "fun": lambda v: w @ v - mean, "jac": lambda v: w},
                {
                    "type": "eq",
                    "fun": lambda v: w @ v**2 - second,
                    "jac": lambda v: 2 * w * v,
                },
            ],
            options={"ftol": 1e-15, "maxiter": 500},
        )
        for _ in range(4)
    ]
    best = min((r for r in found if r.success), key=lambda r: r.fun)
    assert np.allclose(best.x, got, atol=1e-5)
    assert 0.5 * distance(got, f, w) <= best.fun + 1e-9


@given(seed=st.integers(0, 10_000), size=st.sampled_from([3, 5, 20]))
@settings(max_examples=100)
def test_no_feasible_point_is_nearer_or_farther_than_the_two_branches(seed, size):
    rng, f, w, mean, variance = draw(seed, size)
    near = np.asarray(sdifp.project(f, w, mean=mean, variance=variance).values)
    far = np.asarray(
        sdifp.project(f, w, mean=mean, variance=variance, nearest=False).values
    )
    assert w @ far == pytest.approx(mean, abs=1e-13)
    assert w @ (far - mean) ** 2 == pytest.approx(variance, rel=1e-12)
    for _ in range(20):
        v = on_shell(rng, w, mean, variance)
        d = distance(v, f, w)
        assert distance(near, f, w) <= d * (1 + 1e-12)
        assert d <= distance(far, f, w) * (1 + 1e-12)
        # Unique: whoever is as near is the same point.
        excess = d - distance(near, f, w)
        assert (
            distance(v, near, w)
            <= excess * np.sqrt(variance / (w @ (f - w @ f) ** 2)) * (1 + 1e-9) + 1e-12
        )


def test_mass_alone_is_a_shift_and_energy_alone_a_scaling():
    _, f, w, _, _ = draw(3, 10)
    shifted = sdifp.project(f, w, mean=2.0)
    assert np.allclose(shifted.values, f + (2.0 - w @ f), rtol=1e-14)
    assert float(shifted.scale) == 1.0
    scaled = sdifp.project(f, w, second_moment=2.0)
    assert np.allclose(scaled.values, f * np.sqrt(2.0 / (w @ f**2)), rtol=1e-14)
    assert float(scaled.shift) == 0.0


@pytest.mark.parametrize("kind", ["mean", "second_moment"])
def test_one_target_alone_is_the_nearest_point_too(kind):
    rng, f, w, _, _ = draw(4, 5)
    got = np.asarray(sdifp.project(f, w, **{kind: 1.5}).values)
    for _ in range(200):
        v = rng.standard_normal(5)
        v = v + (1.5 - w @ v) if kind == "mean" else v * np.sqrt(1.5 / (w @ v**2))
        assert distance(got, f, w) <= distance(v, f, w) + 1e-12


def test_projection_is_idempotent():
    _, f, w, mean, variance = draw(5, 50)
    once = sdifp.project(f, w, mean=mean, variance=variance).values
    twice = sdifp.project(once, w, mean=mean, variance=variance)
    assert np.allclose(twice.values, once, rtol=1e-14)
    assert float(twice.scale) == pytest.approx(1.0, rel=1e-14)


def test_affine_form_equals_the_centred_form():
    _, f, w, mean, variance = draw(6, 50)
    got = sdifp.project(f, w, mean=mean, variance=variance)
    alpha = np.sqrt(variance / (w @ (f - w @ f) ** 2))
    assert float(got.scale) == pytest.approx(alpha, rel=1e-14)
    assert float(got.shift) == pytest.approx(mean - alpha * (w @ f), rel=1e-13)
    assert np.allclose(float(got.scale) * f + float(got.shift), got.values, rtol=1e-12)


def test_correction_applies_off_the_nodes():
    _, f, w, mean, variance = draw(7, 50)
    correction = sdifp.correction.correct(
        sdifp.correction.moments(f, w), mean=mean, variance=variance
    )
    elsewhere = np.linspace(-3, 3, 7)
    want = float(correction.scale) * elsewhere + float(correction.shift)
    import jax.numpy as jnp

    assert np.allclose(correction(jnp.asarray(elsewhere)), want, rtol=1e-13)


def test_uniform_weights_reduce_to_the_grid_projection():
    _, f, _, mean, variance = draw(8, 64)
    w = np.full(64, 1 / 64)
    got = sdifp.project(f, w, mean=mean, variance=variance).values
    grid = mean + np.sqrt(variance) * (f - f.mean()) / f.std()
    assert np.allclose(got, grid, rtol=1e-13)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.5])
def test_euclidean_projection_holds_the_mean_and_costs_more(spread, rng):
    w = np.exp(spread * rng.standard_normal(200))
    w /= w.sum()
    f = rng.standard_normal(200)
    euclidean = np.asarray(sdifp.correction.project_euclidean(f, w, mean=1.0))
    weighted = np.asarray(sdifp.project(f, w, mean=1.0).values)
    assert w @ euclidean == pytest.approx(1.0, abs=1e-14)
    # Nearest in the plain norm ...
    assert np.sum((euclidean - f) ** 2) <= np.sum((weighted - f) ** 2) * (1 + 1e-12)
    # ... and in the rule's norm farther by the ratio sum w^3 / (sum w^2)^2.
    ratio = distance(euclidean, f, w) / distance(weighted, f, w)
    assert ratio == pytest.approx(np.sum(w**3) / np.sum(w**2) ** 2, rel=1e-12)
    assert (ratio > 1.01) == (spread > 0)
