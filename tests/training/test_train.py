"""Whole trainings: their numbers, windows, failures and certificates."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from make_problem import make_problem
from quick import once

import sdifp
from sdifp.field import _certificate
from sdifp.problems import _check
from sdifp.training import _training, _window

RECIPE = sdifp.Recipe(
    sdifp.training.MLP(4, 1),
    sdifp.training.Adam(0.05),
    steps=6,
    points=sdifp.training.RandomPoints(2, 3),
    nodes=16,
)
KEY = jax.random.key(5)
sine = lambda x: jnp.sin(2.0 * np.pi * x)


def advection(**changes):
    """A wave that travels once around a circle of length 1."""
    settings = {
        "domain": sdifp.Box([0.0], [1.0], periodic=True),
        "duration": 0.5,
        "equation": sdifp.Residual(
            sdifp.time_derivative() + sdifp.operators.advection([1.0])
        ),
        "initial": lambda x: 1.0 + sine(x[0]),
        "mass": 1.0,
        "squared_norm": 1.5,
        "reference": lambda x, t: 1.0 + sine(x[0] - t),
    }
    return make_problem(**{**settings, **changes})


PROBLEM = advection()


def numbers(metrics):
    """All but the time that it took."""
    out = dataclasses.asdict(metrics)
    del out["seconds"]
    return out


def leaves(tree):
    return jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))


def same(one, other):
    return all(map(np.array_equal, leaves(one), leaves(other)))


@pytest.fixture(scope="module", autouse=True)
def compiled_for_one_run():
    """Steps are few here, so that their program need not be fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_training, "advance", once(_training.advance.__wrapped__))
        patch.setattr(_window, "_SERIES", 96)
        patch.setattr(_check, "once", once)
        integrals = once(_certificate._means.__wrapped__)
        patch.setattr(_certificate, "_means", integrals)
        patch.setattr(_training, "measure", once(_training.measure.__wrapped__))
        yield


@pytest.fixture(scope="module")
def projected(compiled_for_one_run):
    """Metrics of every second step, and the result."""
    run = sdifp.train(PROBLEM, recipe=RECIPE, every=2, key=KEY)
    metrics = list(run)
    return metrics, run.result()


@pytest.fixture(scope="module")
def plain(compiled_for_one_run):
    return sdifp.train(PROBLEM, sdifp.training.Plain(), recipe=RECIPE, key=KEY).result()


def test_metrics_come_every_so_many_steps(projected):
    metrics, trained = projected
    # And after the first one.
    assert [m.step for m in metrics] == [1, 2, 4, 6]
    for one in (*metrics, trained.metrics):
        assert one.steps == 6
        assert one.window == 0
        assert one.seconds > 0.0
        assert 0.0 < one.scale[0] <= one.scale[1]
        assert one.shift[0] <= one.shift[1]
        assert max(one.errors.values()) < 0.1
    assert trained.metrics.loss == metrics[-1].loss
    text = str(trained.metrics)
    for word in ("step 6/6", "loss", "L2", "mass", "squared_norm", "scale"):
        assert word in text


def test_seconds_are_wall_time_and_add_up(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(_training.time, "perf_counter", lambda: now[0])
    # A compilation of 7 s, steps of 1 s each, and 3 s for each measurement.
    steps, measured = _training.advance, _training.measure

    def advance(*arguments):
        count = int(arguments[-1])
        now[0] += count or 7.0
        return steps(*arguments)

    def measure(*arguments):
        now[0] += 3.0
        return measured(*arguments)

    monkeypatch.setattr(_training, "advance", advance)
    monkeypatch.setattr(_training, "measure", measure)
    begin = lambda: _training.Training(
        PROBLEM, sdifp.training.Plain(), recipe=RECIPE, every=3, key=KEY, check=False
    )
    run = begin()
    assert (run.seconds, run.speed, run.compile_seconds) == (0.0, None, None)
    first = run.go_on()
    # What a user does in between does not count.
    now[0] += 1000.0
    second = run.go_on()
    assert (first.seconds, second.seconds) == (7.0 + 1.0 + 3.0, 11.0 + 2.0 + 3.0)
    assert (run.compile_seconds, run.speed) == (7.0, 1.0)
    assert run.steps_within(2.5) == 2
    again = begin()
    again.restore(run.snapshot())
    assert again.seconds == 16.0
    # Compiled anew, and three steps more; the pace is that of this process.
    trained = again.result()
    assert trained.metrics.seconds == 16.0 + 7.0 + 3.0 + 3.0
    assert again.speed == 1.0


def test_without_double_precision_the_second_order_optimiser_is_warned_of():
    recipe = RECIPE.replace(optimiser=sdifp.training.LevenbergMarquardt())
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.warns(UserWarning, match="LevenbergMarquardt needs float64 .*x64"):
            sdifp.train(PROBLEM, recipe=recipe, key=KEY, check=False)
        # No warning, which would be an error here.
        sdifp.train(PROBLEM, recipe=RECIPE, key=KEY, check=False)
    finally:
        jax.config.update("jax_enable_x64", True)


def test_the_same_key_gives_the_same_numbers_however_it_is_asked_for(projected):
    run = sdifp.train(PROBLEM, recipe=RECIPE, every=2, key=KEY)

    def passed_on():
        trained = yield from run
        return trained

    # Look once and leave, go on elsewhere, and ask for the result at the end.
    found = [next(iter(run))]
    rest = passed_on()
    while True:
        try:
            found.append(next(rest))
        except StopIteration as stop:
            returned = stop.value
            break
    metrics, trained = projected
    assert list(map(numbers, found)) == list(map(numbers, metrics))
    assert returned is run.result()
    assert same(returned.parameters, trained.parameters)
    assert numbers(returned.metrics) == numbers(trained.metrics)


def test_another_key_gives_other_numbers(plain):
    key = jax.random.key(6)
    other = sdifp.train(
        PROBLEM, sdifp.training.Plain(), recipe=RECIPE, key=key
    ).result()
    assert other.metrics.loss != plain.metrics.loss
    assert not same(other.parameters, plain.parameters)


def errors_by_hand(field):
    """Worst errors of mass and squared norm, and that in L2, on 509 points."""
    grid, times = np.arange(509) / 509, np.linspace(0.0, 0.5, 9)

    @once
    def on_grid(x, times):
        return jax.lax.map(lambda t: jax.vmap(lambda x: field(x, t))(x), times)

    values = np.asarray(on_grid(jnp.asarray(grid)[:, None], jnp.asarray(times)))
    exact = 1.0 + np.sin(2.0 * np.pi * (grid[None, :] - times[:, None]))
    mass = np.abs(values.mean(1) - 1.0).max() / np.sqrt(1.5)
    squared_norm = np.abs((values**2).mean(1) / 1.5 - 1.0).max()
    return mass, squared_norm, np.linalg.norm(values - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize("which", ["plain", "projected"])
def test_metrics_are_what_they_say(which, request):
    trained = request.getfixturevalue(which)
    trained = trained[1] if isinstance(trained, tuple) else trained
    mass, squared_norm, l2 = errors_by_hand(trained.field)
    found = trained.metrics
    assert np.isclose(found.l2_error, l2, rtol=1e-10)
    assert np.isclose(found.errors["mass"], mass, rtol=1e-9, atol=1e-14)
    assert np.isclose(found.errors["squared_norm"], squared_norm, rtol=1e-9, atol=1e-14)
    assert l2 > 1e-3


def test_training_afterwards_is_plain_training(plain):
    after = sdifp.train(
        PROBLEM, sdifp.training.PostHoc(), recipe=RECIPE, key=KEY
    ).result()
    assert same(after.parameters, plain.parameters)
    assert plain.certificate is None
    assert plain.metrics.scale is plain.metrics.shift is None
    assert after.certificate.holds
    assert isinstance(after.field, sdifp.field.ConservedField)


def test_certificates_hold(projected):
    _, trained = projected
    assert trained.certificate.holds
    times = sorted({row.time for row in trained.certificate.rows})
    assert np.allclose(times, np.linspace(0.0, 0.5, 5))


def test_initial_data_hold_by_construction(plain):
    look = once(lambda x, t: (plain.net(x, t), PROBLEM.initial(x)))
    for t, holds in ((0.0, True), (0.5, False)):
        value, data = look(jnp.asarray([0.3]), jnp.asarray(t))
        assert (value == data) == holds


def look_at_hand_over(trained, problem, end):
    """Values and rates just before and at the time, then initial values and rates."""
    x = jnp.linspace(0.05, 0.95, 7)[:, None]
    times = jnp.asarray([np.nextafter(end, 0.0), end, 0.0])

    @once
    def look(x, times):
        def at(x, t):
            field = lambda t: trained.field(x, t)
            return jnp.stack(jax.jvp(field, (t,), (jnp.ones_like(t),)))

        over_x = jax.vmap(at, (0, None))
        data = jax.vmap(problem.initial)(x)
        return jax.lax.map(lambda t: over_x(x, t), times), data

    return jax.tree.map(np.asarray, look(x, times))


def test_windows_join():
    # Walls on which the field vanishes: the data of a window are the field before it.
    bump = lambda x: jnp.sin(np.pi * x[0])
    problem = advection(
        domain=sdifp.Box([0.0], [1.0]),
        initial=bump,
        profile=lambda x: x[0] * (1.0 - x[0]),
        mass=2.0 / np.pi,
        squared_norm=None,
        reference=None,
    )
    recipe = RECIPE.replace(windows=2, steps=3, nodes=32)
    run = sdifp.train(problem, sdifp.training.Plain(), recipe=recipe, every=2, key=KEY)
    metrics = list(run)
    steps = [(m.step, m.window) for m in metrics]
    assert steps == [(1, 0), (2, 0), (3, 0), (5, 1), (6, 1)]
    assert {m.steps for m in metrics} == {6}
    trained = run.result()
    assert (trained.metrics.step, trained.metrics.window) == (6, 1)
    assert trained.metrics.l2_error is None
    assert list(trained.metrics.errors) == ["mass"]
    (before, after, start), data = look_at_hand_over(trained, problem, 0.25)
    assert np.allclose(before[:, 0], after[:, 0], rtol=0.0, atol=1e-12)
    # The windows are not one function: their slopes differ.
    assert np.max(np.abs(before[:, 1] - after[:, 1])) > 1e-3
    assert np.allclose(start[:, 0], data, rtol=0.0, atol=1e-12)


@pytest.mark.validate
def test_windows_join_with_their_velocity():
    problem = advection(
        equation=sdifp.Residual(sdifp.time_derivative(2) - sdifp.laplacian()),
        velocity=lambda x: -2.0 * np.pi * jnp.cos(2.0 * np.pi * x[0]),
    )
    optimiser = sdifp.training.LevenbergMarquardt()
    recipe = RECIPE.replace(windows=2, steps=2, nodes=32, optimiser=optimiser)
    trained = sdifp.train(
        problem, sdifp.training.PostHoc(), recipe=recipe, key=KEY
    ).result()
    assert trained.metrics.step == 4
    assert trained.certificate.holds
    (before, after, start), data = look_at_hand_over(trained, problem, 0.25)
    assert np.allclose(before[:, 0], after[:, 0], rtol=0.0, atol=1e-11)
    assert np.allclose(before[:, 1], after[:, 1], rtol=0.0, atol=1e-10)
    assert np.allclose(start[:, 0], data, rtol=0.0, atol=1e-12)
    rate = -2.0 * np.pi * np.cos(2.0 * np.pi * np.linspace(0.05, 0.95, 7))
    assert np.allclose(start[:, 1], rate, rtol=0.0, atol=1e-10)


def test_a_loss_that_is_lost_leaves_the_last_good_state():
    # The equation drives u up to where it has no value.
    residual = sdifp.Residual(
        sdifp.time_derivative() + sdifp.operators.advection([1.0]),
        lambda u, grad, x, t: 0.0 * jnp.sqrt(2.5 - u) - 30.0,
    )
    problem = advection(equation=residual, reference=None)
    recipe = RECIPE.replace(steps=100)
    run = sdifp.train(problem, sdifp.training.Plain(), recipe=recipe, every=50, key=KEY)
    words = r"not finite at step \d+; .*Try a lower rate, Adam\(clip=1.0\), float64"
    with pytest.raises(sdifp.training.TrainingDiverged, match=words) as caught:
        run.result()
    trained = caught.value.trained
    assert isinstance(caught.value, ArithmeticError)
    assert 0 < trained.metrics.step < 100
    assert f"at step {trained.metrics.step + 1};" in str(caught.value)
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves(trained.parameters))
    assert np.isfinite(trained.field(jnp.asarray([0.2]), jnp.asarray(0.4)))
    assert np.isfinite(trained.metrics.errors["mass"])
    # There is no way on from here.
    with pytest.raises(sdifp.training.TrainingDiverged):
        run.result()


@pytest.mark.parametrize(
    "optimiser",
    [
        sdifp.training.Adam(),
        sdifp.training.LBFGS(),
        sdifp.training.LevenbergMarquardt(),
    ],
)
def test_targets_that_cannot_be_met_stop_the_training(optimiser):
    """No field of mass 1 has a squared norm below 1: from t = 0.25 on there is none."""
    squared_norm = lambda t: jnp.where(t < 0.25, 1.5, 0.5)
    problem = advection(squared_norm=squared_norm, reference=None)
    points = sdifp.training.RandomPoints(4, 3)
    recipe = RECIPE.replace(steps=50, optimiser=optimiser, points=points)
    run = sdifp.train(problem, recipe=recipe, check=False, key=KEY)
    words = r"cannot be met at t = 0\.\d+: squared_norm = 0\.5 is below .*state of step"
    with pytest.raises(sdifp.training.TrainingDiverged, match=words) as caught:
        run.result()
    assert caught.value.trained.metrics.step == run.step < 50
    found = leaves(caught.value.trained.parameters)
    assert all(np.all(np.isfinite(leaf)) for leaf in found)


class Flat(eqx.Module):
    """A network that does not depend on x, with data that do not either."""

    level: jax.Array

    def __call__(self, x, t):
        return self.level + 0.0 * x[0]


def test_a_field_without_variance_stops_the_training():
    problem = advection(initial=lambda x: 1.0 + 0.0 * x[0], reference=None)
    net = Flat(jnp.asarray(0.3))
    for method in (sdifp.training.SDIFP(), sdifp.training.PostHoc()):
        run = sdifp.train(
            problem, method, recipe=RECIPE, network=net, check=False, key=KEY
        )
        with pytest.raises(
            sdifp.training.TrainingDiverged, match="constant on the nodes"
        ):
            run.result()
        # In the first step, or after all of them where the training does without.
        assert run.step == (0 if isinstance(method, sdifp.training.SDIFP) else 6)


# Decay of a mode in units of 0.1 pi^2, and its size, in heat_dirichlet.
MODES = ((1.0, 1.0), (9.0, 0.5))


@pytest.mark.validate
def test_targets_that_depend_on_the_network_may_be_out_of_reach_for_a_while():
    """With a profile the least squared norm depends on the network: a few steps of this
    training have times at which the target is below it. They are not the end of it, but
    the field that comes out must meet its targets."""

    def squared_norm(t):
        first, third = (c * jnp.exp(-k * 0.1 * np.pi**2 * t) for k, c in MODES)
        return 0.5 * (first**2 + third**2)

    problem = sdifp.problems.heat_dirichlet()
    problem = dataclasses.replace(problem, squared_norm=squared_norm)
    recipe = sdifp.training.recipe_for(problem).replace(
        steps=12, points=sdifp.training.RandomPoints(8, 12)
    )
    run = sdifp.train(problem, recipe=recipe, key=jax.random.key(0))
    for _ in range(2):
        with pytest.raises(
            sdifp.training.TrainingDiverged, match="with a profile, after 12"
        ):
            run.result()
        assert run.step == run.steps


def test_one_node_is_refused_before_anything_is_trained():
    for method in (sdifp.training.SDIFP(), sdifp.training.PostHoc()):
        with pytest.raises(ValueError, match="rule must have at least two nodes"):
            sdifp.train(PROBLEM, method, recipe=RECIPE.replace(nodes=1), key=KEY)


class Wave(eqx.Module):
    """A network of a user: two parameters, and a number that is none."""

    size: jax.Array
    phase: jax.Array
    order: int

    def __call__(self, x, t):
        return self.size * jnp.cos(2.0 * np.pi * self.order * x[0] + self.phase * t)


def test_a_network_of_the_user_and_multipliers_that_move():
    net = Wave(jnp.asarray(0.3), jnp.asarray(1.0), 2)
    method = sdifp.training.AugmentedLagrangian(rate=0.5)
    run = sdifp.train(PROBLEM, method, recipe=RECIPE, network=net, key=KEY)
    assert np.all(run.state.multipliers == 0.0)
    trained = run.result()
    assert trained.parameters.order == 2
    assert not same(trained.parameters, net)
    # One for each of two times and two integrals; the second is far from fulfilled.
    assert run.state.multipliers.shape == (2, 2)
    assert np.all(np.abs(run.state.multipliers[:, 1]) > 1e-4)
    assert trained.certificate is None
    assert trained.metrics.scale is None


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (lambda x, t: x[0] * t, "network has no parameters to train"),
        (
            jax.tree_util.Partial(lambda p, x, t: (p * x) + t, jnp.ones(1)),
            r"must return one number for a point of shape \(1,\) .*, got shape \(1,\)",
        ),
        (
            sdifp.training.MLP(3, 1).build(sdifp.Box.cube(2), 1.0, key=KEY),
            r"for a point of shape \(1,\) and a time, as mine needs it, got ValueError",
        ),
        (
            jax.tree_util.Partial(lambda p, x: jnp.sum(p * x), jnp.ones(1)),
            r"for a point of shape \(1,\) .*, got TypeError",
        ),
    ],
    ids=["no parameters", "vector", "two inputs", "no time"],
)
def test_networks_that_do_not_fit_are_refused(network, words, as_user):
    with pytest.raises(ValueError, match=words):
        _window.check_functions(network, advection(name="mine"))


def test_networks_are_checked_before_the_training():
    with pytest.raises(ValueError, match="network has no parameters to train"):
        sdifp.train(PROBLEM, network=lambda x, t: x[0], recipe=RECIPE, key=KEY)


@pytest.mark.validate
def test_a_sampled_residual_in_five_dimensions():
    root = np.sqrt(5.0)
    problem = make_problem(
        sdifp.Box.cube(5, periodic=True),
        sdifp.Residual(sdifp.time_derivative() - sdifp.laplacian()),
        lambda x: 1.0 + jnp.sum(sine(x)) / root,
        duration=0.5,
        mass=1.0,
    )
    recipe = RECIPE.replace(
        estimator=sdifp.estimators.Independent(
            2, directions=sdifp.operators.Rademacher()
        ),
        gradient=sdifp.field.Subsampled(4),
        final_nodes=64,
        steps=4,
    )
    run = sdifp.train(problem, recipe=recipe, every=2, key=KEY)
    losses = [metrics.loss for metrics in run]
    trained = run.result()
    assert len(losses) == 3
    assert np.all(np.isfinite(losses))
    assert trained.certificate.holds
    # The rule afterwards is the finer one.
    assert trained.field.rule.nodes.shape == (64, 5)


@pytest.mark.validate
def test_single_precision():
    with jax.enable_x64(False):
        problem = advection(squared_norm=None, reference=None)
        run = sdifp.train(problem, recipe=RECIPE, key=jax.random.key(1))
        trained = run.result()
        assert all(leaf.dtype == jnp.float32 for leaf in leaves(trained.parameters))
        assert trained.certificate.holds
        assert trained.metrics.errors["mass"] < 0.1
        assert trained.field(jnp.ones(1), jnp.zeros(())).dtype == jnp.float32
