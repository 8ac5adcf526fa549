"""Solutions, data and integrals of every problem, against formulas written anew."""

import dataclasses
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from make_problem import make_problem
from quick import once

import sdifp
from sdifp import Initial, problems
from sdifp.problems import _check
from sdifp.problems._kdv import solve

# Data and the part of the equation that is not the highest derivative by t, written
# from the definitions: (u, gradient, Laplacian, third derivatives, x, t, d) -> number.
EQUATIONS = {
    "advection": lambda u, g, lap, third, x, t, d: -jnp.sum(g),
    "wave": lambda u, g, lap, third, x, t, d: lap,
    "reaction_diffusion": lambda u, g, lap, third, x, t, d: 0.01 * lap + 0.5 * u,
    "kdv": lambda u, g, lap, third, x, t, d: -(6.0 * u * jnp.sum(g) + third) / d,
    "fokker_planck": lambda u, g, lap, third, x, t, d: d * u + x @ g + 0.4 * lap,
    "heat_dirichlet": lambda u, g, lap, third, x, t, d: 0.1 * lap,
    "manufactured": lambda u, g, lap, third, x, t, d: lap + source(x, t, d),
}
BOUNDED = ("fokker_planck", "heat_dirichlet")
CASES = [(n, d) for n in EQUATIONS for d in (1, 2, 3, 8) if d <= 3 or n not in BOUNDED]
MOVING = {
    "reaction_diffusion": ("mass", "squared_norm"),
    "heat_dirichlet": ("mass",),
    "manufactured": ("mass", "squared_norm"),
}
PARTS = (0.0, 0.37, 1.0)


@pytest.fixture(autouse=True)
def compiled_for_one_run(monkeypatch):
    monkeypatch.setattr(_check, "once", once)


def source(x, t, d):
    """Of `sin(s + t)`, from the chain rule: `u_t - u_ss |grad s|^2 - u_s Lap s`."""
    s = jnp.sum(jnp.cos(np.pi * x)) / np.sqrt(d)
    slope = jnp.sum((np.pi * jnp.sin(np.pi * x)) ** 2) / d
    bend = -(np.pi**2) * s
    return jnp.cos(s + t) + slope * jnp.sin(s + t) - bend * jnp.cos(s + t)


def along(f, v):
    return lambda x: jax.jvp(f, (x,), (v,))[1]


def right_side(name, u, x, t, d):
    f = lambda x: u(x, t)
    third = jnp.zeros(())
    if name == "kdv":
        axis = lambda v: along(along(along(f, v), v), v)(x)
        third = jnp.sum(jax.vmap(axis)(jnp.eye(d)))
    lap = jnp.zeros(())
    if name not in ("kdv", "advection"):
        lap = jnp.sum(jax.vmap(lambda v: along(along(f, v), v)(x))(jnp.eye(d)))
    return EQUATIONS[name](f(x), jax.grad(f)(x), lap, third, x, t, d)


def integration_points(problem, rng):
    """Points and weights of means, on which the package has no say."""
    box, d = problem.domain, problem.domain.dimension
    if d > 3:
        unit = rng.uniform(size=(20_000, d))
        return box.lower + box.width * unit, np.full(len(unit), 1.0 / len(unit))
    # A wave along the diagonal is seen by the axes together: 64 on one axis will do.
    diagonal = problem.name.startswith("kdv")
    n = [64, 9, 5][:d] if diagonal else [{1: 8, 2: 64, 3: 40}[d]] * d
    axes = [on_axis(k, bool(box.periodic[0])) for k in n]
    unit = np.array(list(itertools.product(*(nodes for nodes, _ in axes))))
    both = np.array(list(itertools.product(*(weights for _, weights in axes))))
    return box.lower + box.width * unit, both.prod(1)


def on_axis(n, periodic):
    if periodic:
        return (np.arange(n) + 0.3) / n, np.full(n, 1.0 / n)
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return 0.5 * (nodes + 1.0), 0.5 * weights


@pytest.mark.parametrize(("name", "d"), CASES)
def test_problem_is_what_it_says(name, d, rng):
    problem = getattr(problems, name)(d)
    box, u = problem.domain, problem.reference
    x = jnp.asarray(box.lower + box.width * rng.uniform(size=(12, d)))
    t = jnp.asarray(problem.duration * rng.uniform(size=12))
    times = problem.duration * jnp.asarray(PARTS)
    low, high = x.at[:, 0].set(box.lower[0]), x.at[:, 0].set(box.upper[0])
    nodes, weights = integration_points(problem, rng)

    @once
    def look(x, t, low, high, nodes, times):
        rate = lambda x, t: jax.jvp(lambda t: u(x, t), (t,), (jnp.ones_like(t),))[1]
        highest = rate
        if problem.order == 2:
            highest = lambda x, t: jax.jvp(
                lambda t: rate(x, t), (t,), (jnp.ones_like(t),)
            )[1]
        zero = jnp.zeros(())
        face = lambda x, t: jax.value_and_grad(u)(x, t)
        return {
            "highest": jax.vmap(highest)(x, t),
            "right side": jax.vmap(lambda x, t: right_side(name, u, x, t, d))(x, t),
            "residual": jax.vmap(lambda x, t: problem.equation(u, x, t))(x, t),
            "start": jax.vmap(lambda x: u(x, zero))(x),
            "initial": jax.vmap(problem.initial)(x),
            "rate": jax.vmap(lambda x: rate(x, zero))(x),
            "velocity": jax.vmap(problem.velocity or (lambda x: zero))(x),
            "low": jax.vmap(face)(low, t),
            "high": jax.vmap(face)(high, t),
            "values": jax.lax.map(lambda t: jax.vmap(u, (0, None))(nodes, t), times),
            "targets": [
                jnp.stack([problem.mean_target(i, t) for t in times])
                for i in problem.invariants
            ],
        }

    found = jax.tree.map(np.asarray, look(x, t, low, high, jnp.asarray(nodes), times))
    size = np.max(np.abs(found["highest"]))
    assert size > 0.0
    tolerance = (1e-7 if name == "kdv" else 1e-9) * max(1.0, size)
    assert np.max(np.abs(found["highest"] - found["right side"])) < tolerance
    assert np.max(np.abs(found["residual"])) < tolerance
    assert np.allclose(found["start"], found["initial"], rtol=1e-10, atol=1e-10)
    if problem.velocity is None:
        assert name != "wave"
    else:
        assert np.allclose(found["rate"], found["velocity"], rtol=1e-11, atol=1e-12)
    check_walls(problem, found)
    check_targets(problem, name, found, times, weights)


def check_walls(problem, found):
    (low, low_slope), (high, high_slope) = found["low"], found["high"]
    if problem.domain.periodic[0]:
        assert np.allclose(low, high, rtol=1e-10, atol=1e-10)
        assert np.allclose(low_slope, high_slope, rtol=1e-9, atol=1e-9)
    elif all(problem.neumann):
        # The Gaussian of the first one is even to the last of its images.
        assert max(np.abs(low_slope[:, 0]).max(), np.abs(high_slope[:, 0]).max()) < 1e-9
        assert np.abs(low).max() > 1e-9
    else:
        assert max(np.abs(low).max(), np.abs(high).max()) < 1e-12


def check_targets(problem, name, found, times, weights):
    targets = found["targets"]
    kinds = [invariant.name for invariant in problem.invariants]
    assert kinds == (["mass"] if name in BOUNDED else ["mass", "squared_norm"])
    by_scipy = one_dimensional_means(problem, times)
    for power, kind, target in zip((1, 2), kinds, targets, strict=False):
        values = found["values"] ** power
        if problem.domain.dimension == 1:
            means = by_scipy[power - 1]
            margin = 1e-10
        else:
            means = values @ weights
            margin = 1e-8 * max(1e-3, np.abs(target).max())
        if problem.domain.dimension > 3:
            margin = 5.0 * values.std(1) / np.sqrt(values.shape[1])
            assert np.all(margin < 0.2 * np.sqrt(np.mean(values**2, axis=1)))
        assert np.all(np.abs(means - target) < margin), (kind, means, target)
        moves = kind in MOVING.get(name, ())
        assert (np.ptp(target) > 0.05 * np.abs(target).max()) == moves


def one_dimensional_means(problem, times):
    """Of the field and of its square, by SciPy's adaptive quadrature."""
    if problem.domain.dimension > 1:
        return None
    at_point = once(lambda x: jnp.stack([problem.reference(x, t) for t in times]))
    low, high = problem.domain.lower[0], problem.domain.upper[0]

    def powers(x):
        values = np.asarray(at_point(np.array([x])))
        return np.stack([values, values**2])

    integral, _ = scipy.integrate.quad_vec(
        powers,
        low,
        high,
        epsabs=1e-12,
        epsrel=1e-12,
        points=[0.5 * (low + high)],
    )
    return integral / (high - low)


def test_kdv_carries_a_soliton():
    k, centre, lower, period = 1.5, 9.5, -9.0, 20.0

    def soliton(x, t):
        # The nearest image; the others are below rounding. It crosses the wall at 11.
        away = x - centre - 4.0 * k**2 * t
        near = (away + 0.5 * period) % period - 0.5 * period
        return 2.0 * k**2 / np.cosh(k * near) ** 2

    grid = lower + period * np.arange(256) / 256
    found = solve(soliton(grid, 0.0), 0.3)
    x, times = np.linspace(lower, lower + period, 97), np.linspace(0.0, 0.3, 7)
    over_x = jax.vmap(found, (0, None))
    values = once(lambda x, times: jax.lax.map(lambda t: over_x(x, t), times))
    values = values(jnp.asarray(x)[:, None], jnp.asarray(times))
    exact = np.stack([soliton(x, t) for t in times])
    assert np.max(np.abs(values - exact)) < 1e-9


# In many dimensions a training does it.
CHECKED = [(n, 1) for n in EQUATIONS] + [("reaction_diffusion", 2)]


@pytest.mark.parametrize(("name", "d"), CHECKED)
def test_every_problem_agrees_with_itself(name, d, getkey):
    getattr(problems, name)(d).check(getkey())


def periodic_problem(**changes):
    """`u = 1 + exp(-t) sin(2 pi x)` on a circle; integrals 1 and 1 + exp(-2 t) / 2."""
    settings = {
        "domain": sdifp.Box([0.0], [1.0], periodic=True),
        "duration": 1.0,
        "equation": sdifp.Residual(sdifp.laplacian()),
        "initial": lambda x: 1.0 + jnp.sin(2.0 * np.pi * x[0]),
        "mass": 1.0,
        "squared_norm": lambda t: 1.0 + 0.5 * jnp.exp(-2.0 * t),
        "reference": lambda x, t: 1.0 + jnp.exp(-t) * jnp.sin(2.0 * np.pi * x[0]),
    }
    return make_problem(**{**settings, **changes})


WALLED = {
    "domain": sdifp.Box([0.0], [1.0]),
    "squared_norm": None,
    "reference": None,
}
sine = lambda x: jnp.sin(np.pi * x[0])
DISAGREEMENTS = {
    "mass": (
        {"mass": 1.001},
        r"mass of initial.* is 1, but the mass target is 1.001.*0.001",
    ),
    "squared_norm": (
        {"squared_norm": 1.4, "reference": None},
        r"norm of initial.* is 1.5, but the squared_norm target is 1.4: off by 0.1",
    ),
    "mass later": (
        {"mass": lambda t: 1.0 + 0.01 * t},
        r"mass of reference at t = 0.21.*mass target is 1.0021: off by 0.0021",
    ),
    "reference": (
        {"reference": lambda x, t: 1.1 + jnp.sin(2.0 * np.pi * x[0])},
        r"reference at time 0 and initial disagree by up to 0.1, 0.05 of the size",
    ),
    "velocity": (
        {"velocity": lambda x: -1.1 * jnp.sin(2.0 * np.pi * x[0])},
        r"time derivative of reference at time 0 and velocity disagree by up to 0.1",
    ),
    "not periodic": (
        {"initial": lambda x: 0.5 + x[0], "squared_norm": None, "reference": None},
        r"initial on one wall of the periodic axis 0 and the other disagree by up to 1",
    ),
    "slope": (
        {**WALLED, "neumann": True, "initial": sine, "mass": 2.0 / np.pi},
        r"slope of initial at a wall of axis 0 and zero disagree by up to 3.1",
    ),
    "wall": (
        {**WALLED, "profile": sine, "initial": lambda x: 1.0 + 0.0 * x[0]},
        r"initial on a wall of axis 0 and zero disagree by up to 1",
    ),
    "profile": (
        {**WALLED, "profile": lambda x: 0.2 + sine(x), "initial": sine, "mass": None},
        r"profile on a wall of axis 0 and zero disagree by up to 0.2",
    ),
    "no condition": (
        {**WALLED, "initial": sine, "mass": 2.0 / np.pi, "name": "mine"},
        r"^mine has no boundary condition on axis 0 .*periodic.*Neumann.*Dirichlet",
    ),
    "infeasible": (
        {"squared_norm": lambda t: 1.5 - t, "reference": None},
        r"squared_norm and mass disagree at t = 0.55: .*mean 1 has .*target is 0.95",
    ),
    "not finite": (
        {"initial": lambda x: jnp.sqrt(x[0] - 0.5)},
        "initial must be finite on the whole box, and is not",
    ),
}


@pytest.mark.parametrize("case", DISAGREEMENTS)
def test_a_disagreement_is_named_with_its_size(case):
    changes, words = DISAGREEMENTS[case]
    problem = periodic_problem(**changes)
    with pytest.raises(ValueError, match=words):
        problem.check()


def walled(d, **changes):
    """Something constant on a box of which each test says what its walls are."""
    given = {"domain": sdifp.Box.cube(d), "initial": lambda x: 1.0 + 0.0 * x[0]}
    given |= {"squared_norm": None, "reference": None}
    return periodic_problem(**{**given, **changes})


@pytest.mark.parametrize(
    ("d", "changes", "words"),
    [
        (2, {}, "on axes 0, 1 of its box"),
        (2, {"neumann": [True, False]}, "on axis 1 of its box"),
        (
            2,
            {"domain": sdifp.Box.cube(2, periodic=[False, True])},
            "on axis 0 of its box",
        ),
        (50, {"neumann": [*[True] * 30, *[False] * 20]}, "axes 30, 31, 32, ... of its"),
    ],
)
def test_walls_without_a_condition_are_named(d, changes, words):
    problem = walled(d, **changes)
    with pytest.raises(ValueError, match=words):
        problem.check()
    # Before anything is compiled; and as the message says, it can be asked for.
    with pytest.raises(ValueError, match=words):
        sdifp.train(problem, key=jax.random.key(0))
    assert sdifp.train(problem, key=jax.random.key(0), check=False).step == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"neumann": True},
        {"neumann": [False, True], "domain": sdifp.Box.cube(2, periodic=[True, False])},
        {
            "neumann": [False, True],
            "profile": lambda x: x[0] * (1.0 - x[0]),
            "initial": lambda x: x[0] * (1.0 - x[0]),
            "mass": 1.0 / 6.0,
        },
    ],
)
def test_walls_with_a_condition_on_each_axis_pass(changes):
    walled(2, **changes).check()


def test_a_problem_without_a_recipe_has_one_for_its_dimension():
    for d in (1, 2, 3, 4, 50):
        problem = walled(d)
        assert sdifp.training.recipe_for(problem).optimiser.uses_rows == (d <= 3)
        fast = sdifp.training.recipe_for(problem)
        assert sdifp.training.recipe_for(problem, "accurate") == fast.replace(
            steps=3 * fast.steps
        )
        # Its rows fit: as many points as in one dimension.
        points = sdifp.training.recipe_for(problem).points
        assert points.n_t * points.n_x <= 1024
        sdifp.train(problem, key=jax.random.key(0), check=False)
    with pytest.raises(ValueError, match="recipe must be fast or accurate, got 'slow'"):
        sdifp.training.recipe_for(walled(1), "slow")


def test_the_same_problem_without_disagreement_passes():
    periodic_problem(
        velocity=lambda x: -jnp.sin(2.0 * np.pi * x[0]),
    ).check()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        (
            {"initial": lambda x: x},
            ValueError,
            r"initial must .* got shape \(1,\)",
        ),
        ({"velocity": lambda x: x}, ValueError, r"velocity must .* got shape \(1,\)"),
        ({"profile": lambda x: x}, ValueError, r"profile must .* got shape \(1,\)"),
        ({"reference": lambda x, t: x + t}, ValueError, r"reference must .* \(1,\)"),
        (
            {"duration": 0.0},
            ValueError,
            r"interval must begin at 0 .* got \(0.0, 0.0\)",
        ),
        ({"duration": np.inf}, ValueError, r"interval must .* got \(0.0, inf\)"),
        (
            {"equation": None},
            TypeError,
            "a Residual or a Functional, got None",
        ),
        ({"domain": 2.0}, TypeError, "domain must be a Box, got 2.0"),
        ({"neumann": [True]}, ValueError, "axes must be .*not periodic, got 0"),
        (
            {"neumann": [False, True]},
            ValueError,
            "axes must be axes of the box.* got 1",
        ),
        (
            {"equation": sdifp.Residual(sdifp.time_derivative(2))},
            ValueError,
            "velocity must be given: the equation is of second order in time",
        ),
    ],
)
def test_bad_parts_are_refused_at_once(changes, error, words, as_user):
    with pytest.raises(error, match=words):
        periodic_problem(**changes)


@pytest.mark.parametrize("name", BOUNDED)
def test_dimensions_without_mass_to_speak_of_are_refused(name):
    with pytest.raises(ValueError, match="dimension must be at most 3, got 4"):
        getattr(problems, name)(4)


@pytest.mark.parametrize("name", EQUATIONS)
def test_no_dimension_is_refused(name):
    with pytest.raises(ValueError, match="dimension must be a positive integer, got 0"):
        getattr(problems, name)(0)


def test_targets_are_divided_by_the_volume_of_the_box():
    wide = sdifp.Box([0.0], [4.0], periodic=True)
    normalised = sdifp.Box([0.0], [4.0], periodic=True, normalised=True)
    given = periodic_problem(domain=wide, mass=3.0)
    mass, squared_norm = given.invariants
    assert given.mean_target(mass, 0.0) == 0.75
    assert periodic_problem(domain=normalised, mass=3.0).mean_target(mass, 0.0) == 3.0
    wanted = (1.0 + 0.5 * np.exp(-2.0)) / 4.0
    assert np.isclose(given.mean_target(squared_norm, 1.0), wanted)


def test_short_and_long_form_of_the_invariants_are_the_same():
    short = periodic_problem(mass=3.0, squared_norm=9.5)
    long = periodic_problem(
        mass=None,
        squared_norm=None,
        invariants=[sdifp.Mass(3.0), sdifp.SquaredNorm(9.5)],
    )
    assert short.invariants == long.invariants
    assert [i.name for i in long.invariants] == ["mass", "squared_norm"]
    assert dataclasses.replace(long, name="other").invariants == long.invariants


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("invariants", "words"),
    [
        ([sdifp.Mass(2.0)], "invariants has mass twice"),
        ([sdifp.SquaredNorm(2.0, component=1)], "not name components.*component=1"),
        ([1.0], "must hold Mass, SquaredNorm, Moment, .*got 1.0"),
        (
            [sdifp.invariants.Moment(lambda x: jnp.ones(2), 1.0)],
            r"weight of moment must return .* for each of its 1 component, got",
        ),
        (
            [sdifp.Density(lambda u, grad: grad, "flux")],
            r"function of flux must return one real number.*shape \(1,\)",
        ),
    ],
)
def test_invariants_that_a_problem_refuses(invariants, words):
    with pytest.raises((TypeError, ValueError), match=words):
        periodic_problem(squared_norm=None, invariants=invariants)


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("conditions", "interval", "error", "words"),
    [
        ([], (0.0, 1.0), ValueError, r"conditions must hold Initial\(u0\)"),
        ([Initial(sine), 3.0], (0.0, 1.0), TypeError, "conditions must .*got 3.0"),
        ([Initial(sine)] * 2, (0.0, 1.0), ValueError, "one Initial at most"),
        (
            [Initial(sine)],
            None,
            ValueError,
            r"interval must be .* beside Initial",
        ),
        ([Initial(sine)], (1.0, 2.0), ValueError, r"must begin at 0.*\(1.0, 2.0\)"),
        ([Initial(sine)], 2.0, ValueError, "interval must be two times.*got 2.0"),
    ],
)
def test_conditions_and_intervals_that_are_refused(conditions, interval, error, words):
    box, equation = sdifp.Box([0.0], [1.0]), sdifp.Residual(sdifp.laplacian())
    with pytest.raises(error, match=words):
        sdifp.Problem(box, equation, conditions, interval)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("name", EQUATIONS)
def test_every_problem_describes_itself(name, d):
    text = getattr(problems, name)(d).description
    assert re.search(r"u_tt? (= |\+ ).*\[-?\d+, \d+\]", text)
    assert ("]^3" in text) == (d == 3)
    assert text.endswith(".")


@pytest.mark.usefixtures("as_user")
def test_a_description_is_a_string():
    problem = sdifp.problems.advection()
    assert dataclasses.replace(problem, description="Mine.").description == "Mine."
    with pytest.raises(TypeError, match="description must be a string, got 3"):
        dataclasses.replace(problem, description=3)


def test_neumann_holds_on_the_axes_that_are_named_or_on_all_walls():
    box = sdifp.Box.cube(3, periodic=[False, True, False])
    equation = sdifp.Residual(sdifp.laplacian())
    neumann = lambda *axes: (
        sdifp.Problem(
            box, equation, [Initial(sine), sdifp.Neumann(*axes)], (0.0, 1.0)
        ).neumann
    )
    assert neumann() == (True, False, True)
    assert neumann([2]) == (False, False, True)
