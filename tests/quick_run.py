"""A run that takes no time: for the tests of folders, commands and reports."""

import functools

import pytest
from quick import once

import sdifp
from sdifp._config._objects import PROBLEMS
from sdifp.field import _certificate
from sdifp.runs import _evaluation
from sdifp.training import _training, _window

SMALL = {
    "problem": "advection",
    "network": "MLP(4, 1)",
    "optimiser": "Adam(0.01)",
    "points": "RandomPoints(2, 4)",
    "nodes": 16,
    "steps": 12,
    "every": 4,
    "precision": "float64",
    "check": False,
}


def small(**changes):
    return sdifp.Config(**{**SMALL, **changes})


@pytest.fixture(scope="module")
def quick_programs():
    """Programs run a few times here, so that they need not be fast."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (_training, "advance"),
            (_training, "measure"),
            (_certificate, "_means"),
            (_evaluation, "_moments"),
            (_evaluation, "values"),
        ):
            patch.setattr(module, name, once(getattr(module, name).__wrapped__))
        # The same object each time, so that one program serves all runs.
        once_made = functools.cache(sdifp.problems.advection)
        patch.setattr(sdifp.problems, "advection", once_made)
        patch.setitem(PROBLEMS, "advection", once_made)
        patch.setattr(_window, "_SERIES", 96)
        patch.setattr(_evaluation, "_TIMES", 5)
        yield


@pytest.fixture(scope="module")
def finished(quick_programs, tmp_path_factory):
    """A run with its result, and no report."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    run = sdifp.Run.create(folder, small())
    run.save()
    run.train()
    run.evaluate()
    return run
