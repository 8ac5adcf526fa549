"""Targets keep the digits that they were given with, and those that cannot be met are
errors outside `jit`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdifp
from sdifp import Status

KEY = jax.random.key(0)
BOX = sdifp.Box([0.0], [2.0], periodic=True)
RULE = sdifp.quadrature.trapezoid(BOX, 64)
X = jnp.array([0.3])

SMALL = 1e-3


def rippled(x, t):
    return 1.0 + SMALL * jnp.sin(jnp.pi * (x[0] - t))


def wave(x, t):
    return 0.2 + jnp.sin(jnp.pi * (x[0] - t))


@pytest.mark.parametrize("x64", [False, True])
def test_small_variation_beside_a_large_mean_survives_single_precision(x64):
    """`s - m^2` of these numbers is 5e-7, four units of rounding of float32."""
    with jax.enable_x64(x64):
        u = sdifp.conserve(rippled, RULE, mass=2, squared_norm=2 * (1 + SMALL**2 / 2))
        now = u.at(0.3)
        assert int(now.status) == Status.REGULAR
        assert float(now.scale) == pytest.approx(1.0, abs=1e-5)
        assert u.certificate([0.3], key=KEY).holds


@pytest.mark.parametrize("x64", [False, True])
def test_variance_is_a_target_of_its_own(x64):
    """The integral of (u - m)^2, against a sum over the nodes in NumPy."""
    with jax.enable_x64(x64):
        wanted = lambda t: 4e-8 * (1.0 + t)
        u = sdifp.conserve(rippled, RULE, mass=2.0, variance=wanted)
        now = u.at(0.5)
        values = np.asarray(jax.vmap(now)(jnp.asarray(RULE.nodes)), np.float64)
        got = 2.0 * np.mean((values - values.mean()) ** 2)
        # The values themselves are rounded, in single precision by a part in 1e7.
        assert got == pytest.approx(6e-8, rel=1e-2 if not x64 else 1e-10)
        rows = u.certificate([0.5], key=KEY)
        assert rows.holds
        assert [row.invariant for row in rows.rows] == ["mass", "variance"]
        assert rows.rows[1].target == pytest.approx(6e-8, rel=1e-6)


def test_variance_says_the_same_as_the_squared_norm():
    mean, variance = 0.7, 0.3
    one = sdifp.conserve(wave, RULE, mass=2 * mean, variance=2 * variance)
    two = sdifp.conserve(
        wave, RULE, mass=2 * mean, squared_norm=2 * (variance + mean**2)
    )
    assert float(one(X, 0.4)) == pytest.approx(float(two(X, 0.4)), rel=1e-14)
    box = sdifp.Box(
        RULE.domain.lower, RULE.domain.upper, periodic=True, normalised=True
    )
    rule = sdifp.quadrature.trapezoid(box, RULE.size)
    one = sdifp.conserve(wave, rule, mean, variance=variance)
    assert float(one(X, 0.4)) == pytest.approx(float(two(X, 0.4)), rel=1e-14)


def test_certificate_finds_a_variation_that_functions_of_time_lose():
    """Targets that are functions are evaluated in single precision, where the
    difference is lost: the certificate evaluates them in double precision."""
    with jax.enable_x64(False):
        u = sdifp.conserve(
            rippled,
            RULE,
            mass=lambda t: 2.0 + 0.0 * t,
            squared_norm=lambda t: 2 * (1 + SMALL**2 / 2) + 0.0 * t,
        )
        assert float(u.at(0.3).scale) == 0.0
        got = u.certificate([0.3], key=KEY)
    assert not got.holds
    assert "UNDERFLOW" in got.verdict


def test_targets_that_leave_no_freedom_are_constant_in_any_precision():
    for x64 in (False, True):
        with jax.enable_x64(x64):
            for number in (float, np.float32):
                mean = number(0.1)
                u = sdifp.conserve(wave, RULE, mean, number(mean * mean / 2.0))
                assert int(u.at(0.1).status) == Status.CONSTANT
                # Numbers in single precision are that far from each other.
                errors = [r.on_rule for r in u.certificate([0.1], key=KEY).rows]
                eps = max(np.finfo(d).eps for d in (number, jnp.result_type(float)))
                assert max(errors) <= 4 * eps


def test_certificate_compares_with_the_number_that_was_given():
    with jax.enable_x64(False):
        given = 1.0 + 2.0**-30
        u = sdifp.conserve(wave, RULE, mass=given)
        row = u.certificate([0.1], key=KEY).rows[0]
    assert row.target == given


def test_energy_that_underflows_is_no_certified_zero():
    with jax.enable_x64(False):
        u = sdifp.conserve(wave, RULE, squared_norm=1e-50)
        assert int(u.at(0.1).status) == Status.UNDERFLOW
        assert not u.certificate([0.1], key=KEY).holds
        with pytest.raises(
            ValueError, match=r"squared_norm = 1e-50 .*underflows.*float64"
        ):
            u(X, 0.1)
    u = sdifp.conserve(wave, RULE, squared_norm=1e-50)
    values = np.asarray(jax.vmap(lambda x: u(x, 0.1))(RULE.nodes))
    assert 2.0 * np.mean(values**2) == pytest.approx(1e-50, rel=1e-13)


def test_field_in_single_precision_that_underflows_has_a_status():
    single = lambda x, t: wave(x, t).astype(jnp.float32)
    u = sdifp.conserve(single, RULE, squared_norm=1e-50)
    assert int(u.at(0.1).status) == Status.REGULAR
    assert float(u(X, 0.1)) != 0.0
    u = sdifp.conserve(single, RULE, squared_norm=1e-100)
    assert int(u.at(0.1).status) == Status.UNDERFLOW


def test_network_too_small_for_its_square_is_not_called_constant():
    with jax.enable_x64(False):
        u = sdifp.conserve(lambda x, t: 1e-30 * wave(x, t), RULE, 1.0, 2.0)
        with pytest.raises(ValueError, match=r"small that its square underflows float"):
            u(X, 0.1)


UNMET = {
    "constant network": (lambda x, t: 0.5 + 0.0 * x[0], 3.0, 9.0, "constant on the"),
    "NaN network": (lambda x, t: jnp.nan * x[0], 3.0, 9.0, "network is not finite"),
    "infeasible squared_norm": (
        wave,
        3.0,
        lambda t: 1.0 + 0.0 * t,
        "squared_norm = 1 is below",
    ),
    "NaN target": (
        wave,
        3.0,
        lambda t: t * jnp.nan,
        "squared_norm = nan is not finite",
    ),
    "zero network": (lambda x, t: 0.0 * x[0], None, 2.0, "network is zero"),
}


@pytest.mark.parametrize("case", UNMET)
def test_targets_that_cannot_be_met_are_errors_outside_jit(case):
    net, mass, squared_norm, reason = UNMET[case]
    u = sdifp.conserve(net, RULE, mass, squared_norm)
    times = jnp.linspace(0.5, 0.75, 3)
    ways = {
        "a call": lambda: u(X, 0.5),
        "at": lambda: u.at(0.5)(X),
        "vmap over points": lambda: jax.vmap(u.at(0.5))(X[None]),
        "vmap over times": lambda: jax.vmap(u, (None, 0))(X, times),
        "grad": lambda: jax.grad(u)(X, 0.5),
        "vmap of grad": lambda: jax.vmap(jax.grad(u), (None, 0))(X, times),
        "an operator": lambda: sdifp.laplacian()(u)(X, 0.5),
        "time": lambda: sdifp.time_derivative()(u)(X[None], jnp.array([0.5])),
        "check": lambda: u.check([0.5]),
    }
    for call in ways.values():
        with pytest.raises(ValueError, match=rf"cannot be met at t = 0\.5: .*{reason}"):
            call()
    # Inside `jit` the status says it, and nothing is raised.
    assert int(jax.jit(lambda t: u.at(t).status)(0.5)) >= Status.DEGENERATE
    jax.block_until_ready(jax.jit(u)(X, 0.5))


def test_only_the_component_that_fails_is_named():
    two = lambda x, t: jnp.stack([wave(x, t), 0.5 + 0.0 * x[0]])
    u = sdifp.conserve(two, RULE, [1.0, 1.0], [3.0, 3.0])
    with pytest.raises(ValueError, match=r"of component 1 cannot be met at t = 0\.5"):
        u(X, 0.5)


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"mass": 3, "squared_norm": 1},
            r"squared_norm = 1 is below.*mass 3 can have, 4\.5",
        ),
        ({"squared_norm": -1.0}, r"squared_norm must not be negative, got -1\.0"),
        ({"mass": 1.0, "variance": -1.0}, r"variance must not be negative, got -1\.0"),
        ({"variance": 1.0}, "variance needs mass"),
        (
            {"mass": 1.0, "squared_norm": 1.0, "variance": 1.0},
            "squared_norm or variance, not both",
        ),
    ],
)
def test_targets_that_no_field_has_are_refused_at_construction(kwargs, message):
    with pytest.raises(ValueError, match=message):
        sdifp.conserve(wave, RULE, **kwargs)


def test_one_node_cannot_have_a_variance():
    one = sdifp.quadrature.trapezoid(BOX, 1)
    with pytest.raises(
        ValueError, match="at least two nodes where mass and squared_norm"
    ):
        sdifp.conserve(wave, one, 1.0, 3.0)
    u = sdifp.conserve(wave, one, 2.0, 2.0)
    assert float(u(X, 0.1)) == 1.0


@pytest.mark.usefixtures("as_user")
def test_a_batch_where_one_point_is_expected():
    u = sdifp.conserve(wave, RULE, 1.0, 3.0)
    batch, message = jnp.zeros((5, 1)), r"one point of shape \(1,\).*jax\.vmap"
    for call in (
        lambda: u(batch, 0.1),
        lambda: u.at(0.1)(batch),
        lambda: sdifp.conserve(lambda x, t: x[:, 0] @ jnp.ones(5), RULE, 1.0),
        lambda: sdifp.conserve(lambda x, t: jnp.zeros((5, 1)), RULE, 1.0),
        lambda: sdifp.Residual(sdifp.laplacian())(lambda x: x[:, 0], batch),
        lambda: sdifp.Residual(sdifp.laplacian())(lambda x: jnp.ones((5, 1)), batch),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_field_of_outside_can_be_used_inside_jit():
    u = sdifp.conserve(wave, RULE, 1.0, 3.0)
    now, points = u.at(0.5), jnp.linspace(0.0, 2.0, 5)[:, None]
    want = jax.vmap(now)(points)
    for call in (
        lambda: jax.jit(lambda x: jax.vmap(now)(x))(points),
        lambda: jax.lax.map(lambda x: now(x), points),
        lambda: jax.jit(lambda x: jax.vmap(lambda x: u(x, 0.5))(x))(points),
    ):
        assert np.allclose(call(), want, rtol=1e-14)
    slope = jax.jit(jax.grad(lambda x: now(x)))(X)
    assert np.allclose(slope, jax.grad(lambda x: now(x))(X), rtol=1e-14)
    unmet = sdifp.conserve(wave, RULE, 3.0, lambda t: 1.0 + 0.0 * t).at(0.5)
    with pytest.raises(ValueError, match=r"met at t = 0\.5: squared_norm = 1 is below"):
        jax.jit(lambda x: unmet(x))(X)


def test_vmap_over_networks_names_the_time():
    """A batch axis of the parameters, which the time does not have, and one of both."""
    net = lambda size, x, t: size * wave(x, t)
    at = lambda size, t: sdifp.conserve(
        jax.tree_util.Partial(net, size), RULE, 1.0, 3.0
    )(X, t)
    sizes = jnp.array([1.0, 0.0, 2.0])
    with pytest.raises(ValueError, match=r"cannot be met at t = 0\.5: the network is"):
        jax.vmap(at, (0, None))(sizes, 0.5)
    with pytest.raises(ValueError, match=r"cannot be met at t = 0\.2: the network is"):
        jax.vmap(at)(sizes, jnp.array([0.1, 0.2, 0.3]))


def test_numbers_of_two_precisions_are_two_targets():
    """What float32 takes for rounding is a variation in float64."""
    mass, squared_norm = np.float32(2.0), np.float32(2.0 * (1.0 + 2e-7))
    rounded = sdifp.conserve(rippled, RULE, mass, squared_norm).at(0.5)
    exact = sdifp.conserve(rippled, RULE, float(mass), float(squared_norm)).at(0.5)
    assert int(rounded.status) == Status.CONSTANT
    assert int(exact.status) == Status.REGULAR


def test_certificate_of_a_field_whose_square_overflows():
    kink = lambda size: lambda x, t: jnp.abs(x[0] - 0.7) * size
    few = sdifp.quadrature.trapezoid(BOX, 4)
    ones, large = (
        sdifp.conserve(kink(size), few, mass=size).certificate([0.5], key=KEY)
        for size in (1.0, 1e170)
    )
    assert abs(ones.rows[0].continuum) > 1e-2
    assert abs(large.rows[0].continuum) > 1e-2


@pytest.mark.parametrize(
    "targets", [{"mass": 1e39}, {"mass": 1.0, "squared_norm": 1e80}]
)
def test_field_that_overflows_its_dtype_is_not_finite(targets):
    single = lambda x, t: wave(x, t).astype(jnp.float32)
    u = sdifp.conserve(single, RULE, **targets)
    assert int(u.at(0.5).status) == Status.NOT_FINITE
    with pytest.raises(ValueError, match="the corrected field overflows its dtype"):
        u(X, 0.5)


def test_small_energy_that_single_precision_can_hold():
    with jax.enable_x64(False):
        u = sdifp.conserve(wave, RULE, squared_norm=1e-32)
        values = np.asarray(jax.vmap(lambda x: u(x, 0.5))(jnp.asarray(RULE.nodes)))
        assert u.certificate([0.5], key=KEY).holds
    got = 2.0 * np.mean(values.astype(np.float64) ** 2)
    assert got == pytest.approx(1e-32, rel=1e-5)


def test_variance_that_is_lost_in_the_values_is_not_certified():
    single = lambda x, t: wave(x, t).astype(jnp.float32)
    u = sdifp.conserve(single, RULE, mass=2.0, variance=2e-16)
    got = u.certificate([0.5], key=KEY)
    assert not got.holds
    assert "UNDERFLOW" in got.verdict


def test_target_that_cannot_be_evaluated_in_double_precision():
    with jax.enable_x64(False):
        c = jnp.array([1.0, 2.0, 3.0])
        step = lambda t: lambda i, a: a * t + c[i]
        mass = lambda t: jax.lax.fori_loop(0, 3, step(t), c[0])
        got = sdifp.conserve(wave, RULE, mass=mass).certificate([0.5], key=KEY)
    assert got.holds
