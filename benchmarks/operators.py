"""Cost of sampled and exact operators, as ratios from one run.

(a) the gradient by the parameters of mean(stop(r_J) r_I), orders 2, 3 and 4, with I
    and J independent sets of coordinates: 4x128 tanh network, 100 points;
(b) the exact Laplacian, with a wide first layer and with a bottleneck of 16 after
    cosine and sine features, beside 100 sampled coordinates, and beside folx;
(c) 100 000 dimensions, 16 sampled coordinates, ansatz (1 - |x|^2) net;
(d) memory of the sampled gradient against dimension and number of terms;
(e) noise of coordinates, Rademacher and Gaussian directions at equal cost;
(f) a Laplacian and a gradient of three components, one network with three outputs,
    beside those of one: the residual `Lap u + u du/ds`, and the gradient of its mean
    square by the parameters. The ratio is the time of three over that of one.

Contenders: `sdifp`, the estimator Independent, which works on all points in chunks;
`sdifp, vmap`, the same operator at one point under jax.vmap; `jet`,
jax.experimental.jet for each direction under vmap, the way of STDE; `nested`, nested
jax.jvp; `forward over reverse`, jax.jvp of jax.grad. Ratios are those of time and of
temporary memory, jet's over the contender's.
"""

import argparse
import json
import math
import platform
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sdifp
from sdifp._timing import interleaved

KEY = jax.random.key(0)
POINTS = 100


class Network(eqx.Module):
    """A 4x128 tanh network of x alone."""

    mlp: eqx.nn.MLP
    ansatz: bool = eqx.field(static=True)

    def __init__(self, d: int, ansatz: bool = False, outputs: int | None = None):
        """The network in d dimensions, or (1 - |x|^2) times it; it returns one number,
        or a vector of so many."""
        out = "scalar" if outputs is None else outputs
        self.mlp = eqx.nn.MLP(d, out, 128, 4, jnp.tanh, key=KEY)
        self.ansatz = ansatz

    def __call__(self, x: jax.Array) -> jax.Array:
        """The value at one point."""
        factor = 1.0 - jnp.sum(x**2) if self.ansatz else 1.0
        return factor * self.mlp(x)


class Bottleneck(eqx.Module):
    """Cosine and sine features, a linear layer of 16, a 3x64 tanh network."""

    first: eqx.nn.Linear
    rest: eqx.nn.MLP

    def __init__(self, d: int):
        """The network in d dimensions."""
        self.first = eqx.nn.Linear(2 * d, 16, key=KEY)
        self.rest = eqx.nn.MLP(16, "scalar", 64, 3, jnp.tanh, key=KEY)

    def __call__(self, x: jax.Array) -> jax.Array:
        """The value at one point."""
        wave = jnp.pi * x
        return self.rest(self.first(jnp.concatenate([jnp.cos(wave), jnp.sin(wave)])))


Gradient = Callable[[Any, jax.Array, jax.Array], Any]


def estimated(
    operator: sdifp.operators.Operator, estimator: sdifp.estimators.Estimator
) -> Gradient:
    """The gradient of an estimator of sdifp."""
    residual = sdifp.Residual(operator)

    def run(net: Any, x: jax.Array, key: jax.Array) -> Any:
        return eqx.filter_grad(lambda n: estimator(residual, n, x, key=key).loss)(net)

    return run


def plain(
    operator: sdifp.operators.Operator, count: int, path: sdifp.taylor.Path
) -> Gradient:
    """The same surrogate, point by point under vmap."""

    def run(net: Any, x: jax.Array, key: jax.Array) -> Any:
        for_i, for_j = jax.random.split(key)

        def loss(net: Any) -> jax.Array:
            live, still = (
                jax.vmap(operator.sample(k, count)(net, path=path))(x)
                for k in (for_i, for_j)
            )
            return jnp.mean(jax.lax.stop_gradient(still) * live)

        return eqx.filter_grad(loss)(net)

    return run


def forward_over_reverse(count: int) -> Gradient:
    """The same for the Laplacian by jvp of grad, one direction after another."""

    def run(net: Any, x: jax.Array, key: jax.Array) -> Any:
        d = x.shape[-1]

        def sampled(net: Any, x: jax.Array, index: jax.Array) -> jax.Array:
            def second(k: jax.Array) -> jax.Array:
                v = jnp.zeros(d).at[k].set(1.0)
                return jax.jvp(jax.grad(net), (x,), (v,))[1][k]

            return d / count * jnp.sum(jax.vmap(second)(index))

        def loss(net: Any) -> jax.Array:
            live, still = (
                jax.vmap(
                    lambda x, k=k: sampled(net, x, jax.random.permutation(k, d)[:count])
                )(x)
                for k in jax.random.split(key)
            )
            return jnp.mean(jax.lax.stop_gradient(still) * live)

        return eqx.filter_grad(loss)(net)

    return run


def full_loss(value: Callable[[Any, jax.Array], jax.Array]) -> Gradient:
    """The gradient of half the mean square of a function of one point."""

    def run(net: Any, x: jax.Array, key: jax.Array) -> Any:
        loss = lambda net: 0.5 * jnp.mean(jax.vmap(lambda x: value(net, x))(x) ** 2)
        return eqx.filter_grad(loss)(net)

    return run


def measure(
    what: str,
    net: Any,
    d: int,
    contenders: dict[str, Gradient],
    runs: int,
    base: str,
    points: int = POINTS,
) -> list[dict[str, Any]]:
    """Time and temporary memory of gradients, and their ratios to those of `base`."""
    x = jax.random.uniform(KEY, (points, d), minval=-1.0)
    params, static = eqx.partition(net, eqx.is_inexact_array)
    compiled = {}
    for name, run in contenders.items():
        on_params = lambda p, x, k, run=run: eqx.filter(
            run(eqx.combine(p, static), x, k), eqx.is_inexact_array
        )
        compiled[name] = jax.jit(on_params).lower(params, x, KEY).compile()
    # Settled: jet leaves gigabytes, which the system takes back in the next call.
    times = interleaved(
        runs,
        {n: lambda f=f: f(params, x, KEY) for n, f in compiled.items()},
        settle=True,
    )
    memory = {
        n: f.memory_analysis().temp_size_in_bytes / 2**20 for n, f in compiled.items()
    }
    return [
        {
            "measured": what,
            "contender": name,
            "milliseconds": 1e3 * times[name],
            "ratio": times[base] / times[name],
            "MiB": memory[name],
            "memory ratio": memory[base] / max(memory[name], 1e-6),
        }
        for name in contenders
    ]


def sampled(d: int, count: int, order: int, runs: int) -> list[dict[str, Any]]:
    """(a)"""
    operator = sdifp.operators.derivative(order)
    contenders = {
        "sdifp": estimated(operator, sdifp.estimators.Independent(count)),
        "sdifp, vmap": plain(operator, count, sdifp.taylor.ByDirections()),
        "jet": plain(operator, count, sdifp.taylor.VmappedJet()),
        "nested": plain(operator, count, sdifp.taylor.Nested()),
    }
    if order == 2:
        contenders["forward over reverse"] = forward_over_reverse(count)
    what = f"(a) order {order}, d = {d}, |I| = {count}"
    return measure(what, Network(d), d, contenders, runs, "jet")


def exact(quick: bool, runs: int) -> list[dict[str, Any]]:
    """(b)"""
    lap = sdifp.laplacian()
    rows = []
    count = 16 if quick else 100
    for d in () if quick else (1000, 10_000):
        contenders = {
            "sdifp, exact": estimated(lap, sdifp.estimators.Full()),
            f"sdifp, {count} sampled": estimated(
                lap, sdifp.estimators.Independent(count)
            ),
            "jet": plain(lap, count, sdifp.taylor.VmappedJet()),
        }
        what = f"(b) Laplacian, 4x128, d = {d}; jet: {count} sampled"
        rows += measure(what, Network(d), d, contenders, runs, "jet")
    for d in (100,) if quick else (100, 1000):
        contenders = {
            "sdifp, exact": estimated(lap, sdifp.estimators.Full()),
            f"sdifp, {count} sampled": estimated(
                lap, sdifp.estimators.Independent(count)
            ),
            "jet": plain(lap, count, sdifp.taylor.VmappedJet()),
        }
        what = f"(b) Laplacian, bottleneck 16, d = {d}; jet: {count} sampled"
        rows += measure(what, Bottleneck(d), d, contenders, runs, "jet")
    for d in () if quick else (10, 100):
        for name, net in (("4x128", Network(d)), ("bottleneck 16", Bottleneck(d))):
            all_jet = lambda net, x: lap(net, path=sdifp.taylor.VmappedJet())(x)
            contenders = {
                "sdifp, exact": estimated(lap, sdifp.estimators.Full()),
                "jet": full_loss(all_jet),
            }
            try:
                import folx
            except ImportError:
                print("folx is not installed: pip install 'sdifp[bench]'")
            else:
                contenders["folx"] = full_loss(
                    lambda net, x: folx.forward_laplacian(net)(x).laplacian
                )
                contenders["folx, sparse"] = full_loss(
                    lambda net, x: (
                        folx.forward_laplacian(net, sparsity_threshold=6)(x).laplacian
                    )
                )
            what = f"(b) full Laplacian, {name}, d = {d}"
            rows += measure(what, net, d, contenders, runs, "jet")
    return rows


def huge(d: int, runs: int) -> list[dict[str, Any]]:
    """(c)"""
    lap = sdifp.laplacian()
    contenders = {
        "sdifp": estimated(lap, sdifp.estimators.Independent(16)),
        "jet": plain(lap, 16, sdifp.taylor.VmappedJet()),
    }
    what = f"(c) (1 - |x|^2) net, d = {d}, |I| = 16"
    return measure(what, Network(d, ansatz=True), d, contenders, runs, "jet")


def memory(dimensions: list[int], counts: list[int]) -> list[dict[str, Any]]:
    """(d): temporaries of the sampled gradient of the Laplacian, in one chunk."""
    rows = []
    for d in dimensions:
        net = Network(d)
        x = jnp.zeros((POINTS, d))
        params, static = eqx.partition(net, eqx.is_inexact_array)
        first = 4 * net.mlp.layers[0].weight.size / 2**20
        for count in counts:
            estimator = sdifp.estimators.Independent(count, chunk=POINTS)
            run = estimated(sdifp.laplacian(), estimator)
            on_params = lambda p, x, k, run=run, static=static: eqx.filter(
                run(eqx.combine(p, static), x, k), eqx.is_inexact_array
            )
            done = jax.jit(on_params).lower(params, x, KEY).compile()
            size = done.memory_analysis().temp_size_in_bytes / 2**20
            rows.append(
                {
                    "measured": f"(d) temporaries, d = {d}",
                    "contender": f"|I| = {count}; first layer {first:.2f} MiB",
                    "milliseconds": None,
                    "ratio": None,
                    "MiB": size,
                    "memory ratio": None,
                }
            )
    return rows


def noise(d: int, count: int, draws: int) -> list[dict[str, Any]]:
    """(e): relative root mean square error of a sampled Laplacian, over points."""
    lap = sdifp.laplacian()
    diagonal = lambda x: jnp.sin(jnp.sum(jnp.cos(jnp.pi * x)) / math.sqrt(d))
    rows = []
    functions = {"4x128 network": Network(d), "sin(s)": diagonal}
    for name, function in functions.items():
        x = jax.random.uniform(KEY, (16, d), minval=-1.0)
        truth = eqx.filter_jit(lap(function))(x)
        for directions in (
            sdifp.operators.Coordinates(),
            sdifp.operators.Rademacher(),
            sdifp.operators.Gaussian(),
        ):
            one = eqx.filter_jit(
                lambda k, x=x, f=function, v=directions: lap.sample(k, count, v)(f)(x)
            )
            keys = jax.random.split(KEY, draws)
            errors = np.stack([np.asarray(one(k) - truth) for k in keys])
            size = float(np.sqrt(np.mean(errors**2) / np.mean(np.asarray(truth) ** 2)))
            rows.append(
                {
                    "measured": f"(e) relative error, {name}, d = {d}, {count} of",
                    "contender": type(directions).__name__,
                    "milliseconds": None,
                    "ratio": size,
                    "MiB": None,
                    "memory ratio": None,
                }
            )
    return rows


def components(d: int, points: int, runs: int) -> list[dict[str, Any]]:
    """(f)"""
    along = lambda u, grad, x: u * jnp.sum(grad, -1)
    residual = sdifp.Residual(sdifp.laplacian(), along)
    loss = lambda net, x, key: sdifp.estimators.Full()(residual, net, x, key=key).loss
    # The networks are one tree, of which each contender takes its own.
    names = ("1 component", "3 components")
    nets = (Network(d), Network(d, outputs=3))
    kinds: dict[str, Gradient] = {
        "value": lambda net, x, key: residual(net, x),
        "gradient": lambda net, x, key: eqx.filter_grad(loss)(net, x, key),
    }
    rows = []
    for kind, run in kinds.items():
        contenders: dict[str, Gradient] = {
            name: lambda nets, x, key, k=k, run=run: run(nets[k], x, key)
            for k, name in enumerate(names)
        }
        what = f"(f) {kind}, Laplacian and gradient, d = {d}"
        rows += measure(what, nets, d, contenders, runs, names[1], points)
    return rows


def main() -> None:
    """Measure, print a table, and write the same rows as JSON on request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few runs")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    parser.add_argument(
        "--only", metavar="LETTERS", default="abcdef", help="which parts"
    )
    options = parser.parse_args()
    quick, runs = options.quick, 3 if options.quick else 6
    print(f"{platform.machine()}, {jax.devices()[0].device_kind}, float32")
    rows: list[dict[str, Any]] = []

    def show(new: list[dict[str, Any]]) -> None:
        rows.extend(new)
        for row in new:
            cells = [
                "" if row[k] is None else f"{row[k]:.{p}f}"
                for k, p in (
                    ("milliseconds", 2),
                    ("ratio", 3),
                    ("MiB", 2),
                    ("memory ratio", 2),
                )
            ]
            print(
                f"{row['measured']:<52} {row['contender']:<30} "
                + " ".join(f"{c:>9}" for c in cells),
                flush=True,
            )

    heads = " ".join(f"{h:>9}" for h in ("ms", "ratio", "MiB", "ratio"))
    print(f"{'measured':<52} {'contender':<30} {heads}")
    if "a" in options.only:
        for d in (10,) if quick else (10, 100, 1000, 10_000):
            for count in sorted({min(c, d) for c in ((4,) if quick else (16, 100))}):
                for order in (2,) if quick else (2, 3, 4):
                    show(sampled(d, count, order, runs))
    if "b" in options.only:
        show(exact(quick, runs))
    if "c" in options.only:
        show(huge(1000 if quick else 100_000, runs))
    if "d" in options.only:
        show(
            memory(
                [100] if quick else [200, 1000, 10_000],
                [16] if quick else [16, 32, 64, 128],
            )
        )
    if "e" in options.only:
        for d in (10,) if quick else (10, 100, 1000):
            show(noise(d, 8, 4 if quick else 512))
    if "f" in options.only:
        for d in (2,) if quick else (2, 10, 100):
            show(components(d, POINTS if quick else 1000, runs))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
