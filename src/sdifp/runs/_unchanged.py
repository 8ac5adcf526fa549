"""Whether a run is still that of its last checkpoint: its configuration, and the
problem file of the user. Executes nothing of that."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .._config import Config
from .._folder import PROBLEM_COPY, read_config
from ._checkpoint import Found, latest_checkpoint


class Unchanged(NamedTuple):
    """A run whose problem may be executed."""

    config: Config
    "as it is in the folder"
    before: Config
    "as it was at the checkpoint"
    found: Found
    digest: str | None
    "of the problem file; None for a problem of the library"


def read_unchanged(
    folder: Path, warn: Callable[[str], None], accept_changed_problem: bool = False
) -> Unchanged:
    """The run in a folder. Raises `ValueError` if its checkpoints are gone, or if its
    problem was changed since the last one.

    **Arguments:**

    - `warn`: told of damaged checkpoints, and of a problem file that is accepted.
    - `accept_changed_problem`: whether the problem file may have been changed.
    """
    config = read_config(folder)
    found = latest_checkpoint(folder / "checkpoints", warn)
    before = _config_of(found)
    if config.problem_file is None:
        return Unchanged(config, before, found, None)
    # The rest is compared when the configuration is complete; to complete it, the file
    # is executed.
    check_same(folder, before, dataclasses.replace(before, problem=config.problem))
    copy = folder / PROBLEM_COPY
    file = copy if copy.is_file() else config.problem_file
    digest = digest_of(file)
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
    return Unchanged(config, before, found, digest)


def check_same(folder: Path, before: Config, now: Config) -> None:
    """Raise `ValueError` if a configuration is no longer that of the checkpoint."""
    changes = before.changes(now)
    if changes:
        raise ValueError(
            f"{folder / 'config.toml'} has been changed since its last checkpoint: "
            f"{'; '.join(changes)}; begin a new run for that"
        )


def digest_of(file: Path) -> str | None:
    """The SHA-256 of a file; None if it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None


def _config_of(found: Found) -> Config:
    """The configuration of a checkpoint, which may be that of another version."""
    fields: Any = found.info["config"]
    versions: Any = found.info["versions"]
    version = versions.get("sdifp") if isinstance(versions, dict) else None
    from .. import __version__

    what = None
    if not isinstance(fields, dict):
        what = "it has no configuration"
    else:
        known = {f.name for f in dataclasses.fields(Config)}
        unknown = sorted(map(repr, fields.keys() - known))
        if unknown:
            what = f"unknown field {', '.join(unknown)} in its configuration"
    if what is None:
        try:
            return Config(**fields)
        except (TypeError, ValueError) as error:
            what = str(error)
    raise ValueError(
        f"{found.file} cannot be read by sdifp {__version__}: {what}; it was written "
        f"by sdifp {version}: resume with that version, or begin a new run"
    )
