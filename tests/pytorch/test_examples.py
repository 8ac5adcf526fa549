"""The examples and the benchmark, run as a user runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sdifp.torch

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.validate


def run(script, *arguments):
    # Where no speed is judged, compilation is what takes time.
    flags = "--xla_backend_optimization_level=0"
    done = subprocess.run(
        [sys.executable, ROOT / script, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "XLA_FLAGS": flags, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_plain_pytorch():
    lines = run("examples/pytorch_pinn.py", "--steps", 150).splitlines()
    plain, conserved = (
        [float(word) for word in line.split()[2::2]] for line in lines[:2]
    )
    assert max(map(abs, conserved[1:])) < 1e-6
    assert max(map(abs, plain[1:])) > 1e-4
    assert "exact on the rule" in lines[-1]
    assert len((ROOT / "examples/pytorch_pinn.py").read_text().splitlines()) < 70


def test_deepxde(tmp_path):
    file = tmp_path / "rows.json"
    arguments = ["--iterations", 100, "--seeds", 1, "--json", file]
    out = run("examples/deepxde_diffusion.py", *arguments)
    before, after = json.loads(file.read_text())
    assert before["measured"] in out
    assert after["mass"] < 1e-6 < before["mass"]
    assert after["squared_norm"] < 1e-5 < before["squared_norm"]


def test_benchmark_writes_its_rows(tmp_path):
    file = tmp_path / "rows.json"
    out = run("benchmarks/torch_field.py", "--quick", "--json", file)
    rows = json.loads(file.read_text())
    assert {row["measured"].split(",")[0] for row in rows} == {"PyTorch", "JAX"}
    for row in rows:
        assert row["contender"] in out


def test_public_names_are_documented_in_the_reference():
    page = (ROOT / "docs/api/pytorch.md").read_text()
    names = {
        name
        for name, thing in vars(sdifp.torch).items()
        if getattr(thing, "__module__", "").startswith("sdifp.torch.")
    }
    assert "conserve" in names
    assert not {n for n in names if f"::: sdifp.torch.{n}\n" not in page}
