"""The numbers of this version are those that were recorded."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.validate
def test_numbers_are_those_that_were_recorded():
    """In a process of its own, whose programs are compiled as those of a user are."""
    program = Path(__file__).with_name("record.py")
    done = subprocess.run(
        [sys.executable, str(program), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
