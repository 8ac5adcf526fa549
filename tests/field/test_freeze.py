"""Frozen fields: the stated accuracy holds, files come back, ranges are kept."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once
from scipy.interpolate import BarycentricInterpolator, FloaterHormannInterpolator

import sdifp
from sdifp._core._frozen import chebyshev, floater_hormann
from sdifp.field._freeze import _barycentric

KEY = jax.random.key(2)
BOX = sdifp.Box([0.0], [2.0], periodic=True)
RULE = sdifp.quadrature.trapezoid(BOX, 24)


class Net(eqx.Module):
    mlp: eqx.nn.MLP
    name: str = "a leaf that is no array"

    def __call__(self, x, t):
        wave = jnp.pi * x
        return self.mlp(jnp.concatenate([jnp.sin(wave), jnp.cos(wave), t[None]]))


NET = Net(eqx.nn.MLP(3, "scalar", 8, 2, jnp.tanh, key=KEY))
U = sdifp.conserve(NET, RULE, lambda t: 1.0 + 0.2 * t, 3.0)
FROZEN = U.freeze((0.0, 1.0))
X = jnp.array([0.4])


@pytest.mark.parametrize("t", [0.0, 0.123, 0.5, 0.777, 1.0])
def test_frozen_field_is_the_field_to_the_stated_accuracy(t):
    assert FROZEN.accuracy <= 1e-9
    assert float(FROZEN(X, t)) == pytest.approx(float(U(X, t)), abs=1e-8)


def test_snapshot_is_the_field_at_that_time():
    now = FROZEN.at(0.3)
    xs = BOX.sample(KEY, 5)
    want = jax.vmap(lambda x: FROZEN(x, 0.3))(xs)
    assert np.allclose(jax.jit(jax.vmap(now))(xs), want, rtol=1e-14)


def test_given_grid_and_its_accuracy():
    grid = np.linspace(0.0, 1.0, 41) ** 1.2
    frozen = U.freeze(grid, tolerance=1e-4)
    for t in (0.03, 0.41, 0.99):
        error = abs(float(frozen(X, t)) - float(U(X, t)))
        assert error <= 20 * frozen.accuracy + 1e-12
    on_node = float(grid[7])
    assert float(frozen(X, on_node)) == pytest.approx(float(U(X, on_node)), rel=1e-13)


def test_interpolation_against_scipy():
    grid = np.sort(np.random.default_rng(0).random(12))
    values = np.stack([np.sin(3 * grid), np.exp(grid)], 1)
    want = FloaterHormannInterpolator(grid, values, d=4)
    for t in (grid[3], 0.5 * (grid[3] + grid[4]), grid[-1]):
        arrays = map(jnp.asarray, (t, grid, floater_hormann(grid), values))
        got = _barycentric(*arrays)
        assert np.allclose(got, want(t), rtol=1e-12)
    nodes, weights = chebyshev(-1.0, 3.0, 9)
    values = np.cos(nodes)[:, None]
    got = _barycentric(*map(jnp.asarray, (0.3, nodes, weights, values)))
    assert np.allclose(got, BarycentricInterpolator(nodes, values)(0.3), rtol=1e-12)


def test_works_under_jit_vmap_and_grad():
    ts = jnp.linspace(0.1, 0.9, 4)
    got = jax.jit(jax.vmap(lambda t: FROZEN(X, t)))(ts)
    assert np.allclose(got, [float(U(X, t)) for t in ts], atol=1e-8)
    slopes = lambda t: [jax.grad(u, 1)(X, t) for u in (FROZEN, U)]
    slope, want = once(slopes)(jnp.asarray(0.3))
    assert float(slope) == pytest.approx(float(want), abs=1e-6)


def test_time_derivatives_are_right_on_the_nodes_too():
    @once
    def slopes(field, ts):
        first = jax.jacfwd(lambda t: field(X, t))
        return [jax.vmap(f)(ts) for f in (first, jax.jacfwd(first))]

    ts = jnp.array([0.0, 0.25, 0.5, 1.0])
    for frozen, tolerance in (
        (FROZEN, 1e-6),
        (U.freeze(np.linspace(0, 1, 41), tolerance=1e-4), 1e-3),
    ):
        for order, (got, want) in enumerate(
            zip(slopes(frozen, ts), slopes(U, ts), strict=True), 1
        ):
            np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * 10.0**order)


def test_default_tolerance_in_single_precision():
    with jax.enable_x64(False):
        rule = sdifp.quadrature.trapezoid(BOX, 24)
        net = lambda x, t: jnp.exp(jnp.sin(jnp.pi * (x[0] - t)))
        u = sdifp.conserve(net, rule, 1.0, lambda t: 2.0 + t)
        frozen = u.freeze((0.0, 1.0))
        x = jnp.array([0.3])
        assert float(frozen(x, 0.4)) == pytest.approx(float(u(x, 0.4)), rel=1e-5)
        with pytest.raises(ValueError, match="which is rounding"):
            u.freeze((0.0, 1.0), tolerance=1e-9)


def test_times_of_other_types():
    frozen = U.freeze((0.0, 0.1))
    assert np.isfinite(float(frozen(X, jnp.float32(0.1))))
    assert float(FROZEN(X, 1)) == pytest.approx(float(U(X, 1)), abs=1e-8)


def test_short_formats_come_back(tmp_path):
    def apply(p, x, t):
        return jnp.exp(jnp.sin(jnp.pi * x[0] + p[0].astype(float))) + t

    def net(value):
        return jax.tree_util.Partial(apply, jnp.array([value], jnp.bfloat16))

    frozen = sdifp.conserve(net(0.5), RULE, 1.0, 2.0).freeze((0.0, 1.0))
    frozen.save(tmp_path / "b.npz")
    again = sdifp.field.FrozenField.load(tmp_path / "b.npz", net(0.0))
    assert float(again(X, 0.3)) == float(frozen(X, 0.3))


def test_no_quadrature_is_left():
    jaxpr = str(jax.make_jaxpr(lambda x, t: FROZEN(x, t))(X, 0.3))
    assert "24" not in jaxpr.replace("f64", "")


def test_network_without_time_and_with_a_profile(tmp_path):
    box = sdifp.Box([0.0], [1.0])
    profile = lambda x: x[0] * (1 - x[0])
    u = sdifp.conserve(
        lambda x: jnp.sin(jnp.pi * x[0]) * (1 + x[0]),
        sdifp.quadrature.gauss_legendre(box, 16),
        0.5,
        0.4,
        profile=profile,
    )
    frozen = u.freeze()
    assert float(frozen(X)) == pytest.approx(float(u(X)), rel=1e-12)
    frozen.save(tmp_path / "f.npz")
    with pytest.raises(ValueError, match="give it as profile"):
        sdifp.field.FrozenField.load(tmp_path / "f.npz", u.net)
    again = sdifp.field.FrozenField.load(tmp_path / "f.npz", u.net, profile)
    assert float(again(X)) == float(frozen(X))


def test_components():
    def two(x, t):
        return jnp.stack([NET(x, t), NET(x, 2 * t)])

    u = sdifp.conserve(two, RULE, [1.0, None], [3.0, None])
    frozen = u.freeze((0.0, 1.0), tolerance=1e-8)
    assert np.allclose(frozen(X, 0.3), u(X, 0.3), atol=1e-7)


def test_file_comes_back_without_pickle(tmp_path):
    file = tmp_path / "frozen.npz"
    FROZEN.save(file)
    blank = Net(eqx.nn.MLP(3, "scalar", 8, 2, jnp.tanh, key=jax.random.key(99)))
    again = sdifp.field.FrozenField.load(file, blank)
    assert float(again(X, 0.3)) == float(FROZEN(X, 0.3))
    assert again.accuracy == FROZEN.accuracy
    with np.load(file, allow_pickle=False) as data:
        assert {"version", "times", "scales", "leaf_0000"} <= set(data.files)


@pytest.mark.usefixtures("as_user")
class TestBadInput:
    @pytest.mark.parametrize("t", [-0.1, 1.1])
    def test_time_outside_the_frozen_range(self, t):
        with pytest.raises(ValueError, match="frozen range, 0 to 1, got"):
            FROZEN(X, t)
        with pytest.raises(Exception, match="outside the frozen range"):
            jax.block_until_ready(eqx.filter_jit(FROZEN)(X, jnp.asarray(t)))

    def test_time_left_out(self):
        with pytest.raises(ValueError, match="t must be one time"):
            FROZEN(X)

    @pytest.mark.parametrize(
        "times", [[0.0], [1.0, 0.0], [0.0, float("nan")], [0, 0, 1]]
    )
    def test_bad_times(self, times):
        with pytest.raises(ValueError, match="times must be finite and increasing"):
            U.freeze(times)

    def test_tolerance_out_of_reach(self):
        with pytest.raises(ValueError, match="was not reached with 4 times"):
            U.freeze(np.linspace(0, 1, 4), tolerance=1e-12)
        with pytest.raises(ValueError, match="tolerance must be at least"):
            U.freeze((0.0, 1.0), tolerance=0.0)

    def test_infeasible_time_is_named(self):
        u = sdifp.conserve(NET, RULE, 1.0, lambda t: 1.0 - t)
        with pytest.raises(ValueError, match="cannot be met at t = "):
            u.freeze((0.0, 1.0))

    def test_files_that_are_none(self, tmp_path):
        file = tmp_path / "x.npz"
        file.write_text("no")
        with pytest.raises(ValueError, match="is not a frozen field"):
            sdifp.field.FrozenField.load(file, NET)
        for content in (b"", b"PK\x03\x04no"):
            file.write_bytes(content)
            with pytest.raises(ValueError, match="is not a frozen field"):
                sdifp.field.FrozenField.load(file, NET)
        np.savez(file, a=np.ones(2))
        with pytest.raises(ValueError, match="is not a frozen field"):
            sdifp.field.FrozenField.load(file, NET)
        FROZEN.save(file)
        small = Net(eqx.nn.MLP(3, "scalar", 4, 2, jnp.tanh, key=KEY))
        with pytest.raises(
            ValueError, match=r"leaf_0000 has shape \(4, 3\) in net and"
        ):
            sdifp.field.FrozenField.load(file, small)
