"""One clear sentence for each mistake."""

import jax
import numpy as np
import pytest

import sdifp

W = np.array([0.1, 0.2, 0.3, 0.4])
F = np.array([1.0, -2.0, 0.5, 3.0])
BOTH = {"mean": 0.0, "variance": 1.0}
NAN, INF = float("nan"), float("inf")

pytestmark = pytest.mark.usefixtures("as_user")


def put(array, index, value):
    out = np.array(array)
    out[index] = value
    return out


@pytest.mark.parametrize(
    ("values", "weights", "kwargs", "error", "message"),
    [
        (
            put(F, 2, NAN),
            W,
            BOTH,
            ValueError,
            r"values must be finite, got values\[2\] = nan",
        ),
        (put(F, 0, -INF), W, BOTH, ValueError, r"values\[0\] = -inf \(1 of 4"),
        (
            F,
            put(W, 1, NAN),
            BOTH,
            ValueError,
            r"weights must be finite, got weights\[1\]",
        ),
        (
            F,
            put(W, 1, -0.2),
            BOTH,
            ValueError,
            r"weights must be positive, got weights\[1\] = -0.2",
        ),
        (
            F,
            put(W, 3, 0.0),
            BOTH,
            ValueError,
            r"weights must be positive, got weights\[3\] = 0.0",
        ),
        (F, 2 * W, BOTH, ValueError, r"weights must sum to 1, got 2; pass weights / "),
        (F, W[:3], BOTH, ValueError, r"weights must have shape \(4,\).*got \(3,\)"),
        (F, W[None], BOTH, ValueError, r"weights must have shape \(4,\)"),
        (
            np.arange(4),
            W,
            BOTH,
            TypeError,
            r"values must hold floating-point.*int64.*astype",
        ),
        (F, np.ones(4, int), BOTH, TypeError, r"weights must hold floating-point"),
        (F + 0j, W, BOTH, TypeError, r"values must hold floating-point.*complex128"),
        (np.float64(1.0), W, BOTH, ValueError, r"nodes on their last axis"),
        (F[:0], W[:0], BOTH, ValueError, r"at least one node"),
        (F[:1], np.ones(1), BOTH, ValueError, r"is constant on the nodes"),
        (F, W, {}, ValueError, r"give a target"),
        (F, W, {"variance": 1.0}, ValueError, r"variance needs mean"),
        (F, W, {**BOTH, "second_moment": 1.0}, ValueError, r"not both"),
        (F, W, {"mean": NAN}, ValueError, r"mean must be finite, got mean = nan"),
        (
            F,
            W,
            {"mean": 0.0, "second_moment": INF},
            ValueError,
            r"second_moment must be finite",
        ),
        (
            F,
            W,
            {"mean": np.zeros(3)},
            ValueError,
            r"mean must be one number.*\(\).*\(3,\)",
        ),
        (np.stack([F, F]), W, {"mean": np.zeros(3)}, ValueError, r"batch shape \(2,\)"),
        (F, W, {"mean": 1j}, TypeError, r"mean must be a real number"),
        (
            F,
            W,
            {**BOTH, "profile": np.ones(3)},
            ValueError,
            r"profile must have shape \(4,\)",
        ),
        (F, W, {**BOTH, "profile": np.zeros(4)}, ValueError, r"zero on every node"),
        (
            F,
            W,
            {**BOTH, "profile": put(F, 1, NAN)},
            ValueError,
            r"profile must be finite",
        ),
        (
            F,
            W,
            {**BOTH, "profile": np.ones(4, int)},
            TypeError,
            r"profile must hold floating",
        ),
        (
            F,
            W,
            {"second_moment": 1.0, "profile": F},
            ValueError,
            r"profile has no effect",
        ),
        (
            F,
            W,
            {**BOTH, "profile": np.array([4.0, -2, 0, 0])},
            ValueError,
            r"profile must not have mean zero",
        ),
        (1e200 * F, W, BOTH, ValueError, r"or its square in float64"),
    ],
)
def test_message(values, weights, kwargs, error, message):
    with pytest.raises(error, match=message):
        sdifp.project(values, weights, **kwargs)


def test_correct_checks_its_targets():
    raw = sdifp.correction.moments(F, W)
    with pytest.raises(ValueError, match="give a target"):
        sdifp.correction.correct(raw)
    with pytest.raises(ValueError, match="variance needs mean"):
        sdifp.correction.correct(raw, variance=1.0)
    with pytest.raises(ValueError, match="not both"):
        sdifp.correction.correct(raw, mean=0.0, variance=1.0, second_moment=1.0)


def test_floor_must_be_a_floor():
    with pytest.raises(TypeError, match=r"floor must be a RelativeFloor.*got 1e-08"):
        sdifp.project(F, W, **BOTH, floor=1e-8)


def test_no_fields_and_long_integers():
    empty = sdifp.project(np.zeros((0, 5000)), np.full(5000, 1 / 5000), mean=1.0)
    assert empty.values.shape == (0, 5000)
    with jax.enable_x64(False):
        assert float(sdifp.project(F, W, mean=10**12).values[0]) > 9e11


def test_euclidean_keeps_the_dtype_and_refuses_nan():
    assert (
        sdifp.correction.project_euclidean(F.astype("f4"), W, mean=0.0).dtype
        == np.float32
    )
    with pytest.raises(ValueError, match="values must be finite"):
        sdifp.correction.project_euclidean(F * NAN, W, mean=0.0)


def test_lists_are_told_to_become_arrays_or_work():
    got = sdifp.project([1.0, -2.0, 0.5, 3.0], [0.1, 0.2, 0.3, 0.4], **BOTH)
    assert W @ np.asarray(got.values) == pytest.approx(0.0, abs=1e-15)


def test_one_node_can_have_its_mean_or_its_energy_set():
    one = np.ones(1)
    assert sdifp.project(3 * one, one, mean=2.0).values.tolist() == [2.0]
    assert sdifp.project(3 * one, one, second_moment=4.0).values.tolist() == [2.0]


def test_wrong_shapes_raise_inside_jit_too():
    with pytest.raises(ValueError, match="weights must have shape"):
        jax.jit(lambda f, w: sdifp.project(f, w, **BOTH).values)(F, W[:3])


def test_euclidean_checks_its_arguments():
    with pytest.raises(ValueError, match="weights must sum to 1"):
        sdifp.correction.project_euclidean(F, 2 * W, mean=0.0)
