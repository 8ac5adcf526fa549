"""conserve: exact on the rule, right derivatives, components, profiles, rules."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import jet
from quick import once

import sdifp


class Net(eqx.Module):
    """A small periodic network of x and t."""

    mlp: eqx.nn.MLP

    def __init__(self, d, key, out="scalar"):
        self.mlp = eqx.nn.MLP(2 * d + 1, out, 16, 2, jnp.tanh, key=key)

    def __call__(self, x, t):
        wave = jnp.pi * x
        return self.mlp(jnp.concatenate([jnp.sin(wave), jnp.cos(wave), t[None]]))


BOX = sdifp.Box([0.0], [2.0], periodic=True)
RULE = sdifp.quadrature.trapezoid(BOX, 32)
KEY = jax.random.key(3)
NET = Net(1, KEY)


def squared_norm(t):
    return 2.0 + jnp.sin(t) ** 2


def mass(t):
    return 1.0 + 0.3 * t


U = sdifp.conserve(NET, RULE, mass, squared_norm)
X = jnp.array([0.37])


def integrals(u, t, rule=None):
    rule = u.rule if rule is None else rule
    values = jax.vmap(lambda x: u(x, t))(jnp.asarray(rule.nodes))
    w = np.asarray(rule.weights)
    v = np.asarray(values)
    return rule.domain.volume * (w @ v), rule.domain.volume * (w @ v**2)


@pytest.mark.parametrize("t", [0.0, 0.4, 1.3])
def test_both_integrals_hold_at_every_time(t):
    got = integrals(U, t)
    assert got[0] == pytest.approx(float(mass(t)), rel=1e-14)
    assert got[1] == pytest.approx(float(squared_norm(t)), rel=1e-14)


def test_either_target_alone():
    only_mass = sdifp.conserve(NET, RULE, mass=0.7)
    assert integrals(only_mass, 0.2)[0] == pytest.approx(0.7, rel=1e-14)
    assert float(only_mass.at(0.2).scale) == 1.0
    only_norm = sdifp.conserve(NET, RULE, squared_norm=0.7)
    assert integrals(only_norm, 0.2)[1] == pytest.approx(0.7, rel=1e-14)
    assert float(only_norm.at(0.2).shift) == 0.0


def test_network_without_time():
    u = sdifp.conserve(lambda x: jnp.exp(jnp.sin(jnp.pi * x[0])), RULE, 1.0, 2.0)
    values = jax.vmap(u)(jnp.asarray(RULE.nodes))
    assert 2 * np.mean(values) == pytest.approx(1.0, rel=1e-14)
    assert 2 * np.mean(values**2) == pytest.approx(2.0, rel=1e-14)


def test_trainable_leaves_are_those_of_the_network():
    for rule in (RULE, sdifp.quadrature.lattice(BOX, 32, key=KEY).resample(KEY)):
        u = sdifp.conserve(NET, rule, mass, 3.0, gradient=sdifp.field.Subsampled(8))
        u = u.resample(KEY, rule=rule.is_randomised)
        got = jax.tree.leaves(eqx.filter(u, eqx.is_inexact_array))
        want = jax.tree.leaves(eqx.filter(NET, eqx.is_inexact_array))
        assert len(got) == len(want)
        assert all(a is b for a, b in zip(got, want, strict=True))


def test_snapshot_is_the_field():
    now = U.at(0.6)
    xs = BOX.sample(KEY, 5)
    direct = jax.vmap(lambda x: U(x, 0.6))(xs)
    assert np.allclose(jax.vmap(now)(xs), direct, rtol=1e-14)
    raw = jax.vmap(lambda x: NET(x, jnp.asarray(0.6)))(xs)
    assert np.allclose(now.scale * raw + now.shift, direct, rtol=1e-12)


def coefficients(t):
    """The paper's closed form, by plain sums."""
    f = jax.vmap(lambda x: NET(x, t))(jnp.asarray(RULE.nodes))
    w = jnp.asarray(RULE.weights)
    mean = jnp.sum(w * f)
    variance = jnp.sum(w * f * f) - mean**2
    m, s = mass(t) / 2.0, squared_norm(t) / 2.0
    scale = jnp.sqrt((s - m * m) / variance)
    return scale, m - scale * mean


def derivatives(f, t, order):
    """f and its derivatives, in forward mode."""
    out = [f(t)]
    for _ in range(order):
        f = jax.jacfwd(f)
        out.append(f(t))
    return out


def test_time_derivatives_are_those_of_the_corrected_field():
    def oracle(t):
        scale, shift = coefficients(t)
        return scale * NET(X, t) + shift

    fields = (lambda t: U(X, t)), oracle
    run = once(lambda t: [derivatives(f, t, 3) for f in fields])
    for got, want in zip(*run(jnp.asarray(0.4)), strict=True):
        assert float(got) == pytest.approx(float(want), rel=1e-9)


def test_time_derivative_is_the_formula_of_the_paper():
    t = jnp.asarray(0.4)
    (scale, _), (scale_t, shift_t) = jax.jvp(coefficients, (t,), (1.0,))
    f, f_t = jax.jvp(lambda t: NET(X, t), (t,), (1.0,))
    got = jax.jvp(lambda t: U(X, t), (t,), (1.0,))[1]
    want = scale_t * f + scale * f_t + shift_t
    assert float(got) == pytest.approx(float(want), rel=1e-11)
    # Leaving out the derivatives of the coefficients is another number.
    assert abs(float(got) - float(scale * f_t)) > 1e-2


def test_time_derivatives_against_differences():
    h = 1e-4
    run = jax.jit(lambda t: U(X, t))
    lower, middle, upper = (float(run(0.4 + s * h)) for s in (-1, 0, 1))
    _, first, second = once(lambda t: derivatives(run, t, 2))(jnp.asarray(0.4))
    assert float(first) == pytest.approx((upper - lower) / (2 * h), rel=1e-6)
    assert float(second) == pytest.approx((upper - 2 * middle + lower) / h**2, rel=1e-4)


def test_time_derivative_keeps_the_targets():
    nodes, w = jnp.asarray(RULE.nodes), np.asarray(RULE.weights)

    def values(t):
        now = U.at(t)
        return jax.vmap(now)(nodes)

    v, v_t = once(lambda t: jax.jvp(values, (t,), (1.0,)))(jnp.asarray(0.4))
    assert 2 * (w @ v_t) == pytest.approx(0.3, rel=1e-12)
    squared_norm_t = float(jax.grad(squared_norm)(0.4))
    assert 2 * (w @ (2 * v * v_t)) == pytest.approx(squared_norm_t, rel=1e-12)


def test_space_derivatives_are_scaled_ones_of_the_network():
    scale = float(U.at(0.4).scale)
    t = jnp.asarray(0.4)
    hessian = lambda f: jax.jacfwd(jax.jacrev(lambda x: f(x, t)))
    got, want = once(lambda x: (hessian(U)(x), hessian(NET)(x)))(X)
    assert np.allclose(got, scale * want, rtol=1e-12)


@pytest.mark.parametrize("variable", ["x", "t"])
def test_taylor_mode(variable):
    def run(s):
        return U(X + s, 0.4) if variable == "x" else U(X, 0.4 + s)

    @once
    def both(s):
        value, series = jet.jet(run, (s,), ([1.0, 0.0, 0.0],))
        return [value, *series], derivatives(run, s, 3)

    for got, want in zip(*both(jnp.asarray(0.0)), strict=True):
        assert float(got) == pytest.approx(float(want), rel=1e-9)


def test_batches_that_share_a_time():
    ts, xs = jnp.linspace(0.0, 1.0, 3), BOX.sample(KEY, 4)

    @jax.jit
    def run(ts, xs):
        return jax.vmap(lambda t: jax.vmap(U.at(t))(xs))(ts)

    got = run(ts, xs)
    want = [[float(U(x, t)) for x in xs] for t in ts]
    assert np.allclose(got, want, rtol=1e-13)


def test_components_have_targets_of_their_own():
    net = Net(1, KEY, out=4)
    u = sdifp.conserve(
        net,
        RULE,
        mass=[1.0, None, None, lambda t: 0.2 * t],
        squared_norm=[2.0, 3.0, None, None],
    )
    values = np.asarray(jax.vmap(lambda x: u(x, 0.5))(jnp.asarray(RULE.nodes)))
    raw = np.asarray(
        jax.vmap(lambda x: net(x, jnp.asarray(0.5)))(jnp.asarray(RULE.nodes))
    )
    first, second = 2 * values.mean(0), 2 * (values**2).mean(0)
    assert first[[0, 3]] == pytest.approx([1.0, 0.1], rel=1e-13)
    assert second[[0, 1]] == pytest.approx([2.0, 3.0], rel=1e-13)
    assert np.array_equal(values[:, 2], raw[:, 2])
    assert u.at(0.5).status.shape == (4,)


def test_one_component_vector_takes_a_plain_target():
    u = sdifp.conserve(Net(1, KEY, out=1), RULE, mass=1.0)
    assert u(X, 0.1).shape == (1,)


def test_periodicity_is_kept():
    assert float(U(X, 0.3)) == pytest.approx(float(U(X + 2.0, 0.3)), rel=1e-13)


def test_neumann_data_are_kept():
    box = sdifp.Box([0.0], [1.0])
    net = lambda x, t: jnp.exp(jnp.cos(jnp.pi * x[0]) * (1 + t))
    u = sdifp.conserve(net, sdifp.quadrature.midpoint(box, 24), 1.0, 2.0)
    for wall in (0.0, 1.0):
        slope = jax.grad(lambda x: u(x, 0.3))(jnp.array([wall]))
        assert abs(float(slope[0])) < 1e-13


def test_dirichlet_data_are_kept_with_a_profile():
    box = sdifp.Box([0.0], [1.0])
    rule = sdifp.quadrature.gauss_legendre(box, 24)
    net = lambda x, t: jnp.sin(jnp.pi * x[0]) * jnp.exp(x[0] * (1 + t))
    u = sdifp.conserve(net, rule, 0.5, 0.4, profile=lambda x: x[0] * (1 - x[0]))
    got = integrals(u, 0.3)
    assert got == (pytest.approx(0.5, rel=1e-13), pytest.approx(0.4, rel=1e-13))
    for wall in (0.0, 1.0):
        assert abs(float(u(jnp.array([wall]), 0.3))) < 1e-14


def test_fresh_rule_inside_jit_and_a_larger_one_afterwards():
    box = sdifp.Box.cube(5, periodic=True)
    net = Net(5, KEY)
    u = sdifp.conserve(net, sdifp.quadrature.lattice(box, 64, key=KEY), 1.0, 2.0)

    @eqx.filter_jit
    def step(u, key):
        fresh = u.resample(key)
        now = fresh.at(0.3)
        return fresh.rule.mean(now), fresh.rule.mean(lambda x: now(x) ** 2), now.scale

    scales = []
    for k in jax.random.split(KEY, 3):
        first, second, scale = step(u, k)
        assert float(first) == pytest.approx(1.0, rel=1e-13)
        assert float(second) == pytest.approx(2.0, rel=1e-13)
        scales.append(float(scale))
    assert len(set(scales)) == 3
    large = u.on(sdifp.quadrature.sobol(box, 2048, key=KEY))
    assert integrals(large, 0.3)[0] == pytest.approx(1.0, rel=1e-13)
    assert eqx.tree_equal(large.net, u.net)


def test_low_dimensional_rules_are_left_alone_by_resample():
    fresh = U.resample(KEY)
    assert fresh.rule == U.rule
    moved = U.resample(KEY, rule=True)
    assert moved.rule.shift is not None


def test_chunks_do_not_change_the_field():
    one = sdifp.conserve(
        NET, RULE, mass, squared_norm, gradient=sdifp.field.Exact(chunk=7)
    )
    run = once(lambda t: [derivatives(lambda t, u=u: u(X, t), t, 2) for u in (one, U)])
    for got, want in zip(*run(jnp.asarray(0.2)), strict=True):
        assert float(got) == pytest.approx(float(want), rel=1e-11)


def test_gauge_measures_scale_and_offset():
    now = U.at(0.4)
    raw = np.asarray(
        jax.vmap(lambda x: NET(x, jnp.asarray(0.4)))(jnp.asarray(RULE.nodes))
    )
    m, s = float(mass(0.4)) / 2, float(squared_norm(0.4)) / 2
    want = np.log(float(now.scale)) ** 2 + (raw.mean() - m) ** 2 / (s - m * m)
    assert float(now.gauge()) == pytest.approx(want, rel=1e-10)
    fitted = sdifp.conserve(lambda x, t: U(x, t), RULE, mass, squared_norm)
    assert float(fitted.at(0.4).gauge()) < 1e-20


def test_gauge_of_components_without_targets_is_zero():
    u = sdifp.conserve(Net(1, KEY, out=2), RULE, mass=[None, 1.0])
    alone = sdifp.conserve(lambda x, t: Net(1, KEY, out=2)(x, t)[1], RULE, mass=1.0)
    got, want = u.at(0.1).gauge(), alone.at(0.1).gauge()
    assert float(got) == pytest.approx(float(want), rel=1e-12)


def test_very_high_dimension_with_normalised_targets():
    box = sdifp.Box.cube(20_000, 0.0, 2.0, normalised=True)
    rule = sdifp.quadrature.monte_carlo(box, 16, key=KEY)
    net = lambda x: jnp.sum(jnp.cos(x)) / jnp.sqrt(x.size)
    u = sdifp.conserve(net, rule, 0.3, 1.0)
    now = u.at()
    assert float(rule.mean(now)) == pytest.approx(0.3, rel=1e-12)
    assert float(rule.mean(lambda x: now(x) ** 2)) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.usefixtures("as_user")
class TestBadInput:
    @pytest.mark.parametrize(
        ("kwargs", "message"),
        [
            ({}, "give a target"),
            ({"net": lambda x, t: x[None]}, r"net must return.*got \(1, 1\)"),
            ({"net": lambda x, t: jnp.int32(1)}, "floating-point"),
            ({"net": lambda x, t: x[3:]}, r"net must return.*\(0,\)"),
            (
                {"net": lambda x, t: x @ jnp.ones(3)},
                r"shape \(1,\).*dimension of the rule",
            ),
            ({"net": lambda x, t, z: x[0]}, "cannot be evaluated"),
            ({"mass": [1.0, 2.0]}, "mass has 2 entries, but the network returns one"),
            ({"mass": np.ones(2)}, "mass must be a number or a function of t"),
            ({"mass": float("nan")}, "mass must be real and finite"),
            (
                {"mass": 1.0, "gradient": sdifp.field.Subsampled(33)},
                "at most the 32 nodes.*33",
            ),
            (
                {"mass": 1.0, "gradient": sdifp.field.MiniBatch(33)},
                "at most the 32 nodes",
            ),
            ({"mass": 1.0, "profile": lambda x: 0.0 * x[0]}, "zero on every node"),
            ({"mass": 1.0, "profile": lambda x: jnp.sin(jnp.pi * x[0])}, "mean zero"),
            ({"mass": 1.0, "profile": lambda x: x}, r"one number, got shape \(1,\)"),
            ({"squared_norm": 1.0, "profile": lambda x: x[0]}, "profile has no effect"),
            ({"mass": lambda t: t, "net": lambda x: x[0]}, "without time"),
        ],
    )
    def test_message(self, kwargs, message):
        kwargs = {"net": NET, **kwargs}
        if (
            "mass" not in kwargs
            and "squared_norm" not in kwargs
            and "give" not in message
        ):
            kwargs["mass"] = 1.0
        with pytest.raises((ValueError, TypeError), match=message):
            sdifp.conserve(rule=RULE, **kwargs)

    def test_several_components_need_a_list(self):
        with pytest.raises(ValueError, match="one entry for each of the 2 components"):
            sdifp.conserve(Net(1, KEY, out=2), RULE, mass=1.0)

    def test_first_infeasible_time_is_named(self):
        times = np.linspace(0.0, 2.0, 21)
        with pytest.raises(ValueError, match=r"at t = 1\.1: squared_norm = 0\.49"):
            sdifp.conserve(NET, RULE, 1.0, lambda t: 1.04 - 0.5 * t, times=times)

    def test_constant_network_is_named(self):
        u = sdifp.conserve(lambda x, t: 1.0 + 0 * x[0], RULE, 1.0, 2.0)
        with pytest.raises(ValueError, match=r"at t = 0\.5: the network is constant"):
            u.check([0.5])
        assert int(u.at(0.5).status) == sdifp.Status.DEGENERATE

    def test_volume_that_overflows_asks_for_means(self):
        rule = sdifp.quadrature.monte_carlo(sdifp.Box.cube(5000, 0.0, 2.0), 4, key=KEY)
        with pytest.raises(ValueError, match="normalised=True"):
            sdifp.conserve(lambda x: x[0], rule, 1.0)

    def test_volume_that_underflows_single_precision(self):
        with jax.enable_x64(False):
            rule = sdifp.quadrature.monte_carlo(
                sdifp.Box.cube(50, 0.0, 0.1), 4, key=KEY
            )
            with pytest.raises(ValueError, match=r"does not fit float32.*normalised"):
                sdifp.conserve(lambda x: x[0], rule, 1.0)

    def test_times_are_given_one_at_a_time(self):
        with pytest.raises(ValueError, match=r"one time, got shape \(2,\)"):
            U.at(jnp.zeros(2))
        with pytest.raises(ValueError, match="t must be given"):
            U.at()
        still = sdifp.conserve(lambda x: x[0], RULE, 1.0)
        with pytest.raises(ValueError, match="t must be left out"):
            still(X, 0.3)

    def test_rule_on_another_box(self):
        other = sdifp.quadrature.trapezoid(sdifp.Box([0.0], [1.0], periodic=True), 8)
        with pytest.raises(ValueError, match="must live on the box of the field"):
            U.on(other)

    @pytest.mark.parametrize("k", [0, -1, 2.5])
    def test_bad_counts(self, k):
        for make in (
            sdifp.field.Subsampled,
            sdifp.field.MiniBatch,
            sdifp.field.Exact,
            sdifp.field.Detached,
        ):
            with pytest.raises(ValueError, match="must be a positive integer"):
                make(k)
