"""Both engines give the same numbers for the same weights and rule."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from nets import by_torch, jax_net, torch_net

import sdifp
import sdifp.torch

BOX = sdifp.Box([0.0], [2.0], periodic=True)

CASES = {
    "both": ({"mass": 1.0, "squared_norm": 3.0}, {}),
    "mass": ({"mass": 1.5}, {}),
    "squared_norm": ({"squared_norm": 2.0}, {}),
    "moving": (
        {
            "mass": (lambda t: 1.0 + t**2, lambda t: 1.0 + t**2),
            "squared_norm": (lambda t: 3.0 + torch.sin(t), lambda t: 3.0 + jnp.sin(t)),
        },
        {},
    ),
    "profile": (
        {"mass": 1.0, "squared_norm": (lambda t: 4.0 + t, lambda t: 4.0 + t)},
        {
            "profile": (
                lambda x: x[:, 0] * (2.0 - x[:, 0]),
                lambda x: x[0] * (2.0 - x[0]),
            )
        },
    ),
    "floor": (
        {"mass": 1.0, "squared_norm": 3.0},
        {"floor": sdifp.correction.AbsoluteFloor(1e3)},
    ),
}


def fields(case, rule, gradient):
    targets, options = CASES[case]
    first, second = (
        {
            k: v[i] if isinstance(v, tuple) else v
            for k, v in {**targets, **options}.items()
        }
        for i in (0, 1)
    )
    net = torch_net()
    wrapped = sdifp.torch.conserve(net, rule, **first, gradient=gradient)
    return net, wrapped, lambda net: sdifp.conserve(net, rule, **second)


def points():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 2.0, (12, 1))
    t = np.array([0.1, 0.1, 0.3, 0.3, 0.3, 0.9, 0.1, 0.5, 0.5, 0.5, 0.9, 0.9])
    return x, t


def close(found, wanted, tolerance=1e-12):
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


def gradients(u, xs, ts):
    u.zero_grad()
    value = u(xs, ts)
    u_t, u_x = by_torch(value, ts), by_torch(value, xs)
    residual = u_t[:, None] + value * u_x + by_torch(u_t, ts)[:, None]
    (residual**2).mean().backward()
    return [p.grad.clone() for p in u.parameters()]


@pytest.mark.parametrize("case", CASES)
def test_values_time_derivatives_and_gradients(case):
    rule = (
        sdifp.quadrature.gauss_legendre(BOX, 33)
        if case == "both"
        else sdifp.quadrature.trapezoid(BOX, 32)
    )
    net, u, make = fields(case, rule, sdifp.torch.Exact())
    v = make(jax_net(net))
    x, t = points()
    xs, ts = torch.tensor(x, requires_grad=True), torch.tensor(t, requires_grad=True)
    close(u(xs, ts)[:, 0].detach(), jax.vmap(v)(x, t))
    f = v
    for order in (1, 2, 3) if case == "moving" else (1, 2):
        f = jax.grad(f, 1)
        tolerance = 1e-12 if order < 3 else 1e-11
        wanted = jax.jit(jax.vmap(f))(x, t)
        close(by_torch(u(xs, ts), ts, order).detach(), wanted, tolerance)

    def loss(net):
        w = eqx.tree_at(lambda u: u.net, v, net)

        def one(x, t):
            u_t = jax.grad(w, 1)
            return u_t(x, t) + w(x, t) * jax.grad(w)(x, t)[0] + jax.grad(u_t, 1)(x, t)

        return jnp.mean(jax.vmap(one)(x, t) ** 2)

    wanted = eqx.filter_jit(eqx.filter_grad(loss))(jax_net(net))
    found = gradients(u, xs, ts)
    for k, (weight, bias) in enumerate(wanted.layers):
        close(found[2 * k], weight)
        # The offset of the network is no degree of freedom of a shifted field.
        size = np.abs(np.asarray(weight)).max()
        assert np.abs(found[2 * k + 1].numpy() - np.asarray(bias)).max() <= 1e-12 * size


@pytest.mark.parametrize("case", CASES)
def test_chunks_give_the_same(case):
    rule = sdifp.quadrature.gauss_legendre(BOX, 33)
    x, t = points()
    xs, ts = torch.tensor(x, requires_grad=True), torch.tensor(t, requires_grad=True)
    results = []
    # Several blocks of nodes; more times than a chunk has rows.
    for chunk in (4096, 40, 3):
        _, u, _ = fields(case, rule, sdifp.torch.Exact(chunk))
        values = [by_torch(u(xs, ts), ts, order).detach() for order in (0, 1, 2)]
        results.append(values + gradients(u, xs, ts))
    for other in results[1:]:
        size = max(float(a.abs().max()) for a in results[0][3:])
        for k, (a, b) in enumerate(zip(results[0], other, strict=True)):
            assert float((a - b).abs().max()) <= 1e-12 * (
                float(a.abs().max()) if k < 3 else size
            )


def test_several_components():
    net = torch_net(outputs=3)
    rule = sdifp.quadrature.trapezoid(BOX, 32)
    mass, squared_norm = [1.0, None, None], [3.0, 2.0, None]
    u = sdifp.torch.conserve(net, rule, mass, squared_norm)
    v = sdifp.conserve(jax_net(net, scalar=False), rule, mass, squared_norm)
    x, t = points()
    ts = torch.tensor(t, requires_grad=True)
    found = u(torch.tensor(x), ts)
    close(found.detach(), jax.vmap(v)(x, t))
    for k in range(3):
        wanted = jax.vmap(jax.grad(lambda x, t, k=k: v(x, t)[k], 1))(x, t)
        close(by_torch(found[:, k], ts).detach(), wanted)
    assert u.at(0.1).scale.shape == (3,)
    assert u.at(ts).scale.shape == (12, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda box, key: sdifp.quadrature.sobol(box, 64, key=key),
        lambda box, key: sdifp.quadrature.lattice(box, 64, key=key),
        lambda box, key: sdifp.quadrature.halton(box, 50, key=key),
        lambda box, key: sdifp.quadrature.monte_carlo(box, 50, key=key),
        lambda box, key: sdifp.quadrature.gauss_legendre(box, 5),
    ],
)
@pytest.mark.parametrize("x64", [True, False])
def test_rules_have_the_same_nodes(make, x64, getkey):
    with jax.enable_x64(x64):
        rule = make(sdifp.Box.cube(2, -1.0, 3.0, periodic=[True, False]), getkey())
        mine = sdifp.torch.Rule.of(rule)
    if rule.name != "monte_carlo":
        # Monte Carlo nodes are other numbers in another precision.
        np.testing.assert_allclose(mine.nodes.numpy(), rule.nodes, rtol=0, atol=1e-15)
    np.testing.assert_allclose(mine.weights.numpy(), rule.weights, rtol=1e-15)
    assert repr(mine) == repr(rule)
    assert mine.is_randomised == rule.is_randomised


def test_certificates_agree(getkey):
    net = torch_net()
    rule = sdifp.quadrature.trapezoid(BOX, 32)
    u = sdifp.torch.conserve(net, rule, 1.0, 3.0)
    v = sdifp.conserve(jax_net(net), rule, 1.0, 3.0)
    mine = u.certificate([0.1, 0.7])
    other = v.certificate([0.1, 0.7], key=getkey())
    assert mine.holds, mine.verdict
    for a, b in zip(mine.rows, other.rows, strict=True):
        assert (a.invariant, a.target, a.status) == (b.invariant, b.target, b.status)
        assert a.scale == pytest.approx(b.scale, rel=1e-12)
        assert abs(a.continuum - b.continuum) <= a.continuum_margin + b.continuum_margin


def test_gauge_agrees():
    net = torch_net()
    rule = sdifp.quadrature.trapezoid(BOX, 32)
    u = sdifp.torch.conserve(net, rule, 1.0, 3.0)
    v = sdifp.conserve(jax_net(net), rule, 1.0, 3.0)
    assert u.at(0.3).gauge().item() == pytest.approx(
        float(v.at(0.3).gauge()), rel=1e-12
    )
