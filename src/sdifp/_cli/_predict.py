"""predict: points in a file to values in a file."""

import csv
import math
import re
from pathlib import Path

import click
import numpy as np

from .._folder import read_config
from ._options import FILE, accept_option, open_run, run_argument
from ._output import say


@click.command("predict")
@run_argument
@click.argument("points", type=click.Path(path_type=Path))
@click.option("--time", type=float, help="One time for all points.")
@click.option(
    "--out",
    type=FILE,
    show_default="POINTS-values.csv, or .npy",
    help="The file of the values.",
)
@accept_option
def predict_command(
    run: Path,
    points: Path,
    time: float | None,
    out: Path | None,
    accept_changed_problem: bool,
) -> None:
    """Evaluate the field of a run at POINTS.

    POINTS is a CSV file, with or without a line of names, or an NPY file: a column for
    each coordinate and, where the problem has time, one for that, which --time
    replaces. The values are written beside them: as one more column, u, or as one for
    each component of a system, with its name; or as an array of their own in an NPY
    file, of shape (points, components) for a system.
    """
    read_config(run)
    table, names = read_points(points)
    if time is not None and not math.isfinite(time):
        raise click.UsageError(f"--time must be finite, got {time}")
    out = out or points.with_name(f"{points.stem}-values{points.suffix}")
    found = open_run(run, accept_changed_problem)
    from ..runs import predict

    d, steady = found.problem.domain.dimension, found.problem.is_steady
    if steady and time is not None:
        raise click.UsageError(
            f"--time must be left out: {found.problem.name} has no time"
        )
    has_column = time is None and not steady
    wanted = d + has_column
    if table.shape[1] != wanted:
        last = ", t" if has_column else "" if steady else " (the time is given)"
        raise click.UsageError(
            f"{points} must have {wanted} column{'s' * (wanted > 1)}, "
            f"x1{', ...' * (d > 1)}{last}, got {table.shape[1]}"
        )
    head = names or [f"x{k + 1}" for k in range(d)] + ["t"] * has_column
    if time is not None:
        table = np.column_stack([table, np.full(len(table), time)])
        head = [*head, "t"]
    outside = found.outside(table)
    if outside:
        say(
            f"note: {outside} of {len(table)} points lie outside of the box"
            + ("" if steady else " or of the duration that was trained"),
            err=True,
        )
    values = predict(found.training, table)
    own = found.problem.components
    write_values(out, table, values, [*head, *own])
    what = "values" if len(own) == 1 else f"values of {', '.join(own)}"
    say(f"Wrote {len(values)} {what} to {out}")


def read_points(file: Path) -> tuple[np.ndarray, list[str] | None]:
    """A table of numbers and, if it has them, the names of its columns."""
    names = None
    try:
        if file.suffix == ".npy":
            table = np.load(file, allow_pickle=False)
        else:
            table, names = _read_csv(file)
        if not isinstance(table, np.ndarray):
            raise ValueError("it holds several arrays, and must hold one table")
    except (ValueError, EOFError, MemoryError, csv.Error) as error:
        raise click.UsageError(f"{file}: {error}") from None
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or not len(table) or table.dtype.kind not in "fiu":
        raise click.UsageError(
            f"{file} must hold a table of numbers, a line for each point, got shape "
            f"{table.shape} of {table.dtype}"
        )
    table = table.astype(float)
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = bad[0]
        raise click.UsageError(
            f"{file}: all numbers must be finite, got {table[row, column]} in point "
            f"{row + 1}, column {column + 1} ({len(bad)} in all)"
        )
    return table, names


# Python reads more as numbers: 1_000 as 1000, and digits of other scripts. What is not
# finite is refused later, with its place.
_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)",
    re.IGNORECASE,
)


def _read_csv(file: Path) -> tuple[np.ndarray, list[str] | None]:
    # A mark at the beginning, which spreadsheets write, is no part of the first cell.
    with file.open(newline="", encoding="utf-8-sig") as stream:
        read = [[cell.strip() for cell in line] for line in csv.reader(stream)]
    lines = [(number, line) for number, line in enumerate(read, 1) if line]
    names = lines.pop(0)[1] if lines and _are_names(lines[0][1]) else None
    for number, line in lines:
        wanted = len(names or lines[0][1])
        if len(line) != wanted:
            raise ValueError(
                f"line {number} must have {wanted} columns, got {len(line)}"
            )
        for column, cell in enumerate(line, 1):
            if not _NUMBER.fullmatch(cell):
                raise ValueError(
                    f"line {number}, column {column} must be a number such as -1.5e-3, "
                    f"got {cell[:40]!r}"
                )
    return np.array([list(map(float, line)) for _, line in lines]), names


def _are_names(cells: list[str]) -> bool:
    """Whether the first line names the columns: no cell of it begins as a number."""
    return any(cells) and not any(
        cell[:1].isnumeric() or cell[:1] in tuple("+-.") or _NUMBER.fullmatch(cell)
        for cell in cells
    )


def write_values(
    file: Path, table: np.ndarray, values: np.ndarray, head: list[str]
) -> None:
    """The values, in a CSV file beside their points, under the names of all columns."""
    if file.suffix == ".npy":
        np.save(file, values, allow_pickle=False)
        return
    rows = np.column_stack([table, values]).tolist()
    with file.open("w", newline="", encoding="utf-8") as stream:
        # A name may hold a comma.
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(map(repr, row) for row in rows)
