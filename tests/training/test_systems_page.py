"""The examples on the page about systems, with trainings that take no time."""

import pytest
from pages import DOCS, code_under

import sdifp

PAGE = "systems.md"
HEADINGS = (
    "Operators, matrices and local terms",
    "More residuals than components",
    "Weights of the residuals",
    "Invariants that couple components",
)
SYSTEMS = (
    "wave_system",
    "maxwell",
    "taylor_green",
    "nonlinear_schroedinger",
    "nonlinear_schroedinger_soliton",
    "cahn_hilliard",
    "shallow_water",
    "reaction_diffusion_pair",
)


@pytest.mark.parametrize("heading", HEADINGS)
def test_examples_print_what_the_page_says(heading, capsys):
    code = code_under(PAGE, heading)
    exec(code, {})
    shown = capsys.readouterr().out.splitlines()
    # Comments that are no output end with a full stop.
    comments = [line[2:] for line in code.splitlines() if line.startswith("# ")]
    assert shown == [line for line in comments if not line.endswith(".")]


@pytest.mark.usefixtures("as_user")
def test_the_sentences_on_the_page_are_those_of_the_library(capsys):
    heading = "What is refused"
    exec(code_under(PAGE, heading), {})
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 4
    assert f"It prints\n\n```text\n{shown}```\n" in (DOCS / PAGE).read_text()


def test_every_system_is_in_the_table():
    text = (DOCS / PAGE).read_text()
    assert {name for name in SYSTEMS if f"| `{name}(" not in text} == set()
    for name in SYSTEMS:
        assert len(getattr(sdifp.problems, name)().components) > 1


@pytest.mark.validate
def test_a_first_system(capsys):
    code = code_under(PAGE, "A first system")
    assert "steps=60" in code
    names = {}
    exec(code.replace("steps=60", "steps=12"), names)
    shown = capsys.readouterr().out
    assert "exact on the rule" in shown
    assert list(names["trained"].metrics.l2_errors) == ["p", "q"]
    assert names["trained"].metrics.l2_error < 0.05
