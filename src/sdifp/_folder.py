"""What is in the folder of a run, and how it is written. Needs no JAX."""

import json
import math
import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from ._config import Config, load_config
from ._files import write_whole as write_whole

# The name of the copy of a user's problem file in the folder of a run.
PROBLEM_COPY = "problem.copy.py"
# What a run that died before it began may have left.
_LEFT = {".lock", PROBLEM_COPY, f".{PROBLEM_COPY}.partial", ".config.toml.partial"}


# Step and digest of a checkpoint, in its name.
CHECKPOINT = re.compile(r"step-(\d+)-([0-9a-f]{16})\.npz")


class Saved(NamedTuple):
    """All that a run has saved for its report."""

    folder: Path
    config: Config
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
        try:
            with np.load(folder / "solution.npz", allow_pickle=False) as archive:
                solution = {name: archive[name] for name in archive.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{folder / 'solution.npz'} cannot be read ({error}); "
                f"`sdifp evaluate {folder}` writes it again"
            ) from None
        return Saved(
            folder,
            config,
            read_metrics(folder),
            _json(folder / "result.json", _OF_RESULT),
            certificate,
            solution,
        )


def check_free(folder: Path) -> None:
    """Raise `ValueError` unless a run can begin in a folder."""
    if (folder / "config.toml").exists():
        raise ValueError(
            f"{folder} holds a run already: `sdifp resume {folder}` goes on with it, "
            f"--out names another folder"
        )
    if folder.exists() and (
        not folder.is_dir() or not {f.name for f in folder.iterdir()} <= _LEFT
    ):
        raise ValueError(f"{folder} exists and is not an empty folder")


def read_config(folder: Path) -> Config:
    """The configuration of a run. Raises `ValueError` if the folder holds none."""
    if not (folder / "config.toml").is_file():
        what = "has no config.toml in it" if folder.is_dir() else "does not exist"
        raise ValueError(f"{folder} is not a run: it {what}")
    return load_config(folder / "config.toml")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run so far; lines that were cut off or damaged are left out."""
    file, out = folder / "metrics.jsonl", []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(found, dict) and isinstance(found.get("step"), int):
            out.append(found)
    return out


def checkpoint_files(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    found = [f for f in folder.glob("step-*.npz") if CHECKPOINT.fullmatch(f.name)]
    return sorted(found, key=step_of)


def step_of(file: Path) -> int:
    """The step of a checkpoint."""
    return int(file.name.split("-")[1])


def finite(value: Any) -> Any:
    """The same without NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# What must be in these files to be theirs.
_OF_RESULT = {"problem", "metrics", "integrals", "has_reference", "until", "volume"}
_OF_CERTIFICATE = {"rows", "verdict", "holds"}


def _json(file: Path, names: set[str]) -> Any:
    try:
        found = json.loads(file.read_text())
        if not isinstance(found, dict) or not names <= found.keys():
            raise ValueError("it is not what a run writes")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{file} cannot be read ({error}); `sdifp evaluate {file.parent}` writes "
            f"it again"
        ) from None
    return found
