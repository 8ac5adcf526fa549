"""Cost of a conserved field over its bare network, as ratios from one run.

(a) one training-like gradient: residual u_t + u u_x, 4x128 tanh network, one dimension,
    64 nodes of which 16 carry the gradient, 8 times with 32 or 128 points each; and,
    as the worst case, the cheapest residual there is, u_t + u_x by one derivative;
(b) the quadrature pass (moments and their time derivative on 1e5 nodes in ten
    dimensions) as a share of the best rate of matrix products on this machine;
(c) inference of a frozen field over that of the bare network, 1e5 points of one time;
(d) the gradient of (a) where each of 256 points has a time of its own: a quadrature for
    each of them, and moments interpolated between 12 times;
(e) the gradient of (a) of a network with four components: eight linear moments and one
    quadratic form of all components over mass and squared norm of one component, the
    cheapest two invariants of such a network;
(f) a quadrature pass and its gradient, 4096 nodes: the Dirichlet energy, which needs
    the gradient of the network on the nodes, over the squared norm.
"""

import argparse
import json
import platform
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sdifp
from sdifp._timing import interleaved
from sdifp.invariants import DirichletEnergy, Mass, Moment, Quadratic, SquaredNorm

KEY = jax.random.key(0)


class Network(eqx.Module):
    """A 4x128 tanh network of x and t, periodic in x."""

    mlp: eqx.nn.MLP

    def __init__(self, d: int, components: int | Literal["scalar"] = "scalar"):
        """The network in d dimensions."""
        self.mlp = eqx.nn.MLP(2 * d + 1, components, 128, 4, jnp.tanh, key=KEY)

    def __call__(self, x: jax.Array, t: jax.Array) -> jax.Array:
        """The raw field at one point and time."""
        wave = jnp.pi * x
        return self.mlp(jnp.concatenate([jnp.sin(wave), jnp.cos(wave), t[None]]))


def residual_loss(
    at: Callable, ts: jax.Array, xs: jax.Array, cheapest: bool = False
) -> jax.Array:
    """The mean square of the residual u_t + u u_x, or u_t + u_x if it is to be cheap.

    **Arguments:**

    - `at`: the field at a time, a function of one point.
    - `ts`, `xs`: the times, and the points of each.
    """

    def residuals(t: jax.Array, x: jax.Array) -> jax.Array:
        values = lambda x, t: jax.vmap(at(t))(x)
        one_x, one_t = jnp.ones_like(x), jnp.ones_like(t)
        if cheapest:
            return jax.jvp(values, (x, t), (one_x, one_t))[1]
        value, u_t = jax.jvp(lambda t: values(x, t), (t,), (one_t,))
        u_x = jax.jvp(lambda x: values(x, t), (x,), (one_x,))[1]
        return u_t + value * u_x

    return jnp.mean(jax.vmap(residuals)(ts, xs) ** 2)


def gradient_cost(
    times: int, points: int, runs: int, cheapest: bool
) -> list[dict[str, object]]:
    """(a) and (d): a training-like gradient of the field over that of the network."""
    box = sdifp.Box([0.0], [2.0], periodic=True)
    rule = sdifp.quadrature.trapezoid(box, 64)
    net = Network(1)
    mode = sdifp.field.Subsampled(16)
    u = sdifp.conserve(net, rule, 1.0, 2.0, gradient=mode)
    between = u.with_gradient(sdifp.field.Interpolated(gradient=mode))
    ts = jnp.linspace(0.05, 0.95, times)
    xs = box.sample(KEY, times * points).reshape(times, points, 1)

    loss = lambda at: residual_loss(at, ts, xs, cheapest)

    @eqx.filter_jit
    def bare(net: Network) -> Network:
        return eqx.filter_grad(lambda n: loss(lambda t: lambda x: n(x, t)))(net)

    @eqx.filter_jit
    def ours(
        u: sdifp.field.ConservedField, key: jax.Array
    ) -> sdifp.field.ConservedField:
        return eqx.filter_grad(lambda u: loss(u.resample(key).at))(u)

    @eqx.filter_jit
    def tabulated(
        u: sdifp.field.ConservedField, key: jax.Array
    ) -> sdifp.field.ConservedField:
        own = lambda u: u.resample(key).tabulated(0.0, 1.0)
        return eqx.filter_grad(lambda u: loss(own(u).at))(u)

    contenders: dict[str, Callable] = {"bare network": lambda: bare(net)}
    contenders["conserved"] = lambda: ours(u, KEY)
    if times > 8:
        contenders["interpolated"] = lambda: tabulated(between, KEY)
    found = interleaved(runs, contenders)
    equation = "u_t + u_x" if cheapest else "u_t + u u_x"
    return [
        {
            "measured": f"({'d' if times > 8 else 'a'}) gradient of {equation}, "
            f"{times} x {points} points",
            "contender": f"{name} over bare network",
            "milliseconds": 1e3 * found[name],
            "ratio": found[name] / found["bare network"],
        }
        for name in list(contenders)[1:]
    ]


def eight_moments_and_a_form() -> list[sdifp.invariants.Invariant]:
    """The mass of each of four components, four moments that couple all of them, and a
    quadratic form that does so, too."""
    weights = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 2.0, 0.5]])

    def moment(wave: Callable, row: np.ndarray, name: str) -> Moment:
        return Moment(lambda x: wave(jnp.pi * x[0]) * row, 0.1, name=name)

    def weight(x: jax.Array) -> jax.Array:
        return jnp.eye(4) + 0.1 * jnp.sin(jnp.pi * x[0])

    coupled = [
        moment(wave, row, f"{wave.__name__}[{k}]")
        for wave in (jnp.sin, jnp.cos)
        for k, row in enumerate(weights)
    ]
    return [*(Mass(0.5, k) for k in range(4)), *coupled, Quadratic(weight, 20.0)]


def group_cost(times: int, points: int, runs: int) -> dict[str, object]:
    """(e): a training-like gradient with nine invariants of four components, over one
    with two."""
    box = sdifp.Box([0.0], [2.0], periodic=True)
    rule, mode = sdifp.quadrature.trapezoid(box, 64), sdifp.field.Subsampled(16)
    ts = jnp.linspace(0.05, 0.95, times)
    xs = box.sample(KEY, times * points).reshape(times, points, 1)
    field = lambda given: sdifp.conserve(
        Network(1, 4), rule, invariants=given, gradient=mode
    )
    two = field([Mass(1.0, 0), SquaredNorm(2.0, 0)])
    nine = field(eight_moments_and_a_form())

    @eqx.filter_jit
    def gradient(
        u: sdifp.field.ConservedField, key: jax.Array
    ) -> sdifp.field.ConservedField:
        loss = lambda u: residual_loss(u.resample(key).at, ts, xs)
        return eqx.filter_grad(loss)(u)

    found = interleaved(
        runs,
        {"two": lambda: gradient(two, KEY), "nine": lambda: gradient(nine, KEY)},
    )
    return {
        "measured": f"(e) gradient of u_t + u u_x, {times} x {points} points, n = 4",
        "contender": "9 invariants over 2",
        "milliseconds": 1e3 * found["nine"],
        "ratio": found["nine"] / found["two"],
    }


def gradient_form_cost(d: int, runs: int) -> dict[str, object]:
    """(f): a quadrature pass and its gradient, of a form with derivatives in x over one
    of values."""
    box = sdifp.Box.cube(d, periodic=True)
    rule = sdifp.quadrature.monte_carlo(box, 4096, key=KEY)
    field = lambda one: sdifp.conserve(Network(d), rule, invariants=[Mass(1.0), one])
    fields = {"values": field(SquaredNorm(2.0)), "slopes": field(DirichletEnergy(2.0))}

    @eqx.filter_jit
    def gradient(
        u: sdifp.field.ConservedField, t: jax.Array
    ) -> sdifp.field.ConservedField:
        return eqx.filter_grad(lambda u: u.at(t).scale)(u)

    t = jnp.asarray(0.3)
    found = interleaved(
        runs, {name: lambda u=u: gradient(u, t) for name, u in fields.items()}
    )
    return {
        "measured": f"(f) quadrature and its gradient, 4096 nodes, d = {d}",
        "contender": "Dirichlet energy over norm",
        "milliseconds": 1e3 * found["slopes"],
        "ratio": found["slopes"] / found["values"],
    }


def quadrature_share(nodes: int, runs: int) -> dict[str, object]:
    """(b): rate of the quadrature pass over the best rate of matrix products."""
    d = 10
    box = sdifp.Box.cube(d, periodic=True)
    u = sdifp.conserve(
        Network(d), sdifp.quadrature.monte_carlo(box, nodes, key=KEY), 1.0, 2.0
    )
    side = 1024
    a = jax.random.normal(KEY, (side, side))

    @eqx.filter_jit
    def quadrature(u: sdifp.field.ConservedField, t: jax.Array) -> tuple:
        def both(t: jax.Array) -> jax.Array:
            now = u.at(t)
            return jnp.stack([now.scale, now.shift])

        return jax.jvp(both, (t,), (jnp.ones_like(t),))

    product = jax.jit(lambda a: a @ a)
    times = interleaved(
        runs,
        {
            "product": lambda: product(a),
            "quadrature": lambda: quadrature(u, jnp.asarray(0.3)),
        },
    )
    best = 2 * side**3 / times["product"]
    # Products for the value and for the tangent of every layer.
    flops = 2 * 2 * nodes * ((2 * d + 1) * 128 + 3 * 128**2 + 128)
    return {
        "measured": f"(b) quadrature with d/dt, {nodes:.0e} nodes, d = {d}",
        "contender": "rate over best GEMM rate",
        "milliseconds": 1e3 * times["quadrature"],
        "ratio": flops / times["quadrature"] / best,
    }


def inference_cost(points: int, runs: int) -> dict[str, object]:
    """(c): frozen inference over the bare network, many points of one time."""
    box = sdifp.Box([0.0], [2.0], periodic=True)
    net = Network(1)
    u = sdifp.conserve(net, sdifp.quadrature.trapezoid(box, 64), 1.0, 2.0)
    fast = u.freeze((0.0, 1.0), tolerance=1e-3)
    x = box.sample(KEY, points)

    run = eqx.filter_jit(lambda now, x: jax.vmap(now)(x))
    plain = eqx.filter_jit(lambda net, t, x: jax.vmap(lambda x: net(x, t))(x))
    t = jnp.asarray(0.4)
    times = interleaved(
        runs, {"bare": lambda: plain(net, t, x), "frozen": lambda: run(fast.at(t), x)}
    )
    return {
        "measured": f"(c) inference, {points:.0e} points of one time",
        "contender": "frozen over bare network",
        "milliseconds": 1e3 * times["frozen"],
        "ratio": times["frozen"] / times["bare"],
    }


def main() -> None:
    """Measure, print a table, and write the same rows as JSON on request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few runs")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--x64", action="store_true", help="everything in float64")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.x64)
    runs = 3 if options.quick else 30
    kind = "float64" if options.x64 else "float32"
    print(
        f"{platform.processor() or platform.machine()}, jax {jax.__version__}, {kind}"
    )

    rows = []

    def show(row: dict[str, object]) -> None:
        rows.append(row)
        print(
            f"{row['measured']:<58} {row['contender']:<28} "
            f"{row['milliseconds']:>9.2f} {row['ratio']:>8.3f}",
            flush=True,
        )

    print(f"{'measured':<58} {'contender':<28} {'ms':>9} {'ratio':>8}")
    for cheapest in (False, True):
        for points in (32, 128):
            for row in gradient_cost(8, points, runs, cheapest):
                show(row)
    show(quadrature_share(10**4 if options.quick else 10**5, max(3, runs // 3)))
    show(inference_cost(10**4 if options.quick else 10**5, runs))
    for row in gradient_cost(256, 1, max(3, runs // 3), cheapest=False):
        show(row)
    for points in (32, 128):
        show(group_cost(8, points, runs))
    for d in (1, 2, 3):
        show(gradient_form_cost(d, max(3, runs // 3)))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
