"""The rows of a step, their derivatives, and the loss that they make."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax.flatten_util import ravel_pytree
from make_problem import make_problem
from quick import once, only

import sdifp
from sdifp.training import _objective
from sdifp.training._objective import StepObjective

RECIPE = sdifp.Recipe(
    sdifp.training.MLP(5, 1),
    sdifp.training.LevenbergMarquardt(),
    steps=1,
    points=sdifp.training.RandomPoints(2, 3),
    nodes=16,
)


def plain_problem():
    """First order in time, nonlinear, periodic; both integrals constant."""
    return make_problem(
        domain=sdifp.Box([0.0], [1.0], periodic=True),
        duration=0.5,
        equation=sdifp.Residual(
            sdifp.time_derivative() + sdifp.operators.third_derivatives(),
            lambda u, grad, x, t: u**2 + u * grad[0],
        ),
        initial=lambda x: 1.0 + jnp.sin(2.0 * jnp.pi * x[0]),
        mass=1.0,
        squared_norm=1.5,
    )


def rich_problem():
    """Second order in time, walls, a profile, and targets that move."""
    shape = lambda x: jnp.sin(jnp.pi * x[0]) ** 2
    return make_problem(
        domain=sdifp.Box([0.0], [1.0]),
        duration=0.5,
        equation=sdifp.Residual(sdifp.time_derivative(2) - sdifp.laplacian()),
        initial=shape,
        velocity=lambda x: 0.3 * shape(x),
        mass=lambda t: 0.5 * jnp.exp(0.3 * t),
        squared_norm=lambda t: 0.375 * jnp.exp(0.6 * t),
        profile=lambda x: 4.0 * x[0] * (1.0 - x[0]),
    )


def mass_problem():
    """One integral alone."""
    problem = plain_problem()
    return sdifp.Problem(
        problem.domain,
        sdifp.Residual(
            sdifp.time_derivative() + sdifp.operators.advection([2.0]),
            remainder=lambda u, x, t: u(x, t) ** 2,
        ),
        problem.conditions,
        problem.interval,
        mass=1.0,
    )


def integral_problem():
    """Integrals of the field and of its gradient, and kernels, in the equation."""
    return sdifp.Problem(
        plain_problem().domain,
        sdifp.Residual(
            sdifp.time_derivative() - 0.1 * sdifp.laplacian(),
            lambda u, grad, x, t, cubes, slopes, memory: (
                cubes * u**2 + slopes * grad[0] + memory * u
            ),
            integrals={
                "cubes": lambda u, t: (1.0 + t) * u**3,
                "slopes": lambda u, grad, x: x[0] * u * grad[0],
                "memory": lambda x, y, u, grad: jnp.cos(x[0] - y[0]) * u * grad[0],
            },
        ),
        plain_problem().conditions,
        (0.0, 0.5),
        mass=1.0,
        squared_norm=1.5,
    )


def value_problem():
    """A kernel without a gradient."""
    problem = integral_problem()
    equation = sdifp.Residual(
        sdifp.time_derivative(),
        lambda u, grad, x, t, memory: memory * u,
        integrals={"memory": lambda x, y, u: jnp.cos(x[0] - y[0]) * u**2},
    )
    return sdifp.Problem(
        problem.domain, equation, problem.conditions, problem.interval, mass=1.0
    )


def steady_problem():
    """A kernel and a total without time, with walls."""
    return sdifp.Problem(
        sdifp.Box([0.0], [1.0]),
        sdifp.Residual(
            -1.0 * sdifp.laplacian(),
            lambda u, grad, x, memory, total: memory + total * u,
            lambda x: 1.0 + x[0],
            integrals={
                "memory": lambda x, y, u: jnp.exp(x[0] * y[0]) * u**2,
                "total": lambda u: u**2,
            },
        ),
        [sdifp.problems.Dirichlet(lambda x: 4.0 * x[0] * (1.0 - x[0]))],
        mass=1.0,
    )


def system(invariants, **changes):
    """Two components, three residuals with weights, matrices and an integral."""
    turn = jnp.array([[0.0, -0.2], [0.3, 0.0], [0.1, 0.2]])
    keep = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    wave = lambda x: 2.0 * jnp.pi * x[0]
    return sdifp.Problem(
        plain_problem().domain,
        sdifp.Residual(
            keep @ sdifp.time_derivative() + turn @ sdifp.laplacian(),
            lambda u, grad, x, t, both: jnp.stack(
                [u[0] * grad[1, 0], both * u[1] ** 2, grad[0, 0] + u[1]]
            ),
            lambda x, t: jnp.stack([x[0], t, x[0] * t]),
            integrals={"both": lambda u, grad: u[0] * u[1] + grad[1, 0] ** 2},
            weights=[1.0, 4.0, 0.5],
        ),
        [
            sdifp.Initial(
                lambda x: jnp.stack([1.0 + jnp.sin(wave(x)), 0.5 + jnp.cos(wave(x))])
            )
        ],
        (0.0, 0.5),
        invariants=invariants,
        **changes,
    )


def system_by_component():
    """Scale and shift of each component by itself."""
    return system(
        [
            sdifp.Mass(lambda t: 1.0 + t, 0),
            sdifp.SquaredNorm(2.5, 0),
            sdifp.Mass(0.5, 1),
        ]
    )


def system_as_a_group():
    """A total and a joint norm."""
    return system([sdifp.Mass(1.5), sdifp.SquaredNorm(lambda t: 4.0 + t)])


def system_in_accelerations():
    """Second order in time, mixed."""
    swap = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    u0 = lambda x: jnp.stack([jnp.sin(2.0 * jnp.pi * x[0]), jnp.ones(())])
    return sdifp.Problem(
        plain_problem().domain,
        sdifp.Residual(swap @ sdifp.time_derivative(2) - sdifp.laplacian()),
        [sdifp.Initial(u0, lambda x: 0.3 * u0(x))],
        (0.0, 0.5),
        invariants=[sdifp.SquaredNorm(2.0)],
    )


CASES = {
    "system": (system_by_component, sdifp.training.SDIFP(), RECIPE),
    "system, group": (system_as_a_group, sdifp.training.SDIFP(gauge=0.1), RECIPE),
    "system, learnt": (
        system_as_a_group,
        sdifp.training.Soft(2.0),
        RECIPE.replace(hard_initial=False),
    ),
    "system, second order": (system_in_accelerations, sdifp.training.SDIFP(), RECIPE),
    "second order, moving": (rich_problem, sdifp.training.SDIFP(gauge=0.1), RECIPE),
    "nonlinear, third order": (plain_problem, sdifp.training.SDIFP(gauge=0.0), RECIPE),
    "mass alone, learnt": (
        mass_problem,
        sdifp.training.SDIFP(),
        RECIPE.replace(hard_initial=False),
    ),
    "multipliers": (mass_problem, sdifp.training.AugmentedLagrangian(2.0), RECIPE),
    "no correction": (
        rich_problem,
        sdifp.training.Plain(),
        RECIPE.replace(hard_initial=False),
    ),
    "penalty": (plain_problem, sdifp.training.Soft(3.0), RECIPE),
    "integrals": (integral_problem, sdifp.training.SDIFP(gauge=0.0), RECIPE),
    "integrals, no correction": (integral_problem, sdifp.training.Plain(), RECIPE),
    "integral of values": (value_problem, sdifp.training.SDIFP(), RECIPE),
    "steady": (steady_problem, sdifp.training.SDIFP(), RECIPE),
    "steady, no correction": (steady_problem, sdifp.training.Soft(2.0), RECIPE),
    "interpolated": (
        integral_problem,
        sdifp.training.SDIFP(sdifp.field.Interpolated(3)),
        RECIPE,
    ),
}


def objective_of(make, method, recipe, key):
    """The objective of a first step, with multipliers that are not zero."""
    problem = make()
    run = sdifp.training.Training(problem, method, recipe=recipe, key=key, check=False)
    if problem.is_steady:
        x, t = recipe.points.draw_steady(key, problem.domain), None
    else:
        x, t = recipe.points.draw(key, problem.domain, run.window.start, run.length)
    multipliers = run.state.multipliers + 0.3
    stage = (run.state.step, run.state.switched, run.state.kept)
    objective = StepObjective(run.window, x, t, multipliers, key, *stage)
    return objective, run.state.net


@pytest.mark.parametrize(
    "case",
    only(
        CASES,
        "mass alone, learnt",
        "multipliers",
        "integrals",
        "steady",
        "system",
        "system, group",
    ),
)
def test_rows_their_derivatives_and_the_loss_agree(case, getkey):
    objective, net = objective_of(*CASES[case], getkey())
    params, static = eqx.partition(net, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(params)
    net_of = lambda flat: eqx.combine(unravel(flat), static)
    along = jax.random.normal(getkey(), flat.shape)

    @once
    def by_autodiff(flat):
        rows = jax.jvp(lambda f: objective.rows(net_of(f)), (flat,), (along,))
        return rows, jax.value_and_grad(lambda f: objective.loss(net_of(f)))(flat)

    (rows, slopes), (loss, gradient) = by_autodiff(flat)
    total, same_rows, jacobian = once(lambda f: objective.linearise(net_of(f)))(flat)
    assert jnp.allclose(total, loss, rtol=1e-11)
    scale = jnp.max(jnp.abs(jacobian))
    assert jnp.allclose(same_rows, rows, rtol=1e-10, atol=1e-11)
    assert jnp.allclose(jacobian @ along, slopes, rtol=1e-10, atol=1e-11 * scale)
    # With all terms and exact moments the loss is half the squares of the rows.
    assert jnp.allclose(loss, 0.5 * jnp.sum(rows**2), rtol=1e-11)
    assert jnp.allclose(gradient, jacobian.T @ rows, rtol=1e-9, atol=1e-10 * scale)


@pytest.mark.parametrize("case", only(["integrals", "steady"], "steady"))
def test_nodes_of_integrals_may_be_taken_some_at_a_time(case, getkey, monkeypatch):
    objective, net = objective_of(*CASES[case], getkey())
    whole = once(objective.linearise)(net)
    # Pieces of three nodes or so, the last of them with nodes that count nothing.
    size = ravel_pytree(eqx.filter(net, eqx.is_inexact_array))[0].size
    monkeypatch.setattr(_objective, "_NUMBERS", 3 * size * len(objective.x) * 2)
    pieces = once(lambda net: objective.linearise(net))(net)
    for one, other in zip(whole, pieces, strict=True):
        scale = float(jnp.max(jnp.abs(one)))
        assert jnp.allclose(one, other, rtol=1e-10, atol=1e-12 * scale)


def test_the_memory_of_a_kernel_does_not_grow_with_nodes_times_parameters(getkey):
    sizes = []
    for nodes in (2**13, 2**15):
        recipe = RECIPE.replace(network=sdifp.training.MLP(32, 3), nodes=nodes)
        recipe = recipe.replace(points=sdifp.training.RandomPoints(1, 64))
        objective, net = objective_of(*CASES["steady"][:2], recipe, getkey())
        params, static = eqx.partition(net, eqx.is_inexact_array)
        step = lambda p, o=objective, s=static: o.linearise(eqx.combine(p, s))
        done = jax.jit(step).lower(params).compile()
        sizes.append(done.memory_analysis().temp_size_in_bytes)
    # 32768 nodes by 2200 parameters would be 600 MB.
    assert sizes[1] < 1.2 * sizes[0]


def test_without_the_coupling_the_derivatives_are_wrong(getkey):
    # What a detached correction gives: the test above does see the difference.
    key = getkey()
    exact, net = objective_of(
        plain_problem, sdifp.training.SDIFP(gauge=0.0), RECIPE, key
    )
    method = sdifp.training.SDIFP(gradient=sdifp.field.Detached(), gauge=0.0)
    detached, _ = objective_of(plain_problem, method, RECIPE, key)
    one, two = (once(o.linearise)(net)[1:] for o in (exact, detached))
    assert jnp.allclose(one[0], two[0], rtol=1e-10, atol=1e-12)
    assert jnp.max(jnp.abs(one[1] - two[1])) > 1e-2 * jnp.max(jnp.abs(one[1]))


def test_causal_weights_are_the_formula(getkey):
    recipe = RECIPE.replace(optimiser=sdifp.training.Adam(), causal=0.7)
    objective, net = objective_of(
        mass_problem, sdifp.training.Plain(), recipe, getkey()
    )

    @once
    def both(net):
        residual = objective.window.problem.equation
        values = residual(objective.field(net), objective.x, objective.t)
        return values, objective.loss(net)

    values, loss = both(net)
    squares = jnp.mean(values**2, axis=1)
    expected = 0.5 * (squares[0] + jnp.exp(-0.7 * squares[0]) * squares[1]) / 2
    assert jnp.allclose(loss, expected, rtol=1e-12)
