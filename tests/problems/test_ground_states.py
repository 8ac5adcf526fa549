"""Ground states in closed form or from Mathieu's functions: equations and energies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from steady import first, jet, means, points, targets

from sdifp import problems

COEFFICIENTS = 0.2 * np.array(
    [
        *(0.814723686393179, 0.905791937075619, 0.126986816293506, 0.913375856139019),
        *(0.632359246225410, 0.097540404999410, 0.278498218867048, 0.546881519204984),
        *(0.957506835434298, 0.964888535199277),
    ]
)


def cubic(x, psi):
    d = x.shape[1]
    slope = (np.sin(x) ** 2 / d**2 - np.cos(x) / d).sum(1)
    return slope - 3.0 - np.exp(2.0 * np.cos(x).mean(1)) / norm(d)


def norm(d):
    """The mean of `exp(2 mean(cos x))`, which is a product of equal means."""
    x = 2.0 * np.pi * np.arange(64) / 64
    return np.exp(2.0 * np.cos(x) / d).mean() ** d


# The equation divided by psi is `-factor Lap psi / psi + V + nonlinear psi^2`.
CASES = {
    **{
        f"cubic {d}": (lambda d=d: problems.cubic_schroedinger(d), 1.0, cubic, 1.0)
        for d in (1, 5, 10)
    },
    **{
        f"linear {d}": (
            lambda d=d: problems.linear_schroedinger(d),
            1.0,
            lambda x, psi: np.cos(x) @ COEFFICIENTS[: x.shape[1]],
            0.0,
        )
        for d in (5, 10)
    },
    **{
        f"oscillator {d}": (
            lambda d=d: problems.oscillator(d),
            0.5,
            lambda x, psi: 0.5 * (x**2).sum(1),
            0.0,
        )
        for d in (1, 2, 3)
    },
}
EIGENVALUES = {
    **{f"cubic {d}": -3.0 for d in (1, 5, 10)},
    # As published, to all of its digits.
    "linear 5": -0.054018930536,
    "linear 10": -0.098087448866,
    **{f"oscillator {d}": 0.5 * d for d in (1, 2, 3)},
}


@pytest.mark.parametrize("case", CASES)
def test_the_reference_is_the_positive_eigenfunction(case, rng):
    make, factor, potential, nonlinear = CASES[case]
    problem = make()
    x = points(problem, rng)
    psi, _, bend = jet(first(problem), x)
    assert psi.min() > 0.0
    laplacian = np.trace(bend, axis1=1, axis2=2)
    applied = -factor * laplacian + (potential(x, psi) + nonlinear * psi**2) * psi
    scale = np.abs(laplacian).max()
    assert np.abs(applied - EIGENVALUES[case] * psi).max() < 1e-11 * scale
    other = jet(problem.reference[1], x)[0]
    assert np.array_equal(other, -psi)
    assert targets(problem)["squared_norm"] == 1.0


# In few dimensions, by a product rule: (problem, points on each axis, eigenvalue).
INTEGRALS = {
    "cubic": (lambda: problems.cubic_schroedinger(2), 32, -3.0, "eigenvalue"),
    "linear": (
        lambda: problems.linear_schroedinger(5),
        10,
        -0.0540189305,
        "eigenvalue",
    ),
    "oscillator": (lambda: problems.oscillator(2), 60, 1.0, None),
}


@pytest.mark.parametrize("case", INTEGRALS)
def test_norm_minimum_and_eigenvalue(case):
    make, n, eigenvalue, measured = INTEGRALS[case]
    problem = make()
    volume = problem.domain.volume
    energy = problem.equation.density

    def densities(x):
        at = jax.vmap(jax.value_and_grad(first(problem)))
        u, grad = at(jnp.asarray(x))
        found = [u**2, jax.vmap(lambda x, u, g: energy(x=x, u=u, grad=g))(x, u, grad)]
        for one in problem.invariants[1:]:
            value = lambda x, u, g, f=one.function: f(x=x, u=u, grad=g)
            found.append(jax.vmap(value)(x, u, grad))
        return found

    square, least, *others = (v * volume for v in means(problem, densities, n))
    assert square == pytest.approx(1.0, rel=1e-12)
    assert least == pytest.approx(problem.minimum, rel=1e-11)
    if measured is None:
        assert others == []
        assert least == pytest.approx(eigenvalue, rel=1e-9)
    else:
        assert problem.invariants[1].name == measured
        assert others == [pytest.approx(eigenvalue, rel=2e-9)]


def test_the_cubic_minimum_is_below_its_neighbours(rng):
    """With the same norm: the energy has no smaller value nearby."""
    problem = problems.cubic_schroedinger(2)
    energy, psi = problem.equation.density, first(problem)
    for _ in range(5):
        a = jnp.asarray(0.1 * rng.normal(size=4))

        def moved(x, a=a):
            return psi(x) * (
                1.0 + a[0] * jnp.cos(x[0]) + a[1] * jnp.sin(x[1] + a[2])
            ) + a[3] * jnp.cos(x[0] - 2.0 * x[1])

        squares = lambda x: [jax.vmap(moved)(jnp.asarray(x)) ** 2]
        (square,) = means(problem, squares, 32)
        scaled = lambda x, u=moved, s=square: u(x) / np.sqrt(s)

        def densities(x, u=scaled):
            value, grad = jax.vmap(jax.value_and_grad(u))(jnp.asarray(x))
            return [jax.vmap(lambda x, u, g: energy(x=x, u=u, grad=g))(x, value, grad)]

        (value,) = means(problem, densities, 32)
        assert value > problem.minimum + 1e-4


def test_linear_eigenvalues_and_functions_are_those_of_mathieu(rng):
    for d in (5, 10):
        c = COEFFICIENTS[:d]
        by_scipy = sum(scipy.special.mathieu_a(0, 2.0 * q) for q in c) / 4.0
        problem = problems.linear_schroedinger(d)
        assert problem.minimum == pytest.approx(by_scipy, rel=1e-11)
        x = points(problem, rng)
        # In degrees of half the angle, with the integral pi of the square over 2 pi.
        factors = [
            np.sqrt(2.0) * scipy.special.mathieu_cem(0, 2.0 * q, np.degrees(a) / 2.0)[0]
            for q, a in zip(c, x.T, strict=True)
        ]
        assert np.allclose(jet(first(problem), x)[0], np.prod(factors, 0), rtol=1e-10)


def test_oscillator_states_are_orthonormal_eigenfunctions(rng):
    states = problems.oscillator_states(2, 10)
    assert [e for e, _ in states] == [1.0, *[2.0] * 2, *[3.0] * 3, *[4.0] * 4]
    x = rng.uniform(-4.0, 4.0, size=(40, 2))
    for energy, psi in states:
        value, _, bend = jet(psi, x)
        applied = -0.5 * np.trace(bend, axis1=1, axis2=2) + 0.5 * (x**2).sum(1) * value
        assert np.allclose(applied, energy * value, rtol=1e-10, atol=1e-12)
    # Gauss-Hermite nodes integrate polynomials times exp(-x^2) exactly.
    nodes, weights = np.polynomial.hermite.hermgauss(12)
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    weight = np.outer(weights, weights).ravel() * np.exp((grid**2).sum(1))
    values = np.stack([jet(psi, grid)[0] for _, psi in states])
    assert np.allclose((values * weight) @ values.T, np.eye(10), atol=1e-12)


def test_oscillator_states_in_one_dimension_are_those_of_scipy():
    x = np.linspace(-5.0, 5.0, 21)
    for n, (energy, psi) in enumerate(problems.oscillator_states(1, 7)):
        size = np.pi**-0.25 / np.sqrt(2.0**n * scipy.special.factorial(n))
        expected = size * scipy.special.eval_hermite(n, x) * np.exp(-0.5 * x**2)
        assert energy == n + 0.5
        assert np.allclose(jet(psi, x[:, None])[0], expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: problems.linear_schroedinger(4), "dimension must be 5 or 10, got 4"),
        (lambda: problems.cubic_schroedinger(0), "dimension must be .* got 0"),
        (lambda: problems.oscillator(4), "dimension must be at most 3, got 4"),
        (lambda: problems.oscillator_states(1, 0), "count must be .* got 0"),
    ],
)
def test_bad_arguments_are_refused(make, words, as_user):
    with pytest.raises(ValueError, match=words):
        make()
