"""Checkpoints, and whether a run is still that of its last one.

A checkpoint is an `.npz` archive of plain arrays with a digest in its name. It is
written under another name, flushed to the disk and renamed, so that a process that dies
leaves the one before. Nothing of a user's problem file is executed here."""

import dataclasses
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from .._config import Config, load_config
from .._folder import (
    CHECKPOINT,
    PROBLEM_COPY,
    checkpoint_files,
    read_config,
    write_whole,
)

# The entry that holds what is not an array, as JSON.
_INFO = "info"


def write_checkpoint(
    folder: Path, step: int, arrays: Mapping[str, np.ndarray], info: dict[str, Any]
) -> Path:
    """Write a checkpoint; returns its file."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(info).encode(), np.uint8)
    np.savez(buffer, allow_pickle=False, **{_INFO: text, **arrays})
    data = buffer.getvalue()
    file = folder / f"step-{step:09d}-{digest_of(data)[:16]}.npz"
    write_whole(file, data)
    return file


def read_checkpoint(file: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and info of a checkpoint. Raises `ValueError` if it is damaged."""
    name = CHECKPOINT.fullmatch(file.name)
    data = file.read_bytes()
    if name is None or digest_of(data)[:16] != name[2]:
        raise ValueError(f"checkpoint {file} is damaged: its digest is not in its name")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {k: archive[k] for k in archive.files}
        info = json.loads(arrays.pop(_INFO).tobytes())
        if not all(isinstance(info.get(name), dict) for name in ("config", "versions")):
            raise ValueError("it does not say of which run it is")
    except (ValueError, LookupError, AttributeError, EOFError, BadZipFile) as error:
        raise ValueError(f"{file} is not a checkpoint: {error}") from None
    return arrays, info


class Found(NamedTuple):
    """The newest checkpoint that is not damaged, and those after it that are."""

    file: Path
    arrays: dict[str, np.ndarray]
    info: dict[str, Any]
    damaged: list[Path]


def latest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Found:
    """The newest checkpoint that is not damaged. Raises `ValueError` if there is none:
    a run begins with one."""
    files = checkpoint_files(folder)
    damaged: list[Path] = []
    for file in reversed(files):
        try:
            return Found(file, *read_checkpoint(file), damaged)
        except (ValueError, OSError) as error:
            before = "" if file is files[0] else "; falling back to the one before"
            warn(f"{error}{before}")
            damaged.append(file)
    what = "all of its checkpoints are damaged" if files else "its checkpoints are gone"
    raise ValueError(
        f"{folder.parent} cannot be resumed: {what}; restore them from a copy, or "
        f"begin again in a new folder with `sdifp train --config "
        f"{folder.parent / 'config.toml'} --out ...`"
    )


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the last few, and what was left half written. For the process that
    trains: another one may be writing."""
    for file in [*checkpoint_files(folder)[:-keep], *folder.glob(".*.partial")]:
        file.unlink(missing_ok=True)


def digest_of(data: bytes) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(data).hexdigest()


class Unchanged(NamedTuple):
    """A run whose problem may be executed."""

    folder: Path
    config: Config
    "as it is in the folder"
    before: Config
    "as it was at the checkpoint"
    found: Found

    @property
    def copy(self) -> Path:
        """The copy of the user's problem file, where there is one."""
        return self.folder / PROBLEM_COPY


def read_unchanged(
    folder: Path, warn: Callable[[str], None], accept_changed_problem: bool = False
) -> Unchanged:
    """The run in a folder. Raises `ValueError` if its checkpoints are gone, or if its
    problem was changed since the last one and that is not accepted."""
    read_config(folder)
    config = load_config(folder / "config.toml")
    found = latest_checkpoint(folder / "checkpoints", warn)
    unchanged = Unchanged(folder, config, _config_of(found), found)
    if config.problem_file is None:
        return unchanged
    # The rest is compared when the configuration is complete; to complete it, the file
    # is executed.
    before = unchanged.before
    check_same(folder, before, dataclasses.replace(before, problem=config.problem))
    file = unchanged.copy if unchanged.copy.is_file() else config.problem_file
    was = found.info.get("problem_digest")
    # A file that is missing is reported when it is executed.
    if file.is_file() and digest_of(file.read_bytes()) != was:
        what = (
            f"{file} cannot be compared: {found.file} was written without its digest"
            if was is None
            else f"{file} was changed since the last checkpoint"
        )
        if not accept_changed_problem:
            raise ValueError(
                f"{what}; to execute it nevertheless, give --accept-changed-problem, "
                f"or accept_changed_problem=True to Run.open"
            )
        warn(f"{what}, which is accepted")
    return unchanged


def check_same(folder: Path, before: Config, now: Config) -> None:
    """Raise `ValueError` if a configuration is no longer that of the checkpoint."""
    changes = before.changes(now)
    if changes:
        raise ValueError(
            f"{folder / 'config.toml'} has been changed since its last checkpoint: "
            f"{'; '.join(changes)}; begin a new run for that"
        )


def _config_of(found: Found) -> Config:
    """The configuration of a checkpoint, which may be that of another version."""
    from .. import __version__

    try:
        return Config.read(found.info["config"])
    except ValueError as error:
        version = found.info["versions"].get("sdifp")
        raise ValueError(
            f"{found.file} cannot be read by sdifp {__version__}: {error}; it was "
            f"written by sdifp {version}: resume with that version, or begin a new run"
        ) from None
