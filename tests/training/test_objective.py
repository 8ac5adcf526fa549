"""The rows of a step, their derivatives, and the loss that they make."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax.flatten_util import ravel_pytree

import sdifp
from sdifp._training._objective import StepObjective

P = sdifp.problems
SMALL = sdifp.Recipe(
    sdifp.Architecture(5, 1, harmonics=2),
    sdifp.LevenbergMarquardt(),
    steps=1,
    points=sdifp.RandomPoints(2, 3),
    nodes=16,
)

CASES = {
    "first order": (P.advection, sdifp.SDIFP(gauge=0.1), SMALL),
    "second order": (P.wave, sdifp.SDIFP(), SMALL),
    "third derivatives, nonlinear": (P.kdv, sdifp.SDIFP(gauge=0.0), SMALL),
    "profile": (P.heat_dirichlet, sdifp.SDIFP(), SMALL),
    "mass alone": (P.fokker_planck, sdifp.SDIFP(), SMALL),
    "moving targets, learnt data": (
        P.reaction_diffusion,
        sdifp.SDIFP(),
        SMALL.but(hard_initial=False),
    ),
    "learnt velocity": (P.wave, sdifp.Plain(), SMALL.but(hard_initial=False)),
    "penalty": (P.advection, sdifp.Soft(3.0), SMALL),
    "multipliers": (P.advection, sdifp.AugmentedLagrangian(2.0), SMALL),
    "grid": (P.reaction_diffusion, sdifp.GridProjection(8), SMALL),
}

once = eqx.filter_jit(compiler_options={"xla_backend_optimization_level": 0})


def objective_of(make, method, recipe, key):
    """The objective of a first step, with multipliers that are not zero."""
    problem = make()
    run = sdifp.train(problem, method, recipe=recipe, key=key)
    x, t = recipe.points.draw(key, problem.box, run.window.start, run.length)
    multipliers = run.state.multipliers + 0.3
    objective = StepObjective(
        run.window, x, t, multipliers, key, problem, method, recipe
    )
    return objective, run.state.net


@pytest.mark.parametrize("case", CASES)
def test_rows_linearise_and_loss_agree(case, getkey):
    objective, net = objective_of(*CASES[case], getkey())
    params, static = eqx.partition(net, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(params)

    @once
    def everything(flat):
        net_of = lambda flat: eqx.combine(unravel(flat), static)
        rows_of = lambda flat: objective.rows(net_of(flat))
        brute = jax.jacfwd(rows_of)(flat)
        loss, gradient = jax.value_and_grad(lambda f: objective.loss(net_of(f)))(flat)
        return rows_of(flat), brute, objective.linearise(net_of(flat)), loss, gradient

    rows, brute, (same_rows, jacobian), loss, gradient = everything(flat)
    scale = jnp.max(jnp.abs(brute))
    assert jnp.allclose(same_rows, rows, rtol=1e-10, atol=1e-11)
    assert jnp.max(jnp.abs(jacobian - brute)) < 1e-11 * scale
    # With all terms and exact moments the loss is half the squares of the rows.
    assert jnp.allclose(loss, 0.5 * jnp.sum(rows**2), rtol=1e-11)
    assert jnp.allclose(gradient, brute.T @ rows, rtol=1e-9, atol=1e-10 * scale)


def test_without_the_coupling_the_derivatives_are_wrong(getkey):
    # What a detached correction would give: the test above does see the difference.
    objective, net = objective_of(P.advection, sdifp.SDIFP(), SMALL, getkey())
    detached = sdifp.SDIFP(gradient=sdifp.Detached())
    other, _ = objective_of(P.advection, detached, SMALL, getkey())
    other = eqx.tree_at(
        lambda o: (o.window.field.net, o.x, o.t),
        other,
        (objective.window.field.net, objective.x, objective.t),
    )
    one, two = (once(lambda n, o=o: o.linearise(n))(net) for o in (objective, other))
    n = 6
    assert jnp.allclose(one[0][:n], two[0][:n], rtol=1e-10, atol=1e-12)
    assert jnp.max(jnp.abs(one[1][:n] - two[1][:n])) > 1e-2 * jnp.max(jnp.abs(one[1]))


def test_causal_weights_are_the_formula(getkey):
    recipe = SMALL.but(optimiser=sdifp.Adam(), causal=0.7)
    objective, net = objective_of(P.advection, sdifp.Plain(), recipe, getkey())
    u = objective.field(net)
    squares = jnp.mean(
        objective.problem.residual(u, objective.x, objective.t) ** 2, axis=1
    )
    expected = 0.5 * (squares[0] + jnp.exp(-0.7 * squares[0]) * squares[1]) / 2
    assert jnp.allclose(objective.loss(net), expected, rtol=1e-12)
