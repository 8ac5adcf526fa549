"""Runs of problems without time: taken up again, predicted, compared, reported."""

import functools
import json

import jax.numpy as jnp
import numpy as np
import pytest
from quick import only
from quick_run import quick_programs, small

import sdifp
from sdifp._config._objects import PROBLEMS as KNOWN
from sdifp._folder import Saved, checkpoint_files
from sdifp._report import compare_rows, draw_comparison, verdict, write_report
from sdifp._report._figures import groups
from sdifp.runs import _evaluation, _run, predict
from sdifp.runs._checkpoint import read_checkpoint

__all__ = ["quick_programs"]
pytestmark = pytest.mark.usefixtures("quick_programs")
CASES = {
    "residual": {"problem": "double_well", "optimiser": "LevenbergMarquardt()"},
    "functional": {"problem": "droplet"},
    "plane": {"problem": "torus_density"},
    "space": {"problem": "neumann_poisson(3)", "nodes": 64},
    "cloud": {"problem": "cubic_schroedinger(5)", "nodes": 32},
    "soft": {"problem": "droplet", "method": "Soft(10.0)"},
}


@functools.cache
def config(case):
    return small(**{"steps": 6, "every": 2, **CASES[case]})


@pytest.fixture(scope="module", autouse=True)
def made_once(quick_programs):
    """The same problem each time, so that one program serves all runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("double_well", "droplet"):
            patch.setitem(KNOWN, name, functools.cache(KNOWN[name]))
        patch.setattr(_evaluation, "_SLICE", 9)
        yield


@pytest.fixture(scope="module")
def run(made_once, tmp_path_factory):
    """A finished run of each case, made when it is asked for."""

    @functools.cache
    def make(case):
        run = sdifp.Run.create(tmp_path_factory.mktemp("steady") / case, config(case))
        assert run.train()
        run.evaluate()
        return run

    return make


def arrays(run):
    found, _ = read_checkpoint(checkpoint_files(run.folder / "checkpoints")[-1])
    del found["known"]
    return {name: a.tobytes() for name, a in found.items()}


@pytest.mark.parametrize("case", only(["residual", "functional"], "functional"))
def test_a_run_that_was_stopped_and_taken_up_is_the_same(
    case, run, tmp_path, monkeypatch
):
    # One step at a time, so that it stops between reports, too.
    monkeypatch.setattr(_run, "_PAUSE", 0.0)
    whole, looks = run(case), iter([False] * 3 + [True])
    first = sdifp.Run.create(tmp_path / "a", config(case))
    assert not first.train(stop=lambda: next(looks))
    again = sdifp.Run.open(first.folder)
    assert again.training.step == 3
    assert again.train()
    assert arrays(again) == arrays(whole)
    result = again.evaluate()
    assert result["functional"] == Saved.read(whole.folder).result["functional"]


def test_what_is_saved_has_no_time(run):
    saved = Saved.read(run("functional").folder)
    assert saved.result["until"] is None
    assert saved.result["integrals"]["times"] == [None]
    assert [row["time"] for row in saved.certificate["rows"]] == [None]
    assert max(row["on_rule"] for row in saved.certificate["rows"]) < 1e-12
    assert "times" not in saved.solution
    (drift,) = saved.metrics[-1]["measured"].values()
    assert drift["drift"] is drift["relative"] is None
    (row,) = saved.certificate["measured"]
    assert row["drift"] is row["drift_margin"] is row["relative_drift"] is None
    assert row["value"] == pytest.approx(drift["value"], rel=1e-6, abs=1e-6)
    found = saved.result["functional"]
    assert found["name"] == "energy"
    assert found["minimum"] < found["value"]
    assert 0.0 <= found["margin"] < 1e-6
    assert Saved.read(run("residual").folder).result["functional"] is None


def test_predictions_are_values_of_the_field(run):
    training = run("functional").training
    table = np.linspace(0.0, 1.0, 20)[:, None]
    wanted = [float(training.final_field(jnp.asarray(x))) for x in table]
    assert np.allclose(predict(training, table), wanted, rtol=1e-14, atol=0.0)
    assert run("functional").outside(np.array([[0.5], [1.5]])) == 1


def test_runs_are_compared(run, tmp_path):
    runs = [run("functional"), run("residual"), run("soft")]
    saved = [Saved.read(one.folder) for one in runs]
    hard, density, soft = compare_rows(saved)
    assert hard["functional"].keys() == soft["functional"].keys() == {"energy"}
    assert density["functional"] == {}
    assert hard["errors"]["mass"] < 1e-6
    assert soft["on_rule"] is None
    file = draw_comparison(saved, tmp_path / "compared.png")
    assert file.stat().st_size > 10_000
    json.dumps([hard, density, soft])


PICTURES = {"field", "reference", "difference", "loss", "training-errors"}
PICTURES_OF = {
    "residual": PICTURES - {"reference"} | {"scale"},
    "functional": PICTURES - {"reference"} | {"shift"},
    "plane": PICTURES | {"scale"},
    "space": PICTURES | {"shift"},
    "cloud": PICTURES - {"reference"} | {"scale"},
    "soft": PICTURES - {"reference"},
}


@pytest.mark.parametrize("case", only(CASES, "residual", "functional"))
def test_the_report_shows_no_time(case, run):
    own = run(case)
    text = " ".join(write_report(own.folder).read_text().split())
    saved = Saved.read(own.folder)
    assert "None" not in text.partition("<h2>Configuration</h2>")[0]
    assert "over time" not in text
    assert ">t</th>" not in text
    names = {p.name for group in groups(saved) for p in group.pictures}
    assert names == PICTURES_OF[case]
    for group in groups(saved):
        for picture in group.pictures:
            for axes in picture.figure.axes:
                assert axes.get_xlabel() != "t"
                assert axes.get_ylabel() != "t"
    if own.problem.functional is None:
        assert "the energy is" not in verdict(saved)
        return
    says = verdict(saved)
    assert "the interval covers the error of the quadrature only" in says
    assert "above the known minimum, relative to it" in says
    (measured,) = own.problem.measured
    assert f"the {measured.name}, measured only, is " in says
    assert "<dfn>Energy</dfn>: the functional that the training minimises" in text
    assert "the integral of F, the density that" in text or case == "cloud"
