"""One step of training on the KdV equation beside other libraries, from one run.

The time of one step of Adam on the mean squared residual of u_t + 6 u u_x + u_xxx on
[-9, 11], t in [0, 0.5]: 1024 points (8 times, 128 points each), 4x128 tanh network,
float32. The residual alone, no data at t = 0. All have the same points and the same
weights at the start, and the network takes (x, t) as they are, without features that
would make it periodic, so that every library has the same network. A step goes from
weights to new weights; loss, gradient and Adam are those that users of each get:

- `deepxde plain`: its train step with PyTorch, `dde.grad.jacobian` and `hessian`, with
  as many threads as PyTorch chooses and with one, which is faster where others use the
  machine (its forward mode is four times slower here and left out);
- `jinns plain`: its loss with an equation in the style of its own Burgers equation,
  optax, in one jit;
- `jax plain, nested autodiff`: jax.grad three times under jax.vmap, by hand;
- `sdifp plain`: `Residual` with `third_derivatives()`, estimator `Full()`, on the bare
  network;
- `sdifp conserved`: the same on a field with mass and squared norm held on 64 nodes,
  with the exact gradient of the moments, or that of 16 or 32 nodes drawn in each step;
- `its matrix products alone`: those of `sdifp plain`, four rows a point (u, u_x, u_xx,
  and u_xxx with u_t) forward, backward and for the weights; it cannot be faster.

Before any time is taken, the mean squared residual of each is compared with nested
autodiff on the same network, or the same conserved field. Ratios: times faster than
the faster row of deepxde, times faster than nested autodiff, and time over that of
sdifp on the bare network.
"""

import argparse
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import sdifp
from sdifp._timing import interleaved

KEY = jax.random.key(0)
BOX = sdifp.Box([-9.0], [11.0], periodic=True)
RATE = 1e-3
# Of the soliton 2 sech^2(x - 4 t).
MASS, ENERGY = 4.0, 16.0 / 3.0
NESTED, PLAIN = "jax plain, nested autodiff", "sdifp plain"
PRODUCTS = "its matrix products alone"


class Network(eqx.Module):
    """A tanh network of x and t as they are."""

    mlp: eqx.nn.MLP

    def __call__(self, x: jax.Array, t: jax.Array) -> jax.Array:
        """The value at one point and time."""
        return self.mlp(jnp.concatenate([x, t[None]]))


class Problem(NamedTuple):
    """The weights and the points that all contenders share."""

    net: Network
    x: jax.Array
    "(n_t, n_x, 1)"
    t: jax.Array
    "(n_t,)"

    def flat(self) -> tuple[jax.Array, jax.Array]:
        """Each point and its time, as two arrays of numbers."""
        return self.x.reshape(-1), jnp.repeat(self.t, self.x.shape[1])


class Contender(NamedTuple):
    """One way to train."""

    mean_square: float
    "of the residual, with the weights at the start"
    reference: float
    "the same by nested autodiff"
    step: Callable[[], object]
    "one step of Adam, from the weights where the last one ended"


def problem(times: int, points: int, width: int) -> Problem:
    """Random weights and points."""
    net = Network(eqx.nn.MLP(2, "scalar", width, 4, jnp.tanh, key=KEY))
    x = BOX.sample(KEY, times * points).reshape(times, points, 1)
    return Problem(net, x, jnp.linspace(0.0, 0.5, times))


def trained(model: Any, mean_square: Callable[[Any, jax.Array], jax.Array]) -> Any:
    """The mean square with the weights of a JAX model, and its steps of Adam, of which
    the first is done."""
    adam = optax.adam(RATE)
    params, static = eqx.partition(model, eqx.is_inexact_array)

    @jax.jit
    def update(state: Any) -> Any:
        params, moments, key = state
        key, now = jax.random.split(key)
        loss = lambda p: mean_square(eqx.combine(p, static), now)
        value, slope = jax.value_and_grad(loss)(params)
        change, moments = adam.update(slope, moments, params)
        return value, (optax.apply_updates(params, change), moments, key)

    state = (params, adam.init(params), KEY)

    def step() -> Any:
        nonlocal state
        value, state = update(state)
        return value, state

    return float(step()[0]), step


def nested(u: Callable[..., jax.Array], given: Problem) -> jax.Array:
    """The mean square by jax.grad three times under jax.vmap."""

    def residual(x: jax.Array, t: jax.Array) -> jax.Array:
        value = lambda x, t: u(x[None], t)
        u_x = jax.grad(value)
        u_t = jax.grad(value, 1)(x, t)
        return u_t + 6.0 * value(x, t) * u_x(x, t) + jax.grad(jax.grad(u_x))(x, t)

    return jnp.mean(jax.vmap(residual)(*given.flat()) ** 2)


KDV = sdifp.Residual(
    sdifp.time_derivative() + sdifp.operators.third_derivatives(),
    lambda u, grad, x, t: 6.0 * u * grad[0],
)


def of_jax(given: Problem) -> dict[str, Contender]:
    """Nested autodiff, and sdifp with and without conservation."""

    def ours(u: Any, key: jax.Array) -> jax.Array:
        for_nodes, for_terms = jax.random.split(key)
        if isinstance(u, sdifp.field.ConservedField):
            u = u.resample(for_nodes)
        loss = sdifp.estimators.Full()(KDV, u, given.x, given.t, key=for_terms).loss
        return 2.0 * loss

    net, rule = given.net, sdifp.rule_for(BOX, 64)
    exact = sdifp.conserve(net, rule, MASS, ENERGY, gradient=sdifp.field.Exact())
    sampled = [
        sdifp.conserve(net, rule, MASS, ENERGY, gradient=sdifp.field.Subsampled(k))
        for k in (16, 32)
    ]
    plain, step = trained(net, lambda u, _: nested(u, given))
    held = float(eqx.filter_jit(lambda u: nested(u, given))(exact))
    out = {NESTED: Contender(plain, plain, step)}
    for name, u, known in (
        (PLAIN, net, plain),
        ("sdifp conserved, 16 nodes", sampled[0], held),
        ("sdifp conserved, 32 nodes", sampled[1], held),
        ("sdifp conserved, exact", exact, held),
    ):
        value, step = trained(u, ours)
        out[name] = Contender(value, known, step)
    return out | {PRODUCTS: Contender(0.0, 0.0, products(given))}


def products(given: Problem) -> Callable[[], object]:
    """The matrix products of one step, each once."""
    width, depth = given.net.mlp.width_size, given.net.mlp.depth
    rows = jax.random.normal(KEY, (4 * given.flat()[0].size, width))
    weights = [layer.weight for layer in given.net.mlp.layers[1:depth]]

    @jax.jit
    def run(rows: jax.Array, weights: list[jax.Array]) -> list[jax.Array]:
        return [
            a for w in weights for a in (rows @ w.T, rows @ w, rows.T @ (rows + w[0]))
        ]

    return lambda: run(rows, weights)


def of_deepxde(given: Problem, reference: float) -> dict[str, Contender]:
    """DeepXDE with PyTorch, for each number of threads."""
    os.environ["DDE_BACKEND"] = "pytorch"
    import deepxde as dde
    import torch

    def kdv(x: Any, u: Any) -> Any:
        u_x, u_t = dde.grad.jacobian(u, x, j=0), dde.grad.jacobian(u, x, j=1)
        u_xxx = dde.grad.jacobian(dde.grad.hessian(u, x), x, j=0)
        return u_t + 6.0 * u * u_x + u_xxx

    layers = given.net.mlp.layers
    lower, upper = float(BOX.lower[0]), float(BOX.upper[0])
    domain = dde.geometry.GeometryXTime(
        dde.geometry.Interval(lower, upper), dde.geometry.TimeDomain(0.0, 0.5)
    )
    points = np.stack([np.asarray(a) for a in given.flat()], 1)
    data = dde.data.PDE(domain, kdv, [], anchors=points)
    batch = (data.train_x, data.train_y, data.train_aux_vars)

    def with_threads(threads: int) -> Contender:
        widths = [2, *(layer.weight.shape[0] for layer in layers)]
        net = dde.nn.FNN(widths, "tanh", "Glorot uniform")
        with torch.no_grad():
            for own, layer in zip(net.linears, layers, strict=True):
                own.weight.copy_(torch.tensor(np.asarray(layer.weight)))
                own.bias.copy_(torch.tensor(np.asarray(layer.bias)))
        model = dde.Model(data, net)
        model.compile("adam", lr=RATE, verbose=0)
        losses = model.outputs_losses_train(*batch)[1].detach()

        def step() -> None:
            torch.set_num_threads(threads)
            model.train_step(*batch)

        return Contender(float(losses.sum()), reference, step)

    counts = sorted({1, torch.get_num_threads()})
    return {
        f"deepxde plain, {k} thread{'s' * (k > 1)}": with_threads(k) for k in counts
    }


def of_jinns(given: Problem, reference: float) -> dict[str, Contender]:
    """jinns, with the equation written as its own Burgers equation is."""
    import jinns

    class KdV(jinns.loss.PDENonStatio):
        """The residual at one point (t, x)."""

        def equation(self, t_x: jax.Array, u: Any, params: Any) -> jax.Array:
            value = lambda t_x: jnp.squeeze(u(t_x, params)[u.slice_solution])
            first = jax.grad(value)
            second = jax.grad(lambda t_x: first(t_x)[1])
            third = jax.grad(lambda t_x: second(t_x)[1])
            slopes = first(t_x)
            return slopes[0:1] + self.Tmax * (
                6.0 * value(t_x) * slopes[1:2] + third(t_x)[1:2]
            )

    width = given.net.mlp.width_size
    mlp = eqx.nn.MLP(2, 1, width, 4, jnp.tanh, key=KEY)
    weights = lambda m: [a for layer in m.layers for a in (layer.weight, layer.bias)]
    mlp = eqx.tree_at(weights, mlp, weights(given.net.mlp))
    # Its networks take (t, x).
    mlp = eqx.tree_at(
        lambda m: m.layers[0].weight, mlp, replace_fn=lambda w: w[:, ::-1]
    )
    u, start = jinns.nn.PINN_MLP.create(eq_type="PDENonStatio", eqx_network=mlp)
    params = jinns.parameters.Params(nn_params=start, eq_params={})
    with warnings.catch_warnings():
        # It says that there is no initial condition.
        warnings.simplefilter("ignore")
        loss = jinns.loss.LossPDENonStatio(
            u=u,
            dynamic_loss=KdV(),
            loss_weights=jinns.loss.LossWeightsPDENonStatio(dyn_loss=1.0),
            initial_condition_fun=None,
            params=params,
        )
    x, t = given.flat()
    batch = jinns.data.PDENonStatioBatch(
        domain_batch=jnp.stack([t, x], 1), border_batch=None, initial_batch=None
    )
    value, step = trained(params, lambda p, _: loss.evaluate(p, batch)[0])
    return {"jinns plain": Contender(value, reference, step)}


def all_contenders(given: Problem) -> dict[str, Contender]:
    """Those whose packages are installed."""
    ours = of_jax(given)
    plain = ours[NESTED].reference
    out: dict[str, Contender] = {}
    for package, make in {"deepxde": of_deepxde, "jinns": of_jinns}.items():
        try:
            out |= make(given, plain)
        except ImportError:
            print(f"{package} is not installed: pip install 'sdifp[peers]'")
    return out | ours


def main() -> None:
    """Measure, print a table, and write the same rows as JSON on request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few runs")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    options = parser.parse_args()
    times, points, width = (2, 16, 16) if options.quick else (8, 128, 128)
    print(f"{platform.machine()}, {jax.devices()[0].device_kind}, float32")
    given = problem(times, points, width)
    contenders = all_contenders(given)
    wrong = [
        f"{name}: the mean squared residual is {c.mean_square:.7g}, nested autodiff "
        f"finds {c.reference:.7g}"
        for name, c in contenders.items()
        if not abs(c.mean_square - c.reference) <= 1e-4 * c.reference
    ]
    if wrong:
        sys.exit("\n".join([*wrong, "no times are compared"]))
    runs = 3 if options.quick else 21
    took = interleaved(runs, {n: c.step for n, c in contenders.items()}, settle=True)
    peer = min((v for n, v in took.items() if "deepxde" in n), default=None)
    rows = [
        {
            "measured": f"KdV, one step, {times} x {points} points, 4x{width}",
            "contender": name,
            "milliseconds": 1e3 * took[name],
            "mean squared residual": contenders[name].mean_square,
            "ratio": None if peer is None or name == PRODUCTS else peer / took[name],
            "nested ratio": None if name == PRODUCTS else took[NESTED] / took[name],
            "over plain": took[name] / took[PLAIN]
            if "sdifp" in name or name == PRODUCTS
            else None,
        }
        for name in contenders
    ]
    columns = {
        "milliseconds": ("ms", 2),
        "mean squared residual": ("loss", 7),
        "ratio": ("/deepxde", 2),
        "nested ratio": ("/nested", 2),
        "over plain": ("x plain", 2),
    }
    heads = " ".join(f"{h:>10}" for h, _ in columns.values())
    print(f"{'measured':<40} {'contender':<27} {heads}")
    for row in rows:
        cells = [
            "" if row[k] is None else f"{row[k]:.{p}f}" for k, (_, p) in columns.items()
        ]
        print(
            f"{row['measured']:<40} {row['contender']:<27} "
            + " ".join(f"{c:>10}" for c in cells)
        )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
