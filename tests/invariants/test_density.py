"""Density: what is measured, on the rule and in certificates, and what is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once

import sdifp
from sdifp.field import PlainSlice, means_of
from sdifp.invariants import Measured, drift, read_rows

BOX = sdifp.Box([0.0], [2.0], periodic=True)
RULE = sdifp.quadrature.trapezoid(BOX, 32)
HAMILTONIAN = sdifp.Density(lambda u, grad: 0.5 * grad[0] ** 2 - u**3, "hamiltonian")


def net(x, t):
    return (1.0 + t) * jnp.exp(jnp.sin(jnp.pi * (x[0] - t)))


def integral_of(density, function, rule, t):
    """The integral of a density of a function of (x, t), and its size."""
    means = once(lambda t: means_of([density], rule, PlainSlice(function, t), (), t))
    (found,) = read_rows([density], rule.domain.volume * means(jnp.asarray(t)), 2.0)
    return Measured(float(found.value), float(found.size))


def test_the_function_is_given_what_it_names():
    x = np.arange(32) / 16
    u = 1.3 * np.exp(np.sin(np.pi * (x - 0.3)))
    slope = np.pi * np.cos(np.pi * (x - 0.3)) * u
    by_hand = {
        "u": u**3,
        "grad": np.abs(slope),
        "t": 0.3 * x,
        "all": 0.3 * x + u * slope,
    }
    functions = {
        "u": lambda u: u**3,
        "grad": lambda grad: jnp.abs(grad[0]),
        "t": lambda t, x: t * x[0],
        "all": lambda u, x, t, grad, scale=1.0: scale * (t * x[0] + u * grad[0]),
    }
    for name, function in functions.items():
        found = integral_of(sdifp.Density(function, name), net, RULE, 0.3)
        assert np.isclose(found.value, 2.0 * by_hand[name].mean(), rtol=1e-13)
        assert np.isclose(found.size, 2.0 * np.abs(by_hand[name]).mean(), rtol=1e-13)


def test_several_components_are_a_vector_and_rows_of_a_gradient():
    box = sdifp.Box.cube(2)
    rule = sdifp.quadrature.gauss_legendre(box, 4)
    two = lambda x: jnp.stack([x[0] * x[1], x[0] ** 2])
    jacobian = sdifp.Density(lambda u, grad: u[1] * jnp.linalg.det(grad), "jacobian")
    u = sdifp.conserve(two, rule, [0.25, None], invariants=[jacobian])
    (row,) = u.certificate(key=jax.random.key(0)).measured
    # The determinant is -2 x0^2, times x0^2.
    assert row.value == pytest.approx(-2.0 / 5.0, rel=1e-3)
    assert (row.time, row.drift, row.invariant) == (None, None, "jacobian")


def test_the_hamiltonian_of_a_solution_does_not_drift():
    """Of the reference of KdV, which is spectral; the integral of u^3 does."""
    problem = sdifp.problems.kdv()
    rule = problem.rule(256, jax.random.key(0))
    cube = sdifp.Density(lambda u: u**3, "cube")

    @once
    def look(times):
        at = lambda t: means_of(
            [HAMILTONIAN, cube], rule, PlainSlice(problem.reference, t), (), t
        )
        return jax.lax.map(at, times)

    means = look(jnp.linspace(0.0, 0.5, 3))
    conserved, moving = map(drift, read_rows([HAMILTONIAN, cube], means, 1.0))
    assert np.max(np.abs(conserved.relative)) < 1e-9
    assert np.max(np.abs(moving.relative)) > 1e-2


@pytest.fixture(scope="module")
def certified():
    u = sdifp.conserve(
        net, RULE, 2.5, invariants=[sdifp.SquaredNorm(None), HAMILTONIAN]
    )
    return u, u.certificate([0.0, 0.5], key=jax.random.key(1))


def test_what_is_measured_does_not_change_the_field(certified):
    field, _ = certified
    alone = sdifp.conserve(net, RULE, 2.5)
    assert field.prescribed.measured == (sdifp.SquaredNorm(None), HAMILTONIAN)
    assert field.prescribed.invariants == alone.prescribed.invariants
    x = jnp.asarray([0.3])
    assert np.array_equal(field(x, 0.4), alone(x, 0.4))


def test_a_certificate_has_value_and_drift(certified, tmp_path):
    u, found = certified
    assert found.holds
    assert [row.invariant for row in found.rows] == ["mass"] * 2
    assert [r.invariant for r in found.measured] == [
        *["squared_norm"] * 2,
        *["hamiltonian"] * 2,
    ]
    fine = sdifp.quadrature.trapezoid(BOX, 256)
    sizes = [
        integral_of(HAMILTONIAN, lambda x, t: u(x, t), fine, t) for t in (0.0, 0.5)
    ]
    for row, size in zip(found.measured[2:], sizes, strict=True):
        assert row.value == pytest.approx(size.value, rel=1e-10)
        change = size.value - sizes[0].value
        assert row.drift == pytest.approx(change, rel=1e-9, abs=1e-12)
        # The absolute value of a density has kinks, so that rules converge slowly.
        assert row.relative_drift == pytest.approx(
            change / sizes[0].size, rel=1e-3, abs=1e-12
        )
        assert row.value_margin < 1e-9
    # It is a field that moves, or this would say nothing.
    assert abs(found.measured[3].drift) > 1e-2
    assert f"{found.measured[3].relative_drift:+.1e}" in str(found)
    data = json.loads(found.to_json(tmp_path / "certificate.json"))
    assert data["measured"][3]["drift"] == found.measured[3].drift


def test_nan_is_no_json():
    # It is finite at the first time only.
    late = sdifp.Density(lambda t, u: u / jnp.where(t > 0.0, 0.0 * u, 1.0), "late")
    u = sdifp.conserve(net, RULE, 2.5, invariants=[late])
    found = u.certificate([0.0, 0.5], key=jax.random.key(1))
    rows = json.loads(found.to_json())["measured"]
    assert rows[0]["value"] == pytest.approx(2.5)
    assert rows[1]["value"] is rows[1]["drift"] is rows[1]["relative_drift"] is None


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sdifp.Density(3.0, "f"), "function of f must be a function, got 3.0"),
        (lambda: sdifp.Density(lambda u: u, ""), "name must be .*not empty, got ''"),
        (lambda: sdifp.Density(lambda u: u, "a\nb"), r"printable.*got 'a\\nb'"),
        (
            lambda: sdifp.Density(lambda u, gradient: u, "f"),
            r"function of f must take .*x, t, u or grad, got one of \(u, gradient\)",
        ),
        (
            lambda: sdifp.Density(lambda u, u_t: u_t**2, "f"),
            r"got one of \(u, u_t\); .* write the equation as a first-order system",
        ),
        (lambda: sdifp.Density(lambda: 1.0, "f"), r"got one of \(\)$"),
        (lambda: sdifp.Density(lambda u, /: u, "f"), r"named x, t, u or grad"),
        (lambda: conserved(lambda grad: grad, "f"), r"one real number.*shape \(1,\)"),
        (lambda: conserved(lambda u: 1j * u, "f"), "one real number.*got complex"),
        (
            lambda: conserved(lambda u: None, "f"),
            "one real number.*got .* type NoneType",
        ),
        (lambda: conserved(lambda u: u + None, "f"), "f cannot be evaluated with .u."),
        (lambda: conserved(lambda u: u, "mass"), "mass is given twice"),
        (
            lambda: sdifp.conserve(
                lambda x: x[0], RULE, 1.0, invariants=[sdifp.Density(lambda t: t, "f")]
            ),
            "function of f must not take t for a field without time",
        ),
        (
            lambda: sdifp.conserve(net, RULE, invariants=[HAMILTONIAN]),
            "give a target: .*without one hamiltonian can only be measured",
        ),
    ],
)
def test_bad_input(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def conserved(function, name):
    return sdifp.conserve(net, RULE, 1.0, invariants=[sdifp.Density(function, name)])
