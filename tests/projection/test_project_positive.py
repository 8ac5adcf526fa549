"""Positive fields with prescribed moments: exact, positive, unique, refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from sdifp.correction import Status, project_positive

SIZES = (5, 33, 200)

cases = st.fixed_dictionaries(
    {
        "size": st.sampled_from(SIZES),
        "log_spread": st.floats(-3.0, 0.7),
        "decades": st.floats(0.0, 6.0),
        "where": st.floats(1e-4, 0.999),
        "mean": st.floats(1e-3, 1e3),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def draw(size, log_spread, decades, seed):
    rng = np.random.default_rng(seed)
    weights = 10.0 ** rng.uniform(-decades, 0.0, size)
    logs = 10.0**log_spread * rng.normal(size=size)
    return np.exp(logs), weights / weights.sum(), rng


def precise(a):
    return np.asarray(a).astype(np.longdouble)


def check_power(case):
    f, w, _ = draw(case["size"], case["log_spread"], case["decades"], case["seed"])
    most = -np.log(w[f == f.max()].sum())
    m, s = case["mean"], case["mean"] ** 2 * np.exp(case["where"] * most)
    if np.log(s / m**2) < 1e-13:
        return
    got = project_positive(f, w, mean=m, second_moment=s)
    u, w = precise(got.values), precise(w) / precise(w).sum()
    assert int(got.status) == Status.REGULAR
    # Nodes far below the largest may underflow to zero.
    assert np.all(u >= 0.0)
    assert float(abs((w * u).sum() / m - 1)) < 1e-13
    assert float(abs((w * u * u).sum() / s - 1)) < 1e-12


def check_tilt(case):
    f, w, rng = draw(case["size"], case["log_spread"], case["decades"], case["seed"])
    x = rng.uniform(-1.0, 1.0, case["size"])
    psi = np.stack([x, x**2])
    # The moments of another positive field are inside of the hull.
    other = np.exp(rng.normal(size=case["size"]))
    other /= w @ other
    targets = case["mean"] * (psi @ (w * other))
    got = project_positive(f, w, mean=case["mean"], moments=psi, means=targets)
    u, w = precise(got.values), precise(w) / precise(w).sum()
    assert np.all(u > 0.0)
    assert float(abs((w * u).sum() / case["mean"] - 1)) < 1e-13
    off = precise(psi) @ (w * u) - precise(targets)
    assert float(np.abs(off).max()) < 1e-12 * case["mean"]


@given(case=cases)
@settings(max_examples=80)
def test_a_power_has_both_moments(case):
    check_power(case)


@given(case=cases)
@settings(max_examples=80)
def test_a_tilt_has_all_moments(case):
    check_tilt(case)


@pytest.mark.validate
@given(case=cases)
@settings(max_examples=1500)
def test_both_in_thousands_of_cases(case):
    check_power(case)
    check_tilt(case)


def test_the_mean_alone_is_a_scaling():
    f, w, _ = draw(33, 0.0, 2.0, 1)
    got = project_positive(f, w, mean=2.5)
    np.testing.assert_allclose(got.values, 2.5 * f / (w @ f), rtol=1e-14)


def test_the_power_is_that_of_a_bracketing_solver():
    f, w, _ = draw(33, 0.0, 2.0, 2)
    excess = lambda q: w @ f ** (2 * q) / (w @ f**q) ** 2 - 1.7
    want = scipy.optimize.brentq(excess, 1e-3, 50.0, xtol=1e-14)
    got = project_positive(f, w, mean=1.0, second_moment=1.7)
    assert float(got.power) == pytest.approx(want, rel=1e-10)


def test_the_tilt_is_nearest_in_relative_entropy():
    """Against a solver that knows the constraints and nothing else."""
    f, w, rng = draw(7, -0.5, 1.0, 3)
    x = rng.uniform(-1.0, 1.0, 7)
    start = f / (w @ f)
    target = float(w @ (x * start)) + 0.05
    got = np.asarray(
        project_positive(f, w, mean=1.0, moments=x[None], means=[target]).values
    )
    entropy = lambda u: w @ (u * np.log(u / start))
    best = scipy.optimize.minimize(
        entropy,
        start,
        method="SLSQP",
        bounds=[(1e-9, None)] * 7,
        constraints=[
            {"type": "eq", "fun": lambda u: w @ u - 1.0},
            {"type": "eq", "fun": lambda u: w @ (x * u) - target},
        ],
        options={"ftol": 1e-15},
    )
    assert entropy(got) <= best.fun + 1e-10
    np.testing.assert_allclose(got, best.x, atol=1e-4)


def test_the_tilt_is_that_of_the_given_functions():
    f, w, rng = draw(33, 0.0, 1.0, 4)
    x = rng.uniform(-1.0, 1.0, 33)
    psi = np.stack([x, x**2])
    got = project_positive(f, w, mean=1.0, moments=psi, means=[0.1, 0.3])
    by_hand = f * np.exp(np.asarray(got.tilt) @ psi)
    np.testing.assert_allclose(got.values, by_hand / (w @ by_hand), rtol=1e-10)


def families(w, x):
    """Functions of the values, one for each family that has something to solve."""
    psi = np.stack([x, x**2])
    return {
        "power": lambda f: (
            project_positive(f, w, mean=1.0, second_moment=1.9, throw=False).values
        ),
        "tilt": lambda f: (
            project_positive(
                f, w, mean=1.0, moments=psi, means=[0.05, 0.3], throw=False
            ).values
        ),
    }


@pytest.mark.parametrize("family", ["power", "tilt"])
def test_derivatives_to_the_third_order(family):
    """Against finite differences of the derivative before."""
    f, w, rng = draw(33, -0.3, 1.0, 5)
    u = families(w, rng.uniform(-1.0, 1.0, 33))[family]
    along, test = rng.normal(size=33), rng.normal(size=33)
    line = lambda s: jnp.sum(test * u(f * jnp.exp(s * along)))
    orders = [line]
    for _ in range(3):
        before = orders[-1]
        orders.append(lambda s, g=before: jax.jvp(g, (s,), (jnp.ones_like(s),))[1])
    s, h = jnp.asarray(0.1), 1e-5
    for lower, higher in itertools.pairwise(orders):
        central = (jax.jit(lower)(s + h) - jax.jit(lower)(s - h)) / (2 * h)
        np.testing.assert_allclose(jax.jit(higher)(s), central, rtol=1e-6)
    slope = jax.grad(line)(s)
    np.testing.assert_allclose(slope, orders[1](s), rtol=1e-10)


def test_a_batch_is_corrected_field_by_field():
    f, w, _ = draw(33, 0.0, 1.0, 6)
    many = np.stack([f, f**2, 1.0 + f]).reshape(3, 1, 33)
    got = project_positive(many, w, mean=1.0, second_moment=1.5)
    for k in range(3):
        one = project_positive(many[k, 0], w, mean=1.0, second_moment=1.5)
        np.testing.assert_allclose(got.values[k, 0], one.values, rtol=1e-12)


def test_single_precision():
    with jax.enable_x64(False):
        f, w, _ = draw(33, 0.0, 1.0, 7)
        got = project_positive(f.astype(np.float32), w, mean=1.0, second_moment=1.6)
        assert got.values.dtype == np.float32
        u = np.asarray(got.values, float)
        assert abs(w @ u - 1.0) < 1e-6
        assert abs(w @ u**2 / 1.6 - 1.0) < 1e-5


def test_powers_that_do_not_exist():
    f, w, _ = draw(33, 0.0, 1.0, 8)
    most = 1.0 / w[f.argmax()]
    status = lambda f, s: int(
        project_positive(f, w, mean=2.0, second_moment=s, throw=False).status
    )
    assert status(f, 4.0) == Status.CONSTANT
    np.testing.assert_allclose(
        project_positive(f, w, mean=2.0, second_moment=4.0).values, 2.0, rtol=1e-14
    )
    assert status(f, 4.0 * (1 + 1e-9)) == Status.REGULAR
    assert status(f, 4.0 * (1 - 1e-9)) == Status.INFEASIBLE
    assert status(f, 4.0 * most * (1 - 1e-9)) == Status.REGULAR
    assert status(f, 4.0 * most * (1 + 1e-9)) == Status.INFEASIBLE
    assert status(np.full(33, 3.0), 5.0) == Status.DEGENERATE
    with pytest.raises(ValueError, match=rf"second_moment is 0.9 times.*{most:.6g}"):
        project_positive(f, w, mean=2.0, second_moment=3.6)
    with pytest.raises(ValueError, match="constant on the nodes"):
        project_positive(np.full(33, 3.0), w, mean=2.0, second_moment=5.0)


def test_targets_outside_of_the_hull_are_refused():
    f, w, rng = draw(33, 0.0, 1.0, 9)
    x = rng.uniform(-1.0, 1.0, 33)
    inside, outside = 0.999 * x.max(), 1.001 * x.max()
    got = project_positive(f, w, mean=1.0, moments=x[None], means=[inside])
    assert float(w @ (x * np.asarray(got.values))) == pytest.approx(inside, rel=1e-12)
    with pytest.raises(ValueError, match="interior of the convex hull"):
        project_positive(f, w, mean=1.0, moments=x[None], means=[outside])


def test_errors_under_an_eager_gradient_are_the_same_sentences():
    f, w, rng = draw(33, 0.0, 1.0, 9)
    x = rng.uniform(-1.0, 1.0, 33)
    total = lambda **given: (
        lambda f: jnp.sum(project_positive(f, w, mean=1.0, **given).values)
    )
    with pytest.raises(ValueError, match="it must be above 1 and below"):
        jax.grad(total(second_moment=1e6))(jnp.asarray(f))
    with pytest.raises(ValueError, match="interior of the convex hull"):
        jax.grad(total(moments=x[None], means=[2.0]))(jnp.asarray(f))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"values": np.linspace(-1.0, 1.0, 5)}, "values must be positive, got -1"),
        ({"values": np.asarray(1.0)}, r"values must have the nodes.*\(\)"),
        ({"values": np.asarray([1.0, np.nan, 1.0, 1.0, 1.0])}, "values.*nan"),
        ({"weights": np.full(4, 0.25)}, r"weights must have shape \(5,\).*\(4,\)"),
        ({"mean": 0.0}, "mean must be positive and finite, got 0.0"),
        ({"second_moment": -1.0}, "second_moment must be positive.*-1"),
        ({"moments": np.ones((1, 4))}, r"moments must have shape \(any, 5\).*\(1, 4\)"),
        ({"moments": np.ones((1, 5)), "means": [1.0]}, "moment 0 depends on the mean"),
        ({"moments": np.eye(5)[:1], "means": []}, r"means must have shape \(1,\)"),
        (
            {"moments": np.eye(5)[:1], "means": [0.1], "second_moment": 2.0},
            "second_moment or moments, not both",
        ),
    ],
)
def test_bad_input_is_named(change, words, as_user):
    given = {"values": np.ones(5), "weights": np.full(5, 0.2), "mean": 1.0} | change
    with pytest.raises(ValueError, match=words):
        project_positive(**given)


def test_weights_that_are_rounded_are_normalised():
    """A second moment near its bound sees a sum that is off by rounding."""
    f, w, _ = draw(33, -1.0, 1.0, 10)
    rough = w.astype(np.float32)
    got = project_positive(f, rough, mean=1.0, second_moment=1.0 + 1e-9)
    own = rough.astype(float) / rough.astype(float).sum()
    u = np.asarray(got.values)
    assert int(got.status) == Status.REGULAR
    assert own @ u**2 == pytest.approx(1.0 + 1e-9, abs=1e-14)


def test_an_empty_batch_stays_empty():
    got = project_positive(np.ones((0, 5)), np.full(5, 0.2), mean=1.0)
    assert got.values.shape == (0, 5)


@pytest.mark.parametrize("name", ["mean", "second_moment"])
def test_targets_must_be_known(name, as_user):
    given = {"mean": 1.0, name: np.asarray([1.0, 2.0])}
    with pytest.raises(TypeError, match=f"{name} must be a known number"):
        project_positive(np.ones(5), np.full(5, 0.2), **given)
