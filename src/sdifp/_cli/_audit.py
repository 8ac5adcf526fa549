"""audit: which estimator of the gradient can be trusted, on a problem."""

from pathlib import Path
from typing import Any

import click

from ._options import (
    FILE,
    build_at_precision,
    config_from,
    json_option,
    print_json,
    problem_options,
)
from ._output import say


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
    training = sdifp.train(
        built.problem, sdifp.training.SDIFP(), recipe=built.recipe, check=False, key=key
    )
    x, t = built.recipe.points.draw(
        key, built.problem.domain, 0.0, built.problem.duration
    )
    found = sdifp.estimators.audit(
        built.problem.equation, training.field, x, t, key=key, n=terms, repeats=draws
    )
    if out is not None:
        found.draw(out)
    if as_json:
        rows = found.as_rows()
        print_json({"problem": built.problem.name, "note": found.note, "rows": rows})
        return
    say(*str(found).splitlines())
    if out is not None:
        say(f"Look at {out}")
