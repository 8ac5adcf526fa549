"""Groups of invariants that cannot be prescribed, or met: who says so, and when."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from group_fields import (
    BOX,
    KEY,
    SETS,
    Net,
    both,
    metric,
    net,
    uniform,
    wave_energy,
)
from quick import once

import sdifp
from sdifp._core import Status
from sdifp.invariants import (
    DirichletEnergy,
    Mass,
    Moment,
    Quadratic,
    QuadraticForm,
    SquaredNorm,
    Variance,
)

RULE = uniform()
first = lambda x: x[0]


def still(count):
    """A network without time."""
    known = net(count)
    return lambda x: known(x, jnp.zeros(()))


def skewed(x):
    return metric(x) + jnp.asarray([[0.0, 0.1], [0.0, 0.0]])


def indefinite(x):
    """Not positive on the node at 1."""
    return jnp.where(jnp.abs(x[0] - 1.0) < 1e-9, -2.0, 1.0) * metric(x)


def one_node():
    return sdifp.from_points(BOX, np.array([[0.5]]))


# Components, invariants, what is said; of fields with time.
REFUSED = {
    "shape of a weight": (
        2,
        [Moment(lambda x: jnp.ones(3), 1.0, name="m")],
        r"weight of m .* 2 components, got shape \(3,\)",
    ),
    "number for two": (
        2,
        [Moment(first, 1.0, name="m")],
        r"weight of m .* 2 components, got shape \(\)",
    ),
    "shape of a matrix": (
        2,
        [Quadratic(lambda x: jnp.ones((2, 3)), 1.0, name="q")],
        r"weight of q .* \(2, 2\), got shape \(2, 3\)",
    ),
    "not positive": (
        2,
        [Quadratic(indefinite, 1.0, name="q")],
        r"weight of q must be positive definite .* eigenvalue of -.* on node 12",
    ),
    "negative number": (
        0,
        [Quadratic(lambda x: x[0] - 0.5, 1.0, name="q")],
        r"weight of q must be positive definite .* -0.5 on node 0",
    ),
    "not symmetric": (
        2,
        [Quadratic(skewed, 1.0, name="q")],
        "weight of q must be symmetric on node 0",
    ),
    "no number": (
        0,
        [Quadratic(lambda x: jnp.log(x[0]), 1.0, name="q")],
        "weight of q is not finite on node 0",
    ),
    "moment without number": (
        0,
        [Mass(1.0), Moment(lambda x: 1.0 / x[0], 1.0, name="m")],
        "weight of .*m is not finite on the nodes",
    ),
    "dependent": (
        0,
        [
            Mass(1.0),
            Moment(first, 1.0, name="a"),
            Moment(lambda x: 2.0 - x[0], 1.0, name="b"),
        ],
        "b depends on mass, a on the nodes",
    ),
    "dependent total": (
        2,
        [Mass(1.0), Mass(0.5, 0), Mass(0.5, 1)],
        r"mass\[1\] depends on|mass depends on",
    ),
    "no weight": (
        0,
        [Mass(1.0), Moment(lambda x: 0.0 * x[0], 1.0, name="none")],
        "weight of none must not vanish on all nodes",
    ),
    "two forms": (
        2,
        [SquaredNorm(1.0), SquaredNorm(1.0, 1)],
        r"component 1 is in two quadratic .*, squared_norm and squared_norm\[1\]",
    ),
    "two kinds of form": (
        0,
        [SquaredNorm(1.0), DirichletEnergy(2.0)],
        "component 0 is in two quadratic invariants, squared_norm and dirichlet_energy",
    ),
    "across groups": (
        2,
        [Mass(1.0), SquaredNorm(1.0, 0), SquaredNorm(1.0, 1)],
        r"mass couples .* different .*squared_norm\[0\] and squared_norm\[1\]",
    ),
    "with and without": (
        2,
        [Moment(both, 1.0, name="m"), SquaredNorm(1.0, 1)],
        r"m couples .* with a quadratic .*, squared_norm\[1\], and without",
    ),
    "variance": (
        2,
        [Mass(1.0), Variance(1.0, 0), Mass(0.5, 0)],
        r"variance\[0\] cannot be prescribed beside .* give squared_norm",
    ),
    "names": (
        0,
        [Moment(first, 1.0), Moment(jnp.sum, 1.0)],
        "moment is given twice; give them different names",
    ),
    "component": (2, [Moment(first, 1.0, components=2, name="m")], "below 2.*got 2"),
    "complex weight": (
        0,
        [Moment(lambda x: jnp.exp(1j * x[0]), 1.0, name="fourier")],
        "weight of fourier must return one real number .* got complex numbers",
    ),
    "complex matrix": (
        2,
        [Quadratic(lambda x: 1j * jnp.eye(2), 1.0, name="q")],
        "weight of q must return one real number or .* got complex numbers",
    ),
    "list": (
        0,
        [Moment(lambda x: [x[0]], 1.0, name="m")],
        "weight of m must return one real number .* got an object of type list",
    ),
    "fails": (
        0,
        [Moment(lambda x: x[0] + None, 1.0, name="m")],
        r"weight of m cannot be evaluated with \(x\) at one point: ",
    ),
    "negative": (
        0,
        [Mass(1.0), Quadratic(lambda x: 1.0, -1.0, name="q")],
        "q must not be negative, got -1",
    ),
    "shape of a form": (
        0,
        [QuadraticForm(lambda u, grad: grad[0] ** 2, 1.0, name="f")],
        r"form of f must return one real number, of u of shape \(1,\) and grad of .*"
        r"got shape \(1,\)",
    ),
    "not quadratic": (
        0,
        [QuadraticForm(lambda u, grad: jnp.sum(u**2 + u), 1.0, name="f")],
        "form of f must be quadratic in u and grad",
    ),
    "quartic": (
        0,
        [QuadraticForm(lambda u, grad: jnp.sum(grad**4), 1.0, name="f")],
        "form of f must be quadratic in u and grad",
    ),
    "negative form": (
        0,
        [QuadraticForm(lambda u, grad: -jnp.sum(grad**2), 1.0, name="f")],
        "form of f must be positive, got -",
    ),
    "too little": (
        0,
        [Mass(1.0), Moment(first, 0.5), SquaredNorm(0.1)],
        "squared_norm = 0.1 is below the least .* have, 0.8156",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_prescribed_is_said_in_one_sentence(name, as_user):
    count, invariants, words = REFUSED[name]
    with pytest.raises(ValueError, match=words) as caught:
        sdifp.conserve(net(count), RULE, invariants=invariants)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (Moment(first, jnp.sin, name="m"), "m must be a number .* without time"),
        (Moment(lambda x, t: x[0] - t, 1.0, name="m"), "weight of m .* of x alone"),
    ],
)
def test_a_field_without_time(moment, words, as_user):
    with pytest.raises(ValueError, match=words):
        sdifp.conserve(still(0), RULE, invariants=[moment, SquaredNorm(5.0)])


@pytest.mark.parametrize(
    "form",
    [
        lambda u, grad, x, u_t: u[0] ** 2,
        lambda u, grad, u_t: u_t[0] ** 2,
        lambda u, u_t: u_t[0] ** 2,
    ],
)
def test_a_form_of_the_derivative_in_time(form):
    with pytest.raises(ValueError, match=r"form of energy .* first-order system"):
        QuadraticForm(form, 1.0, name="energy")


@pytest.mark.parametrize(
    "form", [lambda u: u[0] ** 2, lambda u, grad, t: t * u[0] ** 2]
)
def test_a_form_of_other_arguments(form):
    with pytest.raises(ValueError, match=r"form of energy must be .* got one of \(u"):
        QuadraticForm(form, 1.0, name="energy")


@pytest.mark.parametrize("entry", [(0, 1), (1, 0)])
def test_a_form_of_entries_that_are_not_there(entry):
    """Of the gradient in x and t, or of a component: JAX would take another one."""
    form = QuadraticForm(lambda u, grad: grad[entry] ** 2, 1.0, name="energy")
    words = r"form of energy must take .*grad of shape \(1, 1\).*first-order system"
    with pytest.raises(ValueError, match=words) as caught:
        sdifp.conserve(net(0), RULE, invariants=[form])
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("target", "words"),
    [
        (lambda: 1.0, r"m cannot be evaluated with \(t\) at one time: .*argument"),
        (lambda t: 1j * t, "m must return one real number at each time, got complex"),
        (lambda t: jnp.ones(2), r"m must return one real number .* got shape \(2,\)"),
        (lambda t: "1", "m must return one real number .* got an object of type str"),
        (lambda t: None, "m must return one real number .* of type NoneType"),
    ],
)
def test_targets_that_are_no_numbers_at_a_time(target, words):
    u = sdifp.conserve(net(0), RULE, invariants=[Moment(first, target, name="m")])
    with pytest.raises(ValueError, match=words):
        u.at(0.3)


@pytest.mark.parametrize(
    ("count", "invariants"),
    [
        (0, [Mass(1.0), Quadratic(lambda x: 2.0, 3.0)]),
        (2, [Mass(1.0, 0), Mass(1.0, 1), SquaredNorm(3.0)]),
    ],
)
def test_one_node_has_no_freedom(count, invariants, as_user):
    with pytest.raises(ValueError, match=r"rule must have more nodes .* got 1"):
        sdifp.conserve(net(count), one_node(), invariants=invariants)


def test_arguments_of_invariants_are_named(as_user):
    with pytest.raises(TypeError, match=r"weight of m must be a function, got 2"):
        Moment(2, 1.0, name="m")
    # Arrays, in one line.
    with pytest.raises(TypeError, match=r"weight of m .* got Array\(\[1., .* \.\.\.$"):
        Moment(jnp.ones(99), 1.0, name="m")
    with pytest.raises(
        ValueError, match=r"m must be a number .* got array\(.* \.\.\.; the components"
    ):
        Moment(first, np.ones(99), name="m")
    with pytest.raises(TypeError, match=r"invariants must be a list .*, got Mass\("):
        sdifp.conserve(net(0), RULE, invariants=Mass(1.0))
    with pytest.raises(ValueError, match=r"name must be a printable text.*got ''"):
        Moment(first, 1.0, name="")
    with pytest.raises(ValueError, match=r"components must hold different .*\(1, 1\)"):
        Quadratic(first, 1.0, components=(1, 1))
    with pytest.raises(ValueError, match=r"give a target: .* without one m can only"):
        sdifp.conserve(net(0), RULE, invariants=[Moment(first, None, name="m")])


def least_of(weights, targets):
    """The least integral of u^2 with these integrals of u times weights, by hand."""
    w, volume = np.asarray(RULE.weights, np.longdouble), RULE.domain.volume
    gram = volume * np.einsum("km,lm,m->kl", weights, weights, w)
    (a, b), (_, d) = gram
    p, q = targets
    return float((d * p * p - 2 * b * p * q + a * q * q) / (a * d - b * b))


WEIGHTS = np.stack([np.ones(24), np.asarray(RULE.nodes)[:, 0]]).astype(np.longdouble)
LEAST = least_of(WEIGHTS, (1.0, 0.7))


def about_the_least(network=None):
    """A target that is a billionth below the least at 0, the least at 0.5, and above it
    at 1."""
    invariants = [
        Mass(1.0),
        Moment(first, 0.7, name="centre"),
        SquaredNorm(lambda t: LEAST * (1.0 + 2e-9 * (t - 0.5))),
    ]
    return sdifp.conserve(network or net(0), RULE, invariants=invariants)


def test_statuses_at_the_least_value():
    u = about_the_least()
    status = once(jax.vmap(lambda t: u.at(t).status))(jnp.asarray([0.0, 0.5, 1.0]))
    want = [Status.INFEASIBLE, Status.CONSTANT, Status.REGULAR]
    assert status.tolist() == want
    # At the least value there is one field: the combination of the weights.
    now, again = u.at(0.5), about_the_least(lambda x, t: jnp.exp(x[0])).at(0.5)
    xs = jnp.asarray(RULE.nodes)
    np.testing.assert_allclose(jax.vmap(now)(xs), jax.vmap(again)(xs), atol=1e-12)
    assert float(now.scale) == 0.0


def test_the_least_value_along_given_directions():
    """Of an energy of u and its gradient: the energy of the mean alone, v = c, with the
    part of v beside it that lowers the form; by minimising it over the scale."""
    count, invariants, _ = SETS["wave"]
    at = lambda energy: sdifp.conserve(
        net(count),
        RULE,
        invariants=[invariants[0], QuadraticForm(wave_energy, energy, name="energy")],
    )
    u = at(5.0)
    mean, f = 0.3 / 2.0, lambda x: net(count)(x, jnp.asarray(0.4))
    centre = RULE.mean(f)[1]
    level = jnp.asarray([0.0, mean])

    def energy(scale):
        g = lambda x: level + scale * (f(x) - jnp.asarray([0.0, centre]))
        return RULE.integrate(lambda x: wave_energy(g(x), jax.jacfwd(g)(x)))

    best = scipy.optimize.minimize_scalar(lambda a: float(energy(a)), tol=1e-12)
    assert float(u.at(0.4).status[0]) == Status.REGULAR
    words = rf"energy = {0.5 * best.fun:g} is below .* have, {best.fun:g}$"
    with pytest.raises(ValueError, match=words):
        at(0.5 * best.fun).at(0.4).check()


def test_errors_name_invariants_time_and_the_least_value():
    u = about_the_least()
    words = rf"mass, centre, squared_norm .* at t = 0: squared_norm .* have, {LEAST:g}"
    with pytest.raises(ValueError, match=words):
        u(jnp.asarray([0.3]), 0.0)
    with pytest.raises(ValueError, match="at t = 0"):
        u.check([1.0, 0.0])
    # Inside jit the status says it.
    values = once(lambda x, t: u(x, t))(jnp.asarray([0.3]), jnp.zeros(()))
    assert np.isfinite(values)


def test_a_network_in_the_span_of_the_weights_is_degenerate():
    u = about_the_least(lambda x, t: 2.0 - 3.0 * x[0] + t)
    assert int(u.at(1.0).status) == Status.DEGENERATE
    with pytest.raises(
        ValueError, match=r"combination of the weights .* squared_norm ="
    ):
        u(jnp.asarray([0.3]), 1.0)
    # The moments hold all the same.
    values = jax.vmap(u.at(1.0).value)(jnp.asarray(RULE.nodes))
    integrals = 2.0 * WEIGHTS @ (np.asarray(values) * np.asarray(RULE.weights))
    np.testing.assert_allclose(integrals.astype(float), [1.0, 0.7], atol=1e-13)


def test_a_network_that_is_zero_is_degenerate():
    silent = lambda x, t: 0.0 * net(2)(x, t)
    u = sdifp.conserve(silent, RULE, invariants=[SquaredNorm(2.0)])
    assert u.at(0.3).status.tolist() == [Status.DEGENERATE] * 2
    with pytest.raises(ValueError, match=r"network is zero .* squared_norm = 2"):
        u(jnp.asarray([0.3]), 0.3)


def test_a_weight_that_is_no_number_at_some_time():
    weight = lambda x, t: jnp.where(t > 0.5, jnp.nan, jnp.cos(x[0]))
    moments = [Moment(weight, 0.1, name="late"), SquaredNorm(3.0)]
    u = sdifp.conserve(net(0), RULE, invariants=moments)
    assert int(u.at(0.2).status) == Status.REGULAR
    assert int(u.at(0.7).status) == Status.NOT_FINITE
    with pytest.raises(ValueError, match=r"late, squared_norm .* at t = 0.7: "):
        u(jnp.asarray([0.3]), 0.7)


def test_weights_that_move_and_stay_independent():
    weight = lambda x, t: 1.0 + t * x[0]
    u = sdifp.conserve(
        Net(jax.random.normal(KEY, (6, 3)), jnp.ones((1, 6)), True),
        RULE,
        invariants=[Moment(weight, 1.0, name="a"), Moment(first, 1.0, name="b")],
    )
    assert int(u.at(3.0).status) == Status.REGULAR


def test_weights_that_become_dependent_later():
    # Equal at t = 1, and no other time.
    weight = lambda x, t: 1.0 + (1.0 - t) * x[0] ** 2
    u = sdifp.conserve(
        Net(jax.random.normal(KEY, (6, 3)), jnp.ones((1, 6)), True),
        RULE,
        invariants=[
            Moment(weight, 1.0, name="moving"),
            Moment(lambda x: 1.0, 1.0, name="one"),
        ],
    )
    assert int(u.at(0.5).status) == Status.REGULAR
    with pytest.raises(ValueError, match=r"targets of moving, one .* at t = 1: "):
        u.at(1.0)(jnp.full(RULE.dimension, 0.3))


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Quadratic(lambda x, t: 1.0 + t, 1.0, name="q"),
            r"weight of q must be a function of x alone, got one of \(x, t\)",
        ),
        (
            lambda: Moment(lambda x, t, u: 1.0, 1.0, name="m"),
            r"weight of m must be a function of x, or of x and t, .* \(x, t, u\)",
        ),
        (lambda: Moment(first, 1.0, components=1.5), "components must .* got 1.5"),
        (lambda: Moment(first, 1.0, name="m" * 81), "at most 80 characters, got 81"),
        (
            lambda: Moment(Net(jnp.ones((2, 3)), jnp.ones((1, 2)), False), 1.0),
            "weight of moment must be a plain function, got .* Net that has arrays",
        ),
    ],
)
def test_weights_of_other_kinds(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def test_a_profile_that_cannot_change_a_moment_is_refused():
    rule = sdifp.rule_for(sdifp.Box([-1.0], [1.0]), 32)
    profile = lambda x: (1.0 - x[0] ** 2) * (x[0] ** 2 - 3.0 / 7.0)
    moments = [Moment(first, 0.5, name="centre")]
    with pytest.raises(ValueError, match=r"profile must allow .* weights of centre"):
        sdifp.conserve(still(0), rule, invariants=moments, profile=profile)
    other = lambda x: 1.0 - x[0] ** 2
    u = sdifp.conserve(still(0), rule, invariants=moments, profile=other)
    assert float(rule.integrate(lambda x: x[0] * u(x))) == pytest.approx(0.5)


def test_the_same_is_refused_inside_jit():
    def value(invariants):
        u = sdifp.conserve(net(2), RULE, invariants=invariants)
        return u.at(0.3)(jnp.asarray([0.7]))

    one = [Moment(lambda x: jnp.asarray([1.0, 0.0]), 0.5, name="first")]
    fine = [*one, SquaredNorm(1.0, 0), SquaredNorm(2.0, 1)]
    np.testing.assert_allclose(jax.jit(lambda: value(fine))(), value(fine), rtol=1e-12)
    with pytest.raises(ValueError, match=r"depends on"):
        jax.jit(lambda: value([*one, Mass(0.5, 0)]))()
    with pytest.raises(ValueError, match="weight of q must be positive definite"):
        jax.jit(lambda: value([Quadratic(indefinite, 1.0, name="q")]))()


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("angle", [0.1, 0.3, 0.7])
def test_a_singular_matrix_in_either_precision(double, angle):
    """Rounding may leave it an eigenvalue above zero."""

    def projector(x):
        v = jnp.stack([jnp.cos(angle + 0.0 * x[0]), jnp.sin(angle + 0.0 * x[0])])
        return jnp.outer(v, v)

    given = [Mass(1.0), Quadratic(projector, 9.0, name="q")]
    with jax.enable_x64(double), pytest.raises(ValueError, match="q must be positive"):
        sdifp.conserve(lambda x, t: net(2)(x, t), uniform(), invariants=given)


def test_components_of_very_different_sizes_are_no_singular_matrix():
    sizes = jnp.asarray([1.0, 1e-20])
    given = [Quadratic(lambda x: jnp.diag(sizes), 3.0)]
    u = sdifp.conserve(net(2), RULE, invariants=given)
    now = u.at(0.3)
    found = RULE.integrate(lambda x: now(x) @ (sizes * now(x)))
    assert float(found) == pytest.approx(3.0, rel=1e-13)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("form", [[], [SquaredNorm(9.0)]])
def test_dependent_weights_in_either_precision(double, form):
    """Also where rounding alone keeps their Gram matrix from being singular."""
    rule = sdifp.rule_for(sdifp.Box([0.0], [2.0]), 32)
    raw = lambda x, t: jnp.sin(3.0 * x[0] + t)
    given = lambda weight: [
        Mass(1.0),
        Moment(first, 1.0, name="a"),
        Moment(weight, 0.5, name="b"),
        *form,
    ]
    with jax.enable_x64(double):
        with pytest.raises(ValueError, match="b depends on mass, a on the nodes"):
            sdifp.conserve(raw, rule, invariants=given(lambda x: 2.0 - x[0]))
        positive, moments = sdifp.positive(raw), given(lambda x: 2.0 - x[0])[:3]
        with pytest.raises(ValueError, match="b depends on mass, a on the nodes"):
            sdifp.conserve(positive, rule, invariants=moments)
        # At t = 0 only.
        moving = lambda x, t: 2.0 - x[0] + t * x[0] ** 2
        u = sdifp.conserve(raw, rule, invariants=given(moving))
        assert int(u.at(0.0).status) == Status.NOT_FINITE
        words = r"at t = 0: the weights depend on each other on the nodes"
        with pytest.raises(ValueError, match=words):
            u(jnp.asarray([0.3]), 0.0)


def test_weights_that_have_no_value_at_the_beginning():
    """They are looked at when the field is evaluated, or at given times."""
    moments = [Mass(1.0), Moment(lambda x, t: x[0] / t, 0.5, name="late")]
    u = sdifp.conserve(net(0), RULE, invariants=moments)
    assert int(u.at(0.5).status) == Status.REGULAR
    with pytest.raises(ValueError, match="weight of mass, late is not finite"):
        sdifp.conserve(net(0), RULE, invariants=moments, times=[0.0, 1.0])


def test_a_function_of_t_below_zero_is_infeasible():
    form = Quadratic(lambda x: 1.0, lambda t: -1.0 - t, name="q")
    u = sdifp.conserve(net(0), RULE, invariants=[form])
    with pytest.raises(ValueError, match=r"q = -1.5 is below the least"):
        u.at(0.5).check()
