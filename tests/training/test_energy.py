"""What a step minimises for a functional: the loss, its gradient, and its rows."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from quick import once, only

import sdifp
from sdifp.field import _integrals
from sdifp.operators import Functional
from sdifp.problems import Dirichlet
from sdifp.training import SDIFP, Adam, LevenbergMarquardt, Plain, Soft, _energy
from sdifp.training._energy import EnergyObjective

RECIPE = sdifp.Recipe(sdifp.training.MLP(5, 1), LevenbergMarquardt(), steps=3, nodes=16)
LINE = sdifp.Box([-1.0], [2.0])
WALLS = Dirichlet(lambda x: (1.0 + x[0]) * (2.0 - x[0]))


def quadratic(**rest):
    """A quadratic density whose curvature is above the least one everywhere."""
    return sdifp.Problem(
        LINE,
        Functional(
            lambda u, grad, x: (
                0.5 * jnp.sum(grad**2)
                + 0.2 * u * grad[0]
                + (1.0 + x[0] ** 2) * u**2
                - jnp.cos(x[0]) * u
            )
        ),
        **rest,
    )


def quartic(**rest):
    return sdifp.Problem(
        LINE,
        Functional(lambda u, grad: 0.5 * jnp.sum(grad**2) + u**4 - u**2),
        **rest,
    )


def mean_field(**rest):
    """Integrals and a kernel in the density."""
    return sdifp.Problem(
        LINE,
        Functional(
            lambda u, grad, norm, potential: (
                0.5 * jnp.sum(grad**2) / norm + u * potential
            ),
            {
                "norm": lambda u: 1.0 + u**2,
                "potential": lambda x, y, u: x[0] * y[0] * u,
            },
        ),
        **rest,
    )


def plane(**rest):
    return sdifp.Problem(
        sdifp.Box([0.0, 0.0], [1.0, 2.0], periodic=[True, False]),
        Functional(lambda u, grad, x: 0.5 * jnp.sum(grad**2) + u**4 - x[0] * u),
        **rest,
    )


def coupled(invariants, **rest):
    """Two components, whose gradients are coupled, too."""
    return sdifp.Problem(
        LINE,
        Functional(
            lambda u, grad, x, overlap: (
                0.5 * jnp.sum(grad**2)
                + 0.1 * grad[0, 0] * grad[1, 0]
                + (1.0 + overlap) * u[0] ** 2
                + u[1] ** 4
                - x[0] * u[1]
            ),
            {"overlap": lambda u, grad: u[0] * u[1] + 0.1 * grad[0, 0] ** 2},
        ),
        invariants=invariants,
        components=2,
        **rest,
    )


def steep(form):
    """A form of the gradient, whose curvature is in the metric."""
    return sdifp.invariants.QuadraticForm(form, 3.0, name="form")


# The gauge holds the variance of the field, so that of "mass" alone is no gradient.
CASES = {
    "plain": (quadratic, {}, Plain()),
    "norm": (quadratic, {"squared_norm": 1.0}, SDIFP()),
    "mass and norm": (quartic, {"mass": 0.4, "squared_norm": 2.0}, SDIFP(gauge=0.1)),
    "walls": (quadratic, {"conditions": [WALLS], "mass": 0.7}, SDIFP(gauge=0.0)),
    "walls, norm": (quartic, {"conditions": [WALLS], "squared_norm": 1.0}, SDIFP()),
    "positive": (quartic, {"mass": 1.5, "positive": True}, SDIFP()),
    "penalty": (quartic, {"mass": 0.4, "squared_norm": 2.0}, Soft(3.0)),
    "integrals": (mean_field, {"mass": 0.4}, SDIFP(gauge=0.0)),
    "system": (
        coupled,
        {"invariants": [sdifp.Mass(0.4, 0), sdifp.SquaredNorm(2.0, 0)]},
        SDIFP(gauge=0.0),
    ),
    "system, joint norm": (
        coupled,
        {"invariants": [sdifp.Mass(0.4), sdifp.SquaredNorm(2.0)]},
        SDIFP(),
    ),
    "system, two norms": (
        coupled,
        {
            "invariants": [sdifp.SquaredNorm(1.0, 0), sdifp.SquaredNorm(2.0, 1)],
            "conditions": [WALLS],
        },
        SDIFP(gauge=0.0),
    ),
    "system, form": (
        coupled,
        {
            "invariants": [
                steep(lambda u, grad: jnp.sum(u**2) + jnp.sum(grad**2)),
                sdifp.invariants.Moment(lambda x: jnp.stack([x[0], 1.0 + x[0]]), 0.2),
            ]
        },
        SDIFP(gauge=0.0),
    ),
    "two dimensions": (plane, {"squared_norm": 2.0}, SDIFP()),
    "moments": (
        quartic,
        {
            "invariants": [
                sdifp.SquaredNorm(1.0),
                sdifp.invariants.Moment(lambda x: x[0], 0.2),
            ]
        },
        SDIFP(),
    ),
}


def objective_of(make, rest, method, key, recipe=RECIPE):
    """The objective of a first step, and its loss as a function of flat parameters."""
    problem = make(**rest)
    run = sdifp.training.Training(problem, method, recipe=recipe, key=key, check=False)
    stage = (run.state.step, run.state.switched, run.state.kept)
    objective = EnergyObjective(run.window, run.state.multipliers + 0.3, key, *stage)
    params, static = eqx.partition(run.state.net, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(params)
    return objective, flat, lambda flat: eqx.combine(unravel(flat), static)


def on_nodes(objective, net):
    """Values and gradients of the field on the nodes of a step, a row for each node,
    with the rule."""
    u, rule = objective.field(net), objective.rule
    nodes, weights = rule.at(jnp.arange(rule.size))
    now = u.at()
    value = getattr(now, "value", now)
    u, grad = jax.vmap(jax.value_and_grad(value))(nodes)
    return jnp.concatenate([u[:, None], grad], 1), nodes, weights


@pytest.mark.parametrize(
    "case", only(CASES, "mass and norm", "walls", "integrals", "system, form")
)
def test_the_loss_and_the_rows_have_one_gradient(case, getkey):
    objective, flat, net_of = objective_of(*CASES[case], getkey())
    loss_of = once(lambda f: objective.loss(net_of(f)))
    gradient = once(lambda f: jax.grad(lambda f: objective.loss(net_of(f)))(f))(flat)
    loss, rows, jacobian = once(lambda f: objective.linearise(net_of(f)))(flat)
    assert np.isclose(loss, loss_of(flat), rtol=1e-12)
    scale = float(jnp.max(jnp.abs(gradient)))
    np.testing.assert_allclose(
        jacobian.T @ rows, gradient, rtol=1e-9, atol=1e-11 * scale
    )
    # Along a direction, by finite differences.
    along = jax.random.normal(getkey(), flat.shape)
    step = 1e-5
    ends = [float(loss_of(flat + s * step * along)) for s in (1.0, -1.0)]
    numerical = (ends[0] - ends[1]) / (2 * step)
    assert np.isclose(gradient @ along, numerical, rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize("case", only(["plain", "walls"], "walls"))
def test_rows_make_the_exact_gauss_newton_matrix_of_a_quadratic_density(case, getkey):
    make, rest, method = CASES[case]
    method = SDIFP(gauge=0.0) if isinstance(method, SDIFP) else method
    objective, flat, net_of = objective_of(make, rest, method, getkey())
    _, _, jacobian = once(lambda f: objective.linearise(net_of(f)))(flat)

    @once
    def by_hand(flat):
        jets = lambda f: on_nodes(objective, net_of(f))[0]
        _, nodes, weights = on_nodes(objective, net_of(flat))
        slopes = jax.jacfwd(jets)(flat)
        bend = (
            jnp.stack([jnp.array([[2.0, 0.2], [0.2, 1.0]])] * len(nodes))
            .at[:, 0, 0]
            .add(2.0 * nodes[:, 0] ** 2)
        )
        return jnp.einsum("mkp,mkl,mlq,m->pq", slopes, bend, slopes, 3.0 * weights)

    matrix = by_hand(flat)
    scale = float(jnp.max(jnp.abs(matrix)))
    np.testing.assert_allclose(jacobian.T @ jacobian, matrix, atol=1e-11 * scale)


def test_a_newton_step_of_a_linear_family_solves_a_quadratic_problem():
    # With features of its own for a network the energy is a quadratic form of the
    # parameters, so that one undamped step finds its least value on the nodes.
    class Linear(eqx.Module):
        weights: jax.Array

        def __call__(self, x):
            return self.weights @ x[0] ** jnp.arange(4.0)

    problem = quadratic()
    recipe = RECIPE.replace(optimiser=LevenbergMarquardt(1e-14))
    run = sdifp.training.Training(
        problem,
        Plain(),
        recipe=recipe,
        network=Linear(jnp.array([0.3, -0.2, 0.5, 0.1])),
        key=jax.random.key(0),
        check=False,
    )
    run.advance(1)
    rule = sdifp.quadrature.gauss_legendre(LINE, 32)
    energy = lambda w: problem.functional(Linear(w), rule)
    bend, slope = once(lambda w: (jax.hessian(energy)(w), jax.grad(energy)(w)))(
        jnp.zeros(4)
    )
    # 16 nodes on two pieces are exact for these polynomials, but not for the cosine.
    np.testing.assert_allclose(
        run.state.net.weights, -jnp.linalg.solve(bend, slope), rtol=1e-9
    )


def test_nodes_in_chunks_make_the_same_loss_and_gradient(getkey, monkeypatch):
    key = getkey()
    found = []
    for chunk in (4096, 5):
        monkeypatch.setattr(_integrals, "CHUNK", chunk)
        monkeypatch.setattr(_integrals, "_PAIRS", 5 * chunk)
        objective, flat, net_of = objective_of(*CASES["integrals"], key)
        of = lambda f, o=objective, n=net_of: jax.value_and_grad(
            lambda f: o.loss(n(f))
        )(f)
        found.append(once(of)(flat))
    (loss, gradient), (other, again) = found
    assert np.isclose(loss, other, rtol=1e-13)
    np.testing.assert_allclose(gradient, again, rtol=1e-10, atol=1e-12)


def test_a_flat_or_concave_density_still_has_a_step(getkey):
    # Curvature -1 everywhere in u, 0 in the gradient.
    problem = lambda: sdifp.Problem(LINE, Functional(lambda u: -0.5 * u**2 + u))
    objective, flat, net_of = objective_of(problem, {}, Plain(), getkey())
    _, rows, jacobian = once(lambda f: objective.linearise(net_of(f)))(flat)
    assert np.all(np.isfinite(rows))
    assert np.all(np.isfinite(jacobian))
    linear = lambda: sdifp.Problem(LINE, Functional(lambda u, grad: u + grad[0]))
    objective, flat, net_of = objective_of(linear, {}, Plain(), getkey())
    _, rows, jacobian = once(lambda f: objective.linearise(net_of(f)))(flat)
    gradient = jax.grad(lambda f: objective.loss(net_of(f)))(flat)
    np.testing.assert_allclose(jacobian.T @ rows, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_the_nodes_of_a_step_are_fresh_and_the_field_conserves_on_them(d, getkey):
    box = sdifp.Box.cube(d, 0.0, 1.0)
    problem = lambda: sdifp.Problem(
        box, Functional(lambda u, grad: jnp.sum(grad**2) + u**4), squared_norm=1.5
    )
    recipe = RECIPE.replace(nodes=16)
    rules = []
    for _ in range(2):
        objective, flat, net_of = objective_of(problem, {}, SDIFP(), getkey(), recipe)
        jets, nodes, weights = on_nodes(objective, net_of(flat))
        rules.append(np.asarray(nodes))
        assert np.isclose(weights @ jets[:, 0] ** 2, 1.5, rtol=1e-13)
    assert not np.any(np.isclose(*rules, rtol=1e-9))


def test_gradients_from_some_nodes_are_unbiased(getkey):
    mode = sdifp.field.Subsampled(5)
    method = SDIFP(mode, gauge=0.0)
    objective, flat, net_of = objective_of(
        *CASES["mass and norm"][:2], method, getkey()
    )
    _, nodes, weights = on_nodes(objective, net_of(flat))

    def gradient(key, mode):
        field = objective.field(net_of(flat)).with_gradient(mode)

        def energy(f):
            params, static = eqx.partition(net_of(f), eqx.is_inexact_array)
            own = sdifp.training._window.with_net(field, eqx.combine(params, static))
            own = own.with_gradient(mode.resample(key))
            value = own.at().value
            u, grad = jax.vmap(jax.value_and_grad(value))(nodes)
            jets = sdifp.field.Jets(u, grad)
            functional = objective.window.problem.functional
            return functional.of_jets(nodes, weights, jets, 3.0)

        return jax.grad(energy)(flat)

    keys = jax.random.split(getkey(), 1000)
    of = lambda key: gradient(key, mode)
    draws = np.asarray(once(lambda k: jax.lax.map(of, k, batch_size=250))(keys))
    exact = np.asarray(once(lambda k: gradient(k, sdifp.field.Exact()))(keys[0]))
    spread = draws.std(0, ddof=1) / math.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(0) - exact) < 5 * spread + 1e-9)
    detached = np.asarray(once(lambda k: gradient(k, sdifp.field.Detached()))(keys[0]))
    assert np.any(np.abs(detached - exact) > 5 * spread + 1e-9)


@pytest.mark.parametrize("optimiser", [LevenbergMarquardt(), Adam(1e-2)], ids=repr)
def test_a_training_finds_the_minimum_of_a_poisson_problem(optimiser):
    # -u'' = pi^2 sin(pi x) on [0, 1]: the energy is -pi^2 / 4.
    problem = sdifp.Problem(
        sdifp.Box([0.0], [1.0]),
        Functional(
            lambda u, grad, x: (
                0.5 * jnp.sum(grad**2) - jnp.pi**2 * jnp.sin(jnp.pi * x[0]) * u
            )
        ),
        [Dirichlet(lambda x: 4.0 * x[0] * (1.0 - x[0]))],
        reference=lambda x: jnp.sin(jnp.pi * x[0]),
        minimum=-(math.pi**2) / 4.0,
    )
    steps = 20 if optimiser.uses_rows else 300
    recipe = sdifp.Recipe(sdifp.training.MLP(12, 2), optimiser, steps=steps, nodes=32)
    run = sdifp.train(problem, Plain(), recipe=recipe, key=jax.random.key(0))
    found = run.result()
    error = found.functional.value - problem.minimum
    assert -1e-9 < error < (1e-5 if optimiser.uses_rows else 1e-2)
    assert found.metrics.l2_error < (1e-3 if optimiser.uses_rows else 5e-2)
    assert found.functional.margin < 1e-6


def test_curvatures_are_at_least_a_part_of_their_mean():
    slope = sdifp.field.Jets(jnp.ones(2), jnp.ones((2, 1)))
    bend = jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 1.0]]])
    weights = jnp.array([0.5, 0.5])
    rows, factors = _energy._natural(slope, bend, weights, 1.0, 1)
    matrix = np.einsum("mjk,mjl->mkl", factors, factors)
    # The mean of the curvature in u is held up to that of the gradient.
    np.testing.assert_allclose(matrix[0], [[0.5, 0.0], [0.0, 0.5]], atol=1e-15)
    np.testing.assert_allclose(matrix[1], [[0.5e-3, 0.0], [0.0, 0.5]], atol=1e-15)
    np.testing.assert_allclose(
        np.einsum("mjk,mj->mk", factors, rows), [[0.5, 0.5]] * 2, rtol=1e-12
    )


def curvature_of_the_constraint(problem, u):
    """That of each node for a function, with the volume of the domain."""
    nodes, weights = sdifp.rule_for(problem.domain, 256).at(jnp.arange(256))
    jets = sdifp.field.jets_at(u, nodes)
    volume = problem.domain.volume
    slope, _ = problem.functional.local_jets(nodes, weights, jets, volume)
    found = _energy._of_constraint(problem, nodes, weights, jets, slope)
    return np.asarray(found), volume


def test_the_constraint_bends_by_the_multiplier_of_the_solution():
    problem = sdifp.problems.gross_pitaevskii(beta=20.0)
    rule = sdifp.rule_for(problem.domain, 256)
    (multiplier,) = problem.measured
    psi = problem.references[0]
    mu = float(problem.means_of([multiplier], rule, psi, None)[0])
    found, volume = curvature_of_the_constraint(problem, psi)
    wanted = 2.0 * mu * volume * problem.domain.volume * np.array([[1.0, 0], [0, 0]])
    np.testing.assert_allclose(found, np.broadcast_to(wanted, found.shape), rtol=1e-6)


def test_the_multiplier_is_that_of_the_norm_and_not_of_the_mass():
    # -u'' = a + 2 b u for u = 3 + cos(2 x): b is 2.
    problem = sdifp.Problem(
        sdifp.Box([0.0], [2.0 * np.pi], periodic=True),
        Functional(lambda u, grad: 0.5 * jnp.sum(grad**2)),
        mass=6.0 * np.pi,
        squared_norm=19.0 * np.pi,
    )
    found, volume = curvature_of_the_constraint(
        problem, lambda x: 3.0 + jnp.cos(2.0 * x[0])
    )
    wanted = 4.0 * volume * np.array([[1.0, 0], [0, 0]])
    np.testing.assert_allclose(
        found, np.broadcast_to(wanted, found.shape), atol=1e-10 * volume
    )


def test_two_norms_have_multipliers_of_their_own():
    # -u'' = 2 b u for cos(x) and cos(3 x): b is 1/2 and 9/2.
    problem = sdifp.Problem(
        sdifp.Box([0.0], [2.0 * np.pi], periodic=True),
        Functional(lambda grad: 0.5 * jnp.sum(grad**2)),
        invariants=[sdifp.SquaredNorm(np.pi, 0), sdifp.SquaredNorm(np.pi, 1)],
        components=2,
    )
    found, volume = curvature_of_the_constraint(
        problem, lambda x: jnp.stack([jnp.cos(x[0]), jnp.cos(3.0 * x[0])])
    )
    wanted = volume * np.diag([1.0, 9.0, 0.0, 0.0])
    np.testing.assert_allclose(
        found, np.broadcast_to(wanted, found.shape), atol=1e-10 * volume
    )
