"""The demo and the benchmarks, run as a user runs them."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.program


# Where no speed or rounding is judged, compilation is what takes time.
QUICK = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0 "
    "--xla_cpu_use_fusion_emitters=false"
}


def run(script, *arguments, **environment):
    return subprocess.run(
        [sys.executable, ROOT / script, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_demo_draws_the_picture_that_it_names(tmp_path):
    done = run(
        "examples/project_scattered_field.py",
        *("--out", tmp_path, "--points", "300"),
        **QUICK,
    )
    assert done.returncode == 0, done.stderr
    picture = Path(done.stdout.splitlines()[-1].removeprefix("Look at "))
    assert picture == tmp_path / "projection.png"
    assert matplotlib.image.imread(picture).std() > 0.05
    errors = [
        float(line.split()[-1])
        for line in done.stdout.splitlines()
        if line.startswith(("mass", "energy"))
    ]
    assert len(errors) == 2
    assert max(errors) < 1e-14


def test_wrapping_example_runs_and_certifies():
    done = run("examples/wrap_your_network.py", **QUICK)
    assert done.returncode == 0, done.stderr
    assert "exact on the rule" in done.stdout
    assert "frozen: " in done.stdout


def test_audit_example_measures_and_draws(tmp_path):
    done = run(
        "examples/audit_estimators.py",
        *("--out", tmp_path, "--draws", "8", "--dimension", "8", "--quick"),
        **QUICK,
    )
    assert done.returncode == 0, done.stderr
    assert "independent(4, 4)" in done.stdout
    assert matplotlib.image.imread(tmp_path / "audit.png").std() > 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--points", "1"], "--points must be at least 2, got 1"),
        (["--points", "many"], "invalid int value: 'many'"),
        (["--out", "/dev/null/x"], "cannot be made"),
    ],
)
def test_demo_says_what_is_wrong_without_a_traceback(
    arguments, message, monkeypatch, capsys
):
    script = str(ROOT / "examples/project_scattered_field.py")
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(script, run_name="__main__")
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        *("projection", "quadrature", "field", "operators", "peers", "run_overhead"),
        "scaling",
    ],
)
def test_benchmark_writes_its_rows(name, tmp_path):
    file = tmp_path / "rows.json"
    done = run(f"benchmarks/{name}.py", "--quick", "--json", file, **QUICK)
    assert done.returncode == 0, done.stderr
    for row in json.loads(file.read_text()):
        assert {"measured", "contender"} <= set(row)
        assert row["contender"] in done.stdout


def test_own_equation_trains(tmp_path):
    done = run("examples/your_own_pde.py", "--steps", "6", **QUICK)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    first, last = (
        float(line.split("L2 ")[1].split(",")[0])
        for line in (lines[0], [k for k in lines if k.startswith("step 6/6")][-1])
    )
    assert last < 0.2 * first
    assert "exact on the rule" in done.stdout


STUDIES = {
    "one_dimension": ["accurate", "--only", "problem=advection method=SDIFP"],
    "where_it_pays": ["--only", "value=0.05 method=SDIFP"],
    "high_dimension": ["--only", "manufactured d=8 way=independent"],
}


@pytest.mark.parametrize("name", STUDIES)
def test_study_measures(name, tmp_path):
    file = tmp_path / "rows.jsonl"
    options = ["--tiny", "--seeds", "1", "--out", file]
    done = run(f"validation/{name}.py", *STUDIES[name], *options, **QUICK)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in file.read_text().split("\n") if line]
    assert rows
    assert all(0.0 < row["l2"] < 10.0 for row in rows)
    assert done.stdout.count("|") > 10


def test_study_goes_on_where_it_was_and_prints_from_saved_rows(tmp_path):
    file = tmp_path / "rows.jsonl"
    case = {"problem": "advection", "d": 2, "method": "Plain", "seed": 0}
    rows = [{"case": case | {"method": m}, "l2": 0.125} for m in ("PostHoc", "SDIFP")]
    # The last row was cut off when the sweep was killed.
    file.write_text(json.dumps(rows[0]) + "\n" + json.dumps(rows[1])[:30])
    script = "validation/two_and_three_dimensions.py"
    options = ["--tiny", "--seeds", "1", "--out", file]
    done = run(script, *options, "--only", "problem=advection d=2 method=P", **QUICK)
    assert done.returncode == 0, done.stderr
    assert "1 measured, 1 to do" in done.stdout
    table = run(script, *options, "--table")
    assert "| advection | 2 | PostHoc | 1.2e-01 |" in table.stdout
    assert "| advection | 2 | Plain |" in table.stdout
    assert "SDIFP" not in table.stdout


def test_a_run_that_is_killed_ends_as_one_that_is_not(tmp_path):
    file = tmp_path / "rows.jsonl"
    options = ["--tiny", "--seeds", "1", "--out", file]
    done = run(
        "validation/kill.py",
        *(*options, "--kills", "3", "--folder", tmp_path / "runs"),
        **QUICK,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = json.loads(file.read_text().strip())
    assert row["identical"]
    assert len(row["kills"]) == 3
    assert row["numbers"] > 10
    # One resume that ends otherwise is seen, and all of its run's kills count.
    case = row["case"] | {"seed": 1}
    bad = {"case": case, "identical": False, "different": ["x"], "kills": [[9, "a"]]}
    with file.open("a") as stream:
        stream.write("\n" + json.dumps(bad))
    table = run("validation/kill.py", *options, "--table")
    assert table.returncode == 1
    assert "| all |  |  | 4 | " in table.stdout
    assert table.stdout.count("DIFFERENT") == 1
