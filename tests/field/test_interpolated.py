"""Moments at a few times of each step, interpolated: values, gradients, trainings."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once, only

import sdifp
from sdifp.field import Detached, Exact, Interpolated, Lagged, Subsampled
from sdifp.training import (
    MLP,
    SDIFP,
    Adam,
    LevenbergMarquardt,
    RandomPoints,
    Training,
)
from sdifp.training._step import objective_of

BOX = sdifp.Box([0.0], [1.0], periodic=True)
RULE = sdifp.rule_for(BOX, 32, key=jax.random.key(0))
NET = MLP(8, 2).build(BOX, 2.0, key=jax.random.key(1))
START, LENGTH = 0.5, 1.5
X = jnp.asarray([0.3])


def conserved(mode, profile=None, net=NET):
    mass = lambda t: 0.4 + 0.1 * jnp.sin(t)
    return sdifp.conserve(net, RULE, mass, 1.5, gradient=mode, profile=profile)


def tabulated(mode, **changes):
    return conserved(mode, **changes).tabulated(START, LENGTH)


def bump(x):
    return jnp.sin(jnp.pi * x[0])


@once
def jet(u, t):
    f = lambda t: u(X, t)
    rate = lambda f: lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]
    return jnp.stack([f(t), rate(f)(t), rate(rate(f))(t)])


@once
def slope(u, t):
    """Of a loss with a derivative by t, with respect to the parameters."""
    params, static = eqx.partition(u.net, eqx.is_inexact_array)

    def loss(params):
        own = u.over(eqx.combine(params, static))
        if isinstance(own.gradient, Interpolated):
            own = own.tabulated(START, LENGTH)
        return own(X, t) + jax.grad(lambda t: own(X, t))(t) ** 2

    return jax.flatten_util.ravel_pytree(jax.grad(loss)(params))[0]


@pytest.mark.parametrize("profile", only([None, bump], None))
def test_values_and_derivatives_in_time_are_those_of_now(profile):
    exact = conserved(Exact(), profile)
    ours = tabulated(Interpolated(24), profile=profile)
    for t in (START, START + LENGTH, 0.777):
        want = jet(exact, jnp.asarray(t))
        np.testing.assert_allclose(jet(ours, jnp.asarray(t)), want, rtol=1e-7)


def test_the_error_falls_spectrally():
    t = jnp.asarray(1.1)
    want = conserved(Exact()).at(t).scale
    errors = [abs(tabulated(Interpolated(n)).at(t).scale - want) for n in (4, 8, 16)]
    assert errors[0] > 10.0 * errors[1] > 100.0 * errors[2]


def test_its_gradient_is_that_of_the_exact_moments():
    """To the error of the interpolation; that of detached moments is another."""
    t = jnp.asarray(1.3)
    want = slope(conserved(Exact()), t)
    np.testing.assert_allclose(
        slope(conserved(Interpolated(24)), t), want, rtol=1e-6, atol=1e-8
    )
    without = slope(conserved(Interpolated(24, Detached())), t)
    assert np.linalg.norm(without - want) > 0.1 * np.linalg.norm(want)


def test_the_gradient_of_sampled_nodes_is_unbiased():
    """For a loss that is linear in the sums, that is, in the first moment."""
    t, mode = jnp.asarray(1.3), Interpolated(24, Subsampled(8, stratified=False))
    u = sdifp.conserve(NET, RULE, 0.4, gradient=mode)
    params, static = eqx.partition(NET, eqx.is_inexact_array)

    def sampled(params, key):
        own = u.over(eqx.combine(params, static)).resample(key)
        return jax.grad(lambda t: own.tabulated(START, LENGTH)(X, t))(t)

    def exact(params):
        own = sdifp.conserve(eqx.combine(params, static), RULE, 0.4)
        return jax.grad(lambda t: own(X, t))(t)

    flat = lambda tree: jax.flatten_util.ravel_pytree(tree)[0]
    want = flat(jax.jit(jax.grad(exact))(params))
    keys = jax.random.split(jax.random.key(5), 400)
    draw = lambda key: flat(jax.grad(sampled)(params, key))
    off = np.asarray(jax.jit(jax.vmap(draw))(keys)) - np.asarray(want)
    # Along the gradient of detached moments, which is biased.
    detached = u.with_gradient(Detached())
    biased = jax.grad(
        lambda p: jax.grad(lambda t: detached.over(eqx.combine(p, static))(X, t))(t)
    )
    bias = flat(biased(params)) - want
    along = off @ (bias / np.linalg.norm(bias))
    error = along.std() / np.sqrt(len(along))
    assert 0.0 < error < 0.1 * np.linalg.norm(bias)
    assert abs(along.mean()) < 4.0 * error


def test_outside_training_every_time_has_its_own_quadrature():
    t = jnp.asarray(0.4)
    got, want = conserved(Interpolated(3)).at(t), conserved(Exact()).at(t)
    np.testing.assert_array_equal(got.scale, want.scale)


def begun(mode, optimiser=Adam(1e-2), points=RandomPoints(64, 1), **changes):
    recipe = sdifp.Recipe(MLP(8, 2), optimiser, 4, points, nodes=32, **changes)
    return Training(
        sdifp.problems.advection(1),
        SDIFP(gradient=mode),
        recipe=recipe,
        key=jax.random.key(0),
        check=False,
    )


def test_rows_of_a_step_have_the_derivatives_of_autodiff():
    """Those of the optimiser in second order, against the whole graph."""
    run = begun(Interpolated(6), LevenbergMarquardt(), RandomPoints(5, 3))
    objective = objective_of(*run._arguments(1)[:-1])
    params, static = eqx.partition(run.state.net, eqx.is_inexact_array)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    rows = lambda flat: objective.rows(eqx.combine(unravel(flat), static))
    _, got, slopes = eqx.filter_jit(objective.linearise)(run.state.net)
    np.testing.assert_allclose(got, rows(flat), rtol=1e-10, atol=1e-12)
    want = jax.jit(jax.jacrev(rows))(flat)
    np.testing.assert_allclose(slopes, want, rtol=1e-8, atol=1e-10)


def test_a_training_takes_the_steps_of_the_exact_one():
    """The same up to the interpolation; the result is exact at every time."""
    points = RandomPoints(16, 2)
    ours, theirs = begun(Interpolated(20), points=points), begun(Exact(), points=points)
    for run in (ours, theirs):
        run.advance(4)
    for a, b in zip(
        jax.tree.leaves(eqx.filter(ours.state.net, eqx.is_array)),
        jax.tree.leaves(eqx.filter(theirs.state.net, eqx.is_array)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    rows = ours.result().certificate.rows
    assert max(row.on_rule for row in rows) <= 1e-13


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"times must be .*0"):
        Interpolated(0)
    with pytest.raises(ValueError, match=r"gradient must be .*Lagged"):
        Interpolated(gradient=Lagged(3))
    with pytest.raises(ValueError, match=r"gradient must be .*Exact"):
        conserved(Exact()).tabulated(0.0, 1.0)
    with pytest.raises(ValueError, match=r"k must be at most the 32 nodes.*64"):
        conserved(Interpolated(4, Subsampled(64)))


def test_it_is_chosen_with_one_sentence_where_a_batch_has_many_times():
    many, few = RandomPoints(48, 1), RandomPoints(47, 1)
    with pytest.warns(UserWarning, match=r"points has 48 times.*12 times"):
        run = begun(None, points=many, gradient=Subsampled(8))
    assert run.window.field.gradient == Interpolated(gradient=Subsampled(8))
    # Not where there are few, nor where the user says how.
    assert begun(None, points=few).window.field.gradient == Exact()
    assert begun(Exact(), points=many).window.field.gradient == Exact()
    asked = Interpolated(5)
    assert begun(None, points=many, gradient=asked).window.field.gradient == asked


def test_the_error_between_the_times_is_reported():
    """Against the integrals of the field in training, by hand."""
    coarse, fine = begun(Interpolated(3)), begun(Interpolated(16))
    found = [run.go_on() for run in (coarse, fine)]
    assert found[0].interpolation > 100.0 * found[1].interpolation
    assert f"interpolation {found[0].interpolation:.1e}" in str(found[0])
    u = coarse.field.tabulated(0.0, coarse.problem.duration)
    rule = coarse.window.rule
    errors = []
    for s in (1.0, 0.75, 0.25, 0.0):
        now = u.at(s * coarse.problem.duration)
        for power, invariant in enumerate(coarse.problem.invariants, 1):
            got = rule.integrate(lambda x, p=power, now=now: now(x) ** p)
            target = float(invariant.target.value(s))
            # A mass is relative to the size of the field, which is larger.
            square = float(coarse.problem.invariants[1].target.value(s))
            root = np.sqrt(coarse.problem.domain.volume * square)
            unit = max(abs(target), root) if power == 1 else target
            errors.append(float(abs(got - target) / unit))
    assert found[0].interpolation == pytest.approx(max(errors), rel=1e-6)
    certificate = coarse.so_far().certificate
    assert "between 3 times" in certificate.training
    assert certificate.training in str(certificate)
    assert begun(Exact()).go_on().interpolation is None
