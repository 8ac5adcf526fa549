"""evaluate, report, compare, info and audit."""

from pathlib import Path
from typing import Any

import click

from .._folder import (
    Saved,
    checkpoint_files,
    continuum_of,
    interval_of,
    measured_in_words,
    printable,
    read_config,
    read_metrics,
    shown,
)
from ._options import (
    FILE,
    accept_option,
    build_at_precision,
    config_from,
    json_option,
    open_run,
    print_json,
    problem_options,
    run_argument,
)
from ._output import console, say


@click.command("evaluate")
@run_argument
@accept_option
@json_option
def evaluate_command(run: Path, accept_changed_problem: bool, as_json: bool) -> None:
    """Measure the field of a run as it is at its last checkpoint, finished or not.

    Writes certificate.json, result.json and solution.npz again.
    """
    result = open_run(run, accept_changed_problem).evaluate()
    from .._report import verdict

    saved = Saved.read(run)
    if as_json:
        own = {"rows": _rows(saved), "measured": _rows(saved, "measured")}
        print_json({"run": str(run), **result, **own})
        return
    tolerance = saved.certificate["tolerance"] if saved.certificate else 0.0
    every = [*_rows(saved), *_rows(saved, "measured")]
    width = max([12, *(len(row["invariant"]) for row in every)])
    for row in _rows(saved):
        say(
            f"{_time(row)}{row['invariant']:<{width}}  "
            f"target {row['target']:<12.6g} "
            f"on the rule {shown(row['on_rule'])}  "
            f"independent {shown(row['on_other_rule'])}  "
            f"continuum {continuum_of(row, tolerance)}"
        )
    for row in _rows(saved, "measured"):
        if row["time"] is None:
            value = interval_of(row, "value", ".8g")
            say(f"{row['invariant']:<{width}}  value {value}")
            continue
        words = measured_in_words(row)
        say(
            f"{_time(row)}{row['invariant']:<{width}}  "
            f"value {words['value']}  drift {words['drift']}  "
            f"relative {words['relative_drift']}"
        )
    say(verdict(saved))


def _time(row: dict[str, Any]) -> str:
    return "" if row["time"] is None else f"t {row['time']:<8.4g} "


def _rows(saved: Saved, which: str = "rows") -> list[dict[str, Any]]:
    """Rows of the certificate, or those of what is measured only."""
    # Files of before have none of the latter.
    return saved.certificate.get(which, []) if saved.certificate else []


@click.command("report")
@run_argument
def report_command(run: Path) -> None:
    """Draw the report of a run again, from what it saved."""
    Saved.read(run)
    from .._report import write_report

    say(f"Look at {write_report(run)}")


@click.command("compare")
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=FILE, default=Path("compare.png"), help="The picture.")
@json_option
def compare_command(runs: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """One table and one picture of several runs."""
    saved = [Saved.read(run) for run in runs]
    from .._report import compare_rows, draw_comparison

    rows = compare_rows(saved)
    picture = draw_comparison(saved, out)
    if as_json:
        print_json({"rows": rows, "picture": str(picture)})
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("run")
    names, drifts, functionals, parts = (
        list(dict.fromkeys(name for row in rows for name in row[kind]))
        for kind in ("errors", "drifts", "functional", "l2_errors")
    )
    heads = [*functionals, *names, *(f"{name} drift" for name in drifts)]
    own_errors = [f"L2 of {name}" for name in parts]
    for head in ("steps", "seconds", "L2", *own_errors, *heads, "on the rule"):
        table.add_column(Text(printable(head)), justify="right")
    for row in rows:
        errors = [row["errors"].get(name) for name in names]
        errors += [row["drifts"].get(name) for name in drifts]
        values = [row["functional"].get(name) for name in functionals]
        table.add_row(
            Text(printable(row["run"]) + " (not finished)" * (not row["finished"])),
            str(row["step"]),
            f"{row['seconds']:.0f}",
            _cell(row["l2_error"]),
            *(_cell(row["l2_errors"].get(name)) for name in parts),
            *(_cell(value, ".8g") for value in values),
            *map(_cell, [*errors, row["on_rule"]]),
        )
    # Whole lines where they go to a file.
    own = console()
    (own if own.is_terminal else console(width=160)).print(table)
    with_time = any(one.result["until"] is not None for one in saved)
    text = "Relative errors" + ", the worst over time" * with_time
    text += "; invariants on an independent rule"
    if functionals:
        text += f"; {', '.join(functionals)}: the value that the training minimises"
    say(f"{text}.")
    say(f"Look at {picture}")


def _cell(value: float | None, form: str = ".1e") -> str:
    return "" if value is None else f"{value:{form}}"


@click.command("info")
@run_argument
@json_option
def info_command(run: Path, as_json: bool) -> None:
    """What a run is, how far it is, and what came out of it."""
    config, metrics = read_config(run), read_metrics(run)
    saved = Saved.read(run) if (run / "result.json").is_file() else None
    checkpoints = [f.name for f in checkpoint_files(run / "checkpoints")]
    last = metrics[-1] if metrics else None
    if as_json:
        print_json(
            {
                "run": str(run),
                "config": config,
                "metrics": last,
                "checkpoints": checkpoints,
                "result": None if saved is None else saved.result,
            }
        )
        return
    for name, value in config.items():
        say(f"{name:<18}  {value}")
    say(f"{'checkpoints':<18}  {', '.join(checkpoints) or 'none yet'}")
    if last is not None:
        say(
            f"{'last report':<18}  step {last['step']} of {last['steps']}, "
            f"loss {shown(last['loss'])}"
        )
    if saved is None:
        say(f"Not measured yet; go on with: sdifp resume {run}")
    else:
        from .._report import verdict

        say(verdict(saved))


@click.command("audit")
@problem_options
@click.option("--draws", type=click.IntRange(8), default=256, help="Of each estimator.")
@click.option(
    "--terms",
    type=click.IntRange(1),
    show_default="a quarter, 16 at most",
    help="Terms that are sampled.",
)
@click.option(
    "--points", default="RandomPoints(2, 8)", help="Where the residual is looked at."
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Random seed.")
@click.option("--out", type=FILE, help="A picture of it.")
@json_option
def audit_command(
    problem: str | None,
    dimension: int | None,
    file: Path | None,
    draws: int,
    terms: int | None,
    points: str,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure bias, noise, time and memory of the estimators of the gradient, on the
    network that a training of PROBLEM begins with.

    \b
    sdifp audit manufactured -d 20
    """
    fields: Any = {"points": points, "seed": seed, "precision": "float64"}
    built = build_at_precision(config_from(problem, dimension, file, fields))
    import jax

    from .. import _public as sdifp

    key = jax.random.key(seed)
    if built.problem.functional is not None:
        raise click.UsageError(
            f"audit is of the estimators of a residual, and {built.problem.name} has "
            f"none: it minimises a functional"
        )
    training = sdifp.train(
        built.problem, sdifp.training.SDIFP(), recipe=built.recipe, check=False, key=key
    )
    # With the weights that a training of a system has measured.
    residual = training.window.residual
    own, box = built.recipe.points, built.problem.domain
    if built.problem.is_steady:
        x, t = own.draw_steady(key, box), None
    else:
        x, t = own.draw(key, box, 0.0, built.problem.duration)
    found = sdifp.estimators.audit(
        residual, training.field, x, t, key=key, n=terms, repeats=draws
    )
    if out is not None:
        found.draw(out)
    if as_json:
        split = found.split
        named = split and dict(zip(("terms", "i", "j", "noise"), split, strict=True))
        known = {"problem": built.problem.name, "note": found.note}
        print_json(known | {"least_noise": named, "rows": found.as_rows()})
        return
    say(*str(found).splitlines())
    if out is not None:
        say(f"Look at {out}")
