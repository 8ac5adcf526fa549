"""Any invariant in a problem: what its check compares, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from make_problem import make_problem
from quick import only

import sdifp
from sdifp.invariants import (
    DirichletEnergy,
    Moment,
    Quadratic,
    QuadraticForm,
    Variance,
)

TWO_PI = 2.0 * np.pi


def problem(*invariants, reference=True):
    """`u = 1 + exp(-t) sin(2 pi x)` on a circle."""
    exact = lambda x, t: 1.0 + jnp.exp(-t) * jnp.sin(TWO_PI * x[0])
    return make_problem(
        sdifp.Box([0.0], [1.0], periodic=True),
        sdifp.Residual(sdifp.time_derivative()),
        lambda x: exact(x, 0.0),
        reference=exact if reference else None,
        invariants=invariants,
    )


def decayed(value):
    return lambda t: value * jnp.exp(-2.0 * t)


MOVING = Moment(
    lambda x, t: (1.0 + t) * jnp.cos(TWO_PI * x[0] + t),
    lambda t: -0.5 * (1.0 + t) * jnp.exp(-t) * jnp.sin(t),
    name="moving",
)
RIGHT = {
    "variance": [sdifp.Mass(1.0), Variance(decayed(0.5))],
    "moments": [
        sdifp.Mass(1.0),
        MOVING,
        Moment(lambda x: jnp.cos(2.0 * TWO_PI * x[0]), 0.0),
        sdifp.SquaredNorm(lambda t: 1.0 + 0.5 * jnp.exp(-2.0 * t)),
    ],
    "weighted": [
        Quadratic(lambda x: 2.0 + jnp.cos(2.0 * TWO_PI * x[0]), lambda t: norm(t))
    ],
    "gradient": [sdifp.Mass(1.0), DirichletEnergy(decayed(0.5 * TWO_PI**2))],
    "form": [
        QuadraticForm(lambda u, grad: jnp.sum(u**2), lambda t: 1.0 + decayed(0.5)(t))
    ],
    "measured": [
        *[sdifp.Mass(None), MOVING, Variance(None)],
        sdifp.Density(lambda u, grad: u * grad[0], "flux"),
    ],
}


def norm(t):
    """Of u, with the weight 2 + cos(4 pi x): 2 + e^(-2t) (1 - 1/4)."""
    return 2.0 + 0.75 * jnp.exp(-2.0 * t)


@pytest.mark.parametrize("case", only(RIGHT, "moments", "measured"))
def test_right_targets_pass(case):
    found = problem(*RIGHT[case])
    assert found.prescribed + found.measured == (
        *(i for i in RIGHT[case] if i.target is not None),
        *(i for i in RIGHT[case] if i.target is None),
    )
    found.check()


WRONG = {
    "moment": (
        [Moment(MOVING.weight, lambda t: 0.01 * t, name="moving")],
        r"the moving of reference at t = 0.21.* the moving target is 0.0021: off by",
    ),
    "variance": (
        [sdifp.Mass(1.0), Variance(0.4)],
        r"variance of initial.* is 0.5, but the variance target is 0.4: off by 0.1",
    ),
    "gradient": (
        [DirichletEnergy(19.0)],
        r"dirichlet energy of initial.* is 19.739.*target is 19: off by 0.74",
    ),
    "not finite": (
        [sdifp.Density(lambda u: jnp.log(u - 2.0), "entropy")],
        "the entropy of initial is nan",
    ),
}


@pytest.mark.parametrize("case", only(WRONG, "moment", "gradient", "not finite"))
def test_a_disagreement_is_named(case):
    invariants, words = WRONG[case]
    with pytest.raises(ValueError, match=words):
        problem(*invariants).check()


IMPOSSIBLE = {
    "later": (
        # Right at the beginning. With the mean 1 and this moment at least 1 + 2 t^2.
        [
            sdifp.Mass(1.0),
            Moment(lambda x: jnp.cos(TWO_PI * x[0]), lambda t: 1.0 * t, name="cosine"),
            sdifp.SquaredNorm(1.5),
        ],
        r"mass, cosine, squared_norm cannot be met at t = 0.55: .*the least .*1.605",
    ),
    "dependent": (
        [sdifp.Mass(1.0), Moment(lambda x: 2.0, 2.0, name="twice")],
        "twice depends on mass",
    ),
    "two forms": (
        [sdifp.SquaredNorm(1.5), DirichletEnergy(0.5 * TWO_PI**2)],
        "two quadratic invariants, squared_norm and dirichlet_energy",
    ),
    "no mass": ([Variance(0.5)], "variance needs mass"),
}


@pytest.mark.parametrize("case", only(IMPOSSIBLE, "later", "two forms"))
def test_what_no_field_can_have_is_refused(case):
    invariants, words = IMPOSSIBLE[case]
    with pytest.raises(ValueError, match=words):
        problem(*invariants, reference=False).check()


def test_a_method_needs_a_target():
    with pytest.raises(ValueError, match="has none with a target"):
        sdifp.train(problem(sdifp.Mass(None)), key=jax.random.key(0), check=False)
