"""What is in the folder of a run. Reads only, and without JAX."""

import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from ._config import Config, load_config


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
            certificate = _json(folder / "certificate.json")
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
            _json(folder / "result.json"),
            certificate,
            solution,
        )


def read_config(folder: Path) -> Config:
    """The configuration of a run. Raises `ValueError` if the folder holds none."""
    if not (folder / "config.toml").is_file():
        what = "has no config.toml in it" if folder.is_dir() else "does not exist"
        raise ValueError(f"{folder} is not a run: it {what}")
    return load_config(folder / "config.toml")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run so far; a last line that was cut off is left out."""
    file, out = folder / "metrics.jsonl", []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            out.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return out


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{file} cannot be read ({error}); `sdifp evaluate {file.parent}` writes "
            f"it again"
        ) from None
