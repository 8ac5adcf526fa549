"""Linear moments and one quadratic form: exact, nearest, feasible or refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

import sdifp
from sdifp.correction import Status, project_invariants

# Components, moments and nodes; every new shape is a compilation.
SHAPES = [(1, 1, 16), (1, 3, 40), (2, 2, 33), (3, 5, 60), (4, 8, 90), (2, 0, 20)]

STRESSES = ("weights", "mean", "condition", "metric")

cases = st.fixed_dictionaries(
    {
        "shape": st.sampled_from(SHAPES),
        "stresses": st.sets(st.sampled_from(STRESSES)),
        "excess": st.floats(-3.0, 3.0),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def draw(shape, stresses, seed):
    """Values, weights, moments, metric, and the targets of another field."""
    rng = np.random.default_rng(seed)
    n, p, size = shape
    weights = rng.uniform(0.1, 1.0, size)
    if "weights" in stresses:
        weights = 10.0 ** rng.uniform(-6.0, 0.0, size)
        weights[:2] = 1e-6, 1.0
    weights /= weights.sum()
    psi = rng.normal(size=(p, n, size))
    if p:
        psi[0] = 1.0
    if "condition" in stresses and p > 1:
        # The scaled Gram matrix has a condition of about 1e8.
        psi[1] = psi[0] + 1e-4 * psi[1]
    values = rng.normal(size=(n, size))
    if "mean" in stresses:
        values = 1e4 * (1.0 + rng.uniform(size=(n, 1))) + 1e-2 * values
    metric = None
    if "metric" in stresses:
        root = 0.5 * rng.normal(size=(n, n, size))
        metric = np.einsum("ijm,kjm->ikm", root, root) + 0.1 * np.eye(n)[:, :, None]
    other = rng.normal(size=(n, size))
    means, form = invariants(other, weights, psi, metric)
    return values, weights, psi, metric, means.astype(float), float(form)


def invariants(u, weights, psi, metric):
    """By sums in long doubles, without any of the library's code."""
    u, w = (np.asarray(a).astype(np.longdouble) for a in (u, weights))
    lowered = u if metric is None else np.einsum("ijm,jm->im", metric, u)
    moments = np.einsum("knm,nm,m->k", psi.astype(np.longdouble), u, w)
    return moments, (u * lowered * w).sum()


def errors(u, weights, psi, metric, means, quadratic):
    """Relative: of the moments as the library measures them, and of the form."""
    moments, form = invariants(u, weights, psi, metric)
    raised = psi
    if metric is not None:
        by_node = np.linalg.inv(np.moveaxis(metric, -1, 0))
        raised = np.einsum("mij,kjm->kim", by_node, psi)
    norms = np.einsum("knm,knm,m->k", psi, raised, weights)
    off = np.abs(moments - means) / np.sqrt(norms * quadratic)
    return float(max(off, default=0.0)), float(abs(form / quadratic - 1.0))


def check_exact(case, bound):
    f, w, psi, metric, means, form = draw(case["shape"], case["stresses"], case["seed"])
    # More than the least, by three decades to either side of the field's own.
    form = form * (1.0 + 10.0 ** case["excess"])
    got = project_invariants(f, w, psi, means, quadratic=form, metric=metric)
    assert int(got.status) == Status.REGULAR
    off = errors(got.values, w, psi, metric, means, form)
    assert max(off) <= bound, off


@given(case=cases)
@settings(max_examples=150)
def test_both_kinds_hold_to_rounding(case):
    check_exact(case, 1e-14 if len(case["stresses"]) < 2 else 3e-14)


@pytest.mark.validate
@given(case=cases)
@settings(max_examples=3000)
def test_both_kinds_hold_to_rounding_in_thousands_of_cases(case):
    check_exact(case, 1e-14 if len(case["stresses"]) < 2 else 3e-14)


@pytest.mark.parametrize("shape", [(1, 1, 16), (2, 2, 33), (4, 8, 90)])
def test_single_precision(shape):
    """A few units of rounding of the size of the field, whatever its mean."""
    with jax.enable_x64(False):
        for seed in range(20):
            f, w, psi, _, means, form = draw(shape, {"mean"}, seed)
            f = f.astype(np.float32)
            got = project_invariants(f, w, psi, means, quadratic=form)
            assert got.values.dtype == np.float32
            off = errors(got.values, w, psi, None, means, form)
            assert max(off) <= 32 * np.finfo(np.float32).eps, off


def test_one_constant_moment_is_the_projection_of_the_paper():
    f, w, _, _, _, _ = draw((1, 1, 16), {"mean", "weights"}, 3)
    got = project_invariants(f, w, np.ones((1, 1, 16)), [0.3], quadratic=1.7)
    want = sdifp.project(f[0], w, mean=0.3, second_moment=1.7)
    np.testing.assert_allclose(got.values[0], want.values, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(got.scale, want.scale, rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_nearest_field(seed):
    """Against a solver that knows nothing of the closed form."""
    rng = np.random.default_rng(seed)
    n, p, size = 2, 2, 6
    f, w, psi, metric, means, form = draw((n, p, size), {"metric"}, seed)
    form = 1.5 * form
    got = np.asarray(
        project_invariants(f, w, psi, means, quadratic=form, metric=metric).values
    )
    product = lambda a, b: np.einsum("im,ijm,jm,m->", a, metric, b, w)
    shaped = lambda v: v.reshape(n, size)
    distance = lambda v: product(shaped(v) - f, shaped(v) - f)
    linear = lambda v: np.einsum("knm,nm,m->k", psi, shaped(v), w) - means
    best = min(
        (
            scipy.optimize.minimize(
                distance,
                got.reshape(-1) + 0.3 * rng.normal(size=n * size),
                method="SLSQP",
                constraints=[
                    {"type": "eq", "fun": linear},
                    {
                        "type": "eq",
                        "fun": lambda v: product(shaped(v), shaped(v)) - form,
                    },
                ],
                options={"ftol": 1e-14, "maxiter": 500},
            )
            for _ in range(3)
        ),
        key=lambda found: found.fun,
    )
    assert distance(got.reshape(-1)) <= best.fun * (1.0 + 1e-9)
    np.testing.assert_allclose(got.reshape(-1), best.x, atol=1e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("with_metric", [False, True])
def test_given_directions_have_the_moments_and_the_nearer_root(seed, with_metric):
    """Against the roots of the quadratic by NumPy, in the directions as given."""
    stresses = {"metric"} if with_metric else ()
    f, w, psi, metric, _, _ = draw((2, 3, 40), stresses, seed)
    rng = np.random.default_rng(seed + 100)
    bump = rng.uniform(0.2, 1.0, size=(1, 1, 40))
    chi = psi * bump + 0.1 * rng.normal(size=psi.shape)
    means = 0.3 * rng.normal(size=3)
    got = project_invariants(
        f, w, psi, means, quadratic=40.0, metric=metric, directions=chi
    )
    u = np.asarray(got.values)
    moments, form = invariants(u, w, psi, metric)
    np.testing.assert_allclose(moments.astype(float), means, atol=1e-13)
    assert float(form) == pytest.approx(40.0, rel=1e-13)
    # By hand.
    matrix = np.einsum("knm,lnm,m->kl", psi, chi, w)
    solve = lambda c: np.einsum("l,lnm->nm", np.linalg.solve(matrix, c), chi)
    lift = solve(means)
    left = f - solve(np.einsum("knm,nm,m->k", psi, f, w))
    own = np.eye(2)[:, :, None] * np.ones(40) if metric is None else metric
    product = lambda a, b: np.einsum("im,ijm,jm,m->", a, own, b, w)
    roots = np.roots(
        [product(left, left), 2 * product(left, lift), product(lift, lift) - 40.0]
    )
    distances = [product(lift + a * left - f, lift + a * left - f) for a in roots]
    assert float(got.scale) == pytest.approx(roots[int(np.argmin(distances))], rel=1e-9)


def test_linear_moments_alone_are_a_shift():
    f, w, psi, metric, means, _ = draw((3, 5, 60), {"metric"}, 1)
    got = project_invariants(f, w, psi, means, metric=metric)
    assert float(got.scale) == 1.0
    found = invariants(np.asarray(got.values), w, psi, metric)[0]
    np.testing.assert_allclose(found.astype(float), means, atol=1e-13)
    # The difference is in the span of the directions: nearest in the metric.
    by_node = np.linalg.inv(np.moveaxis(metric, -1, 0))
    chi = np.einsum("mij,kjm->kim", by_node, psi).reshape(5, -1)
    change = (np.asarray(got.values) - f).reshape(-1)
    rest = np.linalg.lstsq(chi.T, change, rcond=None)[1]
    assert np.sqrt(rest).max() < 1e-12


def test_a_batch_is_corrected_field_by_field():
    f, w, psi, _, means, form = draw((2, 2, 33), set(), 0)
    many = np.stack([f, 2.0 * f + 1.0, f**2])
    targets = np.stack([means, 0.5 * means, -means])
    forms = np.asarray([1.1, 1.2, 1.3]) * form
    got = project_invariants(many, w, psi, targets, quadratic=forms)
    for k in range(3):
        one = project_invariants(many[k], w, psi, targets[k], quadratic=forms[k])
        np.testing.assert_allclose(got.values[k], one.values, rtol=1e-13, atol=1e-14)


def test_derivatives_with_respect_to_values_and_targets():
    f, w, psi, metric, means, form = draw((2, 2, 33), {"metric"}, 5)
    test = jnp.asarray(np.random.default_rng(9).normal(size=f.shape))

    def loss(values, means, form):
        got = project_invariants(
            values, w, psi, means, quadratic=form, metric=metric, throw=False
        )
        return jnp.sum(test * got.values**3)

    given = tuple(jnp.asarray(a) for a in (f, means, 2.0 * form))
    slopes = jax.grad(loss, (0, 1, 2))(*given)
    rng = np.random.default_rng(2)
    for k, slope in enumerate(slopes):
        along = jnp.asarray(rng.normal(size=given[k].shape))
        moved = lambda h, k=k, along=along: loss(
            *(a + h * along if i == k else a for i, a in enumerate(given))
        )
        h = 1e-5
        central = (moved(h) - moved(-h)) / (2 * h)
        np.testing.assert_allclose(jnp.sum(slope * along), central, rtol=1e-7)


def test_feasibility_at_its_boundary():
    f, w, psi, _, means, _ = draw((2, 2, 33), {"condition"}, 4)
    gram = np.einsum("knm,lnm,m->kl", *(psi.astype(np.longdouble),) * 2, w)
    means = np.asarray([0.7, 0.7])
    # By hand for two moments, in long doubles.
    (a, b), (_, d) = gram
    least = float((d * 0.49 - 2 * b * 0.49 + a * 0.49) / (a * d - b * b))
    outcome = lambda s: int(
        project_invariants(f, w, psi, means, quadratic=s, throw=False).status
    )
    assert outcome(least) == Status.CONSTANT
    assert outcome(least * (1 + 1e-9)) == Status.REGULAR
    assert outcome(least * (1 - 1e-9)) == Status.INFEASIBLE
    with pytest.raises(ValueError, match=rf"quadratic = .* below the least.*{least:g}"):
        project_invariants(f, w, psi, means, quadratic=0.5 * least)
    # At the least value the field is the one field that has the moments.
    at_least = project_invariants(f, w, psi, means, quadratic=least)
    solution = np.einsum("k,knm->nm", np.linalg.solve(gram.astype(float), means), psi)
    np.testing.assert_allclose(at_least.values, solution, atol=1e-7)


def test_feasibility_along_given_directions_at_its_boundary():
    """Of the vertex of the parabola, by hand in long doubles."""
    f, w, psi, metric, means, _ = draw((2, 2, 33), {"metric"}, 4)
    chi = psi * np.random.default_rng(5).uniform(0.2, 1.0, size=(1, 1, 33))
    wide = lambda a: np.asarray(a, np.longdouble)
    product = lambda a, b: np.einsum(
        "im,ijm,jm,m->", wide(a), wide(metric), wide(b), wide(w)
    )
    tested = lambda a: np.einsum("knm,nm,m->k", wide(psi), wide(a), wide(w))
    (a, b), (c, d) = np.stack([tested(e) for e in chi], 1)
    solve = lambda m: (
        np.stack([d * m[0] - b * m[1], a * m[1] - c * m[0]]) / (a * d - b * c)
    )
    spread = lambda m: np.einsum("k,knm->nm", solve(m), wide(chi))
    g, level = wide(f) - spread(tested(f)), spread(wide(means))
    vertex = -product(g, level) / product(g, g)
    assert abs(vertex) > 0.05
    least = float(product(level, level) + vertex * product(g, level))
    at = lambda s: project_invariants(
        f, w, psi, means, quadratic=s, metric=metric, directions=chi, throw=False
    )
    assert int(at(least * (1 + 1e-9)).status) == Status.REGULAR
    assert int(at(least * (1 - 1e-9)).status) == Status.INFEASIBLE
    words = rf"quadratic = .* is below the least .* have, {least:g}$"
    with pytest.raises(ValueError, match=words):
        project_invariants(
            f, w, psi, means, quadratic=0.5 * least, metric=metric, directions=chi
        )
    # The two roots meet there, and neither of them is a scale of zero.
    near = float(at(least * (1 + 1e-9)).scale)
    assert near == pytest.approx(float(vertex), abs=2e-4)
    moments = invariants(np.asarray(at(0.5 * least).values), w, psi, metric)[0]
    np.testing.assert_allclose(moments.astype(float), means, atol=1e-13)


def test_a_field_in_the_span_of_the_directions_is_degenerate():
    _, w, psi, _, means, form = draw((2, 2, 33), set(), 4)
    f = 3.0 * psi[0] - psi[1]
    got = project_invariants(f, w, psi, means, quadratic=form, throw=False)
    assert int(got.status) == Status.DEGENERATE
    found = invariants(np.asarray(got.values), w, psi, None)[0]
    np.testing.assert_allclose(found.astype(float), means, atol=1e-13)
    with pytest.raises(ValueError, match="combination of the directions"):
        project_invariants(f, w, psi, means, quadratic=form)


def test_dependent_moments_are_named():
    f, w, psi, _, _, _ = draw((2, 2, 33), set(), 0)
    both = np.stack([psi[0], psi[1], 2.0 * psi[0] - psi[1]])
    names = ["mass", "centre", "total"]
    with pytest.raises(ValueError, match="total depends on mass, centre"):
        project_invariants(f, w, both, np.zeros(3), names=names)
    both[1] = 0.0
    with pytest.raises(ValueError, match="weight of centre must not vanish"):
        project_invariants(f, w, both, np.zeros(3), names=names)


def not_definite(metric):
    out = metric.copy()
    out[:, :, 7] = [[1.0, 2.0], [2.0, 1.0]]
    return out


def singular(metric):
    out = metric.copy()
    # An eigenvalue of about 1e-16.
    out[:, :, 5] = [[1.0, 1.0], [1.0, 1.0 + 2.3e-16]]
    return out


def skewed(metric):
    out = metric.copy()
    out[0, 1] += 1.0
    return out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: {"values": a["values"][0]}, r"values must have .*\(33,\)"),
        (lambda a: {"values": a["values"] * np.nan}, r"values.*nan"),
        (
            lambda a: {"moments": a["moments"][:, :1]},
            r"moments must have .*\(2, 1, 33\)",
        ),
        (lambda a: {"weights": a["weights"][1:]}, r"weights must have .*\(32,\)"),
        (lambda a: {"weights": 2.0 * a["weights"]}, "weights must sum to 1, got 2"),
        (lambda a: {"means": [1.0]}, r"means must have shape \(2,\).*\(1,\)"),
        (lambda a: {"means": [1.0, np.inf]}, "means.*inf"),
        (
            lambda a: {"quadratic": [1.0, 2.0]},
            r"quadratic must have shape \(\).*\(2,\)",
        ),
        (lambda a: {"metric": a["metric"][:1]}, r"metric must have .*\(1, 2, 33\)"),
        (lambda a: {"metric": not_definite(a["metric"])}, "eigenvalue of -1 on node 7"),
        (lambda a: {"metric": singular(a["metric"])}, "definite .* on node 5"),
        (lambda a: {"metric": skewed(a["metric"])}, "metric must be symmetric"),
        (lambda a: {"names": ["one"]}, r"names must have one entry.*\['one'\]"),
        (
            lambda a: {"directions": np.stack([a["moments"][0]] * 2)},
            "directions cannot change moment 0, moment 1 independently",
        ),
        (lambda a: {"moments": None, "means": (), "quadratic": None}, "give a target"),
        (lambda a: {"quadratic": -1.0}, "quadratic = -1 is below the least"),
    ],
)
def test_bad_input_is_named(change, words, as_user):
    names = ("values", "weights", "moments", "metric", "means", "quadratic")
    given = dict(zip(names, draw((2, 2, 33), {"metric"}, 0), strict=True))
    given |= {"means": given["means"].astype(float), "quadratic": 50.0}
    given |= change(given)
    with pytest.raises(ValueError, match=words):
        project_invariants(**given)


def test_traced_functions_are_refused(as_user):
    f, w, psi, _, means, _ = draw((2, 2, 33), set(), 0)
    with pytest.raises(TypeError, match="moments must be an array of known numbers"):
        jax.jit(lambda psi: project_invariants(f, w, psi, means).values)(psi)


@pytest.mark.parametrize("infinite", [np.inf, np.nan])
def test_targets_of_jax_that_are_not_finite_are_refused(infinite):
    f, w, psi, _, means, _ = draw((2, 2, 33), set(), 0)
    with pytest.raises(ValueError, match=f"quadratic must be finite, got .*{infinite}"):
        project_invariants(f, w, psi, means, quadratic=jnp.asarray(infinite))
    inside = jax.jit(lambda s: project_invariants(f, w, psi, means, quadratic=s).status)
    assert int(inside(infinite)) == Status.NOT_FINITE


@pytest.mark.parametrize("argument", [0, 1, 2])
def test_error_under_an_eager_gradient_is_the_same_sentence(argument):
    f, w, psi, _, means, form = draw((2, 2, 33), set(), 0)

    def total(values, means, form):
        got = project_invariants(values, w, psi, means, quadratic=form)
        return jnp.sum(got.values)

    given = [jnp.asarray(a) for a in (f, means, 1e-3 * form)]
    with pytest.raises(ValueError, match=r"quadratic = .* is below .* can have, "):
        jax.grad(total, argument)(*given)


def test_directions_that_vanish_are_refused():
    f, w, psi, _, means, _ = draw((2, 2, 33), set(), 0)
    with pytest.raises(ValueError, match="directions cannot change"):
        project_invariants(f, w, psi, means, directions=0.0 * psi)
