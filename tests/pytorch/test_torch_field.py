"""conserve for PyTorch: exactness, derivatives, gradient modes."""

import math
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nets import by_torch, torch_net

import sdifp
import sdifp.torch as sdt

BOX = sdifp.Box([0.0], [2.0], periodic=True)
RULE = sdifp.quadrature.trapezoid(BOX, 32)


class Analytic(torch.nn.Module):
    """`mean + deviation * sin(pi x + t)^3`, with a parameter that is the deviation."""

    def __init__(self, mean=0.0, deviation=1.0, dtype=torch.float64):
        super().__init__()
        self.deviation = torch.nn.Parameter(torch.tensor(deviation, dtype=dtype))
        self.mean = mean

    def forward(self, x, t):
        phase = math.pi * x.sum(-1, keepdim=True) + t
        return self.mean + self.deviation * torch.sin(phase) ** 3 + 0.1 * x[:, :1] ** 2


def errors_on_rule(u, t):
    """Relative errors of mass and squared_norm on the rule, from the values alone."""
    dtype = next(u.parameters()).dtype
    values = u.at(t)(u.rule.nodes.to(dtype)).detach().double()[:, 0]
    mass = u.rule.volume * math.fsum((u.rule.weights * values).tolist())
    squared_norm = u.rule.volume * math.fsum((u.rule.weights * values**2).tolist())
    wanted = [float(target.value(t)) for target in u.prescribed.of(0).values()]
    size = math.sqrt(u.rule.volume * wanted[1])
    return abs(mass - wanted[0]) / size, abs(squared_norm - wanted[1]) / wanted[1]


@given(
    mean=st.floats(-1e4, 1e4),
    deviation=st.floats(1e-2, 1e2),
    mass=st.floats(-2.0, 2.0),
    above=st.floats(0.1, 10.0),
    chunk=st.sampled_from([7, 4096]),
    single=st.booleans(),
)
def test_both_integrals_hold_on_the_rule(mean, deviation, mass, above, chunk, single):
    dtype = torch.float32 if single else torch.float64
    net = Analytic(mean, deviation, dtype)
    squared_norm = mass * mass / 2.0 + above
    u = sdt.conserve(net, RULE, mass, squared_norm, gradient=sdt.Exact(chunk))
    first, second = errors_on_rule(u, 0.3)
    # The values of the raw field are rounded to their format before anything else.
    bound = 1e-6 if single else 1e-13
    assert first <= bound
    assert second <= bound


def test_a_rare_peak_costs_no_digits_in_chunks():
    class Peak(torch.nn.Module):
        def forward(self, x):
            return 1e4 + torch.exp(-(((x - 1.7) / 1e-3) ** 2))

    rule = sdifp.quadrature.midpoint(BOX, 4000)
    nodes = torch.tensor(np.asarray(rule.nodes))
    for chunk in (10, 10_000):
        gradient = sdt.Detached(chunk)
        u = sdt.conserve(Peak(), rule, 1.0, 3.0, gradient=gradient, has_time=False)
        values = u(nodes)[:, 0].double()
        assert abs(float(2 * values.mean()) - 1.0) < 1e-13
        assert abs(float(2 * (values**2).mean()) - 3.0) < 1e-11


def test_single_precision_module_keeps_the_rule_and_the_frozen_tables():
    u = sdt.conserve(torch_net(), RULE, 1.0, 3.0)
    frozen = u.freeze([0.0, 1.0])
    before, tables = u.rule.nodes.clone(), frozen.coefficients(torch.tensor([0.3]))
    u.float(), frozen.half()
    assert torch.equal(u.rule.nodes, before)
    assert u.rule.nodes.dtype == torch.float64
    for a, b in zip(tables, frozen.coefficients(torch.tensor([0.3])), strict=True):
        assert torch.equal(a, b)
    assert u(torch.rand(3, 1), torch.rand(3, 1)).dtype == torch.float32
    assert max(errors_on_rule(u, 0.3)) < 1e-6


def test_each_point_has_the_derivative_by_its_own_time():
    u = sdt.conserve(torch_net(), RULE, lambda t: 1 + t, lambda t: 3 + t**2)
    x = torch.rand(5, 1, dtype=torch.float64)
    t = torch.tensor([0.2, 0.7, 0.2, 0.2, 0.7], dtype=torch.float64, requires_grad=True)
    shared = by_torch(u(x, t), t).detach()
    step = 1e-5
    with torch.no_grad():
        apart = (u(x, t + step) - u(x, t - step))[:, 0] / (2 * step)
    assert torch.allclose(shared, apart, atol=1e-8)
    # The whole Jacobian is diagonal.
    matrix = torch.autograd.functional.jacobian(lambda t: u(x, t)[:, 0], t)
    assert torch.allclose(matrix, torch.diag(shared), atol=1e-13)


def test_time_derivatives_through_torch_func():
    u = sdt.conserve(torch_net(), RULE, lambda t: 1 + t, lambda t: 3 + t**2)
    x = torch.rand(4, 1, dtype=torch.float64)
    t = torch.tensor([0.2, 0.7, 0.2, 0.4], dtype=torch.float64, requires_grad=True)
    first, second = by_torch(u(x, t), t).detach(), by_torch(u(x, t), t, 2).detach()
    t = t.detach()
    one = lambda x, t: u(x, t)[0]
    func = torch.func
    reverse, forward = func.grad(one, 1), func.jacfwd(one, 1)
    for derivative in (reverse, forward):
        assert torch.allclose(func.vmap(derivative)(x, t), first, rtol=1e-12)
    for twice in (
        func.grad(reverse, 1),
        func.jacfwd(forward, 1),
        func.jacfwd(reverse, 1),
    ):
        assert torch.allclose(func.vmap(twice)(x, t), second, rtol=1e-11)
    ones = torch.ones_like(t)
    assert torch.allclose(func.jvp(lambda t: u(x, t), (t,), (ones,))[1][:, 0], first)
    with torch.autograd.forward_ad.dual_level():
        dual = u(x, torch.autograd.forward_ad.make_dual(t, ones))
        tangent = torch.autograd.forward_ad.unpack_dual(dual).tangent
    assert torch.allclose(tangent[:, 0], first)


@pytest.mark.parametrize(
    "gradient", [sdt.Exact(), sdt.Subsampled(8), sdt.Detached()], ids=lambda g: str(g)
)
def test_parameter_gradients_through_torch_func(gradient):
    net = torch_net()
    u = sdt.conserve(net, RULE, lambda t: 1 + t, 3.0, gradient=gradient)
    u.resample(torch.Generator().manual_seed(0))
    x = torch.rand(4, 1, dtype=torch.float64)
    t = torch.tensor(0.3, dtype=torch.float64)
    parameters = dict(u.named_parameters())

    def loss(parameters):
        call = lambda t: torch.func.functional_call(u, parameters, (x, t))
        value, u_t = torch.func.jvp(call, (t,), (torch.ones_like(t),))
        return ((value + u_t) ** 2).sum()

    found = torch.func.grad(loss)(parameters)
    ts = t.expand(4).clone().requires_grad_()
    value = u(x, ts)
    ((value[:, 0] + by_torch(value, ts)) ** 2).sum().backward()
    for name, parameter in u.named_parameters():
        assert torch.allclose(found[name], parameter.grad, rtol=1e-10, atol=1e-12)


def test_a_graph_free_derivative_is_not_used_in_a_graph():
    net = torch_net()
    u = sdt.conserve(net, RULE, lambda t: 1 + t, lambda t: 3 + t**2)
    x = torch.rand(4, 1, dtype=torch.float64)
    t = torch.full((4,), 0.3, dtype=torch.float64, requires_grad=True)

    def gradient(look_first):
        value = u(x, t)
        first = by_torch(value, t)
        if look_first:
            torch.autograd.grad(first.sum(), t, retain_graph=True)
        net.zero_grad()
        (by_torch(first, t) ** 2).sum().backward()
        return [p.grad.clone() for p in net.parameters()]

    for a, b in zip(gradient(False), gradient(True), strict=True):
        assert torch.equal(a, b)


def test_parameters_of_a_functional_call_are_those_of_all_derivatives():
    u, other = (
        sdt.conserve(torch_net(seed), RULE, lambda t: 1 + t, 3.0, gradient=gradient)
        for seed, gradient in ((0, sdt.Exact(50)), (1, sdt.Exact()))
    )
    x = torch.rand(4, 1, dtype=torch.float64)
    t = torch.tensor([0.2, 0.7, 0.2, 0.4]).double().requires_grad_()
    given = {
        k: p.detach().clone().requires_grad_() for k, p in other.named_parameters()
    }
    for order in (0, 1, 2):
        found = by_torch(torch.func.functional_call(u, given, (x, t)), t, order)
        wanted = by_torch(other(x, t), t, order)
        assert torch.allclose(found, wanted, rtol=1e-12)
    for p in other.parameters():
        p.grad = None
    found.pow(2).sum().backward()
    wanted.pow(2).sum().backward()
    size = max(p.grad.abs().max() for p in other.parameters())
    for name, p in other.named_parameters():
        assert torch.allclose(given[name].grad, p.grad, rtol=0, atol=1e-12 * size)
    assert all(p.grad is None for p in u.parameters())


def test_forward_mode_over_parameters():
    net = torch_net()
    u = sdt.conserve(net, RULE, lambda t: 1 + t, 3.0)
    x, t = torch.rand(4, 1, dtype=torch.float64), torch.full((4,), 0.3).double()
    parameters = {k: p.detach() for k, p in u.named_parameters()}
    tangents = {k: torch.randn_like(p) for k, p in parameters.items()}
    call = lambda p: torch.func.functional_call(u, p, (x, t))
    _, wanted = torch.func.jvp(call, (parameters,), (tangents,))
    forward_ad = torch.autograd.forward_ad
    with torch.no_grad(), forward_ad.dual_level():
        dual = {k: forward_ad.make_dual(p, tangents[k]) for k, p in parameters.items()}
        found = forward_ad.unpack_dual(call(dual)).tangent
    step = 1e-6
    up, down = (
        call({k: p + s * tangents[k] for k, p in parameters.items()})
        for s in (step, -step)
    )
    assert torch.allclose(found, wanted)
    assert torch.allclose(found, (up - down) / (2 * step), atol=1e-6)


# Gradient modes.


def test_memory_of_the_exact_gradient_is_that_of_one_chunk():
    x, t = torch.rand(4, 1, dtype=torch.float64), torch.full((4,), 0.5).double()
    t.requires_grad_()

    def step(nodes, chunk):
        """The most rows that the network is evaluated on at once, what the graph of
        the coefficients keeps, and the gradient."""
        net, rows, kept = torch_net(), [], []

        class Kept:
            def __init__(self, tensor):
                # With its history a result that is saved would keep itself alive.
                self.tensor = tensor.detach()
                kept.append(weakref.ref(self))

        net[0].register_forward_hook(lambda m, given, out: rows.append(len(out)))
        rule = sdifp.quadrature.trapezoid(BOX, nodes)
        u = sdt.conserve(net, rule, 1.0, 3.0, gradient=sdt.Exact(chunk))
        with torch.autograd.graph.saved_tensors_hooks(Kept, lambda k: k.tensor):
            scale = u.at(t).scale
            alive = [k().tensor for k in kept if k() is not None]
        assert scale.requires_grad
        sizes = {a.data_ptr(): a.numel() for a in alive}
        return max(rows), sum(sizes.values()), gradients(u, x, t)

    whole, pieces, half = step(4096, 4096), step(4096, 128), step(2048, 128)
    assert (whole[0], pieces[0], half[0]) == (4096, 128, 128)
    assert pieces[1] < whole[1] / 20
    assert torch.allclose(whole[2], pieces[2], rtol=1e-10, atol=1e-12)


def test_the_sample_is_chunked_as_well():
    net = torch_net()
    x, t = torch.rand(40, 1, dtype=torch.float64), torch.linspace(0, 1, 40).double()
    found = []
    for chunk in (4096, 50, 7):
        u = sdt.conserve(net, RULE, 1.0, 3.0, gradient=sdt.Subsampled(8, chunk=chunk))
        u.resample(torch.Generator().manual_seed(0))
        rows = []
        hook = net[0].register_forward_hook(
            lambda m, g, out, r=rows: r.append(len(out))
        )
        found.append(gradients(u, x, t))
        hook.remove()
        assert max(rows) <= max(chunk, 40)
    for other in found[1:]:
        assert torch.allclose(found[0], other, rtol=1e-10, atol=1e-12)


def quadratures(run, **options):
    """How often the network was evaluated on all nodes."""
    net, rows = torch_net(), []
    u = sdt.conserve(net, RULE, lambda t: 1 + t, 3.0, **options)
    net[0].register_forward_hook(lambda m, given, out: rows.append(len(out)))
    run(u)
    return sum(n == 2 * RULE.size for n in rows)


def test_only_what_is_asked_for_is_computed():
    x = torch.rand(6, 1, dtype=torch.float64)
    t = torch.tensor([0.1, 0.1, 0.1, 0.6, 0.6, 0.6]).double().requires_grad_()

    def values(u):
        u(x, t).pow(2).mean().backward(inputs=list(u.parameters()))

    def first(u):
        by_torch(u(x, t), t).pow(2).mean().backward(inputs=list(u.parameters()))

    def with_times(u):
        u(x, t).pow(2).mean().backward()

    def second(u):
        by_torch(u(x, t), t, 2).pow(2).mean().backward(inputs=list(u.parameters()))

    def joined(u):
        z = torch.cat([x, t.detach()[:, None]], 1).requires_grad_()
        first = by_torch(u(z), z)
        curved = by_torch(first[:, :1], z)[:, 0]
        (first[:, 1] - curved).pow(2).mean().backward(inputs=list(u.parameters()))

    for gradient in (sdt.Exact(), sdt.Subsampled(4)):
        counts = [
            quadratures(run, gradient=gradient)
            for run in (values, first, with_times, second, joined)
        ]
        assert counts == [1, 1, 1, 2, 1]


def test_a_factor_of_zero_has_a_gradient():
    net = torch_net()
    u = sdt.conserve(net, RULE, lambda t: 1 + t, 3.0)
    x = torch.rand(4, 1, dtype=torch.float64)
    t = torch.full((4,), 0.3, dtype=torch.float64, requires_grad=True)
    factor = torch.zeros((), dtype=torch.float64, requires_grad=True)
    by_torch(factor * u(x, t), t, 2).sum().backward()
    wanted = by_torch(u(x, t), t, 2).sum()
    assert torch.allclose(factor.grad, wanted.detach(), rtol=1e-12)


def gradients(u, x, t):
    u.zero_grad()
    ts = t.clone().requires_grad_()
    value = u(x, ts)
    ((value[:, 0] + by_torch(value, ts)) ** 2).mean().backward()
    return torch.cat([p.grad.reshape(-1) for p in u.parameters()])


def worst_score(sample_with, runs=400):
    """The largest deviation of the mean gradient over resamples from the exact one, in
    standard errors, among eight random directions."""
    net = torch_net(width=6)
    rule = sdifp.quadrature.gauss_legendre(sdifp.Box([0.0], [2.0]), 24)
    exact = sdt.conserve(net, rule, lambda t: 1 + t, lambda t: 4 + t)
    u = sdt.conserve(net, rule, lambda t: 1 + t, lambda t: 4 + t, gradient=sample_with)
    x, t = torch.rand(6, 1, dtype=torch.float64), torch.full((6,), 0.4).double()
    wanted = gradients(exact, x, t)
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(runs):
        u.resample(generator)
        found.append(gradients(u, x, t))
    directions = torch.randn(len(wanted), 8, generator=generator).double()
    off = (torch.stack(found) - wanted) @ directions
    return float((off.mean(0) / (off.std(0) / math.sqrt(runs))).abs().max())


@pytest.mark.parametrize("stratified", [True, False])
def test_subsampled_gradient_is_unbiased(stratified):
    assert worst_score(sdt.Subsampled(6, stratified)) < 4.5


def test_a_sample_without_its_factors_is_seen_to_be_biased(monkeypatch):
    sample = sdt.Rule.sample

    def unweighted(self, k, **options):
        index, _ = sample(self, k, **options)
        return index, 1.0 / (k * self.weights[index])

    monkeypatch.setattr(sdt.Rule, "sample", unweighted)
    assert worst_score(sdt.Subsampled(6)) > 10.0


def test_detached_is_seen_to_be_biased():
    net = torch_net(width=6)
    x, t = torch.rand(6, 1, dtype=torch.float64), torch.full((6,), 0.4).double()
    exact, detached = (
        gradients(sdt.conserve(net, RULE, 1.0, 4.0, gradient=g), x, t)
        for g in (sdt.Exact(), sdt.Detached())
    )
    assert float((exact - detached).norm() / exact.norm()) > 0.1


def test_subsampled_has_exact_values_and_time_derivatives():
    net = torch_net()
    x = torch.rand(6, 1, dtype=torch.float64)
    t = torch.tensor([0.1, 0.4, 0.4, 0.1, 0.9, 0.9]).double().requires_grad_()
    exact = sdt.conserve(net, RULE, lambda t: 1 + t, 4.0)
    u = sdt.conserve(net, RULE, lambda t: 1 + t, 4.0, gradient=sdt.Subsampled(4))
    u.resample()
    for order in (0, 1, 2):
        wanted, found = (by_torch(field(x, t), t, order) for field in (exact, u))
        assert torch.allclose(wanted, found, rtol=1e-13, atol=1e-13)


def test_without_resample_subsampled_is_exact():
    net = torch_net()
    x, t = torch.rand(6, 1, dtype=torch.float64), torch.full((6,), 0.4).double()
    fields = (
        sdt.conserve(net, RULE, 1.0, 4.0, gradient=g)
        for g in (sdt.Exact(), sdt.Subsampled(4))
    )
    a, b = (gradients(u, x, t) for u in fields)
    assert torch.allclose(a, b, rtol=1e-13)


# Rules.

RANDOMISED = {
    "sobol": lambda box, key: sdifp.quadrature.sobol(box, 64, key=key),
    "lattice": lambda box, key: sdifp.quadrature.lattice(box, 64, key=key),
    "halton": lambda box, key: sdifp.quadrature.halton(box, 60, key=key),
    "monte_carlo": lambda box, key: sdifp.quadrature.monte_carlo(box, 64, key=key),
    "trapezoid": lambda box, key: sdifp.quadrature.trapezoid(
        sdifp.Box.cube(2, -1.0, 3.0, periodic=True), 8
    ),
}


@pytest.mark.parametrize("family", RANDOMISED)
def test_redrawn_nodes_are_uniform_and_keep_their_structure(family, getkey):
    """The mean over resamples of a rough function is its integral; the deviation of one
    draw is that of the family, not that of independent points."""
    box = sdifp.Box.cube(2, -1.0, 3.0, periodic=[False, True])
    rule = sdt.Rule.of(RANDOMISED[family](box, getkey()))
    smooth = lambda x: (
        torch.cos(math.pi * (x[:, 0] + 1) / 2) + torch.sin(math.pi * x[:, 1] / 2)
    )
    rough = lambda x: (x[:, 0] > 0.3).double()
    generator = torch.Generator().manual_seed(0)
    draws = []
    for _ in range(400):
        rule.resample(generator)
        assert bool(((rule.nodes >= -1.0) & (rule.nodes <= 3.0)).all())
        draws.append(
            [float((rule.weights * f(rule.nodes)).sum()) for f in (smooth, rough)]
        )
    means, deviations = np.mean(draws, 0), np.std(draws, 0)
    wanted = np.array([0.0, 2.7 / 4.0])
    assert np.all(np.abs(means - wanted) <= 4.5 * deviations / 20.0 + 1e-14)
    if family != "monte_carlo":
        # Independent points: root of (1/2 + 1/2) / 64.
        assert deviations[0] < 0.5 * 0.125


@pytest.mark.parametrize("family", [*RANDOMISED, "runs"])
@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("k", [1, 8, 12])
def test_samples_are_unbiased(family, stratified, k, getkey):
    box = sdifp.Box.cube(2, -1.0, 3.0)
    if family == "runs":
        rule = sdt.Rule.of(sdifp.quadrature.gauss_legendre(box, 7))
    else:
        rule = sdt.Rule.of(RANDOMISED[family](box, getkey()))
    counts = torch.zeros(rule.size, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    runs = 3000
    for _ in range(runs):
        index, factor = rule.sample(k, stratified=stratified, generator=generator)
        assert len(set(index.tolist())) == k
        counts[index] += factor
    # Each node is counted once on average; its variance is at most factor - 1.
    deviation = math.sqrt(max(1.0, float(factor.max())) / runs)
    assert float((counts / runs - 1.0).abs().max()) < 5.0 * deviation


def test_a_field_redraws_its_own_rule_in_high_dimension(getkey):
    rule = sdt.Rule.of(sdifp.quadrature.sobol(sdifp.Box.cube(5), 64, key=getkey()))
    u = sdt.conserve(torch_net(inputs=6), rule, 1.0, 3.0, gradient=sdt.Subsampled(8))
    before = u.rule.nodes.clone()
    u.resample()
    assert not torch.equal(u.rule.nodes, before)
    assert torch.equal(rule.nodes, before), "the rule that was given is not changed"
    assert max(errors_on_rule(u, 0.3)) < 1e-13
    u.resample(rule=False)
    low = sdt.conserve(torch_net(), RULE, 1.0, 3.0)
    before = low.rule.nodes.clone()
    low.resample()
    assert torch.equal(low.rule.nodes, before), "not in one dimension by default"
    low.resample(rule=True)
    assert not torch.equal(low.rule.nodes, before)


# The ways of calling.


def test_a_module_is_called_as_before():
    class Two(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x, t):
            return self.inner(torch.cat([x, t], -1))[:, 0]

    net = torch_net()
    joined, apart = (
        sdt.conserve(m, RULE, 1.0, lambda t: 3 + t) for m in (net, Two(net))
    )
    x, t = torch.rand(4, 1, dtype=torch.float64), torch.rand(4, 1, dtype=torch.float64)
    wanted = joined(torch.cat([x, t], -1))
    assert wanted.shape == (4, 1)
    for found in (joined(x, t), joined(x, t[:, 0]), apart(x, t)[:, None]):
        assert torch.equal(found, wanted)
    assert joined(x.reshape(2, 2, 1), t.reshape(2, 2)).shape == (2, 2, 1)
    assert apart(x.reshape(2, 2, 1), t.reshape(2, 2)).shape == (2, 2)
    one = joined(x, 0.3)
    assert torch.allclose(one, joined(x, torch.full((4, 1), 0.3).double()), rtol=1e-6)
    assert torch.equal(one, joined.at(0.3)(x))


def test_a_network_without_time():
    net = torch_net(inputs=1)
    u = sdt.conserve(net, RULE, 1.0, 3.0, times=None)
    assert not u.has_time
    values = u(torch.as_tensor(np.array(RULE.nodes)))[:, 0].detach()
    assert float(2 * values.mean()) == pytest.approx(1.0, abs=1e-14)
    assert float(2 * (values**2).mean()) == pytest.approx(3.0, rel=1e-13)
    frozen = u.freeze()
    x = torch.rand(5, 1, dtype=torch.float64)
    assert torch.allclose(frozen(x), u(x), rtol=1e-13)
    with pytest.raises(ValueError, match="t must be left out"):
        u(x, 0.3)


def test_training_learns_and_keeps_the_integrals():
    torch.manual_seed(0)
    net = torch_net(dtype=torch.float32)
    wave = lambda x, t: 0.5 + torch.sin(math.pi * (x - t))
    u = sdt.conserve(net, RULE, 1.0, 2 * (0.25 + 0.5), gradient=sdt.Subsampled(8))
    optimiser = torch.optim.Adam(u.parameters(), 1e-2)
    losses = []
    for _ in range(300):
        u.resample()
        x, t = 2 * torch.rand(64, 1), torch.rand(4).repeat_interleave(16)[:, None]
        loss = ((u(x, t) - wave(x, t)) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert max(errors_on_rule(u, 0.5)) < 1e-6


def test_targets_that_cannot_be_met():
    u = sdt.conserve(torch_net(), RULE, 1.0, lambda t: 1.0 - t)
    assert u.at(0.9).status.item() == sdt.Status.INFEASIBLE
    with pytest.raises(
        ValueError, match=r"cannot be met at t = 0.9: squared_norm = 0.1 is"
    ):
        u.check([0.1, 0.9])
    with pytest.raises(ValueError, match=r"cannot be met at t = 0.9"):
        sdt.conserve(torch_net(), RULE, 1.0, lambda t: 1.0 - t, times=[0.9])

    class Flat(torch.nn.Module):
        def forward(self, x):
            return torch.ones_like(x)

    with pytest.raises(ValueError, match="constant on the nodes"):
        sdt.conserve(Flat(), RULE, 1.0, 3.0, has_time=False).check()


class Given(torch.nn.Module):
    """A network with these values."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, t):
        return self.function(x, t)


@pytest.mark.parametrize(
    ("function", "squared_norm", "reason"),
    [
        (lambda x, t: 0.5 + 0.0 * x, 9.0, "constant on the nodes"),
        (lambda x, t: math.nan * x, 9.0, "network is not finite"),
        (
            lambda x, t: torch.sin(x),
            lambda t: 1.0 + 0.0 * t,
            "squared_norm = 1 is below",
        ),
        (
            lambda x, t: torch.sin(x),
            lambda t: math.nan * t,
            "squared_norm = nan is not",
        ),
    ],
)
def test_targets_that_cannot_be_met_are_errors_where_the_field_is_evaluated(
    function, squared_norm, reason
):
    u = sdt.conserve(Given(function), RULE, 3.0, squared_norm)
    x, t = torch.rand(5, 1, dtype=torch.float64), torch.full((5,), 0.5).double()
    for call in (
        lambda: u(x, 0.5),
        lambda: u(x, t),
        lambda: u.at(0.5)(x),
        lambda: torch.func.jvp(lambda t: u(x, t), (t,), (torch.ones_like(t),)),
    ):
        with pytest.raises(ValueError, match=rf"cannot be met at t = 0\.5: .*{reason}"):
            call()
    assert u.at(0.5).status.item() >= sdt.Status.DEGENERATE
    assert not u.certificate([0.5]).holds


def test_numbers_that_no_field_has_are_refused_at_construction():
    with pytest.raises(
        ValueError, match=r"squared_norm = 1 is below .*mass 3 can have, 4\.5"
    ):
        sdt.conserve(torch_net(), RULE, 3.0, 1.0)
    with pytest.raises(
        ValueError, match="at least two nodes where mass and squared_norm"
    ):
        sdt.conserve(torch_net(), sdifp.quadrature.trapezoid(BOX, 1), 1.0, 3.0)


def test_variance_is_a_target_of_its_own():
    wave = Given(lambda x, t: 1e4 + torch.sin(math.pi * (x - t)))
    u = sdt.conserve(wave, RULE, 2e4, variance=lambda t: 1e-4 * (1.0 + t))
    values = u.at(0.5)(u.rule.nodes).reshape(-1)
    got = 2.0 * ((values - values.mean()) ** 2).mean()
    assert float(got) == pytest.approx(1.5e-4, rel=1e-8)
    rows = u.certificate([0.5])
    assert rows.holds
    assert [row.invariant for row in rows.rows] == ["mass", "variance"]


def test_field_that_underflows_has_a_status():
    net = torch_net(dtype=torch.float32)
    assert sdt.conserve(net, RULE, squared_norm=1e-50).at(0.5).status.item() == 0
    u = sdt.conserve(net, RULE, squared_norm=1e-100)
    assert u.at(0.5).status.item() == sdt.Status.UNDERFLOW
    with pytest.raises(ValueError, match="squared_norm = 1e-100 is so small"):
        u(torch.rand(5, 1), 0.5)


def test_another_rule():
    u = sdt.conserve(torch_net(), RULE, 1.0, 3.0)
    finer = u.on(sdifp.quadrature.trapezoid(BOX, 128))
    assert finer.net is u.net
    assert finer.rule.size == 128
    assert max(errors_on_rule(finer, 0.3)) < 1e-13
    with pytest.raises(ValueError, match="rule must live on the box of the field"):
        u.on(sdifp.quadrature.trapezoid(sdifp.Box([0.0], [3.0], periodic=True), 32))


def test_no_points_at_all():
    u = sdt.conserve(torch_net(), RULE, 1.0, 3.0)
    none = torch.zeros(0, 1, dtype=torch.float64)
    assert u(none, none).shape == (0, 1)


def test_a_network_of_which_only_a_coefficient_trains():
    net = torch_net().requires_grad_(False)
    net.nu = torch.nn.Parameter(torch.tensor(0.1, dtype=torch.float64))
    u = sdt.conserve(net, RULE, 1.0, 3.0, gradient=sdt.Exact(8))
    x, t = torch.rand(4, 1, dtype=torch.float64), torch.full((4,), 0.3).double()
    (u(x, t).sum() * net.nu).backward()
    assert net.nu.grad is not None


def test_a_target_in_single_precision_is_not_held_against_the_network():
    mean = lambda t: torch.full_like(t, 0.7, dtype=torch.float32)
    square = lambda t: mean(t) ** 2 / 2
    u = sdt.conserve(torch_net(), RULE, mean, square)
    assert u.at(0.3).status.item() == sdt.Status.CONSTANT


def test_targets_that_are_modules_or_tensors():
    class Mass(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

        def forward(self, t):
            return 1 + self.slope * t

    u = sdt.conserve(torch_net(), RULE, Mass(), torch.tensor(3.0))
    assert "targets.0.slope" in dict(u.named_parameters())
    u.at(0.5).shift.sum().backward()
    assert u.targets[0].slope.grad is not None


def test_importance_rules_made_in_another_precision(getkey):
    import jax

    def sample(key):
        return 2.0 * jax.random.uniform(key, (1,))

    rule = sdifp.quadrature.importance(
        BOX, 50, sample, lambda x: 1.0 + 0 * x[0], key=getkey()
    )
    with jax.enable_x64(False):
        mine = sdt.Rule.of(rule)
    assert mine.weights.sum().item() == pytest.approx(1.0, abs=1e-14)
    assert not mine.is_randomised


def test_a_name_is_only_a_name(getkey):
    nodes, weights = np.array([[0.2], [1.0], [1.5]]), np.array([0.5, 0.25, 0.25])
    rule = sdt.Rule.of(sdifp.from_points(BOX, nodes, weights, name="monte_carlo"))
    assert not rule.is_randomised
    rule = sdt.Rule([0.0], [2.0], torch.rand(10, 1).double(), name="sobol")
    assert int(rule.sample(7)[0].max()) < 10
    with pytest.raises(ValueError, match="k must be between 1 and the 10 nodes"):
        rule.sample(11)


def test_averages_and_copies_keep_the_rule():
    import copy

    u = sdt.conserve(torch_net(), RULE, 1.0, 3.0)
    average = torch.optim.swa_utils.AveragedModel(u, use_buffers=True)
    average.update_parameters(u)
    average.update_parameters(u)
    for other in (average.module, copy.deepcopy(u)):
        assert torch.allclose(other.rule.nodes, u.rule.nodes, rtol=1e-15)
        assert max(errors_on_rule(other, 0.3)) < 1e-13


def test_several_times_at_once():
    u = sdt.conserve(torch_net(), RULE, 1.0, lambda t: 3 + t)
    times = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    x = torch.rand(3, 1, dtype=torch.float64)
    now = u.at(times)
    assert now.scale.shape == (3,)
    assert torch.equal(now(x), u(x, times))
    for one in (times[:1], times[:1, None]):
        assert torch.equal(u(x, one), u(x, times[0]))
    with pytest.raises(ValueError, match="x must have one point for each time"):
        now(torch.rand(5, 1, dtype=torch.float64))


def test_integrals_over_a_normalised_box_are_means():
    nodes = np.random.default_rng(0).uniform(0.0, 2.0, (16, 2000))
    box = [0.0] * 2000, [2.0] * 2000
    net = Given(lambda x, t: torch.sin(x).sum(1, keepdim=True))
    rule = sdt.Rule(*box, nodes, normalised=True)
    assert rule.volume == 1.0
    u = sdt.conserve(net, rule, 0.3, 1.0)
    values = u(u.rule.nodes, 0.5)
    assert float(values.mean()) == pytest.approx(0.3, rel=1e-12)
    assert float((values**2).mean()) == pytest.approx(1.0, rel=1e-12)
    with pytest.raises(ValueError, match="normalised=True"):
        sdt.conserve(net, sdt.Rule(*box, nodes), 0.3, 1.0)
