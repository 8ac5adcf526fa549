"""Moments that are kept for some steps: interpolated in time, and what they are not."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once, only

import sdifp
from sdifp.field import Exact, Lagged, Subsampled
from sdifp.training import MLP, SDIFP, Adam, RandomPoints, Training

BOX = sdifp.Box([0.0], [1.0], periodic=True)
RULE = sdifp.rule_for(BOX, 32, key=jax.random.key(0))
NET = MLP(8, 2).build(BOX, 2.0, key=jax.random.key(1))
START, LENGTH = 0.5, 1.5


def conserved(mode, profile=None):
    mass = lambda t: 0.4 + 0.1 * jnp.sin(t)
    return sdifp.conserve(NET, RULE, mass, 1.5, gradient=mode, profile=profile)


def kept(u, k=8, times=24):
    """The same with moments that are kept."""
    mode = Lagged(5, k=k, times=times)
    table = mode.tabulate(u.with_gradient(Exact()), START, LENGTH)
    return u.with_gradient(mode.keep(table)).resample(jax.random.key(2))


def bump(x):
    return jnp.sin(jnp.pi * x[0])


@pytest.mark.parametrize("profile", only([None, bump], None))
def test_kept_moments_have_the_values_and_derivatives_of_now(profile):
    """As long as the network has not changed, up to the interpolation."""
    exact = conserved(Exact(), profile)
    lagged = kept(exact)
    x = jnp.asarray([0.3])

    @once
    def jet(u, t):
        f = lambda t: u(x, t)
        first = jax.grad(f)
        return jnp.stack([f(t), first(t), jax.grad(first)(t)])

    # Nodes of the table and both ends among them.
    nodes = START + 0.5 * LENGTH * (1 + np.cos(np.pi * (np.arange(24) + 0.5) / 24))
    for t in (*nodes[:3], START, START + LENGTH, 0.777):
        want = jet(exact, jnp.asarray(t))
        np.testing.assert_allclose(jet(lagged, jnp.asarray(t)), want, rtol=1e-7)


def test_more_times_are_spectrally_better():
    exact, t = conserved(Exact()), jnp.asarray(1.1)
    want = exact.at(t).scale
    errors = [abs(kept(exact, times=n).at(t).scale - want) for n in (4, 8, 16)]
    assert errors[0] > 10.0 * errors[1] > 100.0 * errors[2]


BENT = jax.tree.map(lambda a: 1.1 * a if eqx.is_inexact_array(a) else a, NET)


def test_the_change_of_the_network_is_followed():
    """On all nodes to the moments of now."""
    exact, t = conserved(Exact()).over(BENT), jnp.asarray(1.0)
    lagged = kept(conserved(Exact()), k=RULE.size).over(BENT)
    old = conserved(Exact()).at(t)
    assert abs(exact.at(t).scale - old.scale) > 1e-3
    jet = lambda u: jax.jvp(lambda t: u.at(t).scale, (t,), (jnp.ones(()),))
    np.testing.assert_allclose(once(jet)(lagged), once(jet)(exact), rtol=1e-8)


def test_the_change_is_unbiased():
    lagged, t = kept(conserved(Exact())).over(BENT), jnp.asarray(1.0)
    second = lambda m: m.square + 2.0 * m.pivot * m.residual + m.pivot**2
    wanted = second(conserved(Exact()).over(BENT).at(t).moments)
    draw = lambda key: second(lagged.resample(key).at(t).moments)
    found = once(jax.vmap(draw))(jax.random.split(jax.random.key(4), 400))
    off = np.asarray(found - wanted)
    error = off.std() / np.sqrt(len(off))
    assert error > 1e-8
    assert abs(off.mean()) < 4.0 * error
    # A table that is not followed is off by many of these.
    stale = second(kept(conserved(Exact())).at(t).moments)
    assert abs(stale - wanted) > 40.0 * error


def test_its_gradient_is_that_of_the_sampled_nodes():
    """With the same draw and a table that is not stale, as `Subsampled`."""
    key = jax.random.key(2)
    lagged = kept(conserved(Exact()))
    sampled = conserved(Subsampled(8)).resample(key)

    @once
    def slope(u):
        params, static = eqx.partition(u, eqx.is_inexact_array)
        value = lambda p: eqx.combine(p, static)(jnp.asarray([0.2]), jnp.asarray(0.9))
        return eqx.filter_grad(value)(params).net

    for got, want in zip(
        jax.tree.leaves(slope(lagged)), jax.tree.leaves(slope(sampled)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9)


def test_outside_training_nothing_is_kept():
    lagged, exact = conserved(Lagged(7)), conserved(Exact())
    t = jnp.asarray(0.4)
    np.testing.assert_array_equal(lagged.at(t).scale, exact.at(t).scale)
    again = lagged.resample(jax.random.key(3)).at(t)
    np.testing.assert_allclose(again.scale, exact.at(t).scale, rtol=1e-14)


def begun(mode, **changes):
    recipe = sdifp.Recipe(
        MLP(8, 2), Adam(1e-2), 8, RandomPoints(2, 16), nodes=32, **changes
    )
    return Training(
        sdifp.problems.advection(1),
        SDIFP(gradient=mode),
        recipe=recipe,
        key=jax.random.key(0),
        check=False,
    )


@pytest.mark.parametrize("windows", only([1, 2], 1))
def test_moments_are_computed_anew_every_so_many_steps(windows):
    run = begun(Lagged(3, k=8), windows=windows)
    tables = []
    for _ in range(windows):
        if run.finished or not run._left:
            run._next_window()
        for _ in range(8):
            run.advance(1)
            tables.append(np.asarray(run.state.kept.coefficients.square))
    changed = [not np.array_equal(a, b) for a, b in itertools.pairwise(tables)]
    # Steps 0, 3 and 6 of each window make a table.
    one = [False, False, True, False, False, True, False]
    assert changed == (one if windows == 1 else [*one, True, *one])
    assert run.finished
    # What comes out is exact all the same.
    rows = run.result().certificate.rows
    assert max(row.on_rule for row in rows) <= 1e-13


@pytest.mark.validate
def test_a_table_of_every_step_trains_as_the_sampled_gradient():
    lagged, sampled = begun(Lagged(1, k=8, times=24)), begun(Subsampled(8))
    for run in (lagged, sampled):
        run.advance(8)
    for a, b in zip(
        jax.tree.leaves(eqx.filter(lagged.state.net, eqx.is_array)),
        jax.tree.leaves(eqx.filter(sampled.state.net, eqx.is_array)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.validate
def test_a_snapshot_has_the_table():
    whole, first = begun(Lagged(5, k=8)), begun(Lagged(5, k=8))
    whole.advance(8)
    first.advance(3)
    second = begun(Lagged(5, k=8))
    second.restore(first.snapshot())
    second.advance(5)
    one, two = whole.snapshot(), second.snapshot()
    assert any("kept" in name for name in one)
    for name in one:
        if name != "known":
            np.testing.assert_array_equal(one[name], two[name], name)


@pytest.mark.parametrize(("name", "value"), [("every", 0), ("times", 0), ("k", -1)])
def test_bad_numbers_are_named(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be .*{value}"):
        Lagged(**{"every": 2, name: value})
