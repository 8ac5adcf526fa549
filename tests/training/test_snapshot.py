"""A training that is taken up again ends with the same numbers, to the last bit."""

import re

import numpy as np
import pytest
from quick import once
from test_train import KEY, PROBLEM, RECIPE, numbers, same

import sdifp
from sdifp.training import _training, _window

CASES = {
    "adam": (sdifp.training.SDIFP(), RECIPE),
    "windows": (
        sdifp.training.SDIFP(),
        RECIPE.replace(
            windows=3, steps=3, optimiser=sdifp.training.LevenbergMarquardt()
        ),
    ),
    "lbfgs": (
        sdifp.training.Plain(),
        RECIPE.replace(
            steps=5, optimiser=sdifp.training.LBFGS(memory=2, refresh=2, trials=3)
        ),
    ),
    "multipliers": (sdifp.training.AugmentedLagrangian(), RECIPE),
}


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    """One program serves all trainings of a case."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_training, "advance", once(_training.advance.__wrapped__))
        patch.setattr(_training, "measure", once(_training.measure.__wrapped__))
        patch.setattr(_window, "_SERIES", 96)
        yield


def begin(case):
    method, recipe = CASES[case]
    return _training.Training(
        PROBLEM, method, recipe=recipe, every=4, check=False, key=KEY
    )


def finish(run):
    metrics = []
    while not run.finished:
        found = run.go_on()
        if found is not None:
            metrics.append(found)
    return metrics


@pytest.mark.parametrize("case", CASES)
def test_restored_training_ends_bit_identical(case):
    whole = begin(case)
    wanted = finish(whole)
    interrupted, found = begin(case), []
    while not interrupted.finished:
        # No time at all: one step, and a report where one is due.
        metrics = interrupted.go_on(1)
        if metrics is not None:
            found.append(metrics)
        saved = interrupted.snapshot()
        assert all(isinstance(array, np.ndarray) for array in saved.values())
        # Through another one that was itself somewhere else.
        fresh = begin(case)
        fresh.go_on(1)
        fresh.restore(saved)
        assert fresh.step == interrupted.step
        assert fresh.seconds == interrupted.seconds
        interrupted = fresh
    assert list(map(numbers, found)) == list(map(numbers, wanted))
    one, other = whole.snapshot(), interrupted.snapshot()
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype
        # The first known number is the time that it took.
        start = 1 if name == "known" else 0
        assert np.array_equal(array.ravel()[start:], other[name].ravel()[start:]), name
    assert same(interrupted.state.net, whole.state.net)


def test_the_end_of_a_restored_training_is_the_same_field():
    whole, again = begin("windows"), begin("windows")
    trained = whole.result()
    again.restore(whole.snapshot())
    assert again.step == again.steps
    assert again.go_on() is None
    found = again.result()
    assert numbers(found.metrics) == numbers(trained.metrics)
    assert same(found.field, trained.field)
    assert found.certificate == trained.certificate


def test_arrays_of_another_training_are_refused():
    saved = begin("adam").snapshot()
    name = next(k for k, a in saved.items() if k.startswith("state/net") and a.ndim > 1)
    shape = saved[name].shape
    for change, words in (
        ({name: saved[name][:2]}, f"{name} must be .* {re.escape(str(shape))}, got"),
        ({name: saved[name].astype(np.float32)}, "float64 .*, got float32"),
        ({"state/more": np.zeros(1)}, "state/more must be nothing, got float64"),
    ):
        with pytest.raises(ValueError, match=words):
            begin("adam").restore(saved | change)
    del saved[name]
    with pytest.raises(ValueError, match=f"{name} must be .*, got nothing"):
        begin("adam").restore(saved)
