"""Fields with groups of invariants: nearest, along given directions, differentiated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from group_cases import TARGET, corrected, draw, field
from group_fields import SETS, bump, conserved, net, on_nodes, points, uniform
from pages import code_under
from quick import once, only

import sdifp
from sdifp._core import Status
from sdifp.field import Exact
from sdifp.invariants import Mass, Moment, SquaredNorm

RULE = uniform()
X, T = jnp.asarray([0.43]), jnp.asarray(0.35)


def by_hand(name, net, rule=RULE):
    """The field by the textbook formulas, in one graph, and its scale at a time."""
    count, invariants, profile = SETS[name]
    n, volume = max(count, 1), rule.domain.volume
    linear = [one for one in invariants if one.is_linear]
    (form,) = [one for one in invariants if not one.is_linear]
    nodes, w = (jnp.asarray(a) for a in (rule.nodes, rule.weights))
    number = lambda one, t: jnp.asarray(one.target.value(t)) / volume

    def psi(x, t):
        return jnp.stack(
            [jnp.broadcast_to(one.weight_at(x, t, n), n) for one in linear]
        )

    def metric(x):
        found = form.weight_at(x, None, n)
        found = 1.0 if found is None else jnp.asarray(found)
        return found if jnp.ndim(found) == 2 else found * jnp.eye(n)

    def chi(x, t):
        if profile is not None:
            return profile(x) * psi(x, t)
        return jnp.linalg.solve(metric(x), psi(x, t).T).T

    def parts(t):
        over = lambda f: jax.vmap(lambda x: f(x, t))(nodes)
        f = over(lambda x, t: jnp.atleast_1d(net(x, t)))
        tests, directions = over(psi), over(chi)
        inside = jnp.einsum("mkc,mlc,m->kl", tests, directions, w)
        own = jnp.linalg.solve(inside, jnp.einsum("mkc,mc,m->k", tests, f, w))
        means = jnp.stack([number(one, t) for one in linear])
        wanted = jnp.linalg.solve(inside, means)
        product = lambda a, b: jnp.einsum("mi,mij,mj,m->", a, over_metric, b, w)
        over_metric = jax.vmap(metric)(nodes)
        g = f - jnp.einsum("k,mkc->mc", own, directions)
        level = jnp.einsum("k,mkc->mc", wanted, directions)
        a, b = product(g, g), product(g, level)
        c = product(level, level) - number(form, t)
        root = jnp.sqrt(b * b - a * c)
        sign = jnp.where(product(g, f) < 0.0, -1.0, 1.0)
        return (-b + sign * root) / a, own, wanted

    def u(x, t):
        scale, own, wanted = parts(t)
        f = jnp.atleast_1d(net(x, t))
        out = wanted @ chi(x, t) + scale * (f - own @ chi(x, t))
        return out if count else out[0]

    u.scale = lambda t: parts(t)[0]
    return u


@pytest.mark.parametrize("seed", only(range(4), 0))
def test_it_is_the_nearest_field(seed):
    """Against a solver that knows nothing of the closed form."""
    shape = n, _, size = 2, 2, 6
    rng = np.random.default_rng(seed)
    case = f, w, psi, metric = draw(shape, {"metric"}, -0.3, seed)
    got, status = corrected(field(shape, case, Exact()))
    assert np.max(status) == Status.REGULAR
    product = lambda a, b: np.einsum("im,ijm,jm,m->", a, metric, b, w)
    shaped = lambda v: v.reshape(n, size)
    distance = lambda v: product(shaped(v) - f, shaped(v) - f)
    linear = lambda v: np.einsum("knm,nm,m->k", psi, shaped(v), w) - TARGET
    square = lambda v: product(shaped(v), shaped(v)) - TARGET
    start = np.asarray(got).reshape(-1)
    found = [
        scipy.optimize.minimize(
            distance,
            start + 0.3 * rng.normal(size=n * size),
            method="SLSQP",
            constraints=[{"type": "eq", "fun": f} for f in (linear, square)],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        for _ in range(3)
    ]
    best = min((one for one in found if one.success), key=lambda one: one.fun)
    assert distance(start) <= best.fun * (1.0 + 1e-8)
    np.testing.assert_allclose(start, best.x, atol=1e-4)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", only(["profile", "dirichlet", "wave"], "dirichlet"))
def test_given_directions_take_the_nearer_root(name, sign):
    """Against the roots by NumPy. The form of values and gradients is taken apart by
    polarisation."""
    count = SETS[name][0]
    known = net(count)
    raw = lambda x, t: sign * known(x, t)
    u = conserved(name).over(raw)
    t = 0.4
    now = u.at(t)
    (form,) = [one for one in u.prescribed.invariants if not one.is_linear]
    n, nodes = max(count, 1), jnp.asarray(RULE.nodes)
    w = np.asarray(RULE.weights)

    def square(f):
        """`Q` of the form of a function of x."""

        def at(x):
            v, slope = jnp.atleast_1d(f(x)), jnp.atleast_2d(jax.jacfwd(f)(x))
            if form.needs_gradient:
                return form.form_at(v, slope.reshape(n, -1), x)
            return form.weight_at(x, None, n) * jnp.sum(v * v)

        return float(w @ jax.vmap(at)(nodes))

    value = lambda x: jnp.atleast_1d(now.value(x))
    f = lambda x: jnp.atleast_1d(raw(x, jnp.asarray(t)))
    a = float(now.scale if now.scale.ndim == 0 else now.scale[0])
    # u = l + a g, and l has the moments: g from its own field at another target.
    other = conserved(name).over(lambda x, t: 2.0 * raw(x, t)).at(t)
    b = float(other.scale if other.scale.ndim == 0 else other.scale[0])
    np.testing.assert_allclose(2.0 * b, a, rtol=1e-9)
    twice = u.family.functions[0]
    e = lambda x: now.corrections[0].basis.at(twice, x, now.time)
    c = now.corrections[0].correction
    own = jnp.asarray([k in twice.group.components for k in range(n)], float)
    g = lambda x: f(x) - _spread(twice, (c.pivot + c.offset) @ e(x), n)
    lift = lambda x: _spread(twice, c.level @ e(x), n)
    del own
    gg, ll = square(g), square(lift)
    gl = 0.5 * (square(lambda x: g(x) + lift(x)) - gg - ll)
    target = float(form.target.value(t)) / RULE.domain.volume
    roots = np.roots([gg, 2.0 * gl, ll - target])
    assert square(value) == pytest.approx(target, rel=1e-12)
    away = [square(lambda x, r=r: lift(x) + r * g(x) - f(x)) for r in roots]
    assert a == pytest.approx(roots[int(np.argmin(away))], rel=1e-8)


def _spread(functions, values, n):
    """Values of the components of a group, among all."""
    place = np.zeros((len(functions.group.components), n))
    place[np.arange(len(place)), list(functions.group.components)] = 1.0
    return values @ place


@pytest.mark.parametrize("name", only(["moments", "metric", "profile"], "moments"))
def test_values_and_derivatives_in_time_to_order_three(name):
    u, oracle = conserved(name, points()), by_hand(name, net(SETS[name][0]), points())

    def series(u):
        at = lambda t: jnp.sum(u(X, t))
        out = [at(T)]
        for _ in range(3):
            at = lambda t, f=at: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]
            out.append(at(T))
        return jnp.stack(out)

    got, want = once(series)(u), once(lambda: series(oracle))()
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)


OPERATORS = {
    "first order": lambda: (
        sdifp.time_derivative()
        - 0.1 * sdifp.laplacian()
        + sdifp.operators.advection(0.7)
    ),
    "u_tt": lambda: sdifp.time_derivative(2) - 0.3 * sdifp.laplacian(),
}


@pytest.mark.parametrize("name", only(["moments", "profile"], "moments"))
@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_against_brute_force(name, operator):
    """With the gradient of the residual with respect to the parameters, against that
    of the whole graph."""
    equation = sdifp.Residual(OPERATORS[operator](), lambda u, grad, x, t: u * grad[0])
    known = net(SETS[name][0])
    u = conserved(name)
    got, slope = once(jax.value_and_grad(lambda p: equation(u.over(p), X, T)))(known)
    hand = lambda p: by_hand(name, p)

    def residual(p):
        v = hand(p)
        at = lambda x, t: v(jnp.stack([x]), t)
        rate, dx = jax.grad(at, 1), jax.grad(at, 0)
        rates, dxx = jax.grad(rate, 1)(X[0], T), jax.grad(dx, 0)(X[0], T)
        local = at(X[0], T) * dx(X[0], T)
        if operator == "u_tt":
            return rates - 0.3 * dxx + local
        return rate(X[0], T) - 0.1 * dxx + 0.7 * dx(X[0], T) + local

    want, brute = once(jax.value_and_grad(residual))(known)
    assert float(got) == pytest.approx(float(want), rel=1e-9)
    for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(brute), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", only(["wave", "metric", "groups"], "wave"))
def test_gradients_of_systems_against_finite_differences(name):
    u = conserved(name)
    params, unravel = jax.flatten_util.ravel_pytree(u.net)
    rng = np.random.default_rng(0)
    along = jnp.asarray(rng.normal(size=params.size))

    def loss(params):
        v = u.over(unravel(params))
        value = lambda t: jnp.sum(v.at(t).value(X) ** 2)
        rate = jax.jvp(value, (T,), (jnp.ones_like(T),))[1]
        return value(T) + rate**2

    got = once(jax.grad(loss))(params) @ along
    h, run = 1e-5, once(loss)
    central = (run(params + h * along) - run(params - h * along)) / (2 * h)
    np.testing.assert_allclose(got, central, rtol=1e-7)


def test_moment_of_one_and_squared_norm_are_the_map_of_the_paper():
    ours = sdifp.conserve(
        net(0),
        points(),
        invariants=[Moment(lambda x: 1.0, 0.6), SquaredNorm(lambda t: 3.0 + t)],
    )
    theirs = sdifp.conserve(net(0), points(), mass=0.6, squared_norm=lambda t: 3.0 + t)
    assert ours.prescribed.groups
    assert not theirs.prescribed.groups
    ts = jnp.asarray([0.1, 0.8])
    for a, b in zip(once(on_nodes)(ours, ts), once(on_nodes)(theirs, ts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(ours.at(0.1).scale, theirs.at(0.1).scale, rtol=1e-14)


def test_a_total_alone_adds_the_same_to_each_component():
    u = sdifp.conserve(net(3), RULE, invariants=[Mass(0.5)])
    added = jax.vmap(lambda x: u.at(T)(x) - u.net(x, T))(jnp.asarray(RULE.nodes))
    np.testing.assert_allclose(
        added, jnp.broadcast_to(added[0, 0], added.shape), atol=1e-14
    )


def test_a_fresh_rule_inside_jit_and_a_larger_one_afterwards():
    """The integrals hold on the rule of the step."""
    box = sdifp.Box.cube(5, periodic=True)
    key = jax.random.key(3)
    two = lambda x, t: jnp.stack([jnp.sin(x @ x + t), 1.0 + x[0] * x[4] * t])
    weight = lambda x, t: jnp.stack([jnp.cos(x[1] - t), x[2]])
    given = [Mass(1.0), Moment(weight, lambda t: 0.3 * t), SquaredNorm(lambda t: 6 + t)]
    lattice = sdifp.quadrature.lattice(box, 64, key=key)
    u = sdifp.conserve(two, lattice, invariants=given)
    tilted = sdifp.conserve(
        sdifp.positive(lambda x, t: jnp.sin(x @ x + t)),
        lattice,
        invariants=[Mass(1.0), Moment(lambda x: x[0], lambda t: 0.4 + 0.2 * t)],
    )

    @once
    def held(fields, key):
        rows = []
        for one in fields:
            own = one if key is None else one.resample(key)
            now = own.at(0.4)
            value = lambda x, now=now: jnp.atleast_1d(now.value(x))
            rows.append(own.rule.integrate(lambda x, v=value: v(x).sum()))
            if one is fields[1]:
                rows.append(own.rule.integrate(lambda x, v=value: x[0] * v(x)[0]))
                continue
            rows.append(own.rule.integrate(lambda x, v=value: weight(x, 0.4) @ v(x)))
            rows.append(own.rule.integrate(lambda x, v=value: v(x) @ v(x)))
        return jnp.stack(rows)

    wanted = [1.0, 0.12, 6.4, 1.0, 0.48]
    found = [held((u, tilted), k) for k in jax.random.split(key, 3)]
    larger = sdifp.quadrature.sobol(box, 512, key=key)
    found.append(held((u.on(larger), tilted.on(larger)), None))
    for row in found:
        np.testing.assert_allclose(row, wanted, atol=1e-12)
    # Each on nodes of its own.
    moved = [u.resample(k).at(0.4).scale[0] for k in jax.random.split(key, 3)]
    assert len({float(a) for a in moved}) == 3


def test_a_profile_keeps_the_boundary():
    silent = lambda x, t: bump(x) * net(0)(x, t)
    u = conserved("profile").over(silent)
    for x in (0.0, 2.0):
        assert abs(float(u(jnp.asarray([x]), T))) < 1e-14


def test_the_example_of_the_docs():
    names = {}
    exec(code_under("exact.md", "Fields with any invariants"), names)
    rule, u, psi = (names[name] for name in ("rule", "u", "psi"))
    now, wave = u.at(0.3), psi.at(0.3)
    densities = lambda x: jnp.stack([now(x), x[0] * now(x), wave(x) @ wave(x)])
    np.testing.assert_allclose(rule.integrate(densities), [1.0, 0.83, 1.0], rtol=1e-13)


def test_gauge_rows_are_zero_where_the_network_needs_no_correction():
    """Of a network that has the targets; and finite where the field has one value."""
    for name in ("moments", "wave"):
        u = conserved(name)
        now = u.at(T)
        done = u.over(lambda x, t, now=now: now.value(x))
        assert float(u.at(T).gauge()) > 1e-3
        assert np.abs(done.at(T).gauge_rows()).max() < 1e-12
    least = [Mass(1.0), Moment(lambda x: jnp.cos(jnp.pi * x[0]), 0.0), SquaredNorm(0.5)]
    u = sdifp.conserve(net(0), RULE, invariants=least)
    now = u.at(T)
    assert int(now.status) == Status.CONSTANT
    rows = np.asarray(now.gauge_rows())
    assert np.isfinite(rows).all()
    slope = jax.grad(lambda p: u.over(p).at(T).gauge())(u.net)
    assert all(np.isfinite(a).all() for a in jax.tree.leaves(slope))
