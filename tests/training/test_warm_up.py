"""WarmUp in a training: which estimate each step takes, and where it changes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from make_problem import make_problem
from quick import once, only

import sdifp
from sdifp.estimators import Full, Independent, Shared, WarmUp
from sdifp.training import _training
from sdifp.training._step import bias_exceeds_noise

KEY = jax.random.key(3)
D = 4


def heat():
    wave = lambda x: jnp.sum(jnp.sin(2.0 * np.pi * x)) / np.sqrt(D)
    return make_problem(
        sdifp.Box.cube(D, periodic=True),
        sdifp.Residual(sdifp.time_derivative() - sdifp.laplacian()),
        lambda x: 1.0 + wave(x),
        duration=0.1,
        mass=1.0,
    )


PROBLEM = heat()
RECIPE = sdifp.Recipe(
    sdifp.training.MLP(4, 1),
    sdifp.training.Adam(0.01),
    steps=6,
    points=sdifp.training.RandomPoints(1, 4),
    nodes=16,
)


@pytest.fixture(scope="module", autouse=True)
def compiled_for_one_run():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_training, "advance", once(_training.advance.__wrapped__))
        patch.setattr(_training, "is_due", once(_training.is_due.__wrapped__))
        yield


def training(estimator, every=2):
    return sdifp.train(
        PROBLEM,
        recipe=RECIPE.replace(estimator=estimator),
        every=every,
        check=False,
        key=KEY,
    )


def parameters(run):
    leaves = jax.tree.leaves(eqx.filter(run.state.net, eqx.is_inexact_array))
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


def test_the_late_estimate_takes_over_after_the_steps():
    both = training(WarmUp(Shared(1), Independent(1), steps=3))
    early, late = training(Shared(1)), training(Independent(1))
    both.advance(3)
    early.advance(3)
    np.testing.assert_allclose(parameters(both), parameters(early), rtol=1e-12)
    # From the same state on, the steps are those of the late one.
    late.restore(both.snapshot())
    both.advance(3)
    late.advance(3)
    early.advance(3)
    np.testing.assert_allclose(parameters(both), parameters(late), rtol=1e-12)
    assert not np.allclose(parameters(both), parameters(early), rtol=1e-6)


def test_a_resumed_training_has_the_same_bits():
    estimator = WarmUp(Shared(1), Independent(1), steps=3)
    whole, first, second = (training(estimator) for _ in range(3))
    whole.advance(6)
    first.advance(2)
    second.restore(first.snapshot())
    second.advance(4)
    np.testing.assert_array_equal(parameters(whole), parameters(second))


def test_the_audit_decides_and_is_part_of_a_snapshot(monkeypatch):
    # Due at the second report, after step 2.
    monkeypatch.setattr(
        _training, "is_due", lambda window, state, key: jnp.asarray(state.step >= 2)
    )
    estimator = WarmUp(Shared(1), Independent(1))
    run = training(estimator)
    assert run.go_on() is not None
    assert not run.state.switched
    assert run.go_on() is not None
    assert run.state.switched
    other = training(estimator)
    other.restore(run.snapshot())
    assert other.state.switched
    run.advance(2)
    other.advance(2)
    np.testing.assert_array_equal(parameters(run), parameters(other))


@pytest.mark.parametrize("biased", only([False, True], True))
def test_an_audit_tells_a_biased_estimate_from_an_unbiased_one(biased):
    # The exact gradient whatever is drawn: no bias, and noise from the nodes alone.
    run = training(WarmUp(_Wrong() if biased else Full(), Full()))
    run.go_on()
    assert bool(run.state.switched) is biased


class _Wrong(sdifp.estimators.Estimator):
    """The exact residual, doubled: bias without noise."""

    def estimate(self, *given):
        found = Full().estimate(*given)
        return sdifp.estimators.Estimate(4.0 * found.loss, None)


@pytest.mark.parametrize(
    ("shift", "exceeds"), [(0.0, False), (0.5, False), (2.0, True)]
)
def test_bias_and_noise_of_known_draws(rng, shift, exceeds):
    # Noise of norm 1, bias of norm `shift`.
    p = 50
    early = rng.normal(size=(400, p)) / np.sqrt(p) + shift / np.sqrt(p)
    late = 3.0 * rng.normal(size=(400, p)) / np.sqrt(p)
    assert bool(bias_exceeds_noise(jnp.asarray(early), jnp.asarray(late))) is exceeds


def test_outside_a_training_it_is_the_late_estimate():
    x = PROBLEM.domain.sample(KEY, 5)
    u = lambda x, t: jnp.sum(jnp.sin(x)) * (1.0 + t)
    call = lambda e: e(PROBLEM.equation, u, x, 0.3, key=KEY).loss
    both = WarmUp(Shared(2), Independent(2), steps=10)
    assert call(both) == call(Independent(2)) != call(Shared(2))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((Shared(1), 3), TypeError, "late.*3"),
        ((WarmUp(Shared(1), Full()), Full()), TypeError, "early.*WarmUp"),
        ((Shared(1), Full(), 0), ValueError, "steps.*0"),
    ],
)
def test_bad_arguments(as_user, arguments, error, text):
    with pytest.raises(error, match=text):
        WarmUp(*arguments)


def test_it_can_be_written_in_a_configuration():
    text = "WarmUp(Shared(2), Independent(2), steps=3)"
    config = sdifp.Config("manufactured(4)", estimator=text)
    assert config.estimator == text
