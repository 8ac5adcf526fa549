"""Runs in folders: taken up again, refused, stopped, measured."""

import dataclasses
import datetime
import errno
import json
import os
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from quick_run import finished, quick_programs, small

import sdifp
from sdifp._folder import PROBLEM_COPY, Saved, checkpoint_files, step_of
from sdifp.runs import _run, build, describe, load_problem, predict
from sdifp.runs._checkpoint import read_checkpoint, write_checkpoint

__all__ = ["finished", "quick_programs"]
pytestmark = pytest.mark.usefixtures("quick_programs")
EXAMPLE = Path(__file__).parents[2] / "examples" / "your_own_pde.py"


def lines(folder):
    """The metrics without their times."""
    out = [json.loads(k) for k in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in out]


def arrays(run):
    found, _ = read_checkpoint(checkpoint_files(run.folder / "checkpoints")[-1])
    del found["known"]
    return {name: a.tobytes() for name, a in found.items()}


def after(count):
    """A wish to stop after so many looks."""
    left = [count]

    def stop():
        left[0] -= 1
        return left[0] < 0

    return stop


@pytest.mark.validate
def test_a_run_that_was_stopped_and_taken_up_is_the_same(
    finished, tmp_path, monkeypatch
):
    # One step at a time, so that it stops between reports, too.
    monkeypatch.setattr(_run, "_PAUSE", 0.0)
    run = sdifp.Run.create(tmp_path / "a", small(checkpoint_seconds=0))
    assert not run.train(stop=after(3))
    # Died after a report that no checkpoint knows of, in the middle of a line.
    with (run.folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 8, "loss": 1.0}\n{"step": 1')
    run = sdifp.Run.open(run.folder)
    assert run.training.step == 3
    assert not run.train(stop=after(4))
    run = sdifp.Run.open(run.folder)
    assert run.training.step == 7
    assert run.train()
    assert lines(run.folder) == lines(finished.folder)
    assert [line["step"] for line in lines(run.folder)] == [1, 4, 8, 12]
    assert arrays(run) == arrays(finished)
    assert len(checkpoint_files(run.folder / "checkpoints")) == 3
    run.evaluate()
    again, first = Saved.read(run.folder), Saved.read(finished.folder)
    assert again.certificate == first.certificate
    assert again.result["integrals"] == first.result["integrals"]
    # The processes before this one compiled, too.
    assert again.result["compile_seconds"] is None
    assert all(np.array_equal(a, first.solution[k]) for k, a in again.solution.items())
    # And it is finished.
    assert sdifp.Run.open(run.folder).train()


def test_the_run_is_the_training_of_the_library(finished):
    config = finished.config
    training = sdifp.train(
        sdifp.problems.advection(),
        recipe=finished.training.recipe,
        every=4,
        check=False,
        key=jax.random.key(0),
    )
    metrics = [dataclasses.asdict(m) for m in training]
    for line in metrics:
        del line["seconds"]
        line["scale"], line["shift"] = list(line["scale"]), list(line["shift"])
    assert metrics == lines(finished.folder)
    assert config.steps == 12
    result = json.loads((finished.folder / "result.json").read_text())
    assert result["finished"]
    assert result["until"] == 1.0
    assert result["description"] == finished.problem.description
    evaluated = datetime.datetime.fromisoformat(result["evaluated"])
    assert evaluated.utcoffset() == datetime.timedelta(0)
    assert 0.0 < result["compile_seconds"] <= result["metrics"]["seconds"]
    assert result["metrics"]["l2_error"] == training.result().metrics.l2_error


def test_what_is_measured_is_what_the_field_has(finished):
    saved, problem = Saved.read(finished.folder), finished.problem
    field = finished.result().field
    x, times = saved.solution["x"], saved.solution["times"]
    t = times[30]
    wanted = [float(field(jax.numpy.asarray(p), t)) for p in x[::64]]
    assert np.allclose(saved.solution["u"][30, ::64], wanted, rtol=0.0, atol=1e-13)
    exact = [float(problem.reference(jax.numpy.asarray(p), t)) for p in x[::64]]
    assert np.allclose(saved.solution["reference"][30, ::64], exact, rtol=0, atol=1e-13)
    times = saved.result["integrals"]["times"]
    integrals = saved.result["integrals"]["invariants"]
    # The raw network by a rule of its own: the trapezoid rule on a circle.
    raw = finished.result().net
    t = jax.numpy.asarray(times[2])
    grid = np.linspace(0.0, 1.0, 200, endpoint=False)[:, None]
    box = problem.domain
    values = jax.vmap(lambda p: raw(p, t))(box.lower + grid * box.width)
    for name, power in (("mass", 1), ("squared_norm", 2)):
        mean = box.volume * np.mean(values**power)
        found, target = integrals[name]["values"], integrals[name]["target"]
        assert np.isclose(found["raw"][2], mean, rtol=1e-9)
        assert np.allclose(found["field"], target, rtol=1e-12)
        assert not np.allclose(found["raw"], target)
        # Relative to the target, or to the size of the field for a small mass.
        size = np.array(integrals["squared_norm"]["target"])
        unit = size if power == 2 else np.sqrt(box.volume * size)
        unit = np.maximum(np.abs(target), unit)
        off = np.abs(np.subtract(found["raw"], target)) / unit
        assert np.allclose(integrals[name]["errors"]["raw"], off, rtol=1e-12)


def test_values_at_points_are_those_of_the_field(finished, rng):
    table = np.column_stack([rng.uniform(0.0, 1.0, 40), rng.choice([0.1, 0.7], 40)])
    found = predict(finished.training, table)
    field = finished.result().field
    wanted = [field(jax.numpy.asarray(r[:1]), jax.numpy.asarray(r[1])) for r in table]
    assert np.allclose(found, wanted, rtol=0.0, atol=1e-13)
    assert finished.outside(table) == 0
    assert finished.outside(np.array([[5.0, 0.1], [0.5, -0.1], [0.5, 99.0]])) == 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("steps = 12", "steps = 13", "steps was 12 and is 13"),
        ("seed = 0", "seed = 1", "seed was 0 and is 1"),
        ("gauge=0.01", "gauge=1.0", "method was 'SDIFP("),
    ],
)
def test_a_changed_configuration_is_not_taken_up(tmp_path, old, new, words):
    run = sdifp.Run.create(tmp_path / "a", small())
    run.save()
    file = run.folder / "config.toml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ValueError, match=r"config\.toml") as caught:
        sdifp.Run.open(run.folder)
    assert f"changed since its last checkpoint: {words}" in str(caught.value)


def test_how_often_is_saved_may_change(tmp_path):
    run = sdifp.Run.create(tmp_path / "a", small())
    run.save()
    file = run.folder / "config.toml"
    file.write_text(file.read_text().replace("keep = 3", "keep = 1"))
    assert sdifp.Run.open(run.folder).config.keep == 1


def test_folders_that_are_no_place_for_a_run(tmp_path, finished):
    with pytest.raises(ValueError, match="holds a run already: `sdifp resume"):
        sdifp.Run.create(finished.folder, small())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("do not touch")
    # Left by a run that was killed before it began.
    (tmp_path / "left").mkdir()
    (tmp_path / "left" / ".config.toml.partial").write_text("prob")
    sdifp.Run.create(tmp_path / "left", small())
    for name in ("full", "full/thesis.tex"):
        with pytest.raises(ValueError, match="exists and is not an empty folder"):
            sdifp.Run.create(tmp_path / name, small())
    with pytest.raises(ValueError, match="cannot be made: Not a directory"):
        sdifp.Run.create("/dev/null/run", small())
    with pytest.raises(ValueError, match="is not a run: it has no config"):
        sdifp.Run.open(tmp_path / "full")
    with pytest.raises(ValueError, match="is not a run: it does not exist"):
        sdifp.Run.open(tmp_path / "none")


def test_precision_is_not_changed_behind_the_back(tmp_path):
    with pytest.raises(ValueError, match="precision is float32, but JAX is at float64"):
        sdifp.Run.create(tmp_path / "a", small(precision="float32"))
    run = sdifp.Run.create(tmp_path / "a", small(precision="auto"))
    assert run.config.precision == "float64"


def test_two_processes_do_not_train_one_run(tmp_path):
    run = sdifp.Run.create(tmp_path / "a", small())
    other = sdifp.Run.open(run.folder)
    seen = []

    def watch(training, metrics):
        with pytest.raises(
            sdifp.runs.RunError, match="is in use: another process trains"
        ):
            other.train()
        seen.append(1)

    assert run.train(watch)
    assert len(seen) > 1
    assert sdifp.Run.open(run.folder).train()


def test_a_full_disk_loses_nothing_that_was_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "_PAUSE", 0.0)
    run = sdifp.Run.create(tmp_path / "a", small(checkpoint_seconds=0))
    write = _run.write_checkpoint

    def full(folder, step, *rest):
        if step == 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "x"))
        return write(folder, step, *rest)

    monkeypatch.setattr(_run, "write_checkpoint", full)
    words = r"x cannot be written: No space left on device; .* `sdifp resume .*a` goes"
    with pytest.raises(sdifp.runs.RunError, match=words):
        run.train()
    monkeypatch.setattr(_run, "write_checkpoint", write)
    again = sdifp.Run.open(run.folder)
    assert again.training.step == 5
    assert again.train()


DIVERGES = """
import jax.numpy as jnp
import sdifp
from helper import LIMIT

problem = sdifp.Problem(
    sdifp.Box([0.0], [1.0], periodic=True),
    sdifp.Residual(
        sdifp.time_derivative() + sdifp.operators.advection([1.0]),
        lambda u, grad, x, t: 0.0 * jnp.sqrt(LIMIT - u) - 30.0,
    ),
    [sdifp.problems.Initial(lambda x: 1.0 + jnp.sin(2.0 * jnp.pi * x[0]))],
    (0.0, 0.5),
    mass=1.0,
    squared_norm=1.5,
)
"""


@pytest.fixture
def own_file(tmp_path):
    (tmp_path / "helper.py").write_text("LIMIT = 2.5\n")
    file = tmp_path / "mine.py"
    file.write_text(DIVERGES)
    return file


def test_a_loss_that_is_lost_keeps_the_last_good_state(tmp_path, own_file):
    config = small(
        problem=str(own_file),
        **{"method": "Plain", "optimiser": "Adam(0.05)", "steps": 100, "every": 100},
    )
    run = sdifp.Run.create(tmp_path / "a", config)
    with pytest.raises(sdifp.training.TrainingDiverged, match="not finite at step"):
        run.train()
    step = run.training.step
    assert 0 < step < 100
    # The file of the user is kept with the run, and may change or go.
    own_file.unlink()
    again = sdifp.Run.open(run.folder)
    assert again.training.step == step
    result = again.evaluate()
    assert not result["finished"]
    assert result["certificate"] is None
    assert np.isfinite(result["metrics"]["errors"]["mass"])


UNMET = """
import jax.numpy as jnp
import sdifp

problem = sdifp.Problem(
    sdifp.Box([0.0], [1.0], periodic=True),
    sdifp.Residual(sdifp.time_derivative() + sdifp.operators.advection([1.0])),
    [sdifp.problems.Initial(lambda x: 1.0 + jnp.sin(2.0 * jnp.pi * x[0]))],
    (0.0, 1.0),
    mass=1.0,
    # No field of this mass has a squared norm below 1.
    squared_norm=lambda t: 1.5 - jnp.exp(-(((t - 0.375) / 0.01) ** 2)),
)
"""


def test_targets_that_are_not_met_are_an_error_each_time(tmp_path):
    (tmp_path / "mine.py").write_text(UNMET)
    config = small(problem=str(tmp_path / "mine.py"), method="PostHoc")
    run = sdifp.Run.create(tmp_path / "a", config)
    for _ in range(2):
        with pytest.raises(
            sdifp.training.TrainingDiverged, match=r"met at t = 0\.375: squared_norm"
        ):
            run.train()
        assert run.training.finished
        run = sdifp.Run.open(tmp_path / "a")
    # It can be measured all the same.
    assert run.evaluate()["finished"]


def test_a_loss_that_grows_and_grows_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "_PAUSE", 0.0)
    config = small(
        method="Plain",
        **{"optimiser": "Adam(50.0, Constant())", "steps": 400, "every": 2},
        checkpoint_seconds=0,
    )
    run = sdifp.Run.create(tmp_path / "a", config)
    words = r"has grown from .* by step (\d+); the state of step (\d+) is kept. Try a"
    with pytest.raises(sdifp.training.TrainingDiverged, match=words) as caught:
        run.train()
    at, kept = map(int, re.search(words, str(caught.value)).groups())
    # The report before it; the first one is after one step.
    assert kept == (at - 2 or 1)
    assert caught.value.trained.metrics.step == kept == run.training.step
    # Later checkpoints are gone, and there is no way on from here.
    assert step_of(checkpoint_files(run.folder / "checkpoints")[-1]) == kept
    again = sdifp.Run.open(run.folder)
    with pytest.raises(sdifp.training.TrainingDiverged, match=f"by step {at};"):
        again.train()


def test_looking_at_a_run_changes_nothing_in_it(tmp_path):
    run = sdifp.Run.create(tmp_path / "a", small())
    run.save()
    # Another process is writing just now.
    (run.folder / "checkpoints" / ".step-000000004-00.npz.partial").write_bytes(b"x")
    before = sorted(run.folder.rglob("*"))
    sdifp.Run.open(run.folder)
    assert sorted(run.folder.rglob("*")) == before


def test_the_first_of_two_runs_has_the_folder(tmp_path, monkeypatch):
    folder, build = tmp_path / "a", _run.build

    def slow(config, source=None):
        if config.seed == 1:
            sdifp.Run.create(folder, small(seed=2))
        return build(config, source)

    monkeypatch.setattr(_run, "build", slow)
    with pytest.raises(ValueError, match="holds a run already"):
        sdifp.Run.create(folder, small(seed=1))
    assert "seed = 2" in (folder / "config.toml").read_text()


def test_a_state_that_is_no_longer_the_last_one_is_not_trained(tmp_path):
    run = sdifp.Run.create(tmp_path / "a", small())
    late = sdifp.Run.open(run.folder)
    run.train()
    with pytest.raises(sdifp.runs.RunError, match="by another process in the meantime"):
        late.train()


def test_damaged_checkpoints_do_not_outlive_good_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "_PAUSE", 0.0)
    config = small(checkpoint_seconds=0, keep=3)
    run = sdifp.Run.create(tmp_path / "a", config)
    run.train(stop=after(6))
    files = checkpoint_files(run.folder / "checkpoints")
    assert [step_of(f) for f in files] == [4, 5, 6]
    for file in files[1:]:
        file.write_bytes(b"")
    text = (run.folder / "config.toml").read_text()
    (run.folder / "config.toml").write_text(text.replace("keep = 3", "keep = 1"))
    said = []
    run = sdifp.Run.open(run.folder, said.append)
    assert len(said) == 2
    run.train(stop=after(1))
    again = sdifp.Run.open(run.folder, said.append)
    assert again.training.step == 5
    assert len(said) == 2
    assert again.train()


def test_a_damaged_line_of_metrics_costs_that_line(tmp_path):
    run = sdifp.Run.create(tmp_path / "a", small(every=2))
    run.train()
    file = run.folder / "metrics.jsonl"
    text = file.read_text().splitlines()
    file.write_text("\n".join([text[0], "{broken", "[1]", *text[2:]]) + "\n")
    sdifp.Run.open(run.folder).train()
    assert file.read_text().splitlines() == [text[0], *text[2:]]


def test_metrics_that_are_not_utf8_cost_their_lines(tmp_path):
    run = sdifp.Run.create(tmp_path / "a", small(every=2))
    run.train()
    file = run.folder / "metrics.jsonl"
    text = file.read_bytes().splitlines()
    deep = b"[" * 100_000
    bad = [b"\xff\xfe" + text[1], b'{"step": 4}', deep]
    file.write_bytes(b"\n".join([text[0], *bad, *text[2:], b"{cut"]))
    said = []
    run = sdifp.Run.open(run.folder, said.append)
    assert said == [f"{file}: damaged lines are left out, 3 of them"]
    assert run.train()
    assert file.read_bytes().splitlines() == [text[0], *text[2:]]
    sdifp.Run.open(run.folder, said.append)
    assert len(said) == 1


def test_a_run_without_its_checkpoints_does_not_begin_again(tmp_path):
    run = sdifp.Run.create(tmp_path / "a", small())
    # There is one from the beginning: what is killed before the next can go on.
    assert sdifp.Run.open(run.folder).training.step == 0
    run.train()
    shutil.rmtree(run.folder / "checkpoints")
    with pytest.raises(ValueError, match="cannot be resumed: its checkpoints are gone"):
        sdifp.Run.open(run.folder)
    # Nor does a new one in what is left of a run that was trained.
    (run.folder / "config.toml").unlink()
    with pytest.raises(ValueError, match="exists and is not an empty folder"):
        sdifp.Run.create(run.folder, small())


def test_a_run_that_died_while_it_was_made_is_made_again(tmp_path, monkeypatch):
    def die(file, data):
        if file.name == "config.toml":
            raise RuntimeError("killed")
        write(file, data)

    write = _run.write_whole
    monkeypatch.setattr(_run, "write_whole", die)
    with pytest.raises(RuntimeError, match="killed"):
        sdifp.Run.create(tmp_path / "a", small(seed=1))
    assert (tmp_path / "a" / "checkpoints").is_dir()
    monkeypatch.setattr(_run, "write_whole", write)
    sdifp.Run.create(tmp_path / "a", small(seed=2))
    assert sdifp.Run.open(tmp_path / "a").config.seed == 2


def rewrite(run, **changes):
    """The last checkpoint with something else beside its arrays."""
    file = checkpoint_files(run.folder / "checkpoints")[-1]
    found, info = read_checkpoint(file)
    file.unlink()
    return write_checkpoint(file.parent, step_of(file), found, info | changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"flavour": 1}, "unknown field 'flavour'; "),
        ({"steps": "many"}, "steps must be a whole number, got 'many'"),
    ],
)
def test_a_checkpoint_of_another_version_says_so(tmp_path, as_user, change, words):
    run = sdifp.Run.create(tmp_path / "a", small())
    versions = {"sdifp": "99.0", "jax": "1", "numpy": "2"}
    config = dataclasses.asdict(run.config) | change
    file = rewrite(run, config=config, versions=versions)
    with pytest.raises(ValueError, match=r"written by sdifp 99\.0: ") as caught:
        sdifp.Run.open(run.folder)
    assert f"{file} cannot be read by sdifp {sdifp.__version__}: {words}" in str(
        caught.value
    )


def test_a_run_of_version_0_1_is_refused_in_one_sentence(tmp_path, as_user):
    run = sdifp.Run.create(tmp_path / "a", small())
    file = run.folder / "config.toml"
    file.write_text(file.read_text().replace("format = 2\n", ""))
    for refuse in (sdifp.Run.open, Saved.read):
        with pytest.raises(ValueError, match=r"written by sdifp 0\.1") as caught:
            refuse(run.folder)
        assert str(file) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_certificate_is_computed_once(finished, monkeypatch):
    calls = []
    certificate = sdifp.field.ConservedField.certificate

    def counted(self, times, **options):
        calls.append(len(times))
        return certificate(self, times, **options)

    monkeypatch.setattr(sdifp.field.ConservedField, "certificate", counted)
    sdifp.Run.open(finished.folder).evaluate()
    assert calls == [5]


def test_a_changed_problem_is_not_executed_unless_it_is_accepted(tmp_path, own_file):
    config = small(problem=str(own_file), method="Plain")
    run = sdifp.Run.create(tmp_path / "a", config)
    copy = run.folder / PROBLEM_COPY
    assert sdifp.Run.open(run.folder).problem.duration == 0.5
    mark = tmp_path / "executed"
    copy.write_text(f"open({str(mark)!r}, 'w').close()\n{DIVERGES}")
    words = r"problem\.copy\.py was changed since .* give --accept-changed-problem, or"
    with pytest.raises(ValueError, match=words):
        sdifp.Run.open(run.folder)
    # Nor another file than that of the checkpoint.
    text = (run.folder / "config.toml").read_text()
    other = tmp_path / "other.py"
    (run.folder / "config.toml").write_text(text.replace(str(own_file), str(other)))
    with pytest.raises(ValueError, match=r"has been changed .* problem was '"):
        sdifp.Run.open(run.folder, accept_changed_problem=True)
    (run.folder / "config.toml").write_text(text)
    assert not mark.exists()
    said = []
    run = sdifp.Run.open(run.folder, said.append, accept_changed_problem=True)
    assert mark.exists()
    assert said == [f"{copy} was changed since the last checkpoint, which is accepted"]
    # From the next checkpoint on it is the problem of the run.
    assert not run.train(stop=after(1))
    sdifp.Run.open(run.folder, said.append)
    assert len(said) == 1
    # Without the copy it is the user's own file that is compared.
    copy.unlink()
    with pytest.raises(ValueError, match=r"mine\.py was changed since"):
        sdifp.Run.open(run.folder)
    rewrite(run, problem_digest=None)
    with pytest.raises(ValueError, match=r"npz was written without its digest; to exe"):
        sdifp.Run.open(run.folder)


def test_a_run_is_measured_as_far_as_it_is_trained(tmp_path):
    run = sdifp.Run.create(tmp_path / "a", small(windows=2, steps=4))
    assert not run.train(stop=after(1))
    result = run.evaluate()
    assert result["until"] == 0.5
    saved = Saved.read(run.folder)
    assert saved.certificate["rows"][-1]["time"] == 0.5
    assert saved.solution["times"][-1] == 0.5
    assert result["integrals"]["times"][-1] == 0.5
    assert run.outside(np.array([[0.1, 0.4], [0.1, 0.6]])) == 1


def test_the_problem_is_that_of_the_beginning(tmp_path, own_file, monkeypatch):
    np.save(tmp_path / "data.npy", np.array([2.5]))
    own_file.write_text(
        DIVERGES.replace("from helper import LIMIT", "from pathlib import Path")
        + "import numpy, helper\nproblem_name = helper.LIMIT\n"
        + "LIMIT = float(numpy.load(Path(__file__).parent / 'data.npy')[0])\n"
    )
    monkeypatch.chdir(tmp_path)
    # By a relative name, from a folder that is left then.
    run = sdifp.Run.create("a", small(problem="mine.py", method="Plain"))
    run.save()
    folder = run.folder.resolve()
    assert Path(run.config.problem) == own_file.resolve()
    own_file.write_text("raise SystemError('changed since')\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert sdifp.Run.open(folder).problem.duration == 0.5
    copy = folder / PROBLEM_COPY
    config = sdifp.runs.load_config(folder / "config.toml")
    again = sdifp.Run.create(tmp_path / "b", config, source=copy)
    assert (again.folder / PROBLEM_COPY).read_text() == copy.read_text()
    assert again.config == run.config


def test_a_problem_file_does_not_set_the_precision(tmp_path):
    file = tmp_path / "mine.py"
    example = EXAMPLE.read_text()
    file.write_text(
        f"import jax\njax.config.update('jax_enable_x64', False)\n{example}"
    )
    load_problem(file)
    assert jax.config.read("jax_enable_x64")


def test_problem_files_may_use_all_of_python(tmp_path):
    file = tmp_path / "mine.py"
    text = EXAMPLE.read_text().replace('"""\n\nimport', '"""\nXX\nimport', 1)
    text = text.replace("XX", "from __future__ import annotations\nimport dataclasses")
    text += "\n@dataclasses.dataclass\nclass Data:\n    a: int = 1\n"
    file.write_text(text)
    built = build(small(problem=str(file), steps=None, optimiser=None, nodes=None))
    assert built.config.steps == 60
    assert describe(sdifp.training.Cosine(np.float64(0.25))) == "Cosine(warmup=0.25)"


def test_the_example_is_a_problem_file():
    problem = load_problem(EXAMPLE)
    assert problem.name == "burgers"
    assert build(small(problem=str(EXAMPLE), steps=None)).recipe.steps == 60


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sdifp\nproblem = sdifp.Boks()", "line 2: AttributeError: "),
        ("x = 1\ndef problem():\n    return y", "line 3: NameError: name 'y'"),
        ("x = (\n", "SyntaxError"),
        ("import nowhere_to_be_found", "line 1: ModuleNotFoundError"),
        ("import sys\nsys.exit(3)", "line 2: SystemExit: 3"),
        ("x = 1", "must define `problem`, .* got nothing"),
        ("problem = 3", "must define `problem`, .* got 3"),
    ],
)
def test_an_error_in_a_problem_file_shows_its_line(tmp_path, text, words):
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(ValueError, match=words) as caught:
        load_problem(file)
    assert "mine.py" in str(caught.value)
    if "line" in words:
        assert text.splitlines()[-1].strip() in str(caught.value)


def test_a_problem_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"none\.py: No such file"):
        sdifp.Run.create(tmp_path / "a", small(problem=str(tmp_path / "none.py")))
    assert not (tmp_path / "a").exists()
