"""Embeddings, initial data by construction, series, and functions in turn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once

import sdifp
from sdifp.training import Ansatz, PiecewiseInTime, Series
from sdifp.training._networks._network import Embedding

MIXED = sdifp.Box([0.0, -1.0, 2.0], [2.0, 3.0, 5.0], periodic=[True, False, False])


def test_embedding_is_periodic_even_or_neither_axis_by_axis(rng):
    embedding = Embedding(MIXED, 3, (True, True, False))
    period, wall, wide = np.array([2.0, 0, 0]), np.array([0, 4.0, 0]), MIXED.width

    def mirrored(x, at):
        return np.array([x[0], 2.0 * at - x[1], x[2]])

    x = MIXED.lower + wide * rng.uniform(size=3)
    places = [x, x + period, mirrored(x, -1.0), mirrored(x, 3.0), x + wall]
    places += list(x + np.diag([0.3, 0.3, 0.5]))
    # In one batch, so that there is one program.
    found = np.asarray(once(jax.vmap(embedding))(jnp.asarray(np.stack(places))))
    here, other_period, one_wall, other_wall, moved, *changed = found
    for same in (other_period, one_wall, other_wall):
        assert np.allclose(here, same, rtol=0.0, atol=1e-13)
    # By its width the even axis is not periodic.
    assert np.max(np.abs(here - moved)) > 1e-2
    for other in changed:
        assert np.max(np.abs(here - other)) > 1e-2


@pytest.mark.parametrize(
    ("neumann", "size"),
    [(False, 2 * 3 + 2), (True, 2 * 3 + 3 * 2), ((False, True, False), 6 + 3 + 1)],
)
def test_embedding_has_as_many_features_as_it_says(neumann, size):
    embedding = Embedding(MIXED, 3, neumann)
    assert embedding.size == size
    assert eqx.filter_eval_shape(embedding, jnp.zeros(3)).shape == (size,)
    with pytest.raises(ValueError, match=r"x must have shape \(3,\).* got \(1,\)"):
        embedding(jnp.zeros(1))


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("neumann", [True, False])
def test_embedding_of_axes_that_are_all_alike(periodic, neumann):
    box = sdifp.Box.cube(2, 0.0, 1.0, periodic=periodic)
    embedding = Embedding(box, 2, neumann)
    x = np.array([0.25, 0.1])
    unit = (2.0 if periodic else 1.0) * np.pi * x
    if periodic:
        parts = [np.cos(unit), np.sin(unit), np.cos(2 * unit) / 2, np.sin(2 * unit) / 2]
    elif neumann:
        parts = [np.cos(unit), np.cos(2 * unit) / 2]
    else:
        parts = [2.0 * x - 1.0]
    found = once(embedding)(jnp.asarray(x))
    assert embedding.size == found.size
    assert np.allclose(found, np.concatenate(parts), atol=1e-15)


@pytest.mark.parametrize("bottleneck", [None, 2])
def test_network_is_the_formula(bottleneck, getkey):
    shape = sdifp.training.MLP(4, 2, harmonics=2, bottleneck=bottleneck)
    net = shape.build(MIXED, 0.5, neumann=[False, True, False], key=getkey())
    x, t = jnp.asarray([0.3, 0.4, 2.5]), jnp.asarray(0.2)
    value, features = once(lambda net: (net(x, t), net.embedding(x)))(net)
    assert value.shape == ()
    assert value.dtype == jnp.float64
    features = np.asarray(features)
    if bottleneck is None:
        assert net.bottleneck is None
    else:
        features = np.asarray(net.bottleneck.weight) @ features + net.bottleneck.bias
        assert features.shape == (2,)
    # Time as the network sees it goes from -1 to 1.
    out = np.append(features, 2.0 * 0.2 / 0.5 - 1.0)
    first, second, last = net.layers.layers
    for layer in (first, second):
        out = np.tanh(np.asarray(layer.weight) @ out + layer.bias)
    assert np.allclose(value, (np.asarray(last.weight) @ out + last.bias).item())


def test_network_keeps_single_precision(getkey):
    box = sdifp.Box([0.0], [1.0])
    net = sdifp.training.MLP(3, 1).build(box, 1.0, key=getkey())
    as_single = lambda leaf: leaf.astype(jnp.float32)
    net = jax.tree.map(lambda v: as_single(v) if eqx.is_inexact_array(v) else v, net)
    x, t = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1,), ()))
    assert eqx.filter_eval_shape(net, x, t).dtype == jnp.float32


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"width": 0}, "width must be a positive integer, got 0"),
        ({"depth": -1}, "depth must be a positive integer, got -1"),
        ({"harmonics": 1.5}, "harmonics must be a positive integer, got 1.5"),
        ({"bottleneck": 0}, "bottleneck must be a positive integer, got 0"),
    ],
)
def test_bad_shapes_of_networks_are_named(arguments, named, as_user):
    with pytest.raises(ValueError, match=named):
        sdifp.training.MLP(**arguments)


def with_time_derivative(f):
    return lambda x, t: jax.jvp(lambda t: f(x, t), (t,), (jnp.ones_like(t),))


@pytest.mark.parametrize("profile", [None, lambda x: x[0] * (1.0 - x[0])])
def test_ansatz_has_its_data_exactly(profile):
    wild = lambda x, t: 3.0 + jnp.cos(5.0 * x[0] + t)
    initial, velocity = (lambda x: jnp.sin(np.pi * x[0])), (lambda x: x[0] ** 3)
    start = jnp.asarray(0.7)
    plain = Ansatz(wild, initial, None, start, 0.4, profile)
    moving = Ansatz(wild, initial, velocity, start, 0.4, profile)
    learnt = Ansatz(wild, None, None, start, 0.4, profile)
    places, later = jnp.asarray([[0.3], [0.0], [1.0]]), start + 0.1

    @once
    def look(x):
        return {
            "data": (initial(x), velocity(x)),
            "moving": with_time_derivative(moving)(x, start),
            "plain": plain(x, start),
            "out": wild(x, later - start) * (1.0 if profile is None else profile(x)),
            "later": (plain(x, later), moving(x, later), learnt(x, later)),
        }

    for x in places:
        found = jax.tree.map(float, look(x))
        assert found["moving"] == found["data"]
        assert found["plain"] == found["data"][0]
        # The network's time begins at 0, and all of it is there at the end.
        (u0, v0), out, s = found["data"], found["out"], 0.1 / 0.4
        wanted = (u0 + s * out, u0 + 0.1 * v0 + s**2 * out, out)
        assert np.allclose(found["later"], wanted, rtol=1e-13, atol=1e-15)
        if profile is not None and x[0] != 0.3:
            assert found["later"][0] == u0
            assert found["later"][2] == 0.0


PERIODIC = sdifp.Box([-1.0], [3.0], periodic=True)
WALLED = sdifp.Box([-1.0], [3.0])
SMOOTH = {
    "trigonometric": (
        PERIODIC,
        lambda x: 2.0 + jnp.sin(np.pi * x[0]) - 0.5 * jnp.cos(1.5 * np.pi * x[0]),
    ),
    "periodic": (PERIODIC, lambda x: jnp.exp(jnp.sin(0.5 * np.pi * x[0] + 0.3))),
    "cosines": (
        WALLED,
        lambda x: 1.0 + jnp.cos(0.25 * np.pi * (x[0] + 1.0)) + jnp.cos(np.pi * x[0]),
    ),
    "even": (WALLED, lambda x: jnp.exp(jnp.cos(0.25 * np.pi * (x[0] + 1.0)))),
}


@pytest.mark.parametrize("case", SMOOTH)
def test_series_is_the_function_and_its_derivatives(case, rng):
    box, function = SMOOTH[case]
    series = Series.fit(function, box, 64)
    x = jnp.asarray(rng.uniform(-1.0, 3.0, (20, 1)))
    slope = lambda f: lambda x: jax.grad(f)(x)[0]

    @once
    def look(series, x):
        both = [
            [jax.vmap(f)(x), jax.vmap(slope(f))(x), jax.vmap(slope(slope(f)))(x)]
            for f in (series, function)
        ]
        return jnp.asarray(both)

    found, exact = np.asarray(look(series, x))
    # A derivative makes the rounding errors of high harmonics larger.
    for k, tolerance in enumerate((1e-12, 1e-12, 1e-11)):
        assert np.max(np.abs(found[k] - exact[k])) < tolerance * np.max(abs(exact[k]))


def test_series_has_no_phase_that_the_grid_does_not_tell():
    # cos at the highest frequency of the grid is left out, whatever the offset.
    box = sdifp.Box([0.0], [1.0], periodic=True)
    series = Series.fit(lambda x: jnp.cos(8.0 * np.pi * x[0]), box, 8)
    assert np.max(np.abs(series.cosines)) < 1e-14
    assert series.cosines.shape == series.sines.shape == (4,)


def test_functions_take_turns():
    functions = (
        lambda x, t: x[0] + t,
        lambda x, t: x[0] * t**2,
        lambda x, t: jnp.sin(x[0] * t),
    )
    turns = PiecewiseInTime(functions, (0.5, 1.25))
    x = jnp.asarray([0.8])
    just = np.nextafter(0.5, 0.0)
    times = jnp.asarray([0.0, 0.3, just, 0.5, 0.9, 1.25, 2.0])
    owner = [0, 0, 0, 1, 1, 2, 2]
    rated = with_time_derivative(turns)
    values, rates = once(jax.vmap(rated, (None, 0)))(x, times)
    for i, (k, t) in enumerate(zip(owner, times, strict=True)):
        expected, slope = with_time_derivative(functions[k])(x, t)
        assert np.allclose(values[i], expected, rtol=1e-14)
        assert np.allclose(rates[i], slope, rtol=1e-14)
    # One call, in a program and not.
    assert once(turns)(x, times[3]) == values[3]
    assert turns(x, times[5]) == values[5]
