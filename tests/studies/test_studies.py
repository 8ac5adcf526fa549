"""Studies: they measure, continue where they stopped, and draw from saved data only."""

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure
from quick import only

from sdifp import Box
from sdifp.training import MLP
from studies import __main__ as program
from studies import _data, _names, _page, _sweep, conservation
from studies._draw import body_of, differs, draw, number
from studies._study import CONDITION, CONFIRMED, NOT, Claim, Study

NAMES = list(_names.study_names())
SAVED = Path(__file__).parents[2] / "docs" / "reproduction"
VERDICTS = {CONFIRMED, CONDITION, NOT}


def measure_toy(case, seed, setting):
    if case.get("bad"):
        raise case["bad"]("it does not work")
    return {"square": float(case["n"] ** 2 + seed), "curve": [0.0, float(case["n"])]}


def draw_toy(rows):
    figure = Figure()
    figure.subplots().plot(*rows.line("n", "square"))
    return figure


TOY = Study(
    name="collocation",
    title="Squares",
    labels=("tab:squares",),
    text="Numbers are squared.",
    cases=lambda setting: [{"n": n} for n in (1, 2, 3)],
    measure=measure_toy,
    columns={"square": "square"},
    draw=draw_toy,
    alt="A parabola",
    claims=lambda rows: [Claim("It grows.", CONFIRMED, f"{rows.one('square', n=3)}")],
    paper=lambda case: {"square": 100.0 if case["n"] == 3 else float(case["n"])},
    reasons={"square": "The paper rounds."},
    seeds={"tiny": 2, "quick": 3, "full": 3},
)


@pytest.fixture
def toy(monkeypatch):
    """A study that takes no time in place of one."""

    def use(**changes):
        found = dataclasses.replace(TOY, **changes)
        for module in (_sweep, _page):
            monkeypatch.setattr(module, "load_study", lambda name: found)
        monkeypatch.setattr(_page, "PAPER", ["collocation"])
        return found

    return use


@pytest.fixture
def call():
    """Call the program; returns exit code, output and error output."""

    def inner(*arguments):
        found = CliRunner().invoke(program.main, [str(a) for a in arguments])
        if found.exception and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found.exit_code, found.stdout, found.stderr

    return inner


def run(study, folder, **options):
    seen = []
    tasks = _sweep.tasks_for(study, folder, "tiny")
    report = lambda task, failure: seen.append((task.case, task.seed, failure))
    _sweep.sweep(tasks, 1, report, **options)
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_a_study_is_found_by_the_name_of_its_file(name):
    study = _names.load_study(name)
    assert study.name == name
    for setting in ("tiny", "quick", "full"):
        assert study.cases(setting)
    assert study.source in (None, *NAMES)
    assert bool(study.labels) == (name in _page.PAPER)


# The others draw what one of these measures, need a package that is not installed here
# or start programs.
MEASURED = [n for n in NAMES if n not in ("integrals-over-time", "pinet", "kill")]


# Their trainings take long to compile; one of each kind is enough here.
TRAINED = (
    *("dimension", "dropped-derivative", "estimator-bias", "one-dimension"),
    *("quadrature-noise", "where-it-pays"),
)


@pytest.mark.parametrize(
    "name",
    only(
        [n for n in MEASURED if n not in TRAINED],
        *("weighted-metric", "grid-equivalence", "memory"),
    ),
)
def test_a_study_measures_a_case(name, tmp_path):
    study = _names.load_study(name)
    found = _sweep.measure(name, study.cases("tiny")[-1], 0, "tiny", tmp_path)
    assert isinstance(found, dict), found
    assert set(found) & set(study.columns)
    for quantity, value in found.items():
        assert np.all(np.isfinite(value)), quantity


@pytest.mark.validate
@pytest.mark.parametrize("name", MEASURED)
def test_every_study_runs_at_tiny_size(name, tmp_path, call):
    code, out, err = call(name, "--tiny", "--jobs", 1, "--out", tmp_path)
    assert (code, err) == (0, ""), out
    folder = tmp_path / "tiny" / name
    assert (folder / "table.md").exists()
    if name in _page.PAPER:
        assert "Look at" in out
        assert (folder / "figure.png").stat().st_size > 5000
    rows = _data.read_rows(folder / "data.json")
    for row in rows:
        assert row["command"] == f"python -m studies {name} --tiny"
        assert "jax" in row["versions"]
        assert "cores" in row["machine"]
        assert len(row["seeds"]) == len(row["values"])
    exact = [
        v
        for row in rows
        if row["quantity"] in ("rule_first", "rule_second")
        for v in row["values"]
    ]
    assert all(v < 1e-15 for v in exact)
    if name == "conservation":
        # The other one draws what this one measured.
        code, out, _ = call("integrals-over-time", "--tiny", "--out", tmp_path)
        assert code == 0
        assert "Everything is measured" in out
        assert (tmp_path / "tiny" / "integrals-over-time" / "figure.png").exists()


@pytest.mark.parametrize(
    "name", only(NAMES, "weighted-metric", "cost", "one-dimension", "memory")
)
def test_drawing_works_from_saved_data_alone(name, tmp_path):
    study = _names.load_study(name)
    quick = _sweep.file_of(SAVED, "quick", study).exists()
    setting = "quick" if quick else "full"
    source = _sweep.file_of(SAVED, setting, study)
    data = _sweep.file_of(tmp_path, setting, study)
    data.parent.mkdir(parents=True)
    shutil.copy(source, data)

    def refuse(*arguments):
        raise AssertionError("nothing may be measured")

    target = draw(dataclasses.replace(study, measure=refuse), tmp_path, setting)
    table = (target / "table.md").read_text()
    assert ("Quick setting" in table) == (setting == "quick")
    assert table == (SAVED / setting / name / "table.md").read_text()
    rows = _data.read_rows(source)
    assert len({str(row["case"]) for row in rows}) == len(study.cases(setting))
    assert _sweep.is_complete(study, tmp_path, setting)
    if study.draw:
        assert (target / "figure.png").stat().st_size > 5000
    claims = study.claims(rows)
    assert claims or name not in _page.PAPER
    for claim in claims:
        assert claim.verdict in VERDICTS
        assert "nan" not in claim.because
        assert "None" not in claim.because


def test_the_page_in_the_docs_is_the_one_that_the_data_give():
    page = SAVED.parent / "reproduction.md"
    text = _page.page_text(SAVED, page)
    assert text == page.read_text()
    for name in _page.PAPER:
        assert f"## {name}\n" in text
    for target in re.findall(r"\]\((reproduction/[^)#]+)\)", text):
        assert (SAVED.parent / target).exists()


def test_saved_rows_are_exact_on_the_rule():
    rows = _data.read_rows(SAVED / "quick" / "quadrature-exactness" / "data.json")
    cells = [r for r in rows if r["quantity"].startswith("rule_")]
    assert len(cells) >= 2 * 4 * 3 * 4 * 2
    assert max(v for row in cells for v in row["values"]) < 1e-15


def test_a_changed_number_changes_table_page_and_verdict(toy, tmp_path):
    study = toy()
    run(study, tmp_path)
    draw(study, tmp_path, "tiny")
    page = lambda: _page.page_text(tmp_path, tmp_path / "page.md")
    file = tmp_path / "tiny" / "collocation" / "data.json"
    table, before = (file.with_name("table.md").read_text(), page())
    data = json.loads(file.read_text())
    changed = next(r for r in data["rows"] if r["case"] == {"n": 3})
    assert changed["quantity"] == "square"
    changed["measured"] = 77.0
    file.write_text(json.dumps(data))
    draw(study, tmp_path, "tiny")
    assert "77" in file.with_name("table.md").read_text()
    assert "77" not in table
    assert "77.0" in page()
    assert "77" not in before


def test_table_shows_both_and_flags_orders_of_magnitude(toy, tmp_path):
    study = toy()
    run(study, tmp_path)
    rows = _data.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    lines = body_of(study, rows)
    assert lines[0] == "| n | square | paper | ratio |"
    assert lines[2] == "| 1 | 1.5 (1 to 2) | 1 | 1.5 |"
    assert lines[4] == "| 3 | 9.5 (9 to 10) **≠** | 100 | 0.095 |"
    assert lines[-1].endswith("1 differ in order of magnitude. The paper rounds.")


@pytest.mark.parametrize(
    ("measured", "paper", "flag"),
    [
        (1.0, 9.0, False),
        (1.0, 10.0, True),
        (1e-3, 1e-2, True),
        (1e-16, 3e-17, False),
        (0.0, 2e-17, False),
        (0.0, 1.0, True),
        (None, 1.0, False),
        (1.0, None, False),
    ],
)
def test_what_counts_as_different(measured, paper, flag):
    assert differs({"measured": measured, "paper": paper}) == flag


def test_numbers_are_short():
    given = (0.0, 1.0, 0.0123, 123.456, 1e-16, 65536.0, None)
    assert [number(x) for x in given] == [
        "0",
        "1",
        "0.0123",
        "123",
        "1.0e-16",
        "6.6e+04",
        "",
    ]


def test_a_sweep_goes_on_where_it_was(toy, tmp_path):
    study = toy()
    calls = iter(range(100))
    seen = run(study, tmp_path, stop=lambda: next(calls) > 2)
    assert 0 < len(seen) < 6
    assert not _sweep.is_complete(study, tmp_path, "tiny")
    rest = run(study, tmp_path)
    assert len(seen) + len(rest) == 6
    assert run(study, tmp_path) == []
    rows = _data.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert rows.one("square", n=2) == 4.5
    assert rows.where("square", n=2)[0]["values"] == [4.0, 5.0]
    assert rows.one("curve", n=2) == [0.0, 2.0]


@pytest.mark.parametrize(("mappings", "cleared"), [(100, 0), (10**6, 6)])
def test_a_sweep_lets_go_of_programs_in_time(
    mappings, cleared, toy, tmp_path, monkeypatch
):
    calls = []
    monkeypatch.setattr(_sweep, "_mappings", lambda: mappings)
    monkeypatch.setattr("jax.clear_caches", lambda: calls.append(1))
    assert len(run(toy(), tmp_path)) == 6
    assert len(calls) == cleared


def test_more_seeds_and_more_cases_keep_what_is_there(toy, tmp_path):
    run(toy(), tmp_path)
    more = toy(
        cases=lambda setting: [{"n": n} for n in (1, 2, 3, 4)],
        seeds={"tiny": 3, "quick": 3, "full": 3},
    )
    seen = run(more, tmp_path)
    assert len(seen) == 4 * 3 - 3 * 2


def test_a_failure_stops_nothing_else(toy, tmp_path):
    cases = [{"n": 1}, {"n": 2, "bad": OSError}, {"n": 3}]
    # What is in a file must be JSON.
    study = toy(
        cases=lambda setting: [c | {"bad": c.get("bad") and "yes"} for c in cases],
        measure=lambda case, seed, setting: measure_toy(
            case | {"bad": case["bad"] and OSError}, seed, setting
        ),
    )
    seen = run(study, tmp_path)
    failures = [f.text for _, _, f in seen if f]
    assert failures == ["OSError: it does not work"] * 2
    rows = _data.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert len(rows.where("square")) == 2
    # It may work the next time.
    assert len(_sweep.tasks_for(study, tmp_path, "tiny")) == 2
    assert not _sweep.is_complete(study, tmp_path, "tiny")


def test_what_diverges_is_a_result_without_a_number(toy, tmp_path):
    study = toy(
        measure=lambda case, seed, setting: measure_toy(
            case | {"bad": ArithmeticError if case["n"] == 2 else None}, seed, setting
        )
    )
    run(study, tmp_path)
    assert _sweep.is_complete(study, tmp_path, "tiny")
    rows = _data.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert body_of(study, rows)[3] == "| 2 | failed | 2 |  |"
    page = _page.page_text(tmp_path, tmp_path / "page.md")
    # A verdict is not plain then.
    assert f"**{CONDITION}**" in page
    assert "measurements failed" in page


def test_rows_are_in_the_order_of_the_cases(toy, tmp_path):
    study = toy()
    tasks = _sweep.tasks_for(study, tmp_path, "tiny")
    _sweep.sweep(tasks[::-1], 1, lambda task, failure: None)
    rows = _data.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert rows.known("n") == [1, 2, 3]


def test_rows_are_saved_when_the_process_is_interrupted(toy, tmp_path):
    study = toy()
    tasks = _sweep.tasks_for(study, tmp_path, "tiny")

    def interrupt(task, failure):
        if task.case["n"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _sweep.sweep(tasks, 1, interrupt)
    rows = _data.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert rows.known("n") == [1, 2]


def test_a_measurement_goes_on_from_its_checkpoint(toy, tmp_path):
    files = []

    def measure(case, seed, setting, checkpoint):
        files.append(checkpoint)
        if not checkpoint.exists():
            _data.write_arrays(checkpoint, {"n": np.asarray(case["n"])})
            raise OSError("the machine was switched off")
        with np.load(checkpoint) as saved:
            return {"square": float(saved["n"] ** 2)}

    study = toy(measure=measure, checkpoints=True)
    assert all(failure for _, _, failure in run(study, tmp_path))
    assert len(set(files)) == 6
    assert all(file.exists() for file in files)
    assert not any(failure for _, _, failure in run(study, tmp_path))
    # Once a number is saved, it goes.
    assert not any(file.exists() for file in files)
    rows = _data.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert rows.one("square", n=3) == 9.0


def test_a_training_in_single_precision_is_measured_in_double(tmp_path, monkeypatch):
    """Interrupted or not it ends the same, and its integrals hold in double
    precision on the very nodes of the training."""
    from studies import _trained

    monkeypatch.setattr(conservation, "_NETWORKS", {"full": MLP(8, 2)})
    monkeypatch.setattr(conservation, "_STEPS", {"full": 7})
    monkeypatch.setattr(conservation, "_MONTE_CARLO", {"full": 40})
    case = {"d": 2, "equation": "advection", "points": "fixed grid"}
    begin = lambda: conservation._begin(case | {"method": method}, 3, "full")
    method = "SDIFP, Monte Carlo"
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    with jax.enable_x64(True):
        run = _trained.in_single_precision(begin, one)
        with jax.enable_x64(False):
            half = begin()
            half.advance(3)
            _data.write_arrays(two, half.snapshot())
        again = _trained.in_single_precision(begin, two)
        found = _trained.outcome(run, 64, 3)
        nodes = np.asarray(run.final_rule.nodes)
    assert run.step == 7
    for name, array in run.snapshot().items():
        if name != "known":
            np.testing.assert_array_equal(array, again.snapshot()[name], name)
    weights = [a for n, a in run.snapshot().items() if "net" in n and a.ndim == 2]
    assert all(w.dtype == np.float64 for w in weights)
    assert all(np.array_equal(w, w.astype(np.float32)) for w in weights)
    assert max(found["c1_rule"], found["c2_rule"]) <= 1e-14
    np.testing.assert_array_equal(nodes, nodes.astype(np.float32))


def test_the_fixed_grid_of_the_full_setting_has_fixed_times():
    points = conservation._FixedGrid(2, 50)
    box = Box([0.0], [2.0])
    drawn = [points.draw(jax.random.key(k), box, 1.0, 3.0) for k in range(40)]
    times = np.asarray([t for _, t in drawn])
    assert times.shape == (40, 2)
    assert np.all(times[:, 0] != times[:, 1])
    allowed = 1.0 + 3.0 * (np.arange(64) + 0.5) / 64
    assert np.all(np.min(abs(times[..., None] - allowed), -1) < 1e-6)
    assert len(np.unique(times)) > 20
    assert all(np.array_equal(x, drawn[0][0]) for x, _ in drawn)


def test_the_full_setting_has_three_seeds_where_the_paper_has_a_row():
    study = conservation.STUDY
    seeds = {}
    for key, seed in _sweep._keys(study, "full"):
        seeds[key] = max(seed + 1, seeds.get(key, 0))
    cases = {_data.key_of(case, 0)[0]: case for case in study.cases("full")}
    three = [case for key, case in cases.items() if seeds[key] == 3]
    assert {(c["equation"], c["d"]) for c in three} == {("advection", 1)}
    assert {c["method"] for c in three} == set(conservation._FULL)
    assert len(three) == 2 * len(conservation._FULL)


def test_rows_of_another_version_of_the_code_are_kept_and_marked(
    toy, call, tmp_path, monkeypatch
):
    study = toy()
    monkeypatch.setattr(program, "load_study", lambda name: study)
    monkeypatch.setattr(_sweep, "code_of", lambda name: "old")
    run(study, tmp_path)
    rows = _data.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert not any(row["outdated"] for row in rows)
    for module in (_sweep, program):
        monkeypatch.setattr(module, "code_of", lambda name: "new")
    study = toy(cases=lambda setting: [{"n": n} for n in (1, 2, 3, 4)])
    code, out, _ = call("collocation", "--tiny", "--jobs", 1, "--out", tmp_path)
    assert code == 0
    assert "6 saved measurements were made with another version" in out
    rows = _data.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert [r["outdated"] for r in rows.where("square")] == [True, True, True, False]
    table = (tmp_path / "tiny" / "collocation" / "table.md").read_text()
    assert table.count(" †") == 3
    assert "† Measured" in table
    call("collocation", "--tiny", "--jobs", 1, "--out", tmp_path, "--again")
    rows = _data.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert not any(row["outdated"] for row in rows)


def test_the_version_of_the_code_ignores_words(tmp_path, monkeypatch):
    here = tmp_path / "studies"
    here.mkdir()
    monkeypatch.setattr(_sweep, "__file__", str(here / "_sweep.py"))
    found = []
    for text in ('"""One."""\nx = 1', '"""Two."""\nx = 1  # so', "x = 2"):
        (here / "toy.py").write_text(text)
        _sweep.code_of.cache_clear()
        found.append(_sweep.code_of("toy"))
    _sweep.code_of.cache_clear()
    assert found[0] == found[1] != found[2]


def test_two_sweeps_do_not_share_a_folder(call, tmp_path):
    with _sweep.locked(tmp_path):
        code, _, err = call("weighted-metric", "--tiny", "--out", tmp_path)
    assert code == 1
    assert f"{tmp_path} is in use" in err


@pytest.mark.validate
def test_processes_find_the_same_numbers(tmp_path, call):
    for jobs in (1, 2):
        names = ("weighted-metric", "grid-equivalence")
        options = ("--tiny", "--jobs", jobs, "--out", tmp_path / str(jobs))
        code, _, err = call(*names, *options)
        assert (code, err) == (0, "")
    for name in names:
        one, two = (
            _data.Data(tmp_path / jobs / "tiny" / name / "data.json").measured()
            for jobs in "12"
        )
        assert one == two


def test_two_studies_with_one_source_measure_once(call, tmp_path, monkeypatch):
    calls = []

    def measure(case, seed, setting, checkpoint):
        calls.append(case)
        return {"c1_rule": 1.0}

    first = dataclasses.replace(conservation.STUDY, measure=measure)
    load = _names.load_study
    for module in (_sweep, program):
        monkeypatch.setattr(
            module,
            "load_study",
            lambda name: first if name == "conservation" else load(name),
        )
    monkeypatch.setattr(program, "draw", lambda *arguments: tmp_path)
    monkeypatch.setattr(_page, "page_text", lambda *arguments: "")
    names = ("integrals-over-time", "conservation")
    code, _, err = call(*names, "--tiny", "--jobs", 1, "--out", tmp_path)
    assert (code, err) == (0, "")
    assert len(calls) == len(first.cases("tiny"))
    assert _sweep.is_complete(load(names[0]), tmp_path, "tiny")


def test_no_number_is_not_a_nan(toy, tmp_path):
    study = toy(measure=lambda case, seed, setting: {"square": float("nan")})
    run(study, tmp_path)
    file = tmp_path / "tiny" / "collocation" / "data.json"
    assert "NaN" not in file.read_text()
    lines = body_of(study, _data.read_rows(file))
    assert lines[2] == "| 1 | failed | 1 |  |"


def test_unknown_names_have_a_nearest_one(call):
    code, _, err = call("all", "collocatoin")
    assert code == 1
    assert "'collocatoin'" in err
    assert "'collocation'" in err


def test_damaged_data_are_named(call, tmp_path):
    folder = tmp_path / "tiny" / "variance-floor"
    folder.mkdir(parents=True)
    (folder / "data.json").write_text('{"rows": [{"case": {}}]}')
    code, _, err = call("variance-floor", "--tiny", "--out", tmp_path)
    assert code == 1
    assert "data.json" in err


def test_a_missing_package_is_named(call, tmp_path, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, err = call("pinet", "--tiny", "--out", tmp_path)
    assert code == 2
    assert "pip install --no-deps pinet-hcnn" in err


@pytest.mark.parametrize("flags", [("--draw", "--again"), ("--full", "--tiny")])
def test_options_that_exclude_each_other_are_named(call, flags):
    code, _, err = call("cost", *flags)
    assert code == 2
    assert all(flag in err for flag in flags)


def test_nothing_to_draw_is_reported(call, tmp_path):
    code, out, _ = call("cost", "--draw", "--out", tmp_path)
    assert code == 0
    assert "cost: not all cases are measured yet" in out


def test_only_measures_the_cases_that_are_named(call, tmp_path):
    options = ("--tiny", "--jobs", 1, "--out", tmp_path)
    code, out, _ = call("weighted-metric", *options, "--only", "CV 0.5")
    assert code == 0
    assert "not all cases are measured yet" in out
    rows = _data.read_rows(tmp_path / "tiny" / "weighted-metric" / "data.json")
    assert rows.known("CV") == [0.5]


def test_studies_are_listed(call):
    code, out, _ = call()
    assert code == 0
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert list(lines) == NAMES
    assert set(_page.PAPER) < set(NAMES)


@pytest.mark.validate
def test_a_run_that_is_killed_ends_as_one_that_is_not(tmp_path):
    from studies import kill

    case = {"optimiser": "Adam", "windows": 1}
    found = _sweep.measure("kill", case, 0, "tiny", tmp_path)
    assert found["different"] == 0
    assert found["kills"] == 3
    assert found["compared"] > 10
    rows = _data.read_rows(SAVED / "full" / "kill" / "data.json")
    assert kill.STUDY.claims(rows)[0].verdict == CONFIRMED
    # A run that ended otherwise is seen.
    rows.where("different")[0]["values"][0] = 1
    assert kill.STUDY.claims(rows)[0].verdict == NOT


def test_weighted_ratios_against_their_closed_form():
    from studies import weighted_metric

    found = weighted_metric.STUDY.measure({"CV": 0.0}, 0, "tiny")
    assert found["objective"] == pytest.approx(1.0)
    assert found["nonconstant"] == pytest.approx(1.0)
    # With many nodes the ratio of the squared norms is that of lognormal moments.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighted_metric, "_NODES", 200_000)
        found = weighted_metric.STUDY.measure({"CV": 0.5}, 0, "tiny")
    assert found["objective"] == pytest.approx(1.0 + 0.5**2, rel=0.02)


def test_continuum_errors_against_a_large_rule():
    """The closed form of the study, by brute force in two dimensions."""
    from sdifp import project
    from studies import quadrature_exactness as study
    from studies._fields import nodes_of, problem_of, targets, values

    case = {"equation": "advection", "D": 2, "M": 64, "rule": "Monte Carlo"}
    found = study.STUDY.measure(case, 0, "tiny")
    problem = problem_of("advection", 2)
    rule = study._rule("advection", 2, 64, "Monte Carlo")
    rule = rule.resample(jax.random.fold_in(jax.random.key(1), 0))
    t = 0.5 * problem.duration
    mean, square = targets(problem, t)
    nodes, weights = nodes_of(rule)
    raw = lambda x: 0.8 * values(problem.reference, x, t) + 0.3
    map_ = project(raw(nodes), weights, mean=mean, second_moment=square)
    fine, fine_weights = nodes_of(problem.rule(128**2, jax.random.key(0)))
    u = float(map_.scale) * raw(fine) + float(map_.shift)
    first = abs(fine_weights @ u - mean) / np.sqrt(square)
    second = abs(fine_weights @ u**2 - square) / square
    assert found["continuum_first"] == pytest.approx(first, rel=1e-6)
    assert found["continuum_second"] == pytest.approx(second, rel=1e-6)


def dies(name, case, seed, setting, folder):
    if case["CV"] == 0.5:
        os._exit(9)
    return {"objective": 1.0}


@pytest.mark.validate
def test_a_process_that_dies_takes_little_with_it(tmp_path, monkeypatch):
    study = _names.load_study("weighted-metric")
    tasks = _sweep.tasks_for(study, tmp_path, "tiny")
    monkeypatch.setattr(_sweep, "measure", dies)
    seen = []
    report = lambda task, failure: seen.append((task, failure))
    failed = _sweep.sweep(tasks, 2, report)
    assert len(seen) == len(tasks)
    assert 1 <= len(failed) <= 4
    assert all("a process died" in f.text for _, f in seen if f)
    left = _sweep.tasks_for(study, tmp_path, "tiny")
    assert {t.case["CV"] for t in left} == {t.case["CV"] for t in failed}
