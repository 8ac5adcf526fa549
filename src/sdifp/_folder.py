"""What is in the folder of a run, and how it is written. Needs no JAX."""

import errno
import json
import math
import re
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ._files import write_whole as write_whole

FORMAT = 2
"""The version of the files of a run; those of sdifp 0.1 have none written in them."""

# Errors of the disk, not of what was asked for.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The name of the copy of a user's problem file in the folder of a run.
PROBLEM_COPY = "problem.copy.py"
# What a run that died before it began may have left.
_LEFT = re.compile(
    r"\.lock|\.?problem\.copy\.py(\.partial)?|\.config\.toml\.partial|"
    r"checkpoints(/\.?step-0{9}-[^/]*)?"
)
# What must be in these files, or in each line of them, to be theirs.
_OF_METRICS = {"step", "steps", "seconds", "loss", "errors", "l2_error", "scale"}
_OF_RESULT = {"problem", "metrics", "integrals", "has_reference", "until"}
_OF_CERTIFICATE = {"rows", "verdict", "holds"}
# Step and digest of a checkpoint, in its name.
CHECKPOINT = re.compile(r"step-(\d+)-([0-9a-f]{16})\.npz")


class Saved(NamedTuple):
    """All that a run has saved for its report."""

    folder: Path
    config: dict[str, Any]
    "the fields that are set"
    metrics: list[dict[str, Any]]
    result: dict[str, Any]
    certificate: dict[str, Any] | None
    solution: dict[str, Any]

    @staticmethod
    def read(folder: str | Path) -> "Saved":
        """Raises `ValueError` if the folder holds no run, or one without a result."""
        # Late: most commands do without.
        import numpy as np

        folder = Path(folder)
        config = read_config(folder)
        if not (folder / "result.json").is_file():
            raise ValueError(
                f"{folder} has no result yet: `sdifp resume {folder}` trains it to the "
                f"end, `sdifp evaluate {folder}` measures it as it is"
            )
        certificate = None
        if (folder / "certificate.json").is_file():
            certificate = _json(folder / "certificate.json", _OF_CERTIFICATE)
        with (
            _readable(folder / "solution.npz") as file,
            np.load(file, allow_pickle=False) as archive,
        ):
            solution = {name: archive[name] for name in archive.files}
        result = _json(folder / "result.json", _OF_RESULT)
        return Saved(
            folder, config, read_metrics(folder), result, certificate, solution
        )


def check_free(folder: Path) -> None:
    """Raise `ValueError` unless a run can begin in a folder."""
    if (folder / "config.toml").exists():
        raise ValueError(
            f"{folder} holds a run already: `sdifp resume {folder}` goes on with it, "
            f"--out names another folder"
        )
    if folder.exists() and not (
        folder.is_dir()
        and all(
            _LEFT.fullmatch(str(file.relative_to(folder))) for file in folder.rglob("*")
        )
    ):
        raise ValueError(f"{folder} exists and is not an empty folder")


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run, as it is written there. Raises `ValueError` if the
    folder holds none, or one of another format."""
    if not (folder / "config.toml").is_file():
        what = "has no config.toml in it" if folder.is_dir() else "does not exist"
        raise ValueError(f"{folder} is not a run: it {what}")
    return read_settings(folder / "config.toml", unmarked=1)


def read_settings(file: Path, unmarked: int = FORMAT) -> dict[str, Any]:
    """The fields in a configuration file; one that does not say its format has the
    `unmarked` one."""
    try:
        found = tomllib.loads(file.read_text())
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not TOML: {error}") from None
    version = found.pop("format", unmarked)
    if version != FORMAT:
        writer = "by sdifp 0.1" if version == 1 else "by another version of sdifp"
        raise ValueError(
            f"{file} was written {writer}, in format {version!r}, and this version "
            f"reads format {FORMAT}: use the version that wrote it, or begin a new run"
        )
    return found


def read_metrics(
    folder: Path, warn: Callable[[str], None] = lambda text: None
) -> list[dict[str, Any]]:
    """The metrics of a run so far. Damaged lines are left out, with a warning unless it
    is the last one, which a process that is killed may leave."""
    file, out, damaged = folder / "metrics.jsonl", [], 0
    *lines, last = file.read_bytes().split(b"\n") if file.exists() else [b""]
    for line in [*lines, last]:
        try:
            found = json.loads(line.decode())
            if not found.keys() >= _OF_METRICS or type(found["step"]) is not int:
                raise ValueError
            out.append(found)
        # Not UTF-8, not JSON, JSON that is nested too deeply, or no metrics.
        except (ValueError, RecursionError, AttributeError):
            damaged += line is not last
    if damaged:
        warn(f"{file}: damaged lines are left out, {damaged} of them")
    return out


def checkpoint_files(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    found = [f for f in folder.glob("step-*.npz") if CHECKPOINT.fullmatch(f.name)]
    return sorted(found, key=step_of)


def step_of(file: Path) -> int:
    """The step of a checkpoint."""
    return int(file.name.split("-")[1])


def shown(error: float | None) -> str:
    """An error in a saved file; JSON has None for what is not finite."""
    return "not finite" if error is None else f"{error:.1e}"


def continuum_of(row: dict[str, Any], tolerance: float) -> str:
    """The interval for the continuum in a row of a saved certificate."""
    centre, margin = row["continuum"], row["continuum_margin"]
    if centre is None or margin is None:
        return "not finite"
    is_rounding = abs(centre) + margin <= tolerance
    return "rounding" if is_rounding else f"{centre:+.1e} +- {margin:.1e}"


def interval_of(row: dict[str, Any], name: str, form: str) -> str:
    """A number in a row of a saved certificate, with its interval."""
    centre, margin = row[name], row[f"{name}_margin"]
    if centre is None or margin is None:
        return "not finite"
    return f"{centre:{form}} +- {margin:.1e}"


def measured_in_words(row: dict[str, Any]) -> dict[str, str]:
    """Value and drift in a row of a saved certificate that is of no target."""
    part = row["relative_drift"]
    return {
        "value": interval_of(row, "value", ".6g"),
        "drift": interval_of(row, "drift", "+.1e"),
        "relative_drift": "not finite" if part is None else f"{part:+.1e}",
    }


def clock(seconds: float) -> str:
    """A wall time in words."""
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole // 60 % 60} min"


# Control characters, marks that change the direction or the line, and what stands for
# bytes of a path that are not UTF-8.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The same with control characters as Python writes them: what is printed of a file
    must not command the terminal."""
    return _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


def finite(value: Any) -> Any:
    """The same without NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json(file: Path, names: set[str]) -> Any:
    with _readable(file):
        found = json.loads(file.read_text())
        if not isinstance(found, dict) or not names <= found.keys():
            raise ValueError("it is not what a run writes")
        return found


@contextmanager
def _readable(file: Path) -> Iterator[Path]:
    """Say how to write a file again that cannot be read."""
    try:
        yield file
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{file} cannot be read ({error}); `sdifp evaluate {file.parent}` writes "
            f"it again"
        ) from None
