"""predict: points in a file to values in a file."""

import math
import re
from pathlib import Path

import click
import numpy as np

from .._folder import read_config
from ._options import accept_option, open_run, run_argument
from ._output import say


@click.command("predict")
@run_argument
@click.argument("points", type=click.Path(path_type=Path))
@click.option("--time", type=float, default=None, help="One time for all points.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
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
    each coordinate and one for the time, which --time replaces. The values are written
    beside them, as a column u more, or as an array of their own in an NPY file.
    """
    read_config(run)
    table, names = read_points(points)
    if time is not None and not math.isfinite(time):
        raise click.UsageError(f"--time must be finite, got {time}")
    out = out or points.with_name(f"{points.stem}-values{points.suffix}")
    found = open_run(run, accept_changed_problem)
    from ..runs import predict

    d = found.problem.domain.dimension
    wanted = d if time is not None else d + 1
    if table.shape[1] != wanted:
        columns = ", ".join([f"x{k + 1}" for k in range(min(d, 3))] + ["..."] * (d > 3))
        last = " (the time is given)" if time is not None else ", t"
        raise click.UsageError(
            f"{points} must have {wanted} columns, {columns}{last}, got "
            f"{table.shape[1]}"
        )
    if time is not None:
        table = np.column_stack([table, np.full(len(table), time)])
    outside = found.outside(table)
    if outside:
        say(
            f"note: {outside} of {len(table)} points lie outside of the box or of the "
            f"duration that was trained",
            err=True,
        )
    values = predict(found.training, table)
    write_values(out, table, values, names, time is None)
    say(f"Wrote {len(values)} values to {out}")


def read_points(file: Path) -> tuple[np.ndarray, list[str] | None]:
    """A table of numbers and, if it has them, the names of its columns."""
    import csv

    try:
        if file.suffix == ".npy":
            table = np.load(file, allow_pickle=False)
            names = None
        else:
            table, names = _read_csv(file)
        if not isinstance(table, np.ndarray):
            raise ValueError("it holds several arrays, and must hold one table")
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from None
    except MemoryError as error:
        why = f": {error}" if str(error) else ""
        raise click.UsageError(f"{file} does not fit into memory{why}") from None
    except (ValueError, EOFError, csv.Error) as error:
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


def _read_csv(file: Path) -> tuple[np.ndarray, list[str] | None]:
    import csv

    # A mark at the beginning, which spreadsheets write, is no part of the first cell.
    with file.open(newline="", encoding="utf-8-sig") as stream:
        lines = [(k, line) for k, line in enumerate(csv.reader(stream), 1) if line]
    names: list[str] | None = None
    rows: list[list[float]] = []
    for number, line in lines:
        if number == lines[0][0] and _are_names(line):
            names = [cell.strip() for cell in line]
            continue
        row = []
        for column, cell in enumerate(line, 1):
            if not _NUMBER.fullmatch(cell.strip()):
                shown = cell if len(cell) <= 40 else f"{cell[:40]}..."
                raise ValueError(
                    f"line {number}, column {column} must be a number such as -1.5e-3, "
                    f"got {shown!r}"
                )
            row.append(float(cell))
        if rows and len(row) != len(rows[0]):
            raise ValueError(
                f"line {number} must have {len(rows[0])} columns, got {len(row)}"
            )
        rows.append(row)
    if names is not None and rows and len(names) != len(rows[0]):
        raise ValueError(
            f"there are {len(names)} names of columns, and {len(rows[0])} columns"
        )
    return np.array(rows), names


# Python reads more as numbers: 1_000 as 1000, and digits of other scripts. What is not
# finite is refused later, with its place.
_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)",
    re.IGNORECASE,
)


def _are_names(line: list[str]) -> bool:
    """Whether the first line names the columns: no cell of it begins as a number."""
    cells = [cell.strip() for cell in line]
    return any(cells) and not any(
        cell[:1].isnumeric() or cell[:1] in tuple("+-.") or _NUMBER.fullmatch(cell)
        for cell in cells
    )


def write_values(
    file: Path,
    table: np.ndarray,
    values: np.ndarray,
    names: list[str] | None,
    timed: bool,
) -> None:
    """The values, in a CSV file beside their points."""
    try:
        if file.suffix == ".npy":
            np.save(file, values, allow_pickle=False)
            return
        d = table.shape[1] - 1
        own = [f"x{k + 1}" for k in range(d)] + ["t"]
        head = names if names is not None and timed else own
        if names is not None and not timed:
            head = [*names, "t"]
        rows = np.column_stack([table, values])
        text = "\n".join(",".join(repr(float(v)) for v in row) for row in rows)
        file.write_text(",".join([*head, "u"]) + "\n" + text + "\n")
    except OSError as error:
        raise click.UsageError(f"{file} cannot be written: {error.strerror}") from None
