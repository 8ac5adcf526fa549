"""The examples on the page about steady problems, with trainings that take no time."""

import pytest
from pages import DOCS, code_under

import sdifp

PAGE = "steady.md"
RECIPE = sdifp.Recipe(
    sdifp.training.MLP(4, 1),
    sdifp.training.LevenbergMarquardt(),
    steps=2,
    nodes=16,
)


def run(heading, *changes):
    """The variables of an example after it has run, with parts of its text changed."""
    code = code_under(PAGE, heading)
    for before, after in changes:
        assert before in code
        code = code.replace(before, after)
    names = {"small": RECIPE}
    exec(code, names)
    return names


def test_integrals_of_the_field_inside_the_equation(capsys):
    heading = "Integrals of the field inside the equation"
    run(heading)
    shown = capsys.readouterr().out
    assert shown == "1.0000\n"
    assert f"# {shown}" in code_under(PAGE, heading)


def test_every_problem_is_in_a_table():
    pages = "".join((DOCS / page).read_text() for page in ("training.md", PAGE))
    functions = {name for name in sdifp.problems.__all__ if name.islower()}
    assert {name for name in functions if f"`{name}(" not in pages} == set()


@pytest.mark.validate
def test_the_integral_is_part_of_the_problem(capsys):
    names = run("When the integral is part of the problem", ("steps=40", "steps=2"))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["Plain()", "PostHoc()", "SDIFP()"]
    assert abs(names["metrics"].errors["mass"]) < 1e-12


@pytest.mark.validate
def test_energy_functionals(capsys):
    names = run("Energy functionals", ("problem, key=", "problem, recipe=small, key="))
    assert "minimum 0.53018" in capsys.readouterr().out
    # No function of this norm is below the minimum.
    assert names["trained"].functional.value > names["problem"].minimum
    assert names["trained"].metrics.measured["width"].value > 0.0


@pytest.mark.validate
def test_fresh_nodes(capsys):
    run("Fresh nodes in every step", ("steps=200", "steps=2"))
    assert capsys.readouterr().out.count("on another rule") == 2


@pytest.mark.validate
def test_eigenpairs(capsys):
    run("Eigenpairs", ("3, key=", "2, recipe=small, key="))
    first, _ = capsys.readouterr().out.splitlines()
    assert first.endswith(", overlap 0e+00")
