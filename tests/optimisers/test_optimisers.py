"""Steps of the optimisers against formulas, SciPy and Optax."""

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize
from hypothesis import given, settings
from quick import once

import sdifp
from sdifp.training._optimisers._levenberg_marquardt import damped_step

quick_step = once(damped_step)


class Rows(eqx.Module):
    """The objective of given rows, a function of the parameters."""

    function: object

    def rows(self, net):
        return self.function(net)

    def loss(self, net):
        return 0.5 * jnp.sum(self.rows(net) ** 2)

    def total(self, net):
        return self.loss(net)

    def linearise(self, net):
        return self.loss(net), self.rows(net), jax.jacfwd(self.rows)(net)


@given(
    st.sampled_from([(3, 5), (5, 3), (4, 4)]),
    st.integers(0, 2**31),
    st.floats(-8.0, 4.0),
    st.floats(-3.0, 3.0),
)
@settings(max_examples=60)
def test_damped_step_solves_the_normal_equations(shape, seed, power, size):
    generator = np.random.default_rng(seed)
    jacobian = 10.0**size * generator.normal(size=shape)
    rows, damping = generator.normal(size=shape[0]), 10.0**power
    step = np.asarray(quick_step(*map(jnp.asarray, (rows, jacobian, damping))))
    # In stacked form, which does not square the condition number.
    stacked = np.vstack([jacobian, np.sqrt(damping) * np.eye(shape[1])])
    wanted = np.linalg.lstsq(stacked, np.append(-rows, np.zeros(shape[1])))[0]
    singular = np.linalg.svd(jacobian, compute_uv=False)
    squares = singular**2 + damping
    condition = squares.max() / squares.min()
    off = np.linalg.norm(step - wanted)
    scale = np.linalg.norm(rows) * singular.max() / squares.min()
    assert off <= 1e-13 * condition * max(np.linalg.norm(wanted), scale)


def fit_rows(p):
    times = jnp.linspace(0.0, 2.0, 12)
    data = 1.5 * jnp.exp(-0.7 * times) + 0.1 * jnp.sin(9.0 * times)
    return p[0] * jnp.exp(-p[1] * times) + p[2] - data


def test_levenberg_marquardt_finds_the_least_squares():
    optimiser = sdifp.training.LevenbergMarquardt()
    objective = Rows(fit_rows)
    begin = jnp.asarray([0.3, 2.0, 0.5])

    @once
    def run(net):
        def body(carry, _):
            net, state, loss = optimiser.step(*carry, objective, 40)
            return (net, state), loss

        return jax.lax.scan(body, (net, optimiser.start(net, 40)), None, 40)

    (found, damping), losses = run(begin)
    wanted = scipy.optimize.least_squares(
        once(fit_rows), np.asarray(begin), ftol=1e-15, xtol=1e-15, gtol=1e-15
    )
    assert np.allclose(found, wanted.x, rtol=1e-6)
    assert np.allclose(losses[-1], wanted.cost, rtol=1e-10)
    assert np.all(np.diff(losses) <= 1e-15)
    assert damping > 0.0


def one_step(function, begin, optimiser):
    step = once(lambda net, state: optimiser.step(net, state, Rows(function), 1))
    begin = jnp.asarray(begin)
    return begin, *step(begin, optimiser.start(begin, 1))


def test_levenberg_marquardt_takes_a_full_step_and_trusts_it():
    optimiser = sdifp.training.LevenbergMarquardt(damping=1e-3, fall=5.0)
    begin, found, damping, loss = one_step(lambda p: 2.0 * p, [1.0, 3.0], optimiser)
    assert np.allclose(found, begin - begin * 4.0 / (4.0 + 1e-3), rtol=1e-12)
    assert np.isclose(damping, 2e-4)
    assert np.isclose(loss, 20.0)


def test_levenberg_marquardt_takes_part_of_a_step():
    # A step that is three times too long: half of it is the best part, and lowers.
    rows = lambda p: jnp.arctan(p)
    begin, found, damping, _ = one_step(
        rows, [1.6], sdifp.training.LevenbergMarquardt(1e-6)
    )
    whole = -np.arctan(1.6) * (1.0 + 1.6**2)
    parts = [begin[0] + f * whole for f in (1.0, 0.5, 0.25, 0.125)]
    best = min(parts, key=lambda p: np.arctan(p) ** 2)
    assert best != parts[0]
    assert np.isclose(found[0], best, rtol=1e-3)
    assert np.isclose(damping, 2e-6)


@pytest.mark.parametrize("bad", [1e3, np.nan, np.inf])
def test_a_worse_or_wild_step_is_refused(bad):
    # Rows that are what their derivatives promise at the first point alone.
    rows = lambda p: jnp.where(p == 1.0, p, bad * jnp.ones_like(p))

    class Promise(Rows):
        def linearise(self, net):
            return self.loss(net), self.rows(net), jnp.eye(net.size)

    optimiser = sdifp.training.LevenbergMarquardt(damping=0.1, rise=3.0)
    begin = jnp.ones(2)
    state = optimiser.start(begin, 1)
    step = once(lambda net, state: optimiser.step(net, state, Promise(rows), 1))
    found, damping, loss = step(begin, state)
    assert np.array_equal(found, begin)
    assert np.isclose(damping, 0.3)
    assert np.isclose(loss, 1.0)


def test_damping_stays_between_its_bounds():
    optimiser = sdifp.training.LevenbergMarquardt(damping=0.1, least=0.08)
    assert one_step(lambda p: 2.0 * p, [1.0], optimiser)[2] == 0.08


@pytest.mark.parametrize("clip", [None, 0.05])
def test_adam_is_the_formula(clip):
    rows = lambda p: jnp.stack([p[0] - 1.0, 2.0 * p[1], p[0] * p[1]])
    optimiser = sdifp.training.Adam(0.1, sdifp.training.Linear(), clip)
    step = once(lambda net, state: optimiser.step(net, state, Rows(rows), 10))
    net = jnp.asarray([0.5, -1.0])
    state = optimiser.start(net, 10)
    by_hand, mean, square = np.asarray(net), np.zeros(2), np.zeros(2)
    for k in range(3):
        p, q = by_hand
        gradient = np.array([p - 1.0 + p * q**2, 4.0 * q + p**2 * q])
        wanted_loss = 0.5 * ((p - 1.0) ** 2 + 4.0 * q**2 + (p * q) ** 2)
        if clip is not None:
            gradient *= min(1.0, clip / np.linalg.norm(gradient))
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        scaled = mean / (1.0 - 0.9 ** (k + 1))
        scaled /= np.sqrt(square / (1.0 - 0.999 ** (k + 1))) + 1e-8
        by_hand = by_hand - 0.1 * (1.0 - k / 10.0) * scaled
        net, state, loss = step(net, state)
        assert np.allclose(net, by_hand, rtol=1e-12)
        assert np.isclose(loss, wanted_loss, rtol=1e-12)


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        (sdifp.training.Constant(), {0: 1.0, 50: 1.0, 100: 1.0}),
        (sdifp.training.Linear(), {0: 1.0, 25: 0.75, 100: 0.0}),
        (sdifp.training.Cosine(), {0: 1.0, 50: 0.5, 100: 0.0}),
        (sdifp.training.Cosine(0.2), {0: 0.0, 10: 0.5, 20: 1.0, 60: 0.5, 100: 0.0}),
    ],
)
def test_rates_at_chosen_steps(decay, expected):
    schedule = decay.schedule(3e-3, 100)
    for step, part in expected.items():
        assert np.isclose(float(schedule(step)), 3e-3 * part, atol=1e-9), step


@pytest.mark.parametrize("steps", [1, 2, 10])
@pytest.mark.parametrize("warmup", [0.01, 0.5, 0.99])
def test_a_warmup_fits_into_a_short_run(warmup, steps):
    rates = [
        float(sdifp.training.Cosine(warmup).schedule(1.0, steps)(k))
        for k in range(steps)
    ]
    assert np.all(np.isfinite(rates))
    assert max(rates) <= 1.0


def test_lbfgs_minimises_a_quadratic():
    matrix = jnp.asarray([[3.0, 1.0, 0.0], [0.0, 2.0, 0.5], [0.0, 0.0, 1.0]])
    objective = Rows(lambda p: matrix @ p - 1.0)
    optimiser = sdifp.training.LBFGS(memory=5, refresh=7, trials=10)
    assert optimiser.refresh == 7

    @once
    def run(net):
        def body(carry, _):
            net, state, loss = optimiser.step(*carry, objective, 20)
            return (net, state), loss

        return jax.lax.scan(body, (net, optimiser.start(net, 20)), None, 20)

    (found, _), losses = run(jnp.zeros(3))
    assert np.allclose(found, np.linalg.solve(matrix, np.ones(3)), atol=1e-7)
    assert np.isclose(losses[0], 1.5)
    assert losses[-1] < 1e-12


def test_a_transformation_of_the_user():
    optimiser = sdifp.training.Optax(optax.sgd(0.25))
    begin, found, _, loss = one_step(lambda p: p - 2.0, [1.0, 4.0], optimiser)
    assert np.allclose(found, begin - 0.25 * (begin - 2.0))
    assert np.isclose(loss, 2.5)
    assert not optimiser.uses_rows
    assert optimiser.refresh == 1


def test_what_is_no_parameter_stays():
    class Net(eqx.Module):
        scale: jax.Array
        order: int

    step = once(
        lambda net, state: sdifp.training.Adam(0.1).step(
            net, state, Rows(lambda net: net.scale * net.order), 5
        )
    )
    net = Net(jnp.ones(2), 3)
    found, _, _ = step(net, sdifp.training.Adam(0.1).start(net, 5))
    assert found.order == 3
    assert np.all(found.scale < 1.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sdifp.training.Adam(0.0), "rate must be positive and finite, got 0.0"),
        (
            lambda: sdifp.training.Adam(float("nan")),
            "rate must be positive and finite, got nan",
        ),
        (
            lambda: sdifp.training.Adam(clip=-1.0),
            "clip must be positive and finite, got -1.0",
        ),
        (
            lambda: sdifp.training.Cosine(1.0),
            "warmup must be a part of the run.* got 1.0",
        ),
        (
            lambda: sdifp.training.Cosine(-0.1),
            "warmup must be a part of the run.* got -0.1",
        ),
        (
            lambda: sdifp.training.LBFGS(memory=0),
            "memory must be a positive integer, got 0",
        ),
        (
            lambda: sdifp.training.LBFGS(refresh=0),
            "refresh must be a positive integer, got 0",
        ),
        (
            lambda: sdifp.training.LBFGS(trials=-2),
            "trials must be a positive integer, got -2",
        ),
        (
            lambda: sdifp.training.LevenbergMarquardt(0.0),
            "damping must be .* damping = 0.0",
        ),
        (
            lambda: sdifp.training.LevenbergMarquardt(1e5),
            "between least and most.* 100000.0",
        ),
        (
            lambda: sdifp.training.LevenbergMarquardt(fall=1.0),
            "fall must be above 1, got 1.0",
        ),
        (
            lambda: sdifp.training.LevenbergMarquardt(rise=0.5),
            "rise must be above 1, got 0.5",
        ),
    ],
)
def test_bad_arguments_are_named(make, words, as_user):
    with pytest.raises(ValueError, match=words):
        make()
