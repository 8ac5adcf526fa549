"""Whether a run is still that of its last checkpoint: its configuration, and the
problem file of the user. Executes nothing of that."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .._config import Config, load_config
from .._folder import PROBLEM_COPY, read_config
from ._checkpoint import Found, latest_checkpoint


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
    problem was changed since the last one.

    **Arguments:**

    - `warn`: told of damaged checkpoints, and of a problem file that is accepted.
    - `accept_changed_problem`: whether the problem file may have been changed.
    """
    read_config(folder)
    config = load_config(folder / "config.toml")
    found = latest_checkpoint(folder / "checkpoints", warn)
    before = _config_of(found)
    if config.problem_file is None:
        return Unchanged(folder, config, before, found)
    # The rest is compared when the configuration is complete; to complete it, the file
    # is executed.
    check_same(folder, before, dataclasses.replace(before, problem=config.problem))
    copy = folder / PROBLEM_COPY
    file = copy if copy.is_file() else config.problem_file
    try:
        digest = digest_of(file.read_bytes())
    except OSError:
        # Told when it is executed.
        digest = None
    was = found.info.get("problem_digest")
    if digest is not None and digest != was:
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
    return Unchanged(folder, config, before, found)


def check_same(folder: Path, before: Config, now: Config) -> None:
    """Raise `ValueError` if a configuration is no longer that of the checkpoint."""
    changes = before.changes(now)
    if changes:
        raise ValueError(
            f"{folder / 'config.toml'} has been changed since its last checkpoint: "
            f"{'; '.join(changes)}; begin a new run for that"
        )


def digest_of(data: bytes) -> str:
    """The SHA-256 of a problem file."""
    return hashlib.sha256(data).hexdigest()


def _config_of(found: Found) -> Config:
    """The configuration of a checkpoint, which may be that of another version."""
    from .. import __version__

    fields: Any = found.info["config"]
    versions: Any = found.info["versions"]
    try:
        if not isinstance(fields, dict):
            raise ValueError("it has no configuration")
        return Config.read(fields)
    except ValueError as error:
        version = versions.get("sdifp") if isinstance(versions, dict) else None
        raise ValueError(
            f"{found.file} cannot be read by sdifp {__version__}: {error}; it was "
            f"written by sdifp {version}: resume with that version, or begin a new run"
        ) from None
