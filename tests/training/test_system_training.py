"""Trainings of a system: every method and optimiser, bit-identical when they are
resumed, and on several devices."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once, only
from systems import problem as PROBLEM
from systems import wave

import sdifp
from sdifp.field import _certificate
from sdifp.training import Training, _training, _weights, _window

RECIPE = sdifp.Recipe(
    sdifp.training.MLP(6, 1),
    sdifp.training.Adam(0.02),
    steps=24,
    points=sdifp.training.RandomPoints(2, 8),
    nodes=16,
)
FEW = RECIPE.replace(steps=6)
KEY = jax.random.key(2)
SDIFP = sdifp.training.SDIFP()
CASES = {
    "sdifp": (SDIFP, RECIPE),
    "plain": (sdifp.training.Plain(), RECIPE),
    "afterwards": (sdifp.training.PostHoc(), RECIPE),
    "soft": (sdifp.training.Soft(1.0), RECIPE),
    "multipliers": (sdifp.training.AugmentedLagrangian(), RECIPE),
    "grid": (sdifp.training.GridProjection(), RECIPE),
    "subsampled": (sdifp.training.SDIFP(sdifp.field.Subsampled(8)), RECIPE),
    "learnt initial data": (SDIFP, RECIPE.replace(hard_initial=False)),
    "lbfgs": (SDIFP, FEW.replace(optimiser=sdifp.training.LBFGS())),
    "levenberg-marquardt": (
        SDIFP,
        FEW.replace(optimiser=sdifp.training.LevenbergMarquardt()),
    ),
    "windows": (SDIFP, FEW.replace(windows=2)),
}


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    """Steps are few here, so that their programs need not be fast."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (_training, "advance"),
            (_training, "measure"),
            (_certificate, "_means"),
        ):
            patch.setattr(module, name, once(getattr(module, name).__wrapped__))
        patch.setattr(_weights, "once", once)
        patch.setattr(_window, "_SERIES", 64)
        yield


def begin(case, **changes):
    method, recipe = CASES[case]
    recipe = recipe.replace(**changes)
    return Training(PROBLEM, method, recipe=recipe, every=3, check=False, key=KEY)


@pytest.mark.parametrize(
    "case", only([*CASES], "sdifp", "multipliers", "levenberg-marquardt")
)
def test_every_method_and_optimiser_lowers_the_loss(case):
    run = begin(case)
    metrics = list(run)
    of = [m for m in metrics if m.window == metrics[0].window]
    assert of[-1].loss < 0.8 * of[0].loss
    assert metrics[-1].l2_errors.keys() == {"height", "flow"}
    trained = run.result()
    value = trained.field(jnp.array([0.3]), jnp.asarray(0.4))
    assert value.shape == (2,)
    if case in ("sdifp", "afterwards", "grid"):
        assert trained.certificate.holds
        names = {row.invariant for row in trained.certificate.rows}
        assert names == {"mass[0]", "squared_norm"}
        (row,) = {row.invariant for row in trained.certificate.measured}
        assert row == "momentum"


def test_errors_are_those_of_each_component_and_of_all():
    run = begin("sdifp", steps=1)
    (metrics,) = list(run)
    x = np.linspace(0.0, 2.0 * np.pi, 200, endpoint=False)[:, None]
    t = np.linspace(0.0, 1.0, 9)
    at = jax.vmap(jax.vmap(wave, (0, None)), (None, 0))
    exact = np.asarray(at(x, t))
    field = run.so_far().field
    got = np.asarray(jax.lax.map(lambda t: jax.vmap(field.at(t))(jnp.asarray(x)), t))
    off, size = ((a**2).sum((0, 1)) for a in (got - exact, exact))
    each = np.sqrt(off / size)
    assert list(metrics.l2_errors.values()) == pytest.approx(each.tolist(), rel=1e-8)
    joint = np.sqrt(off.sum() / size.sum())
    assert metrics.l2_error == pytest.approx(joint, rel=1e-8)
    assert f"L2 {joint:.1e}" in metrics.numbers
    assert "height" not in metrics.numbers


def arrays(run):
    """All that a checkpoint holds, but the time that it took."""
    found = run.snapshot()
    found["known"] = found["known"][1:]
    return {name: np.asarray(a).tobytes() for name, a in found.items()}


@pytest.mark.parametrize("case", only(["multipliers", "windows"], "multipliers"))
def test_a_training_that_is_taken_up_again_has_the_same_bits(case):
    whole = begin(case, steps=4)
    list(whole)
    first, again = begin(case, steps=4), begin(case, steps=4)
    first.go_on(1)
    first.go_on(1)
    again.restore(first.snapshot())
    assert np.array_equal(again.weights, whole.weights)
    while not again.finished:
        again.go_on(1)
    assert arrays(again) == arrays(whole)


@pytest.mark.parametrize("case", only(["sdifp", "levenberg-marquardt"], "sdifp"))
def test_the_loss_is_the_same_on_two_devices(case):
    losses, weights = [], []
    for n in (0, 2):
        mesh = jax.set_mesh(sdifp.training.mesh(n)) if n else contextlib.nullcontext()
        with mesh:
            run = begin(case, steps=3)
            losses.append([m.loss for m in run])
            weights.append(np.asarray(run.weights))
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-9)


@functools.cache
def trained():
    return begin("sdifp", steps=2).result()


def test_a_frozen_field_has_the_components_and_the_integrals():
    field = trained().field
    frozen = field.freeze((0.0, 1.0))
    for t in (0.1, 0.9):
        x, t = jnp.array([0.3]), jnp.asarray(t)
        assert frozen(x, t).shape == (2,)
        np.testing.assert_allclose(frozen(x, t), field(x, t), rtol=1e-7, atol=1e-9)


def test_the_certificate_has_the_drift_of_what_is_measured():
    certificate = trained().certificate
    assert certificate.holds
    assert {row.status for row in certificate.rows} == {"REGULAR"}
    times = sorted({row.time for row in certificate.measured})
    first = next(r for r in certificate.measured if r.time == times[0])
    rule = PROBLEM.rule(64, KEY)
    now = trained().field.at(jnp.asarray(times[0]))
    mean = rule.mean(lambda x: now(x)[0] * now(x)[1])
    volume = PROBLEM.domain.volume
    assert first.value == pytest.approx(float(mean) * volume, rel=1e-6, abs=1e-8)
