"""The command line, as its users call it."""

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import jax
import numpy as np
import pytest
import quick
from quick_run import SMALL, finished, quick_programs

import sdifp
from sdifp._cli._signals import Signals, stop_signals
from sdifp._folder import printable
from sdifp._report import _page
from sdifp._report._figures import groups

__all__ = ["finished", "quick_programs"]
ROOT = Path(__file__).parents[2]
QUICK = {"XLA_FLAGS": quick.FLAGS}
# Seconds after which a process is taken to hang, however busy the machine is.
_HANGS = 600
FLAGS = [
    part
    for name, value in SMALL.items()
    if name not in ("problem", "check", "precision")
    for part in (f"--{name}", str(value))
] + ["--no-check"]


@pytest.fixture(scope="module", autouse=True)
def one_group_of_pictures():
    """Reports with some of their pictures, which take long to draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_page, "groups", lambda saved: groups(saved)[-1:])
        yield


@pytest.fixture
def begin():
    """Start a process that compiles quickly, and that ends with the test."""
    with contextlib.ExitStack() as stack:

        def inner(*arguments, **options):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, *map(str, arguments)],
                    env={**os.environ, **QUICK},
                    **options,
                )
            )
            stack.callback(process.kill)
            return process

        yield inner


@pytest.mark.validate
def test_looking_at_runs_loads_no_jax(finished):
    code = (
        "import sys; from sdifp._cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: assert 'jax' not in sys.modules"
    )
    for arguments, words in (
        (["--help"], ["train", "resume", "compare", "completion"]),
        (["info", str(finished.folder)], ["steps 12", "Exact on the rule"]),
        (["resume", "nowhere"], []),
        (["compare", "nowhere"], []),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True
        )
        assert "AssertionError" not in done.stderr
        for word in words:
            assert word in " ".join(done.stdout.split())


def test_help_and_list_say_everything(call):
    for arguments, words in (
        (["train", "--help"], ["--checkpoint-seconds", "[default: 30.0]", "SDIFP()"]),
        (["list"], ["kdv", "PostHoc", "sobol", "Independent"]),
    ):
        code, out, _ = call(*arguments)
        assert code == 0
        for word in words:
            assert word in " ".join(out.split())


def test_every_option_has_help_and_a_default(call):
    from sdifp._cli._main import _COMMANDS, program

    for name in _COMMANDS:
        found = program.get_command(click.Context(program), name)
        assert found.help
        for parameter in found.get_params(click.Context(found)):
            if parameter.param_type_name == "option":
                assert parameter.help, parameter.name
    code, out, _ = call("train", "--help")
    assert code == 0
    assert out.count("[default:") >= 20


def test_version(call):
    assert call("--version") == (0, f"sdifp {sdifp.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "unknown command 'trian'; did you mean train?"),
        (["train"], "a problem is needed, such as `sdifp train kdv`"),
        (["train", "kvd"], "problem: unknown name 'kvd'; did you mean kdv?"),
        (["train", "kdv", "--method", "postho"], "did you mean PostHoc?"),
        (["train", "kdv", "--stepz", "3"], "--steps"),
        (["train", "kdv", "--steps", "many"], "'many' is not a valid integer"),
        (["train", "kdv", "--steps", "-3"], "steps must be a positive integer, got -3"),
        (["train", "kdv", "-d", "0"], "dimension must be a positive integer, got 0"),
        (["train", "kdv", "--optimiser", "Adam(rte=1)"], "Adam takes rate, decay"),
        (["train", "wave", "-d", "100000000"], "dimension must be at most 4194304"),
        (["audit", "kdv", "-d", "9" * 400], "dimension must be at most 4194304"),
        (["train", "kdv", "--config", "none.toml"], "none.toml cannot be read"),
        (["train", "none.py"], "problem: none.py: No such file"),
        (["train", "kdv", "--out", "/dev/null/x"], "cannot be made: Not a directory"),
        (["train", "heat_dirichlet", "-d", "9"], "dimension must be at most 3, got 9"),
        (
            ["train", "kdv", "--seed", "4294967296"],
            "at most 4294967295, got 4294967296",
        ),
        (["train", "kdv", "--method", "SDIFP(rule='x')"], "rule must be a Quadrature"),
        (["train", "kdv", "--optimiser", "Adam('x')"], "rate must be positive and"),
        (["train", "kdv", "--optimiser", "Adam(1e999)"], "rate must be positive and"),
        (["list", "problms"], "unknown kind 'problms'; did you mean problems?"),
        (["resume", "nowhere"], "nowhere is not a run: it does not exist"),
        (["info", "nowhere"], "nowhere is not a run"),
        (["compare", "nowhere"], "nowhere is not a run"),
        (["compare"], "Missing argument"),
        (["completion", "tcsh"], "tcsh"),
        (["audit", "kdv", "--draws", "2"], "2"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(
    call, tmp_path, as_user, arguments, words
):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        code, out, err = call(*arguments)
        assert not list(tmp_path.iterdir())
    assert (code, out) == (2, "")
    assert words.lower() in err.lower()
    assert err.startswith("sdifp: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_an_error_in_a_problem_file_shows_the_line(call, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import sdifp\n\nproblem = sdifp.Problem(boks=1)\n")
    code, _, err = call("train", file, "--out", tmp_path / "a")
    assert code == 2
    assert "mine.py, line 3: TypeError: " in err
    assert err.strip().endswith("problem = sdifp.Problem(boks=1)")
    assert not (tmp_path / "a").exists()


@pytest.mark.validate
def test_a_precision_that_the_optimiser_does_not_suit_is_noted(
    call, tmp_path, quick_programs
):
    code, _, err = call(
        *("train", "advection", *FLAGS, "--steps", 1, "--no-report"),
        *("--optimiser", "LevenbergMarquardt", "--precision", "float32"),
        *("--out", tmp_path / "a"),
    )
    assert code == 0, err
    assert err.startswith("note: LevenbergMarquardt needs float64 to converge")


LATE = """
import sdifp
problem = sdifp.Problem(
    sdifp.Box([0.0], [1.0], periodic=True),
    sdifp.Residual(sdifp.time_derivative(), lambda u, grad, x, t: RESIDUAL),
    [sdifp.problems.Initial(lambda x: 1.0 + 0.0 * x[0])],
    (0.0, 0.5),
    mass=lambda t: MASS,
)
"""


@pytest.mark.parametrize(
    ("residual", "mass", "words"),
    [
        ("nowhere * u", "1.0", "line 5: NameError: name 'nowhere' is not defined"),
        ("u", "1.0 * nothing", "line 8: NameError: name 'nothing' is not defined"),
        ("u if u > 0 else u", "1.0", "line 5: TracerBoolConversionError"),
    ],
)
def test_an_error_that_shows_late_shows_the_line_too(
    call, tmp_path, monkeypatch, residual, mass, words
):
    text = LATE.replace("RESIDUAL", residual).replace("MASS", mass)
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    code, out, err = call("train", "mine.py", *FLAGS, "--out", tmp_path / "a")
    assert (code, out) == (2, "")
    assert f"mine.py, {words}" in err.splitlines()[-1]
    assert text.splitlines()[int(words[5]) - 1].strip() in err
    # The name is free for the file without the error.
    assert not (tmp_path / "a").exists()


WALLS = """
import sdifp
problem = sdifp.Problem(
    sdifp.Box([0.0], [1.0]),
    sdifp.Residual(sdifp.time_derivative() - sdifp.laplacian()),
    [sdifp.problems.Initial(lambda x: 1.0 + 0.0 * x[0])],
    (0.0, 0.5),
    mass=1.0,
)
"""


def test_a_problem_without_boundary_conditions_is_refused(call, tmp_path):
    (tmp_path / "mine.py").write_text(WALLS)
    folder = tmp_path / "a"
    code, out, err = call("train", tmp_path / "mine.py", "--out", folder)
    assert (code, out) == (2, "")
    # One line, with the name of the file and the axis.
    assert err.startswith("sdifp: mine has no boundary condition on axis 0 of its box")
    assert err.count("\n") == 1
    assert not folder.exists()


def test_json_has_no_nan(call, finished, tmp_path):
    folder = tmp_path / "a"
    sdifp.Run.create(folder, sdifp.Config(**SMALL)).save()
    code, out, err = call("evaluate", folder, "--json")
    assert code == 0, err
    result = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert result["metrics"]["loss"] is None
    code, out, _ = call("info", folder)
    assert "Not finished, step 0 of 12, measured until t = 1; " in out
    # What is damaged is named.
    (folder / "result.json").write_text("{}")
    code, _, err = call("info", folder)
    assert code == 2
    assert "result.json cannot be read" in err


def test_odd_names_are_names(call, finished, tmp_path):
    names = ["kdv[fast]", "b$^$", "_c"]
    folders = [tmp_path / name for name in names]
    for folder in folders:
        shutil.copytree(finished.folder, folder)
    code, out, err = call("compare", *folders, "--out", tmp_path / "c.png")
    assert code == 0, err
    assert "kdv[fast]" in out
    code, _, _ = call("report", folders[1])
    text = (folders[1] / "report.html").read_text()
    assert "b$^$/config.toml&#39; --out" in text


def test_list_as_json(call):
    code, out, _ = call("list", "--json")
    assert code == 0
    assert "The network as it is" in json.loads(out)["methods"]["Plain"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_commands(call, shell):
    code, out, _ = call("completion", shell)
    assert code == 0
    assert "_SDIFP_COMPLETE" in out
    if shell == "bash":
        done = subprocess.run(
            [sys.executable, "-c", "from sdifp._cli import main; main()"],
            env={
                **os.environ,
                "_SDIFP_COMPLETE": "bash_complete",
                **{"COMP_WORDS": "sdifp tr", "COMP_CWORD": "1"},
            },
            capture_output=True,
            text=True,
        )
        assert done.stdout.split() == ["plain,train"]


def test_train_from_flags_to_page(call, tmp_path, quick_programs, finished):
    folder = tmp_path / "a"
    code, out, err = call(
        "train", "advection", *FLAGS, "--precision", "float64", "--out", folder
    )
    assert code == 0, err
    assert "Exact on the rule (worst error " in out
    assert out.splitlines()[-1] == f"Look at {folder / 'report.html'}"
    steps = [k for k in err.splitlines() if k.startswith("step ")]
    # The first one shows that it works.
    assert [k.split(":")[0] for k in steps] == [f"step {n}/12" for n in (1, 4, 8, 12)]
    said = [k.split(" ")[0] for k in err.splitlines()]
    assert said[:3] == ["advection-1d,", "compiled", "step"]
    for word in (
        "loss ",
        "L2 ",
        "mass ",
        "squared_norm ",
        "scale ",
        "steps/s",
        " s left",
    ):
        assert word in steps[-1]
    # The same as in the library.
    for name in ("certificate.json", "config.toml"):
        assert (folder / name).read_text() == (finished.folder / name).read_text()
    assert f"    sdifp resume {folder}\n" in (folder / "RESUME.txt").read_text()
    # Again: refused here, and the same from its own file elsewhere.
    code, _, err = call("train", "advection", "--out", folder)
    assert code == 2
    assert f"`sdifp resume {folder}` goes on with it" in err
    code, out, _ = call(
        *("train", "--config", folder / "config.toml", "--out", tmp_path / "b"),
        *("--json", "--no-report"),
    )
    assert code == 0
    result = json.loads(out)
    assert result["metrics"]["step"] == 12
    assert not (tmp_path / "b" / "report.html").exists()
    one, two = (tmp_path / k / "certificate.json" for k in "ab")
    assert one.read_text() == two.read_text()


def test_looking_at_runs(call, finished, tmp_path):
    code, out, _ = call("info", finished.folder)
    assert code == 0
    assert "step 12 of 12" in out
    assert "Exact on the rule" in out
    code, out, _ = call("info", finished.folder, "--json")
    assert json.loads(out)["config"]["steps"] == 12
    code, out, _ = call("report", finished.folder)
    assert out == f"Look at {finished.folder / 'report.html'}\n"
    picture = tmp_path / "c.png"
    code, out, _ = call("compare", finished.folder, finished.folder, "--out", picture)
    assert out.count(str(finished.folder)) == 2
    assert f"Look at {picture}" in out
    assert picture.exists()
    code, out, _ = call("compare", finished.folder, "--out", picture, "--json")
    rows = json.loads(out)["rows"]
    assert rows[0]["on_rule"] < 1e-14
    code, out, _ = call("evaluate", finished.folder)
    assert code == 0
    assert out.count("on the rule") == 11
    code, out, _ = call("evaluate", finished.folder, "--json")
    assert len(json.loads(out)["rows"]) == 10


def test_resume_falls_back_from_a_damaged_checkpoint(call, finished, tmp_path):
    folder = tmp_path / "a"
    shutil.copytree(finished.folder, folder)
    newest = max((folder / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    code, _, err = call("resume", folder)
    assert code == 0, err
    assert f"note: checkpoint {newest} is damaged" in err
    assert "falling back to the one before" in err
    one, two = (f / "certificate.json" for f in (folder, finished.folder))
    assert one.read_text() == two.read_text()


@pytest.mark.parametrize("name", ["resume", "evaluate", "predict"])
def test_a_run_whose_checkpoints_are_gone(call, finished, tmp_path, name):
    folder = tmp_path / "a"
    shutil.copytree(finished.folder, folder)
    shutil.rmtree(folder / "checkpoints")
    before = sorted(folder.rglob("*"))
    (tmp_path / "p.csv").write_text("0.1,0.2\n")
    points = [tmp_path / "p.csv"] if name == "predict" else []
    code, out, err = call(name, folder, *points)
    assert (code, out) == (2, "")
    assert f"{folder} cannot be resumed: its checkpoints are gone" in err
    assert err.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


OWN = """
import jax.numpy as jnp, sdifp
problem = sdifp.Problem(
    sdifp.Box([0.0], [1.0], periodic=True),
    sdifp.Residual(sdifp.time_derivative() + sdifp.operators.advection([1.0])),
    [sdifp.problems.Initial(lambda x: 1.0 + jnp.sin(2.0 * jnp.pi * x[0]))],
    (0.0, 0.5),
    mass=1.0,
)
"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("\u202eevil\u2028", r"\u202eevil\u2028"),
        (os.fsdecode(b"\xff.csv"), r"\udcff.csv"),
        ("Löwe ± 狮 😀", "Löwe ± 狮 😀"),
    ],
)
def test_control_characters_are_escaped(text, wanted):
    # In ASCII, for a test that fails is told in UTF-8.
    assert ascii(printable(text)) == ascii(wanted)


def test_what_is_read_from_files_cannot_command_the_terminal(
    call, tmp_path, quick_programs
):
    evil = "\x1b]0;owned\x07\nsdifp: fine"
    (tmp_path / "mine.py").write_text(
        OWN.replace("mass=1.0", f"mass=1.0, name={evil!r}")
    )
    folder = tmp_path / "a\x1b[31m\n"
    said = [call("train", tmp_path / "mine.py", *FLAGS, "--out", folder)]
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("mine.py", "mine\\u001b[5m.py"))
    said += [
        call("info", folder),
        call("resume", folder),
        call("evaluate", folder),
        call("compare", folder, "--out", tmp_path / "c\x1b.png"),
        call("predict", folder, tmp_path / "p\x1b.csv"),
        call("train", "\x1bkdv"),
    ]
    assert [code for code, *_ in said] == [0, 0, 2, 2, 0, 2, 2]
    for _, out, err in said:
        assert "\x1b" not in out + err
        assert "\nsdifp: fine" not in out + err
    assert r"\x1b]0;owned\x07\nsdifp: fine, SDIFP" in said[0][2]
    assert all(err.count("\n") == 1 for code, _, err in said if code == 2)


@pytest.mark.validate
@pytest.mark.parametrize("streams", [["stdout"], ["stdout", "stderr"]])
def test_a_reader_that_leaves_does_not_fail_a_run(tmp_path, streams, begin):
    ours, theirs = os.pipe()
    os.close(ours)
    process = begin(
        *("-m", "sdifp", "train", "advection", *FLAGS, "--out", tmp_path / "a"),
        **{"stdout": theirs, "stderr": subprocess.PIPE}
        | dict.fromkeys(streams, theirs),
    )
    os.close(theirs)
    _, err = process.communicate(timeout=_HANGS)
    assert process.returncode == 0, err
    assert (tmp_path / "a" / "report.html").is_file()
    assert b"rror" not in (err or b"")


@pytest.mark.parametrize("name", ["resume", "evaluate", "predict"])
def test_a_changed_problem_is_executed_only_if_it_is_accepted(
    call, tmp_path, quick_programs, name
):
    (tmp_path / "mine.py").write_text(OWN)
    folder, mark = tmp_path / "a", tmp_path / "executed"
    config = sdifp.Config(**SMALL | {"problem": str(tmp_path / "mine.py")})
    sdifp.Run.create(folder, config)
    copy = folder / "problem.copy.py"
    copy.write_text(f"open({str(mark)!r}, 'w').close()\n{OWN}")
    # The precision that is not known is that of the file, which is executed for it.
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace('"float64"', '"auto"'))
    (tmp_path / "p.csv").write_text("0.1,0.2\n")
    points = [tmp_path / "p.csv"] if name == "predict" else []
    code, out, err = call(name, folder, *points)
    assert (code, out) == (2, "")
    assert f"{copy} was changed since the last checkpoint; " in err
    assert "--accept-changed-problem" in err
    assert not mark.exists()
    (folder / "config.toml").write_text(text)
    if name == "evaluate":
        code, _, err = call(name, folder, *points, "--accept-changed-problem")
        assert code == 0, err
        assert err.count(f"note: {copy} was changed since the last checkpoint, wh") == 1
        assert mark.exists()


COUNTED = f"""
import jax
with open(__file__ + ".count", "a") as stream:
    print(jax.config.read("jax_enable_x64"), file=stream)
{OWN}
"""


@pytest.mark.parametrize(
    ("first", "optimiser", "executed"),
    [
        ("", "Adam", ["False"]),
        ("", "LevenbergMarquardt", ["True"]),
        # What the recipe of the problem needs is known when it is there.
        ("", None, ["False", "True"]),
        ("import jax; jax.config.update('jax_enable_x64', True)", None, ["True"]),
    ],
)
def test_the_problem_is_made_once(tmp_path, first, optimiser, executed):
    from sdifp._cli._options import build_at_precision

    file = tmp_path / "mine.py"
    file.write_text(first + COUNTED)
    jax.config.update("jax_enable_x64", False)
    try:
        built = build_at_precision(sdifp.Config(str(file), optimiser=optimiser))
        precision = jax.numpy.result_type(float)
    finally:
        jax.config.update("jax_enable_x64", True)
    assert (tmp_path / "mine.py.count").read_text().split() == executed
    assert built.config.precision == precision
    assert (precision == "float64") is (optimiser != "Adam")


def test_predict(call, finished, tmp_path):
    table = np.array([[0.1, 0.2], [0.3, 0.2], [0.5, 0.9]])
    files = {}
    files["named"] = tmp_path / "p.csv"
    files["named"].write_text("x, time\n0.1,0.2\n0.3,0.2\n\n0.5,0.9\n")
    files["array"] = tmp_path / "q.npy"
    np.save(files["array"], table)
    code, out, err = call("predict", finished.folder, files["named"])
    assert code == 0, err
    assert out == f"Wrote 3 values to {tmp_path / 'p-values.csv'}\n"
    text = (tmp_path / "p-values.csv").read_text().splitlines()
    assert text[0] == "x,time,u"
    values = np.array([[float(c) for c in k.split(",")] for k in text[1:]])
    assert np.array_equal(values[:, :2], table)
    code, _, _ = call(
        "predict", finished.folder, files["array"], "--out", tmp_path / "v.npy"
    )
    assert np.array_equal(np.load(tmp_path / "v.npy"), values[:, 2])
    # One time for all, and one of them outside.
    np.save(files["array"], table[:, :1])
    code, _, err = call("predict", finished.folder, files["array"], "--time", "77")
    assert code == 0
    assert "note: 3 of 3 points lie outside" in err
    code, _, err = call("predict", finished.folder, files["array"], "--time", "nan")
    assert code == 2
    assert "--time must be finite, got nan" in err
    # As spreadsheets write it.
    files["named"].write_bytes(b"\xef\xbb\xbf0.1,0.2\r\n0.3,0.2\r\n")
    code, out, _ = call("predict", finished.folder, files["named"])
    assert out.startswith("Wrote 2 values")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.1,0.2\n0.3,nan\n", "got nan in point 2, column 2 (1 in all)"),
        ("0.1,0.2,0.3\n", "must have 2 columns, x1, t, got 3"),
        ("0.1\n", "must have 2 columns, x1, t, got 1"),
        ("x,t\n0.1,0.2\n0.1\n", "line 3 must have 2 columns, got 1"),
        ("x,t\n0.1,0.2\n0.1,abc\n", "line 3, column 2 must be a number such as"),
        (
            "x,t\n0.1,1_000\n",
            "line 2, column 2 must be a number such as -1.5e-3, got '1_",
        ),
        ("1_000,2_000\n0.1,0.2\n", "line 1, column 1 must be a number"),
        ("0.1,0x10\n", "line 1, column 2 must be a number such as -1.5e-3, got '0x10'"),
        ("0x10,0x20\n0.1,0.2\n", "line 1, column 1 must be a number"),
        ("0.1,１\n", "line 1, column 2 must be a number such as -1.5e-3, got '１'"),
        ("１,２\n0.1,0.2\n", "line 1, column 1 must be a number"),
        ("x,t\n0.1,\n", "line 2, column 2 must be a number such as -1.5e-3, got ''"),
        (",\n0.1,0.2\n", "line 1, column 1 must be a number such as -1.5e-3, got ''"),
        ("0.1,0.2\n-INF,0.2\n", "got -inf in point 2, column 1 (1 in all)"),
        (f"0.1,{'2' * 200_000}\n", "field larger than field limit"),
        ("x,t\n", "must hold a table of numbers"),
        ("0.1,o.2\n0.3,0.4\n", "line 1, column 2 must be a number"),
        ("x,t,more\n0.1,0.2\n", "line 2 must have 3 columns, got 2"),
        (None, "p.csv: No such file"),
    ],
)
def test_predict_refuses(call, finished, tmp_path, text, words):
    file = tmp_path / "p.csv"
    if text is not None:
        file.write_text(text)
    code, out, err = call("predict", finished.folder, file)
    assert (code, out) == (2, "")
    assert words in err
    assert not (tmp_path / "p-values.csv").exists()


def test_arrays_that_are_no_points(call, finished, tmp_path):
    file = tmp_path / "p.npy"

    def refused():
        code, out, err = call("predict", finished.folder, file)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        return err

    file.write_bytes(b"")
    assert "p.npy: No data left in file" in refused()
    with file.open("wb") as stream:
        np.savez(stream, a=np.zeros(2), b=np.zeros(2))
    assert "p.npy: it holds several arrays, and must hold one table" in refused()
    # A header that promises more than any machine has.
    with file.open("wb") as stream:
        head = {"descr": "<f8", "fortran_order": False, "shape": (2**50, 2)}
        np.lib.format.write_array_header_1_0(stream, head)
        stream.write(bytes(64))
    assert "p.npy: Unable to allocate " in refused()


def test_memory_that_is_not_there_is_told(call, finished, tmp_path, monkeypatch):
    def fail(*_):
        raise MemoryError

    (tmp_path / "p.csv").write_text("0.1,0.2\n")
    monkeypatch.setattr("sdifp.runs.predict", fail)
    code, out, err = call("predict", finished.folder, tmp_path / "p.csv")
    assert (code, out) == (1, "")
    assert err == "sdifp: there is not enough memory (MemoryError)\n"


def test_audit(call, tmp_path, monkeypatch):
    rows = [
        sdifp.estimators.AuditRow(
            "shared(2)", 0.5, 0.1, None, 2.0, None, 1.5, 3.0, 2**20
        )
    ]
    seen = {}

    def audit(residual, u, x, t, **options):
        seen.update(options, shape=x.shape)
        return sdifp.estimators.Audit(tuple(rows), 1.0, None, options["repeats"], 0.99)

    monkeypatch.setattr(sdifp.estimators, "audit", audit)
    arguments = ["audit", "manufactured", "-d", "12", "--draws", "9", "--terms", "3"]
    code, out, err = call(*arguments, "--out", tmp_path / "a.png")
    assert code == 0, err
    assert "shared(2)" in out
    assert "BIASED" in out
    assert (tmp_path / "a.png").exists()
    assert (seen["n"], seen["repeats"], seen["shape"]) == (3, 9, (2, 8, 12))
    code, out, _ = call(*arguments, "--json")
    found = json.loads(out)
    assert found["rows"][0]["biased"]
    assert found["note"] is found["least_noise"] is None


@pytest.mark.validate
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_write_a_checkpoint_and_say_how_to_go_on(tmp_path, number, begin):
    folder = tmp_path / "a"
    flags = [f if f != "12" else "1000000" for f in FLAGS]
    process = begin(
        *("-m", "sdifp", "train", "advection", *flags, "--out", folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.time() + _HANGS
    while not (folder / "metrics.jsonl").exists() or not (
        (folder / "metrics.jsonl").read_text()
    ):
        assert time.time() < deadline
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=_HANGS)
    assert process.returncode == 128 + number
    assert out == ""
    assert f"of 1000000; go on with: sdifp resume {folder}" in err
    assert list((folder / "checkpoints").iterdir())
    assert "Traceback" not in err
    # Adam does without float64.
    assert 'precision = "float32"' in (folder / "config.toml").read_text()


@pytest.mark.validate
def test_a_closed_terminal_stops_a_run_with_a_checkpoint(tmp_path, begin):
    folder = tmp_path / "a"
    flags = [f if f != "12" else "1000000" for f in FLAGS]
    ours, theirs = pty.openpty()
    # The terminal is that of the session, whose end is told to its processes.
    script = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    process = begin(
        *("-c", script, "-m", "sdifp", "train", "advection", *flags, "--out", folder),
        **{"stdin": theirs, "stdout": theirs, "stderr": theirs},
        start_new_session=True,
    )
    os.close(theirs)
    while not (folder / "metrics.jsonl").exists():
        assert os.read(ours, 2**16)
    os.close(ours)
    assert process.wait(_HANGS) == 128 + signal.SIGHUP
    assert list((folder / "checkpoints").iterdir())


def test_signals_that_ask_to_stop():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        # As nohup does.
        assert signal.SIGHUP not in stop_signals()
        with Signals().taken():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert signal.SIGHUP in stop_signals()
        with (signals := Signals()).taken():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals()
            signals.since -= 10.0
            # The shell and the kernel both send one.
            os.kill(os.getpid(), signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
        assert signals.number == signal.SIGHUP
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
