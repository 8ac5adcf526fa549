"""The closed form of groups of components: the same function in both engines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from nets import jax_net, torch_net
from quick import once

import sdifp
import sdifp.torch as sdt
from sdifp._core import (
    GroupMoments,
    RelativeFloor,
    Status,
    check_independent,
    orthonormalised,
    solve_group,
    solve_positive,
)
from sdifp.invariants import (
    DirichletEnergy,
    Mass,
    Moment,
    Quadratic,
    QuadraticForm,
    SquaredNorm,
    Variance,
)

EPS = float(np.finfo(float).eps)
LIMITS = np.finfo(float)
COMPONENTS, NODES = 2, 12


def solved(xp, sums, means, quadratic):
    return solve_group(
        sums,
        means=means,
        quadratic=quadratic,
        rounding=EPS,
        floor=RelativeFloor(),
        field=LIMITS,
    )


def corrected(xp, f, psi, chi, w, m, s):
    """A field with moments m of the psi and squared norm s, its scale and status; the
    nearest, or along directions chi."""
    given = len(psi) > 0
    if given:
        gram = lambda d: xp.einsum("knm,lnm,m->kl", d, d, w)
        change = orthonormalised(gram(psi), lambda once: gram(once(psi)))
        d, m = change(psi), change(m)
    else:
        d = psi
    e = d
    if chi is not None:
        mix = xp.linalg.inv(xp.einsum("knm,lnm,m->kl", d, chi, w))
        e = xp.einsum("lnm,lk->knm", chi, mix)
    tested = lambda g: xp.einsum("knm,nm,m->k", d, g, w)
    spread = lambda c: xp.einsum("k,knm->nm", c, e)
    # Any point near the moments is a pivot: numbers, through which nothing flows.
    pivot = xp.asarray(np.linspace(0.1, 0.3, len(psi)))
    g = f - spread(pivot)
    coupling = xp.einsum("knm,lnm,m->kl", d, e, w)
    sums = GroupMoments(pivot, tested(g), (w[None] * g * g).sum(), coupling=coupling)
    if chi is not None:
        sums = sums._replace(
            cross=xp.einsum("knm,nm,m->k", e, g, w),
            overlaps=xp.einsum("knm,lnm,m->kl", e, e, w),
        )
    # About another pivot it is the same.
    sums = sums.about(pivot + 0.01)
    found = solved(xp, sums, m, s)
    centred = f - spread(found.pivot)
    u = spread(found.level) + found.scale * (centred - spread(found.offset))
    return u, found.scale, found.status


def example(p, oblique=False, condition=False):
    rng = np.random.default_rng(p)
    w = rng.uniform(0.5, 1.5, NODES)
    psi, chi = rng.normal(size=(2, p, COMPONENTS, NODES))
    if condition:
        # The scaled Gram matrix has a condition of 1e8.
        psi[1] = psi[0] + 1e-4 * psi[1]
    f, other = rng.normal(size=(2, COMPONENTS, NODES))
    w /= w.sum()
    m = np.einsum("knm,nm,m->k", psi, other, w)
    # Above the least, along directions as well.
    s = np.asarray(20.0 * (w * other * other).sum())
    return f, psi, chi if oblique else None, w, m, s


EXAMPLES = {
    "moments and form": example(3),
    "moments": (*example(3)[:-1], None),
    "form": example(0),
    "directions": example(2, oblique=True),
}


def tensors(arrays, grad=False):
    return [
        None if a is None else torch.tensor(a, requires_grad=grad and a.size > 0)
        for a in arrays
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_values_and_gradients_agree(name):
    arrays = EXAMPLES[name]
    live = [k for k, a in enumerate(arrays) if a is not None and a.size]

    @once
    def by_jax(arrays):
        def loss(some):
            own = list(arrays)
            for k, a in zip(live, some, strict=True):
                own[k] = a
            u, scale, status = corrected(jnp, *own)
            return jnp.sum(jnp.sin(u)) + scale, (u, status)

        some = [arrays[k] for k in live]
        return jax.value_and_grad(loss, has_aux=True)(some)

    (_, (wanted, status)), slopes = by_jax(
        [None if a is None else jnp.asarray(a) for a in arrays]
    )
    own = tensors(arrays, grad=True)
    u, scale, found = corrected(torch, *own)
    by_torch = torch.autograd.grad(torch.sin(u).sum() + scale, [own[k] for k in live])
    assert int(found) == int(status) == Status.REGULAR
    close = lambda a, b, bound: np.testing.assert_allclose(
        a.detach(), b, rtol=0, atol=bound * float(np.abs(b).max())
    )
    close(u, wanted, 2e-14)
    close(u, corrected(np, *arrays)[0], 2e-14)
    for a, b in zip(by_torch, slopes, strict=True):
        close(a, b, 1e-12)


def test_dependent_to_eight_digits_is_exact_in_pytorch():
    f, psi, _, w, m, s = example(4, condition=True)
    u, _, status = corrected(torch, *tensors((f, psi, None, w, m, s)))
    assert int(status) == Status.REGULAR
    u = u.numpy().astype(np.longdouble)
    off = np.einsum("knm,nm,m->k", psi, u, w) - m
    norms = np.sqrt(np.einsum("knm,knm,m->k", psi, psi, w) * s)
    assert np.max(np.abs(off) / norms) < 1e-15
    assert abs((w * u * u).sum() / s - 1.0) < 2e-15


def sums_of(xp, raw=2.0, offset=(0.1, -0.2), overlaps=None):
    """Sums of a field of which `raw` is left without its moments."""
    known = lambda a: xp.asarray(np.asarray(a, float))
    offset = np.asarray(offset)
    eye = np.eye(2)
    sums = GroupMoments(
        known([0.5, 0.7]),
        known(offset),
        known(raw + offset @ offset),
        coupling=known(eye),
    )
    if overlaps is None:
        return sums
    return sums._replace(cross=known(offset), overlaps=known(overlaps))


STATUSES = [
    (2.0, 6.0, Status.REGULAR),
    (2.0, 5.0 - 1e-9, Status.INFEASIBLE),
    (2.0, 1.0, Status.INFEASIBLE),
    (2.0, 5.0, Status.CONSTANT),
    (0.0, 6.0, Status.DEGENERATE),
    (np.nan, 6.0, Status.NOT_FINITE),
    (2.0, np.inf, Status.NOT_FINITE),
]


@pytest.mark.parametrize(("raw", "quadratic", "status"), STATUSES)
def test_statuses_are_the_same(raw, quadratic, status):
    # The least value for these moments is 5.
    means = np.array([1.0, 2.0])
    offset = (0.1, -0.2) if raw != 0.0 else (0.0, 0.0)
    for xp in (jnp, torch):
        sums = sums_of(xp, raw, offset)
        found = solved(xp, sums, xp.asarray(means), xp.asarray(np.asarray(quadratic)))
        assert Status(int(found.status)) == status
        if status in (Status.INFEASIBLE, Status.CONSTANT, Status.DEGENERATE):
            assert float(found.scale) == 0.0


def test_moments_alone_that_are_not_finite_are_seen():
    for xp in (jnp, torch):
        sums = sums_of(xp, offset=(np.inf, 0.0))
        found = solved(xp, sums, xp.asarray(np.ones(2)), None)
        assert int(found.status) == Status.NOT_FINITE


def test_second_derivatives_in_pytorch():
    wanted = torch.tensor([1.0, 0.4], dtype=torch.float64, requires_grad=True)
    overlaps = np.array([[1.0, 0.3], [0.3, 2.0]])
    known = sums_of(torch, overlaps=overlaps)
    live = [a.clone().requires_grad_() for a in known.sums]
    quadratic = torch.tensor(9.0, dtype=torch.float64, requires_grad=True)

    def scale(wanted, quadratic, *live):
        found = solved(torch, known.with_sums(live), wanted, quadratic)
        assert int(found.status) == Status.REGULAR
        return found.scale, found.offset

    assert torch.autograd.gradgradcheck(scale, (wanted, quadratic, *live))

    def solution(matrix, right):
        matrix = matrix @ matrix.T + torch.eye(3)
        return torch.stack(solve_positive([list(r) for r in matrix], list(right)))

    torch.manual_seed(0)
    given = [torch.randn(3, k, dtype=torch.float64, requires_grad=True) for k in (3, 2)]
    matrix = given[0] @ given[0].T + torch.eye(3)
    exact = torch.linalg.solve(matrix, given[1])
    assert torch.allclose(solution(*given), exact, rtol=1e-13, atol=1e-13)
    assert torch.autograd.gradgradcheck(solution, given)


def test_parts_of_a_rule_at_several_times_merge():
    rng = np.random.default_rng(0)
    times, p = 3, 2

    def part(seed):
        r = np.random.default_rng(seed)
        draw = lambda *shape: r.normal(size=shape)
        over = draw(p, p)
        return GroupMoments(
            draw(times, p),
            draw(times, p),
            1.0 + draw(times) ** 2,
            draw(times, p),
            over + over.T,
            draw(p, p),
        )

    first, second, pivot = part(1), part(2), rng.normal(size=(times, p))
    merged = lambda xp: GroupMoments(*map(xp.asarray, first)).merged(
        GroupMoments(*map(xp.asarray, second)), xp.asarray(pivot)
    )
    found = merged(torch)
    # One time after the other.
    at = lambda m, k: m._replace(
        pivot=m.pivot[k],
        residual=m.residual[k],
        square=m.square[k],
        cross=m.cross[k],
    )
    for k in range(times):
        wanted = at(first, k).merged(at(second, k), pivot[k])
        for name in ("residual", "square", "cross"):
            np.testing.assert_allclose(
                getattr(found, name)[k], getattr(wanted, name), rtol=1e-13
            )


def test_functions_stay_on_the_device_and_in_the_dtype_of_their_gram_matrix():
    gram = torch.eye(3, dtype=torch.float32, device="meta")
    change = orthonormalised(gram, lambda once: once(gram))
    assert {a.device.type for a in change} == {"meta"}
    assert {a.dtype for a in change} == {torch.float32}


def test_dependent_moments_are_named_from_a_tensor():
    psi = torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0], [2.0, 3.0, 4.0]]).double()
    gram = (psi @ psi.T).numpy()
    with pytest.raises(ValueError, match="total depends on mass, centre"):
        check_independent(["mass", "centre", "total"], gram)
    with pytest.raises(ValueError, match="weight of centre must not vanish"):
        check_independent(["mass", "centre"], np.diag([1.0, 0.0]))


RULE = sdifp.quadrature.trapezoid(sdifp.Box([0.0], [2.0], periodic=True), 16)
CENTRE = Moment(lambda x: x[0], 1.0, components=0, name="centre")
COUPLED = Moment(lambda x: x[0] * np.ones(2), 1.0, name="coupled")

SHARED = [
    (
        [SquaredNorm(1.0), SquaredNorm(1.0, 0)],
        "component 0 is in two quadratic invariants, squared_norm and squared_norm.0.",
    ),
    (
        [Mass(1.0), SquaredNorm(1.0, 0), SquaredNorm(1.0, 1)],
        "mass couples components of different quadratic invariants",
    ),
    (
        [COUPLED, SquaredNorm(1.0, 1)],
        "coupled couples components with a quadratic invariant, squared_norm.1., and",
    ),
    ([CENTRE, Variance(1.0, 0)], "variance.0. cannot be prescribed beside moments"),
    ([CENTRE, CENTRE], "centre is given twice"),
    (
        [Moment(lambda x: x, None, name="centre")],
        "without one centre can only be measured",
    ),
    ([Mass(1.0, 2)], "component must be below 2, .* got 2 for mass"),
]


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(("given", "message"), SHARED)
def test_bad_invariants_are_refused_alike(given, message):
    net = torch_net(outputs=2)
    for conserve, own in (
        (sdt.conserve, net),
        (sdifp.conserve, jax_net(net, scalar=False)),
    ):
        with pytest.raises(ValueError, match=message):
            conserve(own, RULE, invariants=given)


NOT_YET = [
    ([CENTRE], "centre, Moment of component 0"),
    ([Mass(1.0, 0), COUPLED], "coupled, Moment of components 0, 1"),
    ([Mass(1.0)], "mass, Mass of components 0, 1"),
    ([SquaredNorm(1.0)], "squared_norm, SquaredNorm of components 0, 1"),
    ([Quadratic(lambda x: 1.0, 1.0, 1)], "quadratic, Quadratic of component 1"),
    ([DirichletEnergy(1.0, 1)], r"dirichlet_energy\[1\], DirichletEnergy of component"),
    (
        [QuadraticForm(lambda u, grad: (u * u).sum(), 1.0, name="energy")],
        "energy, QuadraticForm of components 0, 1",
    ),
]


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(("given", "message"), NOT_YET)
def test_invariants_of_groups_are_refused_by_name(given, message):
    with pytest.raises(ValueError, match="of sdifp.torch must be .* got " + message):
        sdt.conserve(torch_net(outputs=2), RULE, invariants=given)
