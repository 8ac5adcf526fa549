"""Invariants by themselves: names, densities, what their errors are relative to."""

import jax.numpy as jnp
import numpy as np
import pytest

import sdifp
from sdifp.invariants import (
    At,
    Measured,
    densities,
    drift,
    read_rows,
    relative_error,
    relative_errors,
)

RULE = sdifp.quadrature.trapezoid(sdifp.Box([0.0], [2.0], periodic=True), 16)


def two(x, t):
    return jnp.stack([jnp.sin(jnp.pi * x[0]), 1.0 + jnp.cos(jnp.pi * (x[0] - t))])


def test_names_tell_components_apart():
    assert sdifp.Mass(1.0).name == "mass"
    assert sdifp.SquaredNorm(1.0, component=2).name == "squared_norm[2]"
    assert sdifp.SquaredNorm(1.0).words == "squared norm"
    assert sdifp.Mass(1.0) == sdifp.Mass(1.0) != sdifp.Mass(2.0)


def test_densities_are_followed_by_the_squares_of_the_components(rng):
    u = rng.normal(size=(5, 2))
    invariants = [
        sdifp.SquaredNorm(1.0, 1),
        sdifp.Mass(3.0, 0),
        sdifp.invariants.Variance(1.0, 0),
    ]
    found = densities(invariants, At(u, [0.5, 0.0]))
    first, second = u[:, 0], u[:, 1]
    wanted = [second**2, second**2, first, first**2, (first - 0.5) ** 2, first**2]
    assert np.array_equal(found, [*wanted, first - 0.5])


def test_without_a_target_the_size_is_that_of_the_density(rng):
    u = rng.normal(size=(5, 1))
    invariants = [sdifp.Mass(None), sdifp.SquaredNorm(None), sdifp.Mass(1.0)]
    rows = np.array(densities(invariants, At(u, [0.0])))
    assert np.array_equal(rows[1], abs(u[:, 0]))
    assert np.array_equal(rows[3], u[:, 0] ** 2)
    found = read_rows(invariants, rows.mean(1), 1.0)
    assert [len(one) for one in found] == [3, 3, 3]
    assert found[0].size == pytest.approx(np.mean(abs(u)))
    assert found[2].size == pytest.approx(np.mean(u**2))


def test_the_drift_is_relative_to_the_size_at_the_first_time():
    found = drift(Measured(np.array([1.0, 3.0, 0.5]), np.array([4.0, 9.0, 9.0])))
    assert np.array_equal(found.change, [0.0, 2.0, -0.5])
    assert np.array_equal(found.relative, [0.0, 0.5, -0.125])
    # Nothing to be relative to.
    assert drift(Measured(np.arange(2.0), np.zeros(2))).relative[1] == 1.0


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_are_relative_to_the_prescribed_norm(weighted):
    """Of a moment, `|Q[psi u] - m| / sqrt(Q[psi^2] Q[u^2])`, with the target of Q[u^2]
    where there is one."""
    moment = sdifp.invariants.Moment(lambda x: x[0], 0.0)
    linear = moment if weighted else sdifp.Mass(0.0)
    weight = 0.25 if weighted else 1.0
    found = [Measured(0.3, 9.0, weight), Measured(5.0, 9.0)]
    alone = relative_errors([linear], found[:1], [0.0], 1.0)
    assert alone[0] == pytest.approx(0.3 / np.sqrt(weight * 9.0))
    both = relative_errors([linear, sdifp.SquaredNorm(4.0)], found, [0.0, 4.0], 1.0)
    assert both[0] == pytest.approx(0.3 / np.sqrt(weight * 4.0))
    assert both[1] == pytest.approx(0.25)


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_relative_errors(xp):
    error = lambda *arguments: float(relative_error(*arguments, xp))
    mass, square, variance = (
        c(1.0) for c in (sdifp.Mass, sdifp.SquaredNorm, sdifp.invariants.Variance)
    )
    assert error(mass, 5.1, 5.0, 2.0, 2.0) == pytest.approx(0.02)
    # A mass of zero: the root of volume times squared norm stands in.
    assert error(mass, 0.1, 0.0, 2.0, 8.0) == pytest.approx(0.1 / 4.0)
    assert error(square, 3.3, 3.0, 99.0, 8.0) == pytest.approx(0.1)
    assert error(square, 0.2, 0.0, 99.0, 8.0) == pytest.approx(0.2)
    assert error(variance, 0.011, 0.01, 1.0, 8.0) == pytest.approx(0.001 / 0.1)
    assert error(variance, 0.5, 0.0, 2.0, 8.0) == pytest.approx(0.25)


def test_the_variance_is_about_the_mean_of_the_field_itself(rng):
    u, volume = rng.normal(size=(1000, 1)), 3.0
    for target in (1.0, None):
        variance = sdifp.invariants.Variance(target)
        rows = np.array(densities([variance], At(u, [0.7])))
        (found,) = read_rows([variance], volume * rows.mean(1), volume)
        assert found.value == pytest.approx(volume * np.var(u), rel=1e-12)


def test_objects_and_the_short_form_give_the_same_field():
    short = sdifp.conserve(two, RULE, [1.0, None], [2.0, 5.0])
    invariants = [
        sdifp.SquaredNorm(5.0, component=1),
        sdifp.Mass(1.0, component=0),
        sdifp.SquaredNorm(2.0, component=0),
    ]
    long = sdifp.conserve(two, RULE, invariants=invariants)
    assert short.prescribed == long.prescribed
    x = jnp.asarray([0.3])
    assert np.array_equal(short(x, 0.4), long(x, 0.4))
    mixed = sdifp.conserve(two, RULE, [1.0, None], invariants=invariants[::2])
    assert mixed.prescribed == long.prescribed


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sdifp.Mass("a"), "mass must be a number.*'a'"),
        (lambda: sdifp.Mass(np.nan), "mass must be real and finite, got nan"),
        (lambda: sdifp.Mass(1.0, component=-1), "component must be .*got -1"),
        (lambda: sdifp.Mass(1.0, component=True), "component must be .*got True"),
        (
            lambda: conserved(sdifp.invariants.Variance(1.0)),
            "component must be given for variance",
        ),
        (lambda: conserved(sdifp.Mass(1.0, 2)), "component must be below 2.*got 2"),
        (
            lambda: conserved(sdifp.Mass(None, 0)),
            r"give a target.*without one mass\[0\] can only be measured",
        ),
        (
            lambda: conserved(sdifp.Mass(1.0, 0), sdifp.Mass(2.0, 0)),
            r"mass\[0\].*twice",
        ),
        (lambda: conserved(1.0), "invariants must hold Mass.*got 1.0"),
        (lambda: conserved(), "give a target"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def conserved(*invariants):
    return sdifp.conserve(two, RULE, invariants=invariants)
