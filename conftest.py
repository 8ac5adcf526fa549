"""The tests of the PyTorch part are left out, and said so, where it is missing."""

import importlib.util

_WITHOUT_TORCH = importlib.util.find_spec("torch") is None

collect_ignore = ["src/sdifp/torch", "tests/pytorch"] if _WITHOUT_TORCH else []


def pytest_terminal_summary(terminalreporter):
    """Say what was left out."""
    if _WITHOUT_TORCH:
        terminalreporter.write_line(
            "skipped: tests/pytorch and src/sdifp/torch, for PyTorch is not installed; "
            "make torch installs it and runs them"
        )
