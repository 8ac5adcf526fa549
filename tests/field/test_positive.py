"""Positive fields: exact on the rule, positive, differentiable, or refused."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from pages import code_under
from positive_cases import BOX, FAMILIES, KEY, MAPS, NET, RULE, conserved, in_graph, psi
from quick import once, only

import sdifp
from sdifp.correction import Status, project_positive
from sdifp.field import Detached, Exact, Interpolated, Lagged, MiniBatch, Subsampled
from sdifp.invariants import Mass, Moment, Quadratic, SquaredNorm
from sdifp.quadrature import QuadratureRule
from sdifp.training._coupled import rows_and_derivatives

T = jnp.asarray(0.3)
XS = jnp.linspace(0.1, 1.9, 4)[:, None]
LINE = sdifp.Box([0.0], [1.0], normalised=True)


class TableRule(QuadratureRule):
    """Nodes 0, 1, ... / size, with weights that are no constants of a program."""

    table: jax.Array

    is_randomised = False
    _spread = resample = nodes = weights = None

    def at(self, index):
        return (index / self.size)[:, None], self.table[index]


SIZE = 33


def place(x):
    return jnp.round(x[0] * SIZE).astype(int)


@functools.partial(once)
def on_nodes(family, function, z, w, mean, excess, rows, goals):
    """The field on the nodes where the network has the values z, and its status.
    Targets: the mean, its square times 1 + excess, and goals of functions in rows."""
    rule = TableRule(LINE, "table", SIZE, w)
    net = sdifp.positive(lambda x, t: z[place(x)], MAPS[function][0])
    targets = [Mass(lambda t: mean)]
    if family == "power":
        targets.append(SquaredNorm(lambda t: mean**2 * (1.0 + excess)))
    if family == "tilt":
        targets += [
            Moment(
                lambda x, k=k: rows[k, place(x)], lambda t, k=k: goals[k], name=str(k)
            )
            for k in range(len(rows))
        ]
    u = sdifp.conserve(net, rule, invariants=targets).at(T)
    return jax.vmap(u)(jnp.arange(SIZE)[:, None] / SIZE), u.status


cases = st.fixed_dictionaries(
    {
        "log_spread": st.floats(-3.0, 0.7),
        "decades": st.floats(0.0, 6.0),
        "offset": st.floats(-300.0, 300.0),
        "where": st.floats(1e-4, 0.999),
        "mean": st.floats(1e-3, 1e3),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def check_exact(family, function, case):
    rng = np.random.default_rng(case["seed"])
    w = 10.0 ** rng.uniform(-case["decades"], 0.0, SIZE)
    w /= w.sum()
    z = 10.0 ** case["log_spread"] * rng.normal(size=SIZE)
    z += case["offset"] if function == "exp" else 0.0
    most = -np.log(w[z.argmax()])
    excess = np.expm1(case["where"] * most)
    # Moments of another positive field are inside of the hull.
    x = rng.uniform(-1.0, 1.0, SIZE)
    rows, other = np.stack([x, x**2]), np.exp(rng.normal(size=SIZE))
    mean = case["mean"]
    goals = mean * (rows @ (w * other)) / (w @ other)
    # As arrays, for numbers are constants of a program.
    given = map(np.asarray, (z, w, mean, excess, rows, goals))
    u, status = on_nodes(family, function, *given)
    u, w = (np.asarray(a).astype(np.longdouble) for a in (u, w))
    w = w / w.sum()
    assert int(status) == Status.REGULAR
    assert np.all(u >= 0.0)
    errors = [(w * u).sum() / mean - 1]
    if family == "power":
        errors.append((w * u * u).sum() / (mean**2 * (1.0 + excess)) - 1)
    if family == "tilt":
        errors.extend((rows @ (w * u) - goals) / mean)
    # The logarithm of a network of size 300 has 13 digits behind the point.
    assert np.abs(np.asarray(errors, float)).max() < 1e-12


EXACT = [
    *(("power", "exp"), ("power", "softplus"), ("scale", "exp"), ("scale", "square")),
    *(("tilt", "exp"), ("tilt", "softplus"), ("tilt", "square")),
]
QUICK = (("power", "exp"), ("tilt", "square"))


@pytest.mark.parametrize("kind", only(EXACT, *QUICK), ids=str)
def test_integrals_hold_on_the_rule_and_it_stays_positive(kind):
    @settings(max_examples=60)
    @given(case=cases)
    def check(case):
        check_exact(*kind, case)

    check()


@pytest.mark.validate
@pytest.mark.parametrize("kind", EXACT, ids=str)
def test_integrals_hold_in_thousands_of_cases(kind):
    @settings(max_examples=1000)
    @given(case=cases)
    def check(case):
        check_exact(*kind, case)

    check()


@pytest.mark.parametrize("family", only(FAMILIES, "power"))
def test_the_field_is_that_of_arrays(family):
    u, t = conserved(family), 0.3
    nodes, w = np.asarray(RULE.nodes), np.asarray(RULE.weights)
    raw = np.exp([float(NET(x, t)) for x in nodes])
    means = [float(i.target.value(t)) / 2.0 for i in FAMILIES[family]]
    given = {}
    if family == "power":
        given = {"second_moment": means[1]}
    if family == "tilt":
        rows = np.array(jax.vmap(lambda x: psi(x, t), out_axes=1)(nodes))
        rows[1] = np.cos(np.pi * nodes[:, 0])
        given = {"moments": rows, "means": means[1:]}
    want = project_positive(raw, w, mean=means[0], **given).values
    got = jax.vmap(u.at(t))(nodes)
    np.testing.assert_allclose(got, want, rtol=1e-11)


def jets(u, order):
    rate = u
    for _ in range(order):
        rate = lambda t, f=rate: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]
    return rate(T)


ORDERS = [("scale", 3), ("power", 3), ("tilt", 1), ("tilt", 3)]


@pytest.mark.parametrize("kind", only(ORDERS, ("power", 3), ("tilt", 1)), ids=str)
def test_derivatives_in_time_are_those_of_finite_differences(kind):
    family, order = kind
    u = conserved(family)
    h, k = 0.02, np.arange(-6, 7)
    times = 0.3 + h * k
    values = once(jax.vmap(lambda t: u(XS[1], t)))(jnp.asarray(times))
    # The polynomial through thirteen values, differentiated.
    matrix = np.vander(k, increasing=True).astype(float)
    coefficients = np.linalg.solve(matrix, np.asarray(values))
    want = coefficients[order] * np.prod(np.arange(1, order + 1)) / h**order
    got = once(lambda u: jets(lambda t: u(XS[1], t), order))(u)
    np.testing.assert_allclose(got, want, rtol=1e-7)


def residual_loss(u):
    """The square of u_t + u_x."""

    def residual(x):
        u_t = jax.jvp(lambda t: u(x, t), (T,), (1.0,))[1]
        return u_t + jax.grad(lambda x: u(x, T))(x)[0]

    return jnp.mean(jax.vmap(residual)(XS) ** 2)


def rate_loss(u):
    rate = jax.jvp(lambda t: jax.vmap(u.at(t))(XS), (T,), (1.0,))[1]
    return jnp.sum(rate * jnp.array([1.0, -2.0, 0.5, 1.5]))


def gradient(loss, u):
    return ravel_pytree(eqx.filter_grad(loss)(u))[0]


@functools.cache
def oracle(family, loss):
    run = once(jax.grad(lambda net: loss(in_graph(family, net=net))))
    return np.asarray(ravel_pytree(run(NET))[0])


@pytest.mark.parametrize("family", only(FAMILIES, "power"))
def test_the_gradient_is_the_in_graph_one(family):
    got = once(gradient)(residual_loss, conserved(family, gradient=Exact(7)))
    want = oracle(family, residual_loss)
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9 * abs(want).max())


def scores(family, mode, repeats=1500):
    """Mean error of the gradient over its standard error, for each parameter."""
    u = conserved(family, gradient=mode)
    run = once(jax.vmap(lambda key: gradient(rate_loss, u.resample(key))))
    samples = np.asarray(run(jax.random.split(KEY, repeats)))
    error = samples.mean(0) - oracle(family, rate_loss)
    return np.abs(error) / np.maximum(samples.std(0) / repeats**0.5, 1e-12), samples


@pytest.mark.parametrize("family", only(FAMILIES, "power"))
def test_the_sampled_gradient_is_unbiased_and_the_detached_one_is_not(family):
    """Of a loss with u_t. 16 parameters: one exceeds 4.5 once in 9000 tests."""
    z, samples = scores(family, Subsampled(6, stratified=False))
    assert samples.std(0).max() > 1e-3
    assert z.max() < 4.5
    assert scores(family, Detached(), 2)[0].max() > 100.0


def test_the_values_do_not_depend_on_the_mode():
    both = once(lambda u: [residual_loss(u), rate_loss(u)])
    want = both(conserved("power"))
    for mode in (Subsampled(6), Detached()):
        got = both(conserved("power", gradient=mode).resample(KEY))
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("family", only(FAMILIES, "power"))
def test_a_residual_sees_time_and_space(family):
    operator = sdifp.time_derivative() - 0.1 * sdifp.laplacian()
    residual = sdifp.Residual(operator, local=lambda u, grad, x, t: u * u)
    got = once(lambda u: jax.vmap(lambda x: residual(u, x, T))(XS))(conserved(family))
    u = in_graph(family)

    def by_hand(x):
        rate = jax.jvp(lambda t: u(x, t), (T,), (1.0,))[1]
        return rate - 0.1 * jnp.trace(jax.hessian(lambda x: u(x, T))(x)) + u(x, T) ** 2

    np.testing.assert_allclose(got, once(jax.vmap(by_hand))(XS), rtol=1e-9)


def test_the_second_derivative_by_t_goes_through_the_coefficients():
    u = conserved("power")
    operator = sdifp.time_derivative(2)
    want = jets(lambda t: u(XS[1], t), 2)
    np.testing.assert_allclose(operator(u)(XS[1], T), want, rtol=1e-9)


COUPLED = [(f, mode) for f in FAMILIES for mode in (Exact(), Interpolated(8))]


@pytest.mark.parametrize("case", only(COUPLED, ("power", Interpolated(8))), ids=str)
def test_rows_of_least_squares_have_the_right_slopes(case):
    family, mode = case
    flat, unravel = ravel_pytree(NET)
    row = sdifp.Residual(sdifp.time_derivative() - 0.1 * sdifp.laplacian())

    def field(flat):
        u = conserved(family, net=unravel(flat), gradient=mode)
        return u if mode == Exact() else u.tabulated(0.0, 0.6)

    plain = lambda flat: jax.vmap(lambda x: row(field(flat), x, T))(XS)
    run = once(lambda f: rows_and_derivatives(row, field, f, XS[None], T[None], 1))
    rows, slopes = run(flat)
    np.testing.assert_allclose(rows, once(plain)(flat), rtol=1e-9)
    want = once(jax.jacrev(plain))(flat)
    np.testing.assert_allclose(slopes, want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("family", only(FAMILIES, "power"))
def test_interpolated_fields_are_those_of_now(family):
    run = once(lambda u: jnp.stack([u(XS[1], T), jets(lambda t: u(XS[1], t), 1)]))
    want = run(conserved(family))
    errors = []
    for n in (3, 6, 9):
        u = conserved(family, gradient=Interpolated(n)).tabulated(0.0, 0.6)
        errors.append(np.abs(run(u) / want - 1.0).max())
    assert errors[0] > 10.0 * errors[1] > 100.0 * errors[2]
    assert errors[2] < 1e-4


def test_lagged_fields_follow_the_network():
    """Up to second order in its change, where all nodes are sampled."""
    mode = Lagged(5, k=24)
    old = conserved("power", gradient=mode).resample(KEY)
    table = mode.tabulate(old, 0.0, 0.6)
    off = []
    for step in (1e-2, 1e-3):
        net = jax.tree.map(lambda a, step=step: a * (1.0 + step), NET)
        now = conserved("power", net=net, gradient=mode).resample(KEY)
        now = now.with_gradient(now.gradient.keep(table)).at(T)
        want = conserved("power", net=net).at(T)
        off.append(abs(float(now(XS[1]) / want(XS[1])) - 1.0))
    assert off[1] < 0.02 * off[0] < 2e-4


def test_mini_batches_hold_on_their_nodes_alone():
    u = conserved("scale", gradient=MiniBatch(6)).resample(KEY)
    assert abs(float(RULE.integrate(u.at(T))) / 0.56 - 1.0) > 1e-3


def test_a_rule_in_chunks_is_the_same():
    rule = sdifp.quadrature.monte_carlo(BOX, 9001, key=KEY)
    whole, cut = (conserved("power", rule=rule, gradient=Exact(n)) for n in (9001, 100))
    np.testing.assert_allclose(whole.at(T).scale, cut.at(T).scale, rtol=1e-13)
    assert float(rule.integrate(cut.at(T))) == pytest.approx(0.56, rel=1e-12)
    # Backward, too: no derivative may reach the loops of the solve.
    slope = once(eqx.filter_grad(lambda u: u.at(T).value(XS[1])))
    flat = lambda u: np.concatenate(
        [np.ravel(a) for a in jax.tree.leaves(slope(u).net)]
    )
    np.testing.assert_allclose(flat(cut), flat(whole), rtol=1e-9, atol=1e-12)


def test_the_gauge_pins_what_drifts():
    """Scale and power of the network, which the field does not see."""
    now = conserved("power").at(T)
    found = now.coefficients.correction
    power, log = float(found.power), float(jnp.log(now.scale))
    same = lambda x, t: power * NET(x, t) + log
    u = conserved("power", net=same).at(T)
    np.testing.assert_allclose(u.gauge_rows(), 0.0, atol=1e-12)
    np.testing.assert_allclose(u(XS[1]), now(XS[1]), rtol=1e-12)
    np.testing.assert_allclose(now.gauge(), log**2 + np.log(power) ** 2, rtol=1e-10)
    assert float(now.shift) == 0.0


def test_the_certificate_holds():
    got = conserved("tilt", rule=RULE).certificate([0.2, 0.6], key=KEY, replicates=2)
    assert got.holds
    assert {row.invariant for row in got.rows} == {"mass", "sine", "cosine"}
    assert max(row.on_rule for row in got.rows) < 1e-12


@pytest.mark.parametrize("family", only(FAMILIES, "tilt"))
def test_a_frozen_field_is_the_same_and_can_be_saved(family, tmp_path):
    u = conserved(family)
    frozen = u.freeze([0.0, 0.6])
    assert frozen.accuracy < 1e-9
    want = u(XS[1], 0.37)
    np.testing.assert_allclose(frozen(XS[1], 0.37), want, rtol=1e-8)
    frozen.save(tmp_path / "u.npz")
    again = sdifp.field.FrozenField.load(tmp_path / "u.npz", conserved(family))
    np.testing.assert_allclose(again(XS[1], 0.37), want, rtol=1e-8)


# What cannot be met.

FLAT = sdifp.from_points(BOX, np.linspace(0.1, 1.9, 5)[:, None])


def power_of_x(squared_norm, slope=1.0, rule=FLAT):
    return sdifp.conserve(
        sdifp.positive(lambda x: slope * x[0]), rule, 2.0, squared_norm
    ).at()


def test_powers_that_do_not_exist():
    # The squared mass over the volume is 2, over the weight of the largest node 10.
    status = lambda s, slope=1.0: int(power_of_x(s, slope).status)
    constant = power_of_x(2.0)
    assert int(constant.status) == Status.CONSTANT
    np.testing.assert_allclose(constant(jnp.asarray([0.4])), 1.0, rtol=1e-14)
    assert status(2.0 * (1 + 1e-9)) == Status.REGULAR
    assert status(10.0 * (1 - 1e-9)) == Status.REGULAR
    assert status(10.0 * (1 + 1e-9)) == Status.INFEASIBLE
    assert status(4.0, 0.0) == Status.DEGENERATE
    with pytest.raises(ValueError, match=r"squared_norm = 11 .*above 2 and below 10,"):
        power_of_x(11.0)(jnp.asarray([0.4]))
    with pytest.raises(ValueError, match="network is constant on the nodes"):
        power_of_x(4.0, 0.0)(jnp.asarray([0.4]))
    with pytest.raises(ValueError, match=r"squared_norm = 1.9 is below the least"):
        power_of_x(1.9)


def test_moments_outside_of_the_hull():
    net = sdifp.positive(lambda x: jnp.sin(x[0]))

    def at(centre):
        moment = Moment(lambda x: x[0], centre, name="centre")
        return sdifp.conserve(net, FLAT, 1.0, invariants=[moment]).at()

    assert int(at(1.899).status) == Status.REGULAR
    assert float(FLAT.integrate(lambda x: x[0] * at(1.899)(x))) == pytest.approx(1.899)
    assert int(at(1.901).status) == Status.INFEASIBLE
    with pytest.raises(ValueError, match=r"centre / mass = 1.901.*0.1 and 1.9"):
        at(1.901)(jnp.asarray([0.4]))


def test_a_target_that_becomes_negative_names_its_time():
    u = sdifp.conserve(sdifp.positive(NET), RULE, lambda t: 0.5 - t)
    u.check(0.4)
    with pytest.raises(ValueError, match=r"mass = -0.1 .*at t = 0.6: .*be positive"):
        u.check([0.4, 0.6])


def test_a_network_that_vanishes():
    u = sdifp.conserve(sdifp.positive(lambda x: 0.0 * x[0], jnp.square), FLAT, 1.0)
    assert int(u.at().status) == Status.DEGENERATE
    with pytest.raises(ValueError, match="network is zero on the nodes"):
        u(jnp.asarray([0.4]))


MOMENT = Moment(lambda x: x[0], 0.5, name="centre")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"invariants": [MOMENT]}, "mass must be given for a positive field, .*centre"),
        ({"squared_norm": 1.0}, "mass must be given.*squared_norm alone"),
        ({"mass": 0.0}, "mass must be positive for a positive field, got 0"),
        ({"mass": -1.0}, "mass must be positive for a positive field, got -1"),
        (
            {"mass": 1.0, "squared_norm": 2.0, "invariants": [MOMENT]},
            "squared_norm and centre cannot both be prescribed",
        ),
        (
            {"mass": 1.0, "invariants": [Quadratic(lambda x: 1.0, 2.0)]},
            "quadratic cannot be prescribed of a positive field",
        ),
        ({"mass": 1.0, "profile": lambda x: x[0]}, "profile must be left out"),
        (
            {"mass": 1.0, "floor": sdifp.correction.AbsoluteFloor()},
            r"floor must be left out .*AbsoluteFloor\(epsilon=1e-08\)",
        ),
        (
            {"mass": 1.0, "squared_norm": 2.0, "function": jnp.square},
            "squared_norm cannot be prescribed of the square.*softplus",
        ),
        (
            {"mass": [1.0, 1.0], "net": lambda x: jnp.stack([x[0], x[0]])},
            r"net must return one number to be positive, got shape \(2,\)",
        ),
        (
            {"mass": 1.0, "net": lambda x: jnp.stack([x[0], x[0]])},
            r"net must return one number to be positive, got shape \(2,\)",
        ),
        (
            {"mass": 1.0, "invariants": [Moment(lambda x: 2.0, 0.5, name="two")]},
            "two depends on mass",
        ),
        ({"mass": 1.0, "function": jnp.sin}, "function must be jax.numpy.exp, .*sin"),
        ({"mass": 1.0, "function": "exp"}, "function must be jax.numpy.exp, .*'exp'"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(given, words, as_user):
    given = {"net": lambda x: x[0], "function": jnp.exp} | given
    net, function = given.pop("net"), given.pop("function")
    with pytest.raises(ValueError, match=words) as caught:
        sdifp.conserve(sdifp.positive(net, function), FLAT, **given)
    assert "\n" not in str(caught.value)


def test_a_net_must_be_a_function(as_user):
    with pytest.raises(TypeError, match=r"net must be a function .*3"):
        sdifp.positive(3)


# Sizes and precision.


@pytest.mark.parametrize("offset", [800.0, -800.0])
@pytest.mark.parametrize("family", only(FAMILIES, "power"))
def test_networks_whose_exponential_overflows(family, offset):
    big = conserved(family, net=lambda x, t: NET(x, t) + offset).at(T)
    here = conserved(family).at(T)
    np.testing.assert_allclose(big(XS[1]), here(XS[1]), rtol=1e-11)
    assert int(big.status) == Status.REGULAR


@pytest.mark.parametrize("size", [1e170, 1e-170])
def test_networks_whose_square_overflows(size):
    own = lambda net: conserved("tilt", "square", net=net).at(T)
    big, here = own(lambda x, t: size * NET(x, t)), own(NET)
    np.testing.assert_allclose(big(XS[1]), here(XS[1]), rtol=1e-11)


def test_a_square_is_smooth_where_the_network_vanishes():
    rule = sdifp.from_points(BOX, np.asarray([[0.5], [1.0], [1.5]]))
    net = lambda x, t: (x[0] - 1.0) * (1.0 + t * x[0])
    u = sdifp.conserve(sdifp.positive(net, jnp.square), rule, 1.0)
    x = jnp.asarray([2.0])
    scaled = lambda t: u(x, t)
    # The mean is 1/2 and the nodes beside the middle one have 1/4 each of their square.
    total = lambda t: (1.0 + 0.5 * t) ** 2 + (1.0 + 1.5 * t) ** 2
    by_hand = lambda t: 0.5 * (1.0 + 2.0 * t) ** 2 / (total(t) / 12.0)
    for f in (lambda f: f(T), lambda f: jax.grad(f)(T), lambda f: jax.hessian(f)(T)):
        np.testing.assert_allclose(f(scaled), f(by_hand), rtol=1e-12)
    assert float(u(jnp.asarray([1.0]), T)) == 0.0
    assert np.isfinite(jax.hessian(lambda x: u(x, T))(jnp.asarray([1.0]))).all()


def test_softplus_of_very_negative_numbers():
    """There it is the exponential."""
    net = lambda x, t: NET(x, t) - 900.0
    own = lambda function: conserved("power", function, net=net).at(T)(XS[1])
    soft, exp = own("softplus"), own("exp")
    np.testing.assert_allclose(soft, exp, rtol=1e-13)


def test_one_node():
    rule = sdifp.from_points(BOX, np.asarray([[0.5]]))
    net = sdifp.positive(lambda x: x[0])
    u = sdifp.conserve(net, rule, 3.0)
    assert float(u(jnp.asarray([0.5]))) == pytest.approx(1.5, rel=1e-14)
    with pytest.raises(ValueError, match="rule must have at least two nodes"):
        sdifp.conserve(net, rule, 3.0, 5.0)
    constant = sdifp.conserve(net, rule, 3.0, 4.5)
    assert float(constant(jnp.asarray([0.7]))) == pytest.approx(1.5, rel=1e-14)


def test_single_precision():
    with jax.enable_x64(False):
        net = jax.tree.map(lambda a: a.astype(jnp.float32), NET)
        for family, wanted in FAMILIES.items():
            now = conserved(family, net=net).at(jnp.asarray(0.3))
            u = np.asarray(jax.vmap(now)(jnp.asarray(RULE.nodes)))
            assert u.dtype == np.float32
            w = np.asarray(RULE.weights)
            assert w @ u.astype(float) == pytest.approx(0.28, rel=2e-6)
            if family == "power":
                target = float(wanted[1].target.value(0.3)) / 2.0
                assert w @ u.astype(float) ** 2 == pytest.approx(target, rel=5e-6)


def test_the_example_of_the_docs(capsys):
    code = code_under("exact.md", "Fields that stay positive")
    exec(code, {})
    assert capsys.readouterr().out == code.splitlines()[-1].removeprefix("# ") + "\n"


@pytest.mark.parametrize("offset", [-1000.0, 1000.0])
def test_a_frozen_field_does_not_overflow_where_the_field_does_not(offset):
    net = sdifp.positive(lambda x: offset + jnp.sin(x[0]))
    u = sdifp.conserve(net, RULE, mass=1.0, squared_norm=0.6)
    np.testing.assert_allclose(u.freeze()(XS[1]), u(XS[1]), rtol=1e-10)


def test_targets_far_outside_of_the_hull_are_infeasible():
    moment = lambda c: sdifp.Moment(lambda x: jnp.tanh(x[0]), c, name="m")
    for target in (1.0, 1.5, -100.0):
        u = sdifp.conserve(
            sdifp.positive(lambda x: jnp.sin(x[0])),
            RULE,
            invariants=[sdifp.Mass(1.0), moment(target)],
        )
        assert int(u.at().status) == Status.INFEASIBLE
        with pytest.raises(ValueError, match="interior of the convex hull"):
            u.at().check()
