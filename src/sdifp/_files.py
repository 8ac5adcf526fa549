"""Writing files. Needs the standard library alone."""

import os
from pathlib import Path


def write_whole(file: Path, data: bytes) -> None:
    """Write a file so that it is there as a whole or not at all."""
    partial = file.with_name(f".{file.name}.partial")
    try:
        with partial.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    # The new name itself must reach the disk, too.
    descriptor = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
