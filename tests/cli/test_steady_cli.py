"""The command line with problems that have no time, and with input that they refuse."""

import json

import numpy as np
import pytest
from quick import only
from quick_run import quick_programs, small

import sdifp
from sdifp._folder import Saved
from sdifp._report import _page

__all__ = ["quick_programs"]
pytestmark = pytest.mark.usefixtures("quick_programs")
TINY = [
    *("--network", "MLP(4, 1)", "--points", "RandomPoints(2, 4)", "--nodes", "16"),
    *("--steps", "2", "--every", "1", "--optimiser", "Adam(0.01)"),
    *("--precision", "float64"),
]


@pytest.fixture(scope="module", autouse=True)
def no_pictures():
    """Reports without pictures, which take long to draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_page, "groups", lambda saved: [])
        yield


@pytest.fixture(scope="module")
def folder(quick_programs, tmp_path_factory):
    """A finished run of a functional."""
    folder = tmp_path_factory.mktemp("steady") / "run"
    run = sdifp.Run.create(folder, small(problem="droplet", steps=2, every=1))
    run.train()
    run.evaluate()
    return folder


def test_a_density_is_trained_and_predicted(call, tmp_path):
    folder = tmp_path / "run"
    code, out, said = call("train", "double-well", *TINY, "--out", folder)
    assert (code, "time" in out) == (0, False)
    assert out.startswith("Exact on the rule")
    assert "double-well-1d, SDIFP: compiling the step" in said
    points = tmp_path / "points.csv"
    points.write_text("x1\n-1.0\n0.5\n")
    code, out, _ = call("predict", folder, points)
    assert code == 0
    table = np.loadtxt(tmp_path / "points-values.csv", delimiter=",", skiprows=1)
    assert table.shape == (2, 2)
    # It is a density.
    assert np.all(table[:, 1] > 0.0)
    code, _, said = call("predict", folder, points, "--time", "1.0")
    assert code == 2
    assert "--time must be left out: double-well-1d has no time" in said
    points.write_text("0.1,0.2\n")
    code, _, said = call("predict", folder, points)
    assert code == 2
    assert "must have 1 column, x1, got 2" in said


def test_the_functional_is_in_what_is_printed(call, folder, tmp_path):
    saved = Saved.read(folder)
    value = f"the energy is {saved.result['functional']['value']:.8g} ± "
    for command in ("evaluate", "info"):
        code, out, _ = call(command, folder)
        assert code == 0
        assert value in out
        assert "the interval covers the error of the quadrature only" in out
        assert "None" not in out.replace("=None", "").replace("  None", "")
    _, out, _ = call("evaluate", folder)
    assert f"{'multiplier':<12}  value " in out
    _, out, _ = call("evaluate", folder, "--json")
    found = json.loads(out)
    assert found["functional"].keys() == {"name", "minimum", "value", "margin"}
    assert found["until"] is None
    code, out, _ = call("compare", folder, "--out", tmp_path / "compare.png")
    assert code == 0
    assert "energy" in out.splitlines()[0]
    assert f"{saved.result['functional']['value']:.8g}" in out
    assert "over time" not in out


REFUSED = [
    (["double-well", "-d", "2"], "dimension must be left out for double_well"),
    (["ring(2)"], "ring takes diffusion, rotation"),
    (["gross-pitaevskii", "-d", "4"], "dimension must be at most 3, got 4"),
    (["fokker-planck-eigen", "-d", "3"], "dimension must be 5 or 10, got 3"),
    (["droplet(volume=2)"], "volume must be between -1 and 1, got 2.0"),
    (["double-well", "--windows", "2"], "windows must be 1 for a problem without time"),
    (["double-well", "--causal", "1"], "causal must be left out for a problem without"),
    (
        ["droplet", "--optimiser", "Adam", "--estimator", "Independent(2)"],
        "estimator must be Full() for a functional",
    ),
    (["droplet", "--gradient", "Lagged(3)"], "gradient must not be Lagged"),
    (["droplet", "--method", "pin-and-rescale"], "droplet-1d prescribes mass"),
    (["kdv", "--method", "pin-and-rescale"], "PinAndRescale is for steady problems"),
    (["double-well", "--method", "PinAndRescale([3.0])"], "got (3.0,)"),
    (["double-well", "--method", "PinAndRescale('a')"], "point must have one"),
    (["droplet", "--points", "RandomPoints(0, 1)"], "n_t must be a positive integer"),
]


@pytest.mark.parametrize(
    "case",
    only(REFUSED, REFUSED[0], REFUSED[5], REFUSED[9]),
    ids=lambda case: " ".join(case[0]),
)
def test_what_a_problem_without_time_refuses_is_one_sentence(
    call, tmp_path, case, as_user
):
    arguments, words = case
    code, out, said = call("train", *arguments, "--out", tmp_path / "run")
    assert code == 2
    assert out == ""
    (line,) = said.splitlines()
    assert line.startswith("sdifp: ")
    assert words in line
    assert not (tmp_path / "run").exists()


def test_a_functional_has_no_estimators_to_audit(call):
    code, _, said = call("audit", "droplet")
    assert code == 2
    assert "droplet-1d has none: it minimises a functional" in said


OWN = """
import sdifp
problem = sdifp.Problem(
    sdifp.Box([0.0], [1.0], periodic=True), {equation}, **{rest}
)
"""
FILES = {
    "sdifp.Functional(lambda v: v)": "density must be a function of u or grad",
    "sdifp.Functional(lambda u: [u, u])": "density must return",
    "sdifp.Functional(3)": "density must be a function, got 3",
    "sdifp.Residual(sdifp.laplacian(), lambda u: u)": "local cannot be evaluated as",
    "sdifp.Residual(sdifp.time_derivative())": "with one needs interval=(0.0, T)",
}


@pytest.mark.parametrize("equation", only(FILES, "sdifp.Functional(lambda v: v)"))
def test_an_equation_of_a_file_that_makes_no_sense_is_one_sentence(
    call, tmp_path, equation, as_user
):
    file = tmp_path / "own.py"
    file.write_text(OWN.format(equation=equation, rest={"squared_norm": 1.0}))
    code, _, said = call("train", file, *TINY, "--out", tmp_path / "run")
    assert code == 2, said
    (line,) = said.splitlines()
    assert FILES[equation] in line


@pytest.mark.cases
def test_zero_that_solves_a_problem_is_warned_of(call, tmp_path, as_user):
    file = tmp_path / "own.py"
    equation = "sdifp.Residual(sdifp.laplacian(), lambda u, grad, x: -u)"
    file.write_text(OWN.format(equation=equation, rest={}))
    tail = ["--method", "plain", "--out", tmp_path / "run"]
    code, _, said = call("train", file, *TINY, *tail)
    assert code == 0
    assert "note: own is solved by u = 0, which no integral of it excludes" in said
