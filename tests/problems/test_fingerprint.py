"""Whether two problems are the same, from a few numbers."""

import dataclasses

import pytest

import sdifp
from sdifp.problems import Dirichlet, Initial, fingerprint

PROBLEM = sdifp.problems.wave()
CHANGES = {
    "duration": 1.5,
    "equation": sdifp.Residual(sdifp.time_derivative(2) - 1.1 * sdifp.laplacian()),
    "initial": lambda x: PROBLEM.initial(x) + 0.01,
    "velocity": lambda x: 1.01 * PROBLEM.velocity(x),
    "mass": [sdifp.Mass(3.0), PROBLEM.invariants[1]],
    "squared_norm": PROBLEM.invariants[:1],
    "reference": lambda x, t: PROBLEM.reference(x, 0.99 * t),
    "profile": lambda x: x[0],
}


def changed(name, value):
    initial, velocity = PROBLEM.initial, PROBLEM.velocity
    conditions = {
        "initial": lambda: [Initial(value, velocity)],
        "velocity": lambda: [Initial(initial, value)],
        "profile": lambda: [*PROBLEM.conditions, Dirichlet(value)],
    }
    if name in conditions:
        return dataclasses.replace(PROBLEM, conditions=conditions[name]())
    if name == "duration":
        return dataclasses.replace(PROBLEM, interval=(0.0, value))
    field = "invariants" if name in ("mass", "squared_norm") else name
    return dataclasses.replace(PROBLEM, **{field: value})


@pytest.mark.parametrize("name", CHANGES)
def test_every_part_of_a_problem_is_in_it(name):
    whole = fingerprint(PROBLEM)
    other = fingerprint(changed(name, CHANGES[name]))
    if name in ("mass", "squared_norm"):
        name = f"invariant {name}"
    assert other.get(name) != whole.get(name)
    if name != "duration":
        names = whole.keys() | other.keys()
        assert {k for k in names if whole.get(k) != other.get(k)} == {name}


def test_it_is_the_same_for_the_same_problem():
    assert fingerprint(PROBLEM) == fingerprint(sdifp.problems.wave())


def test_it_sees_another_box():
    box = sdifp.Box(1.1 * PROBLEM.domain.lower, PROBLEM.domain.upper, periodic=True)
    assert fingerprint(dataclasses.replace(PROBLEM, domain=box)) != fingerprint(PROBLEM)


def test_it_sees_another_density_and_another_weight():
    def prints(*invariants):
        return fingerprint(dataclasses.replace(PROBLEM, invariants=invariants))

    cube = lambda k: sdifp.Density(lambda u, grad: u**k + grad[0], "jax")
    moment = lambda k: sdifp.invariants.Moment(lambda x, t: t * x[0] ** k, 0.0)
    found = prints(cube(3), moment(1))
    assert prints(cube(3), moment(1)) == found
    assert {k for k, v in prints(cube(4), moment(1)).items() if found[k] != v} == {
        # A name of the user's hides nothing else.
        "invariant jax"
    }
    assert {k for k, v in prints(cube(3), moment(2)).items() if found[k] != v} == {
        "invariant moment"
    }
