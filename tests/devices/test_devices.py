"""Several devices: the same bits of scale and shift, the same training to rounding."""

import contextlib
import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES, KEY, Net, coefficients
from jax.flatten_util import ravel_pytree
from quick import once, only, optimised

import sdifp
from sdifp._mesh import (
    along,
    averaged,
    device_local,
    gathered,
    messages,
    on_each,
    share_of,
)
from sdifp.quadrature._stream import node_numbers, part_count
from sdifp.runs import _run, build, devices_for
from sdifp.training import RandomPoints, Training, _training
from sdifp.training._coupled import rows_and_derivatives


def on(devices):
    """Where so many devices compute together; 0 for the usual one."""
    return (
        jax.set_mesh(sdifp.training.mesh(devices))
        if devices
        else contextlib.nullcontext()
    )


BITS = [(name, devices) for name in CASES for devices in ((3, 8), (1, 2, 4))]


@pytest.mark.parametrize(
    "case", only(BITS, ("few parts", (3, 8)), ("groups", (3, 8))), ids=str
)
def test_scale_and_shift_have_the_same_bits_on_any_number_of_devices(case):
    # With their derivatives by t, at several times in one program.
    name, devices = case
    u, times = CASES[name](), jnp.linspace(0.1, 0.9, 3)
    found = {}
    for n in (0, *devices):
        with on(n):
            found[n] = np.asarray(optimised(coefficients)(u, times))
    assert np.all(np.isfinite(found[0]))
    for n, value in found.items():
        assert value.tobytes() == found[0].tobytes(), n


@pytest.mark.validate
def test_single_precision_has_the_same_bits_too():
    with jax.enable_x64(False):
        u, found = CASES["padded"](), []
        for n in (0, 2, 8):
            with on(n):
                found.append(np.asarray(optimised(coefficients)(u, jnp.ones(2))))
    assert found[0].dtype == np.float32
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


@pytest.mark.parametrize("devices", [3, 8])
def test_means_have_the_same_bits(devices):
    rule = sdifp.quadrature.monte_carlo(sdifp.Box.cube(3), 20_000, key=KEY)
    mean = lambda a: rule.mean(lambda x: jnp.exp(a * x) - 2.0)
    with on(devices):
        there = np.asarray(optimised(mean)(0.3))
    assert there.tobytes() == np.asarray(optimised(mean)(0.3)).tobytes()


@pytest.mark.parametrize("name", only(["padded", "subsampled"], "subsampled"))
def test_gradients_agree_to_rounding(name, record_property):
    u = CASES[name]()
    params, static = eqx.partition(u, eqx.is_inexact_array)
    loss = lambda p: jnp.sum(coefficients(eqx.combine(p, static), jnp.ones(2)) ** 2)

    def gradient(n):
        with on(n):
            leaves = jax.tree.leaves(once(jax.grad(loss))(params))
            return np.concatenate([np.asarray(a).ravel() for a in leaves])

    here, there = gradient(0), gradient(4)
    error = np.max(np.abs(there - here)) / np.max(np.abs(here))
    record_property(f"gradient on 4 devices, {name}: worst difference", f"{error:.1e}")
    assert error < 1e-14


def test_every_part_is_counted_once_whatever_the_number_of_devices():
    def own(x):
        numbers = share_of(10)
        return gathered(jnp.where(numbers < 10, x[jnp.minimum(numbers, 9)], 0.0))

    x = jnp.arange(10.0)
    for n in (0, 1, 3, 4, 8):
        with on(n):
            found = np.asarray(jax.jit(lambda x: on_each(own, x))(x))
        assert found[:10].tolist() == x.tolist()
        assert not found[10:].any()


@pytest.mark.parametrize(
    ("size", "parts"), [(1, 1), (4096, 1), (4097, 2), (8193, 3), (2**30, 256)]
)
def test_parts_depend_on_the_size_alone(size, parts):
    assert part_count(size) == parts == part_count(size, 128)
    # Who has more devices than that wants them all to work.
    assert part_count(2**30, 1000) == 2048


ADAM = {"optimiser": sdifp.training.Adam(0.01), "steps": 8}
LM = {"optimiser": sdifp.training.LevenbergMarquardt(), "steps": 4}
TRAININGS = {
    "adam": ("advection", sdifp.training.SDIFP(), {**ADAM, "nodes": 8192}),
    "sampled": (
        "reaction_diffusion(5)",
        sdifp.training.SDIFP(sdifp.field.Subsampled(50)),
        {**ADAM, "nodes": 8192, "estimator": sdifp.estimators.Independent(2)},
    ),
    "lagged": (
        "advection",
        sdifp.training.SDIFP(sdifp.field.Lagged(3, 50)),
        {**ADAM, "nodes": 8192},
    ),
    "interpolated": (
        "advection",
        sdifp.training.SDIFP(sdifp.field.Interpolated(4, sdifp.field.Subsampled(50))),
        {**ADAM, "nodes": 8192, "points": RandomPoints(8, 4)},
    ),
    "interpolated, second order": (
        "advection",
        sdifp.training.SDIFP(sdifp.field.Interpolated(4)),
        {**LM, "nodes": 64, "points": RandomPoints(8, 4)},
    ),
    "warm-up": (
        "reaction_diffusion(5)",
        sdifp.training.SDIFP(),
        {
            **ADAM,
            "nodes": 64,
            "estimator": sdifp.estimators.WarmUp(
                sdifp.estimators.Shared(2), sdifp.estimators.Independent(2), steps=4
            ),
        },
    ),
    "causal, learnt": (
        "advection",
        sdifp.training.SDIFP(),
        {**ADAM, "nodes": 64, "causal": 1.0, "hard_initial": False},
    ),
    "levenberg-marquardt": ("kdv", sdifp.training.SDIFP(), {**LM, "nodes": 8192}),
    "more rows than parameters": (
        "advection",
        sdifp.training.Soft(10.0),
        {**LM, "nodes": 64, "hard_initial": False, "points": RandomPoints(32, 16)},
    ),
    "lbfgs": (
        "advection",
        sdifp.training.SDIFP(),
        {"optimiser": sdifp.training.LBFGS(), "steps": 4},
    ),
    "multipliers": (
        "wave",
        sdifp.training.AugmentedLagrangian(),
        {**ADAM, "nodes": 64},
    ),
    "steady": ("double_well", sdifp.training.SDIFP(), {**LM, "nodes": 64}),
    "steady, with an integral in it": (
        "mean_field",
        sdifp.training.SDIFP(),
        {**LM, "nodes": 64},
    ),
    "functional": ("droplet", sdifp.training.SDIFP(), {**LM, "nodes": 64}),
    "functional, first order": (
        "droplet",
        sdifp.training.Soft(10.0),
        {**ADAM, "nodes": 64},
    ),
    "afterwards, in windows": (
        "reaction_diffusion",
        sdifp.training.PostHoc(),
        {**ADAM, "nodes": 64, "windows": 2},
    ),
}


@functools.cache
def problem(name):
    made = name.partition("(")
    return getattr(sdifp.problems, made[0])(*map(int, made[2].rstrip(")").split()))


def training(name, **changes):
    where, method, settings = TRAININGS[name]
    small = {
        "network": sdifp.training.MLP(8, 1),
        "points": RandomPoints(2, 16),
    }
    recipe = sdifp.training.recipe_for(problem(where)).replace(windows=1, **small)
    recipe = recipe.replace(**{**settings, **changes})
    return Training(
        problem(where), method, recipe=recipe, every=2, check=False, key=KEY
    )


@pytest.mark.validate
@pytest.mark.parametrize("name", TRAININGS)
def test_training_curves_are_equal_to_rounding(name, monkeypatch, record_property):
    for program in ("advance", "measure"):
        quick = once(getattr(_training, program).__wrapped__)
        monkeypatch.setattr(_training, program, quick)
    curves = []
    for n in (0, 4):
        with on(n):
            rows = [dataclasses.asdict(m) for m in training(name)]
        curves.append([[r["loss"], r["l2_error"] or 0.0] for r in rows])
    here, there = map(np.asarray, curves)
    error = np.max(np.abs(there - here) / np.abs(here + (here == 0.0)))
    record_property(f"curve on 4 devices, {name}: worst difference", f"{error:.1e}")
    assert len(here) >= 2
    assert error < 1e-9


@pytest.mark.validate
def test_bytes_that_are_sent_do_not_grow_with_nodes_nor_with_devices():
    def sent(n, nodes):
        with on(n):
            return training("sampled", nodes=nodes).messages()

    assert sent(0, 1024) == {}
    size = lambda net: sum(
        a.nbytes for a in jax.tree.leaves(eqx.filter(net, eqx.is_array))
    )
    gradient = size(training("sampled").state.net)
    some, many, spread = sent(2, 2**20), sent(2, 2**23), sent(8, 2**23)
    assert some == many == spread
    # Seven sums of 256 parts, with derivatives, at two times.
    assert many["all-gather"] == 7 * 256 * 2 * 2 * 8
    assert gradient <= many["all-reduce"] <= gradient + 200
    assert many.keys() == {"all-gather", "all-reduce"}


def test_messages_are_read_from_a_program():
    text = """
  %a = f64[2,64,7]{2,1,0} all-gather(%x), channel_id=1, dimensions={1}
  %b = (f32[8]{0}, /*index=1*/f32[]) all-reduce(%x, %y), replica_groups={{0,1}}
  %c = f64[3,7]{1,0} reduce-scatter(%x), channel_id=2
  %d = f32[4]{0} add(%all-gather.1, %all-reduce.2)
  %e = (f8e4m3fn[2]{0}, f8e4m3fn[8]{0}) all-gather-start(%x), channel_id=3
  %f = (f32[8]{0}, f32[8]{0}, u32[], u32[]) collective-permute-start(%x), channel_id=4
"""
    found = messages(text, 4)
    assert found == {
        "all-gather": 2 * 64 * 7 * 8 + 8,
        "all-reduce": 36,
        "reduce-scatter": 4 * 21 * 8,
        "collective-permute": 32,
    }


@pytest.mark.validate
def test_a_run_goes_on_on_another_number_of_devices(tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "_PAUSE", 0.0)
    config = sdifp.Config(
        "advection",
        network="MLP(4, 1)",
        optimiser="Adam(0.01)",
        points="RandomPoints(2, 8)",
        nodes=8192,
        steps=12,
        every=4,
        check=False,
    )
    left = iter([False] * 5 + [True])
    with on(0):
        whole = sdifp.Run.create(tmp_path / "whole", config)
        assert whole.train()
    with on(4):
        run = sdifp.Run.create(tmp_path / "moved", config)
        assert not run.train(stop=lambda: next(left))
    with on(2):
        said = []
        run = sdifp.Run.open(tmp_path / "moved", said.append)
        assert "devices 4; resuming with " in said[0]
        assert 0 < run.training.step < 12
        assert run.train()
    moved, stayed = (r.training.snapshot() for r in (run, whole))
    for name, value in stayed.items():
        if name != "known":
            np.testing.assert_allclose(moved[name], value, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        (9, "between 1 and the 8 that JAX sees .cpu., got 9; XLA_FLAGS=.*count=9"),
        (0, "between 1 and the 8 that JAX sees .cpu., got 0$"),
        ("two", "must be a whole number, got 'two'"),
        (True, "must be a whole number, got True"),
    ],
)
def test_devices_that_there_are_not(devices, words, as_user):
    with pytest.raises((ValueError, TypeError), match=words):
        sdifp.training.mesh(devices)


def test_points_that_do_not_divide_are_told_with_those_that_do():
    words = "18 points of each time .* 4 devices: points must have 16 or 20 .* be 3"
    with on(4), pytest.raises(ValueError, match=words):
        training("adam", points=RandomPoints(2, 18))
    with on(8), pytest.raises(ValueError, match="must have 8 of them, or devices be 3"):
        training("adam", points=RandomPoints(2, 3))


@pytest.mark.validate
def test_a_field_in_a_training_of_your_own():
    # Without sdifp.train: the mesh alone says who does what.
    u = CASES["subsampled"]()
    x = jax.random.uniform(KEY, (8, 3))

    def loss(u, x):
        now, series = u.expand(jnp.asarray(0.3), 1)
        return jnp.mean(jax.vmap(now)(x) ** 2) + series.scale[1] ** 2

    values = []
    for n in (0, 4):
        with on(n):
            step = once(eqx.filter_value_and_grad(loss))
            value, slope = step(u, x)
            values.append((float(value), float(slope.net.mlp.layers[0].weight[0, 0])))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_numbers_of_nodes_do_not_overflow():
    with jax.enable_x64(False):
        found = np.asarray(node_numbers(jnp.asarray(2**20), 2**11))
    assert found[[0, -1]].tolist() == [2**31, 2**31 + 2**11 - 1]


def test_a_quadrature_inside_a_row_is_that_of_its_own_device():
    # Rows of other devices must not get into its derivatives.
    rule = sdifp.quadrature.sobol(sdifp.Box.cube(1), 8192, key=KEY)
    field = lambda flat: lambda x, t: jnp.sin(flat[0] * x[0]) * flat[1] + t
    row = lambda u, x, t: x[0] * rule.mean(lambda y: u(y, t)) + u(x, t)
    x, t = jax.random.uniform(KEY, (2, 4, 1)), jnp.asarray([0.2, 0.7])

    def slopes(x):
        flat = jnp.asarray([0.8, 1.3])
        found = rows_and_derivatives(row, field, flat, x, t, 0)[1]
        return gathered(found.reshape(2, -1, 2), axis=1)

    here = np.asarray(jax.jit(slopes)(x))
    with on(2):
        there = jax.jit(lambda x: on_each(slopes, x, specs=along(1)))(x)
    np.testing.assert_allclose(np.asarray(there), here, rtol=1e-13)


@pytest.mark.validate
def test_single_precision_networks_in_double_precision():
    with on(2):
        run = training("adam")
        narrow = lambda a: a.astype(np.float32) if eqx.is_inexact_array(a) else a
        net = jax.tree.map(narrow, run.state.net)
        again = Training(
            problem("advection"),
            recipe=run.recipe.replace(steps=2),
            network=net,
            check=False,
            key=KEY,
        )
        again.advance(2)
    assert again.step == 2


@pytest.mark.parametrize(("points", "devices"), [(48, 8), (50, 5), (7, 7), (11, 1)])
def test_of_accelerators_all_that_divide_the_points_are_used(
    points, devices, monkeypatch
):
    built = build(sdifp.Config("advection", points=f"RandomPoints(2, {points})"))
    assert devices_for(built) == 1
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert devices_for(built) == devices


def test_a_field_that_a_device_evaluates_for_itself():
    # After it was evaluated with the others, in the same program.
    params, static = eqx.partition(CASES["few parts"](), eqx.is_inexact_array)
    slope = jax.grad(lambda p: eqx.combine(p, static).at(0.3).scale)
    flat = lambda tree: ravel_pytree(tree)[0]

    def both(params):
        shared = averaged(flat(slope(params)))
        with device_local():
            return shared, flat(slope(params))

    here = np.asarray(jax.jit(lambda p: flat(slope(p)))(params))
    with on(2):
        for there in jax.jit(lambda p: on_each(both, p))(params):
            np.testing.assert_allclose(np.asarray(there), here, rtol=1e-11, atol=1e-14)


def smoothed(x):
    """Initial data with an integral in them."""
    rule = sdifp.quadrature.midpoint(sdifp.Box.cube(1), 4100)
    return rule.mean(lambda y: jnp.exp(jnp.cos(jnp.pi * (x[0] - 2.0 * y[0]))))


@functools.cache
def nonlocal_problem():
    """An equation with integrals wherever a user may write one."""
    box = sdifp.Box([0.0], [2.0], periodic=True)
    rule = sdifp.quadrature.trapezoid(box, 4100)
    return sdifp.Problem(
        box,
        sdifp.Residual(
            sdifp.time_derivative()
            + sdifp.operators.reaction(lambda x, t: smoothed(x)),
            local=lambda u, grad, x, t: u * smoothed(x),
            source=lambda x, t: t * smoothed(x),
            remainder=lambda u, x, t: rule.mean(
                lambda y: jnp.cos(y[0] - x[0]) * u(y, t)
            ),
        ),
        [sdifp.problems.Initial(smoothed)],
        (0.0, 1.0),
        mass=1.0,
        squared_norm=2.0,
    )


@pytest.mark.validate
@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize(
    ("optimiser", "gradient"),
    [
        (sdifp.training.Adam(0.01), sdifp.field.Exact()),
        (sdifp.training.Adam(0.01), sdifp.field.Subsampled(8)),
        (sdifp.training.LevenbergMarquardt(), sdifp.field.Exact()),
    ],
)
def test_integrals_inside_of_an_equation(optimiser, gradient, hard, monkeypatch):
    # Each device has other points, so it must do such an integral for itself.
    monkeypatch.setattr(_training, "advance", once(_training.advance.__wrapped__))
    recipe = sdifp.training.recipe_for(sdifp.problems.advection()).replace(
        network=sdifp.training.MLP(4, 1),
        points=RandomPoints(2, 2),
        optimiser=optimiser,
        hard_initial=hard,
        nodes=4100,
        steps=2,
    )
    losses = []
    for n in (0, 2):
        with on(n):
            run = Training(
                nonlocal_problem(),
                sdifp.training.SDIFP(gradient),
                recipe=recipe,
                check=False,
                key=KEY,
            )
            run.advance(2)
            losses.append(float(run.state.total))
    assert losses[1] == pytest.approx(losses[0], rel=1e-11)


def test_a_users_own_division_is_left_alone():
    # Each device has a time of its own: nothing is to be shared.
    u, times = CASES["in chunks"](), jnp.linspace(0.1, 0.9, 4)
    scales = lambda times: jax.vmap(lambda t: u.at(t).scale)(times)
    here = np.asarray(jax.jit(scales)(times))
    with on(4):
        own = jax.shard_map(scales, in_specs=along(0), out_specs=along(0))
        there = np.asarray(jax.jit(own)(times))
    np.testing.assert_allclose(there, here, rtol=1e-13)


@pytest.mark.validate
@pytest.mark.parametrize(("chunk", "width"), [(1400, 8), (4096, 32)])
def test_scale_and_shift_have_the_same_bits_inside_of_a_gradient(chunk, width):
    # More devices than there are parts; those of the first case have two pieces, whose
    # loop is another program if the one around it runs once.
    rule = sdifp.quadrature.trapezoid(sdifp.Box([0.0], [2.0], periodic=True), 8200)
    mlp = eqx.nn.MLP(2, "scalar", width, 2, jnp.tanh, key=jax.random.key(2))
    gradient = sdifp.field.Exact(chunk)
    u = sdifp.conserve(Net(mlp), rule, 0.3, lambda t: 1.0 + t, gradient=gradient)
    params, static = eqx.partition(u, eqx.is_inexact_array)

    def loss(params):
        found = coefficients(eqx.combine(params, static), jnp.asarray([0.3, 0.8]))
        return jnp.sum(found**2), found

    found = {}
    for n in (0, 2, 8):
        with on(n):
            found[n] = np.asarray(optimised(jax.grad(loss, has_aux=True))(params)[1])
    for n, value in found.items():
        assert value.tobytes() == found[0].tobytes(), n


def test_a_training_stays_on_its_devices():
    with on(4):
        run = training("adam")
        run.advance(1)
        kept = run.snapshot()
    with on(2):
        with pytest.raises(
            ValueError, match="begun on 4 devices and cannot go on on 2"
        ):
            run.advance(1)
        other = training("adam")
        other.restore(kept)
        other.advance(1)
    assert other.step == 2
