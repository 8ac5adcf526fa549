"""Whether two problems are the same, from a few numbers."""

import dataclasses

import pytest

import sdifp
from sdifp.problems._sketch import sketch

PROBLEM = sdifp.problems.wave()
CHANGES = {
    "duration": 1.5,
    "residual": sdifp.Residual(sdifp.time_derivative(2) - 1.1 * sdifp.laplacian()),
    "initial": lambda x: PROBLEM.initial(x) + 0.01,
    "velocity": lambda x: 1.01 * PROBLEM.velocity(x),
    "mass": 3.0,
    "energy": None,
    "reference": lambda x, t: PROBLEM.reference(x, 0.99 * t),
    "profile": lambda x: x[0],
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_part_of_a_problem_is_in_it(name):
    whole = sketch(PROBLEM)
    other = sketch(dataclasses.replace(PROBLEM, **{name: CHANGES[name]}))
    assert other.get(name) != whole.get(name)
    if name != "duration":
        names = whole.keys() | other.keys()
        assert {k for k in names if whole.get(k) != other.get(k)} == {name}


def test_it_is_the_same_for_the_same_problem():
    assert sketch(PROBLEM) == sketch(sdifp.problems.wave())


def test_it_sees_another_box():
    box = sdifp.Box(1.1 * PROBLEM.box.lower, PROBLEM.box.upper, periodic=True)
    assert sketch(dataclasses.replace(PROBLEM, box=box)) != sketch(PROBLEM)
