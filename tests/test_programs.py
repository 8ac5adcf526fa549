"""The demo and the benchmarks, run as a user runs them."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest
import quick

ROOT = Path(__file__).parent.parent


# Where no speed or rounding is judged, compilation is what takes time.
QUICK = {"XLA_FLAGS": quick.FLAGS}


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
        if line.startswith(("mass", "squared norm"))
    ]
    assert len(errors) == 2
    assert max(errors) < 1e-14


def test_wrapping_example_runs_and_certifies():
    done = run("examples/wrap_your_network.py", **QUICK)
    assert done.returncode == 0, done.stderr
    assert "exact on the rule" in done.stdout
    assert "frozen: " in done.stdout


@pytest.mark.validate
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
        "projection",
        "field",
        *(
            pytest.param(name, marks=pytest.mark.validate)
            for name in ("quadrature", "operators", "peers", "run_overhead", "scaling")
        ),
    ],
)
def test_benchmark_writes_its_rows(name, tmp_path):
    file = tmp_path / "rows.json"
    done = run(f"benchmarks/{name}.py", "--quick", "--json", file, **QUICK)
    assert done.returncode == 0, done.stderr
    for row in json.loads(file.read_text()):
        assert {"measured", "contender"} <= set(row)
        assert row["contender"] in done.stdout


@pytest.mark.validate
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


@pytest.mark.validate
def test_own_steady_problem_trains():
    done = run("examples/your_own_steady_problem.py", "--steps", "8", **QUICK)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "exact on the rule" in done.stdout
    (line,) = (line for line in lines if line.startswith("relative L2 error"))
    assert float(line.split()[-1]) < 1e-3


@pytest.mark.validate
def test_own_system_trains():
    done = run("examples/your_own_system.py", "--steps", "10", **QUICK)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "exact on the rule" in done.stdout
    found = {
        line.split()[-2]: float(line.split()[-1])
        for line in lines
        if line.startswith("relative L2 error")
    }
    assert list(found) == ["a:", "b:"]
    assert max(found.values()) < 1e-2
    # The total of both, and neither of them.
    assert " mass " in lines[0]
    assert "mass[" not in lines[0]
