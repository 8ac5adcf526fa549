"""A problem file with a moment that moves and a density: runs, resumed, reported."""

import dataclasses
import json
import re
import warnings

import jax
import numpy as np
import pytest
from quick import only
from quick_run import quick_programs, small

import sdifp
from sdifp._folder import Saved
from sdifp._report import compare_rows, draw_comparison, verdict, write_report
from sdifp.runs import _build

__all__ = ["quick_programs"]
pytestmark = pytest.mark.usefixtures("quick_programs")

FILE = """
import jax.numpy as jnp
import sdifp
from sdifp.invariants import Moment

PI = jnp.pi


def begin(x):
    return 1.0 + 0.5 * jnp.cos(PI * x[0]) + 0.25 * jnp.cos(2.0 * PI * x[0])


problem = sdifp.Problem(
    domain=sdifp.Box([0.0], [2.0], periodic=True),
    equation=sdifp.Residual(
        sdifp.time_derivative() + sdifp.operators.advection(jnp.ones(1))
    ),
    conditions=[sdifp.Initial(begin)],
    interval=(0.0, 1.0),
    invariants=[
        sdifp.Density(lambda u, grad: 0.5 * grad[0] ** 2 - u**3, "loss/$H$"),
        sdifp.Mass(2.0),
        Moment(
            lambda x: jnp.sin(PI * x[0]), lambda t: 0.5 * jnp.sin(PI * t), name="sine"
        ),
        sdifp.SquaredNorm(2.3125),
    ],
    reference=lambda x, t: begin(x - t),
)
"""
NAMES = ["mass", "sine", "squared_norm"]
METHODS = {
    "SDIFP": {},
    "interpolated": {"method": "SDIFP", "points": "RandomPoints(48, 1)"},
    "levenberg-marquardt": {
        "method": "SDIFP",
        "optimiser": "LevenbergMarquardt",
    },
    "PostHoc": {},
    "Soft": {},
    "AugmentedLagrangian": {},
    "GridProjection": {},
}


def create(folder, case):
    file = folder / "mine.py"
    file.write_text(FILE)
    fields = {"problem": str(file), "method": case, **METHODS[case]}
    return sdifp.Run.create(folder / "run", small(steps=4, every=2, **fields))


@pytest.fixture(scope="module", params=only(METHODS, "SDIFP"))
def trained(request, quick_programs, tmp_path_factory):
    folder, case = tmp_path_factory.mktemp("own"), request.param
    with pytest.MonkeyPatch.context() as patch:
        # The same object each time, so that one program serves all runs.
        execute, made = _build._executed, []
        made_once = lambda *at: (
            made[0] if made else made.append(execute(*at)) or made[0]
        )
        patch.setattr(_build, "_executed", made_once)
        if case == "interpolated":
            with pytest.warns(UserWarning, match="points has 48 times"):
                run = create(folder, case)
        else:
            run = create(folder, case)
        run.save()
        run.train()
        run.evaluate()
        yield case, run, Saved.read(run.folder)


def is_corrected(case):
    return case not in ("Soft", "AugmentedLagrangian")


def test_metrics_and_certificate_have_all_of_them_by_name(trained):
    case, _, saved = trained
    last = saved.metrics[-1]
    assert list(last["errors"]) == NAMES
    assert list(last["measured"]) == ["loss/$H$"]
    # What the reference has at the beginning, which the initial data hold.
    x = np.arange(64) / 32.0
    u = 1.0 + 0.5 * np.cos(np.pi * x) + 0.25 * np.cos(2.0 * np.pi * x)
    slope = -0.5 * np.pi * (np.sin(np.pi * x) + np.sin(2.0 * np.pi * x))
    wanted = 2.0 * np.mean(0.5 * slope**2 - u**3)
    own = last["measured"]["loss/$H$"]
    assert own["value"] == pytest.approx(wanted, rel=1e-12)
    assert own["drift"] != 0.0
    curves = saved.result["integrals"]["invariants"]["loss/$H$"]
    drift = np.array(curves["values"]["field"]) - wanted
    assert np.allclose(curves["drift"]["field"], drift, atol=1e-12)
    size = 2.0 * np.mean(np.abs(0.5 * slope**2 - u**3))
    assert np.allclose(curves["relative_drift"]["field"], drift / size, rtol=1e-2)
    if not is_corrected(case):
        assert saved.certificate is None
        assert max(last["errors"].values()) > 1e-4
        return
    assert max(last["errors"].values()) < 1e-4
    rows = saved.certificate["rows"]
    assert sorted({row["invariant"] for row in rows}) == NAMES
    assert max(row["on_rule"] for row in rows) < 1e-14
    measured = saved.certificate["measured"]
    assert {row["invariant"] for row in measured} == {"loss/$H$"}
    assert measured[0]["value"] == pytest.approx(wanted, rel=1e-12)
    assert len(measured) == len({row["time"] for row in rows}) == 5


def test_the_configuration_is_read_back(trained):
    _, run, _ = trained
    again = sdifp.runs.load_config(run.folder / "config.toml")
    assert again == run.config
    assert sdifp.runs.fingerprint(sdifp.runs.build(again).problem) == (
        sdifp.runs.fingerprint(run.problem)
    )


def test_a_resumed_run_is_bit_identical(trained, tmp_path):
    case, run, _ = trained
    with warnings.catch_warnings(action="ignore"):
        stopped = create(tmp_path, case)
    asked = iter([False, True])
    assert not stopped.train(stop=lambda: next(asked))
    assert 0 < stopped.training.step < 4
    with warnings.catch_warnings(action="ignore"):
        again = sdifp.Run.open(stopped.folder)
    again.train()
    one, other = (r.training.snapshot() for r in (run, again))
    for name in one:
        if name != "known":
            assert np.array_equal(one[name], other[name]), name
    lines = Saved.read(run.folder).metrics, read(again.folder)
    for mine, theirs in zip(*lines, strict=True):
        del mine["seconds"], theirs["seconds"]
        assert mine == theirs


def read(folder):
    text = (folder / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_the_report_shows_them(trained):
    case, run, saved = trained
    text = write_report(run.folder).read_text()
    files = {f.name for f in (run.folder / "figures").iterdir()}
    # A name of the user's is no path, and hides no other picture.
    assert {"loss_H_.png", "loss_H_-drift.png", "loss.png"} <= files
    assert {f"{name}-error.png" for name in NAMES} <= files
    assert re.search(
        r"the loss/\$H\$, measured only, drifts by up to \d", verdict(saved)
    )
    images = re.findall(r'alt="([^"]*)"', text)
    assert sum("loss/$H$" in alt for alt in images) == 2
    assert ('id="measured"' in text) == is_corrected(case)
    (row,) = compare_rows([saved])
    assert list(row["errors"]) == NAMES
    assert row["drifts"]["loss/$H$"] > 0.0
    assert draw_comparison([saved, saved], run.folder.parent / "both.png").is_file()


def test_six_invariants_leave_the_line_legible():
    metrics = sdifp.training.Metrics(
        *(1, 2, 3.0, 0.5),
        errors={f"moment {k}": 10.0**-k for k in range(5, 11)},
        l2_error=0.1,
        scale=(0.9, 1.1),
        shift=None,
        measured={"H": sdifp.training.MeasuredDrift(1.0, -0.2, -0.1)},
    )
    assert metrics.numbers == (
        "loss 5.0e-01, L2 1.0e-01, worst of 6 invariants: moment 5 1.0e-05, "
        "H drift -1.0e-01, scale 0.9 to 1.1"
    )
    lost = dataclasses.replace(metrics, errors=metrics.errors | {"late": np.nan})
    assert "worst of 7 invariants: late nan" in lost.numbers


def test_without_a_correction_they_are_measured_too(quick_programs):
    problem = sdifp.problems.advection()
    square = sdifp.Density(lambda u: u**2, "square")
    problem = dataclasses.replace(problem, invariants=[*problem.invariants, square])
    recipe = sdifp.Recipe(sdifp.training.MLP(4, 1), steps=1, nodes=16)
    training = sdifp.train(
        *(problem, sdifp.training.Plain()),
        recipe=recipe.replace(points=sdifp.training.RandomPoints(2, 4)),
        key=jax.random.key(0),
        check=False,
    )
    metrics = training.measure(problem.reference)
    norm = problem.prescribed[1].target.value(None)
    assert metrics.measured["square"].value == pytest.approx(norm)
    assert abs(metrics.measured["square"].drift) < 1e-9
