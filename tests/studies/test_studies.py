"""Experiments: they run, they go on where they were, and draw from saved data alone."""

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

from sdifp import _reproduce
from sdifp._reproduce import _data, _names, _sweep, conservation
from sdifp._reproduce._draw import body_of, differs, number
from sdifp._reproduce._experiment import CONDITION, CONFIRMED, NOT, Claim, Experiment

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


TOY = Experiment(
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
    """An experiment that takes no time in place of one."""

    def use(**changes):
        found = dataclasses.replace(TOY, **changes)
        for module in (_sweep, _reproduce, _reproduce._page):
            monkeypatch.setattr(module, "load_experiment", lambda name: found)
        monkeypatch.setattr(_reproduce._page, "EXPERIMENTS", {"collocation": ""})
        return found

    return use


def run(experiment, folder, **options):
    seen = []
    tasks = _reproduce.tasks_for(experiment, folder, "tiny")
    report = lambda task, failure: seen.append((task.case, task.seed, failure))
    _reproduce.sweep(tasks, folder, 1, report, **options)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n in _names.EXPERIMENTS if n not in ("pinet", "integrals-over-time")]
)
def test_every_experiment_runs_at_tiny_size(name, tmp_path, call):
    code, out, err = call("reproduce", name, "--tiny", "--jobs", 1, "--out", tmp_path)
    assert (code, err) == (0, ""), out
    assert "Look at" in out
    folder = tmp_path / "tiny" / name
    assert (folder / "figure.png").stat().st_size > 5000
    rows = _reproduce.read_rows(folder / "data.json")
    for row in rows:
        assert row["command"] == f"sdifp reproduce {name} --tiny"
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
        code, out, _ = call(
            "reproduce", "integrals-over-time", "--tiny", "--out", tmp_path
        )
        assert code == 0
        assert "Everything is measured" in out
        assert (tmp_path / "tiny" / "integrals-over-time" / "figure.png").exists()


@pytest.mark.parametrize("name", _names.EXPERIMENTS)
def test_drawing_works_from_saved_data_alone(name, tmp_path, monkeypatch):
    experiment = _reproduce.load_experiment(name)
    source = _sweep.file_of(SAVED, "quick", experiment)
    data = _sweep.file_of(tmp_path, "quick", experiment)
    data.parent.mkdir(parents=True)
    shutil.copy(source, data)
    target = tmp_path / "quick" / name

    def refuse(*arguments):
        raise AssertionError("nothing may be measured")

    experiment = dataclasses.replace(experiment, measure=refuse)
    _reproduce.draw(experiment, tmp_path, "quick")
    table = (target / "table.md").read_text()
    assert "Quick setting" in table
    assert table == (SAVED / "quick" / name / "table.md").read_text()
    assert (target / "figure.png").stat().st_size > 5000
    rows = _reproduce.read_rows(source)
    assert len({str(row["case"]) for row in rows}) == len(experiment.cases("quick"))
    claims = experiment.claims(rows)
    assert claims
    for claim in claims:
        assert claim.verdict in VERDICTS
        assert "nan" not in claim.because
        assert "None" not in claim.because


def test_the_page_in_the_docs_is_the_one_that_the_data_give(tmp_path):
    page = SAVED.parent / "reproduction.md"
    found = _reproduce.write_page(SAVED, SAVED.parent / ".reproduction-test.md")
    text = found.read_text()
    found.unlink()
    assert text == page.read_text()
    for name in _names.EXPERIMENTS:
        assert f"## {name}\n" in text
    for target in re.findall(r"\]\((reproduction/[^)#]+)\)", text):
        assert (SAVED.parent / target).exists()


def test_saved_rows_are_exact_on_the_rule():
    rows = _reproduce.read_rows(SAVED / "quick" / "quadrature-exactness" / "data.json")
    cells = [r for r in rows if r["quantity"].startswith("rule_")]
    assert len(cells) >= 2 * 4 * 3 * 4 * 2
    assert max(v for row in cells for v in row["values"]) < 1e-15


def test_a_changed_number_changes_table_page_and_verdict(toy, tmp_path):
    experiment = toy()
    run(experiment, tmp_path)
    _reproduce.draw(experiment, tmp_path, "tiny")
    page = _reproduce.write_page(tmp_path, tmp_path / "page.md")
    file = tmp_path / "tiny" / "collocation" / "data.json"
    table, before = (file.with_name("table.md").read_text(), page.read_text())
    data = json.loads(file.read_text())
    changed = next(r for r in data["rows"] if r["case"] == {"n": 3})
    assert changed["quantity"] == "square"
    changed["measured"] = 77.0
    file.write_text(json.dumps(data))
    _reproduce.draw(experiment, tmp_path, "tiny")
    _reproduce.write_page(tmp_path, page)
    assert "77" in file.with_name("table.md").read_text()
    assert "77" not in table
    assert "77.0" in page.read_text()
    assert "77" not in before


def test_table_shows_both_and_flags_orders_of_magnitude(toy, tmp_path):
    experiment = toy()
    run(experiment, tmp_path)
    rows = _reproduce.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    lines = body_of(experiment, rows)
    assert lines[0] == "| n | square | paper |"
    assert lines[2] == "| 1 | 1.5 (1 to 2) | 1 |"
    assert lines[4] == "| 3 | 9.5 (9 to 10) **≠** | 100 |"
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
    experiment = toy()
    calls = iter(range(100))
    seen = run(experiment, tmp_path, stop=lambda: next(calls) > 2)
    assert 0 < len(seen) < 6
    assert not _reproduce.is_complete(experiment, tmp_path, "tiny")
    rest = run(experiment, tmp_path)
    assert len(seen) + len(rest) == 6
    assert run(experiment, tmp_path) == []
    rows = _reproduce.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
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
    experiment = toy(
        cases=lambda setting: [c | {"bad": c.get("bad") and "yes"} for c in cases],
        measure=lambda case, seed, setting: measure_toy(
            case | {"bad": case["bad"] and OSError}, seed, setting
        ),
    )
    seen = run(experiment, tmp_path)
    failures = [f.text for _, _, f in seen if f]
    assert failures == ["OSError: it does not work"] * 2
    rows = _reproduce.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert len(rows.where("square")) == 2
    # It may work the next time.
    assert len(_reproduce.tasks_for(experiment, tmp_path, "tiny")) == 2
    assert not _reproduce.is_complete(experiment, tmp_path, "tiny")


def test_what_diverges_is_a_result_without_a_number(toy, tmp_path):
    experiment = toy(
        measure=lambda case, seed, setting: measure_toy(
            case | {"bad": ArithmeticError if case["n"] == 2 else None}, seed, setting
        )
    )
    run(experiment, tmp_path)
    assert _reproduce.is_complete(experiment, tmp_path, "tiny")
    rows = _reproduce.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert body_of(experiment, rows)[3] == "| 2 | failed | 2 |"
    page = _reproduce.write_page(tmp_path, tmp_path / "page.md").read_text()
    # A verdict is not plain then.
    assert f"**{CONDITION}**" in page
    assert "measurements failed" in page


def test_rows_are_in_the_order_of_the_cases(toy, tmp_path):
    experiment = toy()
    tasks = _reproduce.tasks_for(experiment, tmp_path, "tiny")
    _reproduce.sweep(tasks[::-1], tmp_path, 1, lambda task, failure: None)
    rows = _reproduce.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert rows.known("n") == [1, 2, 3]


def test_rows_are_saved_when_the_process_is_interrupted(toy, tmp_path):
    experiment = toy()
    tasks = _reproduce.tasks_for(experiment, tmp_path, "tiny")

    def interrupt(task, failure):
        if task.case["n"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _reproduce.sweep(tasks, tmp_path, 1, interrupt)
    rows = _reproduce.read_rows(tmp_path / "tiny" / "collocation" / "data.json")
    assert rows.known("n") == [1, 2]


@pytest.mark.slow
def test_processes_find_the_same_numbers(tmp_path, call):
    for jobs in (1, 2):
        code, _, err = call(
            "reproduce",
            "weighted-metric",
            "grid-equivalence",
            "--tiny",
            "--jobs",
            jobs,
            "--out",
            tmp_path / str(jobs),
        )
        assert (code, err) == (0, "")
    for name in ("weighted-metric", "grid-equivalence"):
        one, two = (
            _data.Data(tmp_path / jobs / "tiny" / name / "data.json").measured()
            for jobs in "12"
        )
        assert one == two


def test_two_experiments_with_one_source_measure_once(call, tmp_path, monkeypatch):
    calls = []

    def measure(case, seed, setting):
        calls.append(case)
        return {"c1_rule": 1.0}

    first = dataclasses.replace(conservation.EXPERIMENT, measure=measure)
    load = _names.load_experiment
    for module in (_sweep, _reproduce):
        monkeypatch.setattr(
            module,
            "load_experiment",
            lambda name: first if name == "conservation" else load(name),
        )
    monkeypatch.setattr(_reproduce, "draw", lambda *arguments: tmp_path)
    monkeypatch.setattr(_reproduce, "write_page", lambda *arguments: tmp_path)
    names = ("integrals-over-time", "conservation")
    code, _, err = call("reproduce", *names, "--tiny", "--jobs", 1, "--out", tmp_path)
    assert (code, err) == (0, "")
    assert len(calls) == len(first.cases("tiny"))
    assert _reproduce.is_complete(load(names[0]), tmp_path, "tiny")


def test_no_number_is_not_a_nan(toy, tmp_path):
    experiment = toy(measure=lambda case, seed, setting: {"square": float("nan")})
    run(experiment, tmp_path)
    file = tmp_path / "tiny" / "collocation" / "data.json"
    assert "NaN" not in file.read_text()
    lines = body_of(experiment, _reproduce.read_rows(file))
    assert lines[2] == "| 1 | failed | 1 |"


def test_unknown_names_have_a_nearest_one(call):
    code, _, err = call("reproduce", "all", "collocatoin")
    assert code == 2
    assert "unknown experiment 'collocatoin'" in err
    assert "collocation" in err


def test_damaged_data_are_named(call, tmp_path):
    folder = tmp_path / "tiny" / "variance-floor"
    folder.mkdir(parents=True)
    (folder / "data.json").write_text('{"rows": [{"case": {}}]}')
    code, _, err = call("reproduce", "variance-floor", "--tiny", "--out", tmp_path)
    assert code == 2
    assert err.count("\n") == 1
    assert "data.json cannot be read" in err
    assert "remove it to measure again" in err


def test_a_missing_package_is_named(call, tmp_path, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, err = call("reproduce", "pinet", "--tiny", "--out", tmp_path)
    assert code == 2
    assert "pinet needs the package of pinet: pip install --no-deps pinet-hcnn" in err


def test_drawing_measures_nothing(call):
    code, _, err = call("reproduce", "cost", "--draw", "--again")
    assert code == 2
    assert "--draw measures nothing" in err


def test_nothing_to_draw_is_said(call, tmp_path):
    code, out, _ = call("reproduce", "cost", "--quick", "--draw", "--out", tmp_path)
    assert code == 0
    assert "cost: not all of it is measured yet" in out


def test_experiments_are_listed(call):
    code, out, _ = call("list", "experiments")
    assert code == 0
    assert all(name in out for name in _names.EXPERIMENTS)


def test_weighted_ratios_against_their_closed_form():
    from sdifp._reproduce import weighted_metric

    found = weighted_metric.EXPERIMENT.measure({"CV": 0.0}, 0, "tiny")
    assert found["objective"] == pytest.approx(1.0)
    assert found["nonconstant"] == pytest.approx(1.0)
    # With many nodes the ratio of the squared norms is that of lognormal moments.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighted_metric, "_NODES", 200_000)
        found = weighted_metric.EXPERIMENT.measure({"CV": 0.5}, 0, "tiny")
    assert found["objective"] == pytest.approx(1.0 + 0.5**2, rel=0.02)


def test_continuum_errors_against_a_large_rule():
    """The closed form of the experiment, by brute force in two dimensions."""
    from sdifp._projection import project
    from sdifp._reproduce import quadrature_exactness as experiment
    from sdifp._reproduce._fields import nodes_of, problem_of, targets, values

    case = {"equation": "advection", "D": 2, "M": 64, "rule": "Monte Carlo"}
    found = experiment.EXPERIMENT.measure(case, 0, "tiny")
    problem = problem_of("advection", 2)
    rule = experiment._rule("advection", 2, 64, "Monte Carlo")
    rule = rule.redraw(jax.random.fold_in(jax.random.key(1), 0))
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


def dies(name, case, seed, setting):
    if case["CV"] == 0.5:
        os._exit(9)
    return {"objective": 1.0}


@pytest.mark.slow
def test_a_process_that_dies_takes_little_with_it(tmp_path, monkeypatch):
    experiment = _reproduce.load_experiment("weighted-metric")
    tasks = _reproduce.tasks_for(experiment, tmp_path, "tiny")
    monkeypatch.setattr(_sweep, "measure", dies)
    seen = []
    report = lambda task, failure: seen.append((task, failure))
    failed = _reproduce.sweep(tasks, tmp_path, 2, report)
    assert len(seen) == len(tasks)
    assert 1 <= len(failed) <= 4
    assert all("a process died" in f.text for _, f in seen if f)
    left = _reproduce.tasks_for(experiment, tmp_path, "tiny")
    assert {t.case["CV"] for t in left} == {t.case["CV"] for t in failed}
