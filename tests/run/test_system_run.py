"""Runs of systems: taken up again, measured, predicted, compared, reported."""

import functools
import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import systems
from quick_run import finished, quick_programs, small

import sdifp
from sdifp._folder import Saved, checkpoint_files
from sdifp._report import _page, compare_rows, draw_comparison, verdict, write_report
from sdifp._report._figures import groups
from sdifp.runs import _evaluation, _run, predict
from sdifp.runs._checkpoint import read_checkpoint

__all__ = ["finished", "quick_programs"]
pytestmark = pytest.mark.usefixtures("quick_programs")
NAMES = ("height", "flow")


@functools.cache
def config():
    return small(problem=systems.__file__, steps=6, every=2, network="MLP(6, 1)")


@pytest.fixture(scope="module")
def run(quick_programs, tmp_path_factory):
    run = sdifp.Run.create(tmp_path_factory.mktemp("systems") / "run", config())
    assert run.train()
    run.evaluate()
    return run


@pytest.fixture(scope="module")
def saved(run):
    return Saved.read(run.folder)


def arrays(run):
    found, _ = read_checkpoint(checkpoint_files(run.folder / "checkpoints")[-1])
    del found["known"]
    return {name: a.tobytes() for name, a in found.items()}


def test_a_run_that_was_stopped_and_taken_up_is_the_same(run, tmp_path, monkeypatch):
    # One step at a time, so that it stops between reports, too.
    monkeypatch.setattr(_run, "_PAUSE", 0.0)
    looks = iter([False] * 3 + [True])
    first = sdifp.Run.create(tmp_path / "a", config())
    assert not first.train(stop=lambda: next(looks))
    again = sdifp.Run.open(first.folder)
    assert again.training.step == 3
    assert again.train()
    assert arrays(again) == arrays(run)


def test_what_is_saved_has_the_components(saved):
    result = saved.result
    assert result["components"] == list(NAMES)
    assert result["units"] == ["m", "m/s"]
    assert result["metrics"]["l2_errors"].keys() == set(NAMES)
    assert saved.metrics[-1]["l2_errors"].keys() == set(NAMES)
    # The norm is there because it is prescribed: the units of the components differ.
    found = result["integrals"]["invariants"]
    assert list(found) == ["mass[0]", "squared_norm", "momentum"]
    words = [curves["density"] for curves in found.values()]
    assert words == ["height", "height^2 + flow^2", "F"]
    shape = (_evaluation._FRAMES, _evaluation._LINE, 2)
    assert saved.solution["u"].shape == saved.solution["reference"].shape == shape
    assert {row["invariant"] for row in saved.certificate["measured"]} == {"momentum"}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"invariants": []}, []),
        ({"invariants": [], "units": None}, ["squared_norm"]),
        ({"invariants": [], "units": ("m", "m")}, ["squared_norm"]),
    ],
)
def test_a_norm_of_all_components_needs_one_unit(changes, names):
    own = systems.system(**changes)
    assert [one.name for one in _evaluation._added(own)] == names


def test_a_table_of_values_has_a_column_for_each_component(run, call, tmp_path):
    table = np.array([[0.1, 0.2], [3.0, 0.9], [1.0, 0.2]])
    field = run.training.final_field
    at = [field(jnp.asarray(row[:1]), jnp.asarray(row[1])) for row in table]
    wanted = np.stack([np.asarray(value) for value in at])
    found = predict(run.training, table)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)
    np.save(tmp_path / "points.npy", table)
    code, out, _ = call("predict", run.folder, tmp_path / "points.npy")
    assert code == 0
    assert "3 values of height, flow to" in out
    np.testing.assert_array_equal(np.load(tmp_path / "points-values.npy"), found)
    (tmp_path / "points.csv").write_text("x,t\n0.1,0.2\n3.0,0.9\n1.0,0.2\n")
    code, _, _ = call("predict", run.folder, tmp_path / "points.csv")
    head, *lines = (tmp_path / "points-values.csv").read_text().splitlines()
    assert (code, head) == (0, "x,t,height,flow")
    rows = np.array([list(map(float, line.split(","))) for line in lines])
    np.testing.assert_array_equal(rows, np.column_stack([table, found]))


EACH = {"lines", "field", "reference", "difference"}


def test_the_report_has_the_pictures_of_each_component(run, saved):
    text = " ".join(write_report(run.folder).read_text().split())
    found = {p.name: p for group in groups(saved) for p in group.pictures}
    assert {f"{kind}-{name}" for kind in EACH for name in NAMES} <= found.keys()
    assert not EACH & found.keys()
    files = {file.name for file in (run.folder / "figures").iterdir()}
    assert {"field-height.png", "field-flow.png"} <= files
    title = lambda name: found[name].figure.axes[0].get_title(loc="left")
    assert title("field-height") == "height [m]"
    assert title("lines-flow") == "flow [m/s] at some times"
    assert title("reference-flow") == "reference of flow"
    assert title("difference-flow") == "flow [m/s] - reference"
    # Each picture shows its own component.
    image = found["field-flow"].figure.axes[0].collections[0]
    np.testing.assert_array_equal(
        np.ravel(image.get_array()), np.ravel(saved.solution["u"][..., 1])
    )
    assert "The field (height, flow) at five times" in text
    for name in NAMES:
        assert f"relative L2 error of {name}" in text
    assert "of all components together, unless one is named" in text


def test_each_error_is_in_what_is_printed(run, saved, call, tmp_path):
    metrics = saved.result["metrics"]
    each = ", ".join(f"{k} {v:.1e}" for k, v in metrics["l2_errors"].items())
    words = f"the relative L2 error is {metrics['l2_error']:.1e} ({each})"
    assert words in verdict(saved)
    for command in ("evaluate", "info"):
        code, out, _ = call(command, run.folder)
        assert code == 0
        assert words in out
    picture = tmp_path / "compare.png"
    code, out, _ = call("compare", run.folder, "--out", picture)
    assert code == 0
    assert "L2 of height" in out.splitlines()[0]
    code, out, _ = call("compare", run.folder, "--out", picture, "--json")
    (row,) = json.loads(out)["rows"]
    assert row["l2_errors"] == metrics["l2_errors"]


def test_runs_of_before_are_read(finished_before, saved, tmp_path, monkeypatch):
    old = Saved.read(finished_before)
    assert "components" not in old.result
    names = {p.name for group in groups(old) for p in group.pictures}
    assert names >= EACH
    assert "(u " not in verdict(old)
    monkeypatch.setattr(_page, "groups", lambda saved: [])
    assert "relative L2 error of" not in write_report(finished_before).read_text()
    rows = compare_rows([old, saved])
    assert [len(row["l2_errors"]) for row in rows] == [0, 2]
    file = draw_comparison([old, saved], tmp_path / "compared.png")
    assert file.stat().st_size > 10_000


@pytest.fixture
def finished_before(finished, tmp_path):
    """A run of one component, as versions before have written it."""
    folder = tmp_path / "before"
    shutil.copytree(finished.folder, folder)
    result = json.loads((folder / "result.json").read_text())
    assert (result.pop("components"), result.pop("units")) == (["u"], [""])
    del result["metrics"]["l2_errors"]
    (folder / "result.json").write_text(json.dumps(result))
    lines = [json.loads(m) for m in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["l2_errors"]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    return folder


@pytest.mark.validate
def test_an_audit_of_a_system(call):
    code, out, _ = call(
        *("audit", systems.__file__, "--draws", "8", "--points", "RandomPoints(1, 4)"),
        "--json",
    )
    assert code == 0
    names = [row["name"] for row in json.loads(out)["rows"]]
    assert {"full", "independent(1, 1)", "shared(1)"} <= set(names)
