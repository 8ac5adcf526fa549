"""Stationary densities: their equations, masses and normalisation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.special
from quick import once
from steady import integrals, jet, means, points, targets

from sdifp import problems
from sdifp.problems import _mean_field

EIGEN = {
    5: [1.0, 0.8, 0.6, 0.4, 0.2],
    10: [0.1, 0.3, 0.2, 0.5, 0.2, 0.1, 0.3, 0.4, 0.2, 0.2],
}


def well(x):
    return -4.0 * x * (x**2 - 1.0)


def ring(x):
    return -4.0 * (x @ x - 1.0) * x + jnp.array([-x[1], x[0]])


def torus(rotation):
    def drift(x):
        a = -jnp.sin(x[0]) - 0.5 * jnp.sin(x[0] - x[1])
        b = -jnp.sin(x[1]) + 0.5 * jnp.sin(x[0] - x[1])
        return jnp.array([-a - rotation * b, -b + rotation * a])

    return drift


def eigen(d):
    c = jnp.array(EIGEN[d])
    # The gradient of sin(s) by x_k is -cos(s) c_k sin(x_k).
    return lambda x: jnp.cos(c @ jnp.cos(x)) * c * jnp.sin(x)


# A problem, its drift and its diffusion.
CASES = {
    "double well": (lambda: problems.double_well(), well, 0.5),
    "ring": (lambda: problems.ring(), ring, 0.4),
    "torus": (lambda: problems.torus_density(), torus(0.0), 0.5),
    "rotating": (lambda: problems.torus_density(rotation=2.0), torus(2.0), 0.5),
    "eigen 5": (lambda: problems.fokker_planck_eigen(5), eigen(5), 1.0),
    "eigen 10": (lambda: problems.fokker_planck_eigen(10), eigen(10), 1.0),
}


@pytest.mark.parametrize("case", CASES)
def test_the_flux_has_no_divergence(case, rng):
    make, drift, diffusion = CASES[case]
    problem = make()
    p, x = problem.reference, jnp.asarray(points(problem, rng))
    flux = lambda x: drift(x) * p(x) - diffusion * jax.grad(p)(x)

    @once
    def look(x):
        divergence = jax.vmap(lambda x: jnp.trace(jax.jacfwd(flux)(x)))(x)
        sizes = jax.vmap(lambda x: jnp.abs(jax.hessian(p)(x)).max())(x)
        residual = jax.vmap(lambda x: problem.equation(p, x))(x)
        return divergence, residual, sizes, jax.vmap(p)(x), jax.vmap(flux)(x)

    divergence, residual, sizes, values, fluxes = look(x)
    assert np.abs(divergence).max() < 1e-13 * sizes.max()
    assert np.abs(residual).max() < 1e-13 * sizes.max()
    assert values.min() > 0.0
    # What rotates has a flux along the level lines.
    rotates = case in ("ring", "rotating")
    assert (np.abs(fluxes).max() > 1e-2 * np.abs(values).max()) == rotates
    assert problem.positive
    assert problem.interval is None
    assert targets(problem) == {"mass": 1.0}


def test_the_mass_is_one():
    def by_scipy(problem):
        p = once(problem.reference)
        low, high = float(problem.domain.lower[0]), float(problem.domain.upper[0])
        return scipy.integrate.quad(
            lambda x: float(p(jnp.array([x]))), low, high, epsabs=1e-13, limit=200
        )[0]

    assert abs(by_scipy(problems.double_well()) - 1.0) < 1e-12
    assert abs(by_scipy(problems.mean_field()) - 1.0) < 1e-12
    for problem, n in ((problems.ring(), 60), (problems.torus_density(), 40)):
        (mean,) = means(problem, lambda x: [jax.vmap(problem.reference)(x)], n)  # noqa: B023
        assert abs(mean * problem.domain.volume - 1.0) < 1e-12


def test_normalisations_in_closed_form():
    # Of the ring in the whole plane, as an integral over s = |x|^2.
    d = 0.4
    plane = 0.5 * np.pi * np.sqrt(np.pi * d) * (1.0 + scipy.special.erf(d**-0.5))
    at = lambda problem, x: float(problem.reference(jnp.asarray(x)))
    assert at(problems.ring(), [1.0, 0.0]) == pytest.approx(1.0 / plane, rel=1e-9)
    # Of the torus by the series of exp(a cos): one sum over its wave numbers.
    k = np.arange(-40, 41)
    bessel = lambda a: scipy.special.iv(np.abs(k), a)
    total = 4.0 * np.pi**2 * np.sum(bessel(2.0) ** 2 * (-1.0) ** k * bessel(1.0))
    value = np.exp(-2.0 * 2.5) / total
    assert at(problems.torus_density(), [0.0, 0.0]) == pytest.approx(value, rel=1e-13)


@pytest.mark.parametrize("d", EIGEN)
def test_the_mean_of_the_eigenfunction(d):
    # Integrate one variable after another: `g(s) <- mean of g(s + c cos x)`.
    s = np.linspace(0.0, 2.0 * np.pi, 4097)
    x = 2.0 * np.pi * (np.arange(64) + 0.5) / 64
    g = np.exp(-np.sin(s))
    for c in EIGEN[d]:
        spline = scipy.interpolate.CubicSpline(s, g, bc_type="periodic")
        g = spline(s[:, None] + c * np.cos(x)).mean(1)
        g[-1] = g[0]
    problem = problems.fokker_planck_eigen(d)
    # At this point the exponent vanishes.
    value = float(problem.reference(jnp.full(d, 0.5 * np.pi)))
    assert value == pytest.approx(1.0 / g[0], rel=1e-11)
    assert problem.domain.normalised


# An exponent V / D and the wall, with the claimed distance of positive solutions.
FLUXES = {
    "double well": (lambda x: (x**2 - 1.0) ** 2 / 0.5, 2.0, 3e-6),
    "mean field": (
        lambda x: 2.0 * (x**4 / 4 - x**2 / 2 - 0.3 * x + (x - 0.8672) ** 2 / 2),
        2.5,
        4e-6,
    ),
}


@pytest.mark.parametrize("case", FLUXES)
def test_other_positive_solutions_are_close(case, record_property):
    """Those with a constant flux are `exp(-V / D) (a + b int exp(V / D))`."""
    exponent, end, claimed = FLUXES[case]
    x = np.linspace(-end, end, 40_001)
    growth = np.exp(exponent(x))
    grown = scipy.integrate.cumulative_simpson(growth, x=x, initial=0.0)
    density = 1.0 / growth / np.trapezoid(1.0 / growth, x)
    distance = 0.0
    # Zero at one of the walls, and positive elsewhere.
    for wall in (0, -1):
        other = np.abs(grown - grown[wall]) / growth
        other /= np.trapezoid(other, x)
        distance = max(distance, np.abs(other - density).max() / density.max())
    record_property(case, float(distance))
    assert 0.1 * claimed < distance < claimed


def test_the_centre_of_the_mean_field():
    problem = problems.mean_field()
    p = once(problem.reference)
    density = lambda x: float(p(jnp.array([x])))
    centre, _ = scipy.integrate.quad(lambda x: x * density(x), -2.5, 2.5, epsabs=1e-13)
    assert centre > 0.3

    # The logarithmic slope is that of the equation, with this centre.
    x = np.linspace(-2.4, 2.4, 25)
    value, slope, bend = jet(problem.reference, x[:, None])
    force = x**3 - x - 0.3 + (x - centre)
    assert np.allclose(slope[:, 0], -force * value / 0.5, rtol=1e-11, atol=1e-13)

    # And so is the equation of the problem, term by term.
    equation = problem.equation
    assert integrals(problem)["centre"](x=np.array([1.5]), u=2.0) == 3.0
    local = np.array(
        [
            equation.local(u, g, at, centre=centre)
            for u, g, at in zip(value, slope, x[:, None], strict=True)
        ]
    )
    linear = equation.operator(problem.reference)(jnp.asarray(x[:, None]))
    assert np.abs(linear + local).max() < 1e-12 * np.abs(bend).max()
    assert np.abs(local).max() > 0.1


def test_the_centre_is_unique():
    # The slope of m -> int x p(x; m) is kappa / D times the variance: below 1.
    def moments(m):
        weight = lambda x: np.exp(
            -(x**4 / 4 - x**2 / 2 - 0.3 * x + (x - m) ** 2 / 2) * 2
        )
        total, mean, square = (
            scipy.integrate.quad(lambda x, k=k: x**k * weight(x), -2.5, 2.5)[0]
            for k in range(3)
        )
        return mean / total, square / total - (mean / total) ** 2

    grid = np.linspace(-2.5, 2.5, 41)
    found = np.array([moments(m) for m in grid])
    assert np.all(found[:, 1] / 0.5 < 1.0)
    assert np.sum(np.diff(np.sign(found[:, 0] - grid)) != 0) == 1
    with pytest.raises(ValueError, match=r"attraction must .* got 1.0, with 2"):
        problems.mean_field(diffusion=0.05)
    several = _mean_field.mean_of(0.0, 0.5, 1.0)
    assert several[0] == pytest.approx(moments(0.0)[0], rel=1e-11)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: problems.double_well(diffusion=0.0), "diffusion must .* got 0.0"),
        (lambda: problems.ring(diffusion=1.0), "diffusion must .* got 1.0"),
        (lambda: problems.torus_density(diffusion=-1.0), "diffusion must .* got -1.0"),
        (lambda: problems.mean_field(diffusion=0.0), "diffusion must .* got 0.0"),
        (lambda: problems.fokker_planck_eigen(6), "dimension must be 5 or 10, got 6"),
    ],
)
def test_bad_arguments_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
