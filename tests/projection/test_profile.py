"""The shift profile: Dirichlet data survive, and the quadratic has its own limits."""

import jax
import numpy as np
import pytest
from scipy.optimize import brentq

import sdifp
from sdifp import Status

X = np.linspace(0.0, 1.0, 41)
W = np.full(41, 1 / 41)
PHI = X * (1 - X)
F = np.sin(np.pi * X) * (1.0 + 0.7 * np.cos(5 * X))


def test_both_moments_hold_and_the_boundary_stays_zero():
    got = sdifp.project(F, W, mean=0.4, second_moment=0.3, profile=PHI)
    u = np.asarray(got.values)
    assert W @ u == pytest.approx(0.4, abs=1e-15)
    assert W @ u**2 == pytest.approx(0.3, abs=1e-15)
    assert u[0] == 0.0
    assert abs(u[-1]) < 1e-15
    assert np.allclose(float(got.scale) * F + float(got.shift) * PHI, u, rtol=1e-12)


def test_profile_one_is_the_plain_projection():
    a = sdifp.project(F, W, mean=0.4, second_moment=0.3, profile=np.ones(41))
    b = sdifp.project(F, W, mean=0.4, second_moment=0.3)
    assert np.allclose(a.values, b.values, rtol=1e-13)
    c = sdifp.project(F, W, mean=0.4, second_moment=0.3, profile=np.full(41, -2.5))
    assert np.allclose(c.values, b.values, rtol=1e-13)


def test_scale_is_the_root_of_the_quadratic_nearer_to_the_raw_field():
    mean, second = 0.4, 0.3
    level = mean / (W @ PHI)
    g = F - (W @ F) / (W @ PHI) * PHI

    def excess(a):
        return W @ (level * PHI + a * g) ** 2 - second

    bottom = -level * (W @ (g * PHI)) / (W @ g**2)
    roots = [brentq(excess, bottom, bottom + s * 50, xtol=1e-14) for s in (1, -1)]
    fields = [level * PHI + a * g for a in roots]
    near, far = sorted(fields, key=lambda u: W @ (u - F) ** 2)
    kwargs = {"mean": mean, "second_moment": second, "profile": PHI}
    assert np.allclose(sdifp.project(F, W, **kwargs).values, near, atol=1e-12)
    assert np.allclose(
        sdifp.project(F, W, **kwargs, nearest=False).values, far, atol=1e-12
    )


@pytest.mark.parametrize("seed", range(20))
def test_nearer_root_on_random_fields(seed):
    rng = np.random.default_rng(seed)
    f, phi = rng.standard_normal(9), rng.standard_normal(9)
    w = rng.random(9) + 0.1
    w /= w.sum()
    least = float(
        sdifp.correction.least_second_moment(sdifp.correction.moments(f, w, phi), 0.5)
    )
    kwargs = {"mean": 0.5, "second_moment": least + 0.7, "profile": phi}
    near = np.asarray(sdifp.project(f, w, **kwargs).values)
    far = np.asarray(sdifp.project(f, w, **kwargs, nearest=False).values)
    for u in (near, far):
        assert w @ u == pytest.approx(0.5, rel=1e-10)
        assert w @ u**2 == pytest.approx(least + 0.7, rel=1e-10)
    assert w @ (near - f) ** 2 <= w @ (far - f) ** 2


def test_least_second_moment_is_the_limit_of_feasibility():
    least = float(
        sdifp.correction.least_second_moment(sdifp.correction.moments(F, W, PHI), 0.4)
    )
    assert least > 0.4**2
    level = 0.4 / (W @ PHI)
    g = F - (W @ F) / (W @ PHI) * PHI
    scan = [W @ (level * PHI + a * g) ** 2 for a in np.linspace(-10, 10, 200_001)]
    assert least == pytest.approx(min(scan), rel=1e-8)
    above = sdifp.project(F, W, mean=0.4, second_moment=least * 1.001, profile=PHI)
    assert int(above.status) == Status.REGULAR
    below = {"mean": 0.4, "second_moment": least * 0.999, "profile": PHI}
    with pytest.raises(ValueError, match=f"below the least .* can have, {least:g}"):
        sdifp.project(F, W, **below)
    quiet = jax.jit(lambda f: sdifp.project(f, W, **below))(F)
    assert int(quiet.status) == Status.INFEASIBLE
    u = np.asarray(quiet.values)
    assert W @ u == pytest.approx(0.4, abs=1e-14)
    assert W @ u**2 == pytest.approx(least, rel=1e-12)


def test_variance_target_is_the_same_as_second_moment():
    a = sdifp.project(F, W, mean=0.4, second_moment=0.3, profile=PHI)
    b = sdifp.project(F, W, mean=0.4, variance=0.3 - 0.4**2, profile=PHI)
    assert np.allclose(a.values, b.values, rtol=1e-11)


def test_multiple_of_the_profile_is_degenerate():
    with pytest.raises(ValueError, match="multiple of the profile"):
        sdifp.project(3.0 * PHI, W, mean=0.4, second_moment=0.3, profile=PHI)


@pytest.mark.parametrize("factor", [3.0, 0.1, -7.3])
def test_multiple_of_the_profile_with_its_own_moments_is_constant(factor):
    f = factor * PHI
    kwargs = {"mean": W @ PHI, "second_moment": W @ PHI**2, "profile": PHI}
    got = sdifp.project(f, W, **kwargs)
    assert int(got.status) == Status.CONSTANT
    assert np.allclose(got.values, PHI, rtol=1e-14)


def test_mass_alone_with_a_profile_keeps_the_boundary():
    got = sdifp.project(F, W, mean=1.0, profile=PHI)
    assert W @ np.asarray(got.values) == pytest.approx(1.0, abs=1e-15)
    assert float(got.values[0]) == 0.0
    assert float(got.scale) == 1.0


def test_large_multiple_of_the_profile_costs_no_digits():
    f = 1e4 * PHI + 1e-2 * np.sin(7 * X) * PHI
    got = sdifp.project(f, W, mean=0.2, second_moment=0.2, profile=PHI)
    u = np.asarray(got.values)
    assert W @ u == pytest.approx(0.2, rel=1e-13)
    assert W @ u**2 == pytest.approx(0.2, rel=1e-13)


def test_derivative_with_a_profile_against_differences():
    h = np.cos(3 * X) * PHI

    def run(t):
        return sdifp.project(
            F + t * h, W, mean=0.4 + 0.1 * t, second_moment=0.3, profile=PHI
        ).values

    got = jax.jacfwd(run)(0.0)
    step = 1e-6
    want = (np.asarray(run(step)) - np.asarray(run(-step))) / (2 * step)
    assert np.allclose(got, want, atol=1e-8)
    # The moments are kept along the derivative as well.
    assert W @ np.asarray(got) == pytest.approx(0.1, abs=1e-13)
