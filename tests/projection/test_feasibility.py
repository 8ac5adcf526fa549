"""Every class of the feasibility corollary, outside and inside `jit`."""

from types import MappingProxyType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once

import sdifp
from sdifp import Status

W = np.array([0.1, 0.2, 0.3, 0.4])
F = np.array([1.0, -2.0, 0.5, 3.0])
FLAT = np.full(4, 0.1)

CASES = [
    ("regular", F, {"mean": 0.5, "second_moment": 1.0}, Status.REGULAR),
    ("variance", F, {"mean": 0.5, "variance": 1e-30}, Status.REGULAR),
    ("constant", F, {"mean": 0.5, "second_moment": 0.25}, Status.CONSTANT),
    (
        "constant to rounding",
        F,
        {"mean": 0.1, "second_moment": 0.1**2},
        Status.CONSTANT,
    ),
    ("constant variance", F, {"mean": 0.5, "variance": 0.0}, Status.CONSTANT),
    ("flat but constant target", FLAT, {"mean": 2.0, "variance": 0.0}, Status.CONSTANT),
    ("infeasible", F, {"mean": 0.5, "second_moment": 0.2}, Status.INFEASIBLE),
    ("infeasible variance", F, {"mean": 0.5, "variance": -1e-3}, Status.INFEASIBLE),
    ("degenerate", FLAT, {"mean": 0.5, "second_moment": 1.0}, Status.DEGENERATE),
    ("zero field", 0 * F, {"mean": 0.5, "variance": 1.0}, Status.DEGENERATE),
    ("mass of a flat field", FLAT, {"mean": 0.5}, Status.REGULAR),
    ("energy", F, {"second_moment": 2.0}, Status.REGULAR),
    ("zero energy", F, {"second_moment": 0.0}, Status.CONSTANT),
    ("negative energy", F, {"second_moment": -1.0}, Status.INFEASIBLE),
    ("energy of nothing", 0 * F, {"second_moment": 1.0}, Status.DEGENERATE),
    ("nothing from nothing", 0 * F, {"second_moment": 0.0}, Status.CONSTANT),
    ("NaN", F + np.nan, {"mean": 0.5, "variance": 1.0}, Status.NOT_FINITE),
    ("infinity", np.array([1.0, np.inf, 0, 0]), {"mean": 0.5}, Status.NOT_FINITE),
    ("overflow", F * 1e200, {"mean": 0.5, "variance": 1.0}, Status.NOT_FINITE),
]


@pytest.mark.parametrize(
    ("values", "targets", "status"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_status_inside_jit_and_error_outside(values, targets, status):
    got = jax.jit(lambda f: sdifp.project(f, W, **targets))(values)
    assert int(got.status) == status
    if status != Status.NOT_FINITE:
        assert np.all(np.isfinite(got.values))
        if "mean" in targets:
            assert W @ np.asarray(got.values) == pytest.approx(
                targets["mean"], abs=1e-14
            )
    quiet = sdifp.project(values, W, **targets, throw=False)
    assert int(quiet.status) == status
    if status >= Status.DEGENERATE:
        with pytest.raises(
            ValueError, match=r"below|on the nodes|finite|negative|so small"
        ):
            sdifp.project(values, W, **targets)
        with pytest.raises(Exception, match="do not hold"):
            eqx.filter_jit(lambda f: sdifp.project(f, W, **targets, throw=True))(
                jnp.asarray(values)
            ).values.block_until_ready()
    else:
        assert int(sdifp.project(values, W, **targets, throw=True).status) == status


@pytest.mark.parametrize(
    ("values", "targets", "status"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_gradients_are_finite_unless_the_input_is_not(values, targets, status):
    def loss(f):
        out = sdifp.project(f, W, **targets, throw=False)
        return jnp.sum(out.values * jnp.arange(4.0)) + jnp.sum(out.scale) * 0.0

    if status != Status.NOT_FINITE:
        assert np.all(np.isfinite(once(jax.grad(loss))(jnp.asarray(values))))


def test_error_under_an_eager_gradient_is_the_same_sentence():
    def loss(f):
        return jnp.sum(sdifp.project(f, W, mean=0.5, second_moment=0.2).values)

    with pytest.raises(
        ValueError, match=r"below the least .* mean 0\.5 can have, 0\.25"
    ):
        jax.grad(loss)(jnp.asarray(F))
    with pytest.raises(
        ValueError, match=r"values must be finite, got values\[0\] = nan"
    ):
        jax.grad(loss)(jnp.asarray(F) * jnp.nan)


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize(
    "targets",
    [
        {"mean": 1.0, "variance": 0.0},
        {"mean": 1.0, "variance": 1.0},
        {"second_moment": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_derivatives_of_a_field_without_variance_are_tame(targets, offset, x64):
    with jax.enable_x64(x64):

        def loss(a):
            f = offset + a * jnp.sin(jnp.arange(4.0))
            return jnp.sum(sdifp.project(f, W, **targets, throw=False).values ** 2)

        first, second = jax.grad(loss), jax.hessian(loss)
        third = jax.grad(jax.grad(first))
        for slope in once(lambda a: [first(a), second(a), third(a)])(jnp.asarray(0.0)):
            assert abs(float(slope)) < 1e3


def test_single_precision_leaves_nothing_behind():
    weights = W.copy()

    def norm(a):
        f = a * jnp.sin(jnp.arange(4.0))
        got = sdifp.project(f, weights, second_moment=1.0, throw=False)
        return jnp.sum(got.values**2)

    with jax.enable_x64(False):
        jax.jit(norm)(jnp.asarray(1.0))
    got = np.asarray(sdifp.project(F, weights, mean=0.3, variance=2.0).values)
    assert weights @ got == pytest.approx(0.3, rel=1e-14)
    assert weights @ got**2 == pytest.approx(2.09, rel=1e-14)


def test_a_floor_of_the_users_keeps_the_gradient_of_a_flat_field():
    def first(f):
        floor = sdifp.correction.AbsoluteFloor(1e-8)
        return sdifp.project(
            f, W, mean=0.0, variance=1.0, floor=floor, throw=False
        ).values

    got = jax.jacfwd(first)(jnp.zeros(4))
    assert np.allclose(got, 1e4 * (np.eye(4) - W[None, :]), rtol=1e-12)


@pytest.mark.parametrize(
    ("size", "x64"), [(1e-10, False), (1e-80, True), (1e-140, True)]
)
def test_small_fields_are_not_floored(size, x64):
    with jax.enable_x64(x64):
        f = (size * F).astype(np.float64 if x64 else np.float32)
        for targets in ({"second_moment": 1.0}, {"mean": 0.0, "second_moment": 1.0}):
            got = sdifp.project(f, W, **targets)
            assert int(got.status) == Status.REGULAR
            assert W @ np.asarray(got.values) ** 2 == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "targets"),
    [(np.float16, {"mean": 1e6}), (np.float32, {"mean": 1e39, "variance": 1e60})],
)
def test_result_that_overflows_its_dtype_is_told(dtype, targets):
    got = sdifp.project(F.astype(dtype), W, **targets, throw=False)
    assert int(got.status) == Status.NOT_FINITE
    with pytest.raises(ValueError, match="overflows its dtype"):
        sdifp.project(F.astype(dtype), W, **targets)


@pytest.mark.parametrize("mean", [0.1, 0.3, 0.7])
def test_constant_target_in_single_precision(mean):
    m = jnp.float32(mean)
    got = sdifp.project(F.astype(np.float32), W, mean=m, second_moment=m * m)
    assert int(got.status) == Status.CONSTANT


def test_negative_variance_that_is_rounding_counts_as_zero():
    got = sdifp.project(F, W, mean=1.0, variance=-1e-18)
    assert int(got.status) == Status.CONSTANT


def test_large_targets_do_not_overflow_through_a_zero():
    got = sdifp.project(F, W, mean=1e200, variance=1.0)
    assert int(got.status) == Status.REGULAR
    with jax.enable_x64(False):
        got = sdifp.project(F.astype("f4"), W, mean=1e20, variance=1e36)
        assert int(got.status) == Status.REGULAR
    shifted = sdifp.project(F * 1e200, W, mean=0.0)
    assert int(shifted.status) == Status.REGULAR


def test_weights_that_do_not_sum_to_one_are_told_inside_jit():
    got = jax.jit(lambda w: sdifp.project(F, w, mean=0.0, variance=1.0))(3 * W)
    assert int(got.status) == Status.UNNORMALISED


def test_one_node_with_a_feasible_target():
    one = np.ones(1)
    assert (
        int(sdifp.project(one, one, mean=2.0, variance=0.0).status) == Status.CONSTANT
    )
    got = sdifp.project(one, one, mean=2.0, variance=1.0, throw=False)
    assert int(got.status) == Status.DEGENERATE


def test_constant_target_is_met_exactly():
    got = sdifp.project(F, W, mean=0.5, second_moment=0.25)
    assert np.all(np.asarray(got.values) == 0.5)


def test_infeasible_target_says_the_least_second_moment():
    with pytest.raises(
        ValueError, match=r"below the least .* mean 0\.5 can have, 0\.25"
    ):
        sdifp.project(F, W, mean=0.5, second_moment=0.2)
    with pytest.raises(ValueError, match="variance = -1 is negative"):
        sdifp.project(F, W, mean=0.5, variance=-1.0)


def test_infeasible_member_of_a_batch_is_named():
    with pytest.raises(ValueError, match=r"field \(1,\) of the batch"):
        sdifp.project(
            np.stack([F, F]),
            W,
            mean=np.array([0.5, 0.5]),
            variance=np.array([1.0, -1.0]),
        )


def test_status_is_mapped_over_a_batch():
    got = jax.vmap(lambda f: sdifp.project(f, W, mean=0.0, variance=1.0))(
        jnp.stack([jnp.asarray(F), jnp.asarray(FLAT)])
    )
    assert got.status.tolist() == [Status.REGULAR, Status.DEGENERATE]


class TestFloor:
    small = 1e-5 * F
    targets = MappingProxyType({"mean": 0.3, "variance": 2.0})

    def test_default_floor_leaves_small_fields_alone(self):
        got = sdifp.project(self.small, W, **self.targets)
        assert int(got.status) == Status.REGULAR
        assert W @ np.asarray(got.values) ** 2 == pytest.approx(2.09, rel=1e-14)

    @pytest.mark.parametrize(
        "floor",
        [sdifp.correction.AbsoluteFloor(1e-8), sdifp.correction.RelativeFloor(2.0)],
    )
    def test_perturbation_identity(self, floor):
        got = sdifp.project(self.small, W, **self.targets, floor=floor)
        assert int(got.status) == Status.FLOORED
        u = np.asarray(got.values)
        assert W @ u == pytest.approx(0.3, abs=1e-15)
        raw = sdifp.correction.moments(self.small, W)
        least = (
            floor.epsilon
            if isinstance(floor, sdifp.correction.AbsoluteFloor)
            else floor.fraction * (W @ self.small**2)
        )
        want = sdifp.correction.floor_perturbation(
            variance=2.0, rule_variance=raw.variance, floor=least
        )
        assert W @ u**2 - 2.09 == pytest.approx(float(want), rel=1e-12)
        assert float(want) < -0.1

    def test_identity_is_zero_above_the_floor(self):
        got = sdifp.correction.floor_perturbation(
            variance=2.0, rule_variance=0.5, floor=0.5
        )
        assert float(got) == 0.0

    def test_floor_of_energy_alone(self):
        got = sdifp.project(
            self.small, W, second_moment=1.0, floor=sdifp.correction.AbsoluteFloor(1e-8)
        )
        assert int(got.status) == Status.FLOORED
        quiet = sdifp.project(self.small, W, second_moment=1.0)
        assert W @ np.asarray(quiet.values) ** 2 == pytest.approx(1.0, rel=1e-14)

    @pytest.mark.parametrize(
        "make", [sdifp.correction.AbsoluteFloor, sdifp.correction.RelativeFloor]
    )
    @pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
    def test_bad_floor(self, make, bad):
        with pytest.raises(ValueError, match=r"must be finite and not negative"):
            make(bad)
