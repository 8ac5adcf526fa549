"""Trainings without time: each method and each optimiser, for a residual and for a
functional."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special
from quick import once, only

import sdifp
from sdifp.field import _certificate
from sdifp.problems import Dirichlet, Initial, _check
from sdifp.training import _metrics, _training

KEY = jax.random.key(3)
BOX = sdifp.Box([0.0], [1.0], periodic=True)
# A density on a circle: p = exp(-cos(2 pi x)) / I_0(1).
RESIDUAL = sdifp.Problem(
    BOX,
    sdifp.Residual(
        sdifp.operators.fokker_planck(
            lambda x: 2.0 * np.pi * jnp.sin(2.0 * np.pi * x), 1.0
        )
    ),
    reference=lambda x: jnp.exp(-jnp.cos(2.0 * np.pi * x[0])) / scipy.special.i0(1.0),
    name="density",
    mass=1.0,
    positive=True,
)


def _wave(x):
    return jnp.cos(2.0 * np.pi * x[0])


FUNCTIONAL = sdifp.Problem(
    BOX,
    sdifp.Functional(
        # With a lower bound, also where nothing is prescribed.
        lambda x, u, grad: 0.5 * grad @ grad + 9.1 * u**2 * (1.0 + _wave(x))
    ),
    name="ground-state",
    squared_norm=1.0,
)
PROBLEMS = {"residual": RESIDUAL, "functional": FUNCTIONAL}
RECIPE = sdifp.Recipe(
    sdifp.training.MLP(4, 1),
    sdifp.training.LevenbergMarquardt(),
    steps=5,
    points=sdifp.training.RandomPoints(2, 12),
    nodes=24,
)
METHODS = {
    "plain": sdifp.training.Plain(),
    "post-hoc": sdifp.training.PostHoc(),
    "soft": sdifp.training.Soft(10.0),
    "augmented": sdifp.training.AugmentedLagrangian(),
    "grid": sdifp.training.GridProjection(24),
    "pinned": sdifp.training.PinAndRescale(),
    "hard": sdifp.training.SDIFP(),
    "hard, sampled": sdifp.training.SDIFP(sdifp.field.Subsampled(8)),
    "hard, mini-batch": sdifp.training.SDIFP(sdifp.field.MiniBatch(8)),
    "hard, detached": sdifp.training.SDIFP(sdifp.field.Detached()),
}
OPTIMISERS = {
    "adam": sdifp.training.Adam(1e-2),
    "lbfgs": sdifp.training.LBFGS(refresh=3),
    "optax": sdifp.training.Optax(optax.sgd(1e-4)),
}


@pytest.fixture(scope="module", autouse=True)
def compiled_for_one_run():
    """Steps are few here, so that their program need not be fast."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (_training, "advance"),
            (_training, "measure"),
            (_certificate, "_means"),
            (_metrics, "_functional"),
        ):
            patch.setattr(module, name, once(getattr(module, name).__wrapped__))
        patch.setattr(_check, "once", once)
        yield


def trained(kind, method, **changes):
    """Metrics after each step, and the result."""
    recipe = RECIPE.replace(**changes)
    run = sdifp.train(PROBLEMS[kind], method, recipe=recipe, every=1, key=KEY)
    return list(run), run.result()


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("name", only(METHODS, "plain", "soft", "pinned", "hard"))
def test_each_method_lowers_its_loss_and_the_hard_ones_hold_the_integral(name, kind):
    metrics, result = trained(kind, METHODS[name])
    losses = [one.loss for one in metrics]
    assert np.all(np.isfinite(losses))
    assert losses[-1] < losses[0]
    assert [one.step for one in metrics] == [1, 2, 3, 4, 5]
    (error,) = result.metrics.errors.values()
    if result.certificate is None:
        assert name in ("plain", "soft", "augmented")
        assert error > 1e-12
        return
    (row,) = result.certificate.rows
    assert row.time is None
    assert row.on_rule < 1e-12
    # One number, without time.
    assert result.metrics.scale[0] == result.metrics.scale[1] == row.scale
    assert f"scale {row.scale:.3g}" in str(result.metrics)
    assert f"scale {row.scale:.3g} to" not in str(result.metrics)
    assert str(result.certificate).split()[0] == "invariant"


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("name", only(OPTIMISERS, "lbfgs"))
def test_each_optimiser_lowers_the_loss(name, kind):
    optimiser = OPTIMISERS[name]
    metrics, result = trained(kind, METHODS["hard"], optimiser=optimiser)
    assert metrics[-1].loss < metrics[0].loss
    assert result.certificate.rows[0].on_rule < 1e-12


def test_the_functional_is_reported_with_an_interval_of_the_quadrature():
    _, result = trained("functional", METHODS["hard"], steps=2)
    fine = sdifp.quadrature.gauss_legendre(sdifp.Box([0.0], [1.0]), 256)
    value = float(FUNCTIONAL.functional(result.field, fine))
    assert abs(result.functional.value - value) <= 1e-12 + 3 * result.functional.margin
    assert result.functional.margin < 1e-9
    assert result.metrics.functional["energy"] == pytest.approx(value, rel=1e-9)
    assert f"energy {result.metrics.functional['energy']:.8g}" in str(result.metrics)
    _, other = trained("residual", METHODS["plain"], steps=1)
    assert other.functional is None
    assert other.metrics.functional == {}


def test_the_field_is_a_function_of_x_alone():
    _, result = trained("residual", METHODS["hard"], steps=1)
    assert result.field(jnp.array([0.3])).shape == ()
    with pytest.raises((TypeError, ValueError), match="t"):
        result.field(jnp.array([0.3]), 0.5)


@pytest.mark.parametrize(
    ("kind", "method", "changes", "words"),
    [
        ("residual", {}, {"windows": 2}, "windows must be 1 .* got 2"),
        ("residual", {}, {"causal": 1.0}, "causal must be left out .* got 1.0"),
        (
            "functional",
            {},
            {
                "optimiser": sdifp.training.Adam(),
                "estimator": sdifp.estimators.Independent(1),
            },
            r"estimator must be Full\(\) for a functional",
        ),
        (
            "residual",
            {"gradient": sdifp.field.Lagged(2)},
            {},
            "gradient must not be Lagged",
        ),
        (
            "functional",
            {"gradient": sdifp.field.Interpolated(4)},
            {},
            "gradient must not be Interpolated",
        ),
    ],
)
def test_settings_that_need_time_are_refused(kind, method, changes, words, as_user):
    with pytest.raises(ValueError, match=words):
        trained(kind, sdifp.training.SDIFP(**method), **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"conditions": [Initial(lambda x: x[0])]}, r"interval must be given"),
        ({"interval": (0.0, 1.0)}, "interval must be left out for a Functional"),
        ({"squared_norm": lambda t: t}, "squared_norm must be a number"),
        ({"positive": True}, "mass must be given for a positive solution"),
        (
            {"positive": True, "conditions": [Dirichlet(lambda x: x[0])]},
            "does not vanish on a wall",
        ),
        ({"minimum": float("nan")}, "minimum must be finite, got nan"),
    ],
)
def test_problems_that_make_no_sense_are_refused(changes, words, as_user):
    given = {"conditions": (), "squared_norm": 1.0, "domain": BOX, **changes}
    with pytest.raises(ValueError, match=words):
        sdifp.Problem(equation=FUNCTIONAL.equation, **given)
