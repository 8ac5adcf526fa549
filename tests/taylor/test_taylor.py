"""Derivatives by Taylor mode, on every path, against nested autodiff."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from quick import once, only

import sdifp
from sdifp.taylor import Automatic, ByDirections, Nested, ThroughLayer, VmappedJet

KEY = jax.random.key(3)
KEYS = jax.random.split(KEY, 8)
TS = jnp.array([0.3, -0.8, 1.1])


def points(d, n=3, dtype=float):
    """Away from the kinks and singularities of the functions below."""
    return jnp.asarray(np.random.default_rng(d).uniform(0.15, 0.95, (n, d)), dtype)


class Plain(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self, d, width=8):
        self.mlp = eqx.nn.MLP(d + 1, "scalar", width, 2, jnp.tanh, key=KEY)

    def __call__(self, x, t):
        return self.mlp(jnp.concatenate([x, t[None]]))


class Periodic(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self, d):
        self.mlp = eqx.nn.MLP(2 * d + 1, "scalar", 8, 2, jnp.tanh, key=KEY)

    def __call__(self, x, t):
        wave = jnp.pi * x
        return self.mlp(jnp.concatenate([jnp.sin(wave), jnp.cos(wave), t[None]]))


class Ansatz(Plain):
    def __call__(self, x, t):
        return (1.0 - jnp.sum(x**2)) * super().__call__(x, t)


class Activations(eqx.Module):
    layers: list[eqx.nn.Linear]
    norm: eqx.nn.LayerNorm

    def __init__(self, d):
        pairs = zip([d + 1, 6], [6, 6], KEYS[:2], strict=True)
        self.layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in pairs]
        self.norm = eqx.nn.LayerNorm(6)

    def __call__(self, x, t):
        first, second = self.layers
        h = self.norm(jnp.sin(2.0 * first(jnp.concatenate([x, t[None]]))))
        return jnp.sum(jax.nn.softplus(second(jax.nn.gelu(h, approximate=False))))


NETWORKS = {"plain": Plain, "periodic": Periodic, "ansatz": Ansatz, "all": Activations}

SQUARE = jax.random.normal(KEYS[4], (5, 5)) / 2.0
VECTOR = jax.random.normal(KEYS[5], (5,))
STEPS = jax.random.normal(KEYS[6], (3, 5))
HALF = SQUARE.astype(jnp.float32)


def scanned(x):
    step = lambda h, w: (jnp.tanh(SQUARE @ h + w * x), jnp.sum(h**2))
    last, sums = jax.lax.scan(step, x, STEPS)
    return VECTOR @ last + jnp.sum(sums)


def branched(x):
    wave, power = lambda x: jnp.sum(jnp.sin(x)), lambda x: x[0] ** 3 * x[1]
    return x[4] * jax.lax.cond(x[0] + x[1] > 1.1, wave, power, SQUARE @ x)


def looped(x):
    step = lambda c: (c[0] + 1, jnp.sin(SQUARE @ c[1] + x))
    return VECTOR @ jax.lax.while_loop(lambda c: c[0] < 3, step, (0, x))[1]


def matrix_products(x):
    a, b = jnp.cos(jnp.outer(VECTOR, x)), SQUARE * x[0] + jnp.outer(x, x)
    return jnp.sum((a @ b) ** 2) + x @ SQUARE @ x


def clipped(x):
    return VECTOR @ jnp.clip(SQUARE @ x, -0.2, 0.3) ** 2 + jnp.sum(
        jnp.clip(x, 0.1, x[0])
    )


def chosen(x):
    h = SQUARE @ x
    return jnp.sum(jnp.where(h > 0.0, jnp.sin(h), h**3) + jnp.where(x > 0.5, x**4, h))


def long_chain(x):
    h = x
    for _ in range(4):
        h = 0.9 * jnp.sin(h) * x + h
    return VECTOR @ h


@jax.custom_jvp
def cubic(x):
    return x**3


cubic.defjvps(lambda v, _, x: 3.0 * x**2 * v)


FUNCTIONS = {
    "scan": scanned,
    "cond": branched,
    "while": looped,
    "matrix products": matrix_products,
    "powers": lambda x: jnp.sum(x ** (1.0 + x[::-1])) + x[3] ** -2.5,
    "clip": clipped,
    "where": chosen,
    "long chain": long_chain,
    "max": lambda x: jnp.max(jnp.sin(SQUARE @ x)) ** 2 * jnp.min(x),
    "gather": lambda x: VECTOR[:4] @ jnp.sin(x)[jnp.array([3, 0, 0, 1])] * x[2],
    "prod": lambda x: jnp.prod(jnp.cos(x)),
    "division": lambda x: (VECTOR @ x) / (1.0 + x @ x) + jnp.sum(x[0] / x),
    "norm": lambda x: jnp.linalg.norm(SQUARE @ x) * jnp.linalg.norm(x - 2.0),
    "logsumexp": lambda x: jax.nn.logsumexp(SQUARE @ x),
    "relu": lambda x: VECTOR @ jax.nn.relu(SQUARE @ x) ** 3 + jnp.sum(jax.nn.relu(x)),
    "checkpoint": jax.checkpoint(lambda x: VECTOR @ jnp.tanh(SQUARE @ jnp.sin(x))),
    "cumsum": lambda x: VECTOR @ jnp.cumsum(x**2) ** 2,
    "sort": lambda x: VECTOR @ jnp.sort(jnp.sin(3.0 * x)) ** 3 + x @ jnp.sort(x),
    "own rule": lambda x: VECTOR @ cubic(x) * cubic(VECTOR @ x),
    "stopped": lambda x: jnp.sum(jnp.sin(x) ** 2 * jax.lax.stop_gradient(x)) * x[1],
    "outer": lambda x: jnp.sum(jnp.sin(x[:, None] * x[None, :])),
    "one entry": lambda x: jnp.sum(
        jnp.sin(x * jnp.array([0.3])) / x.sum(keepdims=True)
    ),
    "numpy": lambda x: jnp.sum(jnp.sin(x * np.arange(5.0)) + np.arange(5.0) * x**2),
    "cast": lambda x: jnp.sum(jnp.sin(HALF @ x.astype(HALF.dtype))).astype(x.dtype),
    "complex": lambda x: jnp.abs(jnp.sum(jnp.exp(1j * VECTOR * x))) ** 2,
    "linear": lambda x: VECTOR @ x,
    "constant": lambda x: jnp.sum(VECTOR),
    "literal": lambda x: jnp.asarray(2.0),
}


def terms(u, x, order):
    """Each `d^p u / dx_k^p` at a point, p = 1, 2, ..., by nested autodiff on lines."""

    def derivative(line):
        def with_value(s):
            value, lower = line(s)
            return value, (*lower, value)

        def slope(s):
            _, value, lower = jax.jvp(with_value, (s,), (jnp.ones(()),), has_aux=True)
            return value, lower

        return slope

    def along(direction):
        line = lambda s: (u(x + s * direction), ())
        for _ in range(order):
            line = derivative(line)
        highest, lower = line(jnp.zeros(()))
        return jnp.stack([*lower[1:], highest])

    return jax.vmap(along, out_axes=1)(jnp.eye(x.shape[0]))


def all_terms(u, xs, ts=None, order=4):
    """The same at many points: (order, points, directions)."""
    if ts is None:
        return jax.vmap(lambda x: terms(u, x, order), out_axes=1)(xs)
    at = lambda x, t: terms(lambda x: u(x, t), x, order)
    return jax.vmap(at, out_axes=1)(xs, ts)


def hessian(u, x):
    return jax.jacfwd(jax.grad(u))(x)


def agree(got, want, size=None, rtol=1e-12):
    """To `rtol` of the largest value, or of the largest sum of absolute terms."""
    got, want = np.asarray(got), np.asarray(want)
    scale = max(1.0, np.abs(want if size is None else size).max())
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= rtol * scale


def weighted(weights):
    """The operator `sum_p w_p sum_k d^p / dx_k^p`."""
    first, *rest = (
        w * sdifp.operators.derivative(p + 1) for p, w in enumerate(weights)
    )
    return sum(rest, start=first)


def test_each_order_alone():
    u = FUNCTIONS["checkpoint"]

    @once
    def run(xs):
        got = [sdifp.operators.derivative(p)(u)(xs) for p in (1, 2, 3, 4)]
        return got, all_terms(u, xs)

    for got, want in zip(*run(points(5)), strict=True):
        agree(got, want.sum(1), np.abs(want).sum(1))


WEIGHTS = [3.0, -1.0, 0.5, 0.1]


def check_orders(u, xs, ts=None, rtol=1e-12):
    @once
    def run(u, xs, ts):
        operators = sdifp.operators.derivative(2), weighted(WEIGHTS)
        return [op(u, chunk=3)(xs, ts) for op in operators], all_terms(u, xs, ts)

    (second, mixture), want = run(u, xs, ts)
    agree(second, want[1].sum(1), np.abs(want[1]).sum(1), rtol)
    parts = np.array(WEIGHTS)[:, None, None] * np.asarray(want)
    agree(mixture, parts.sum((0, 2)), np.abs(parts).sum((0, 2)), rtol)


@pytest.mark.parametrize(
    ("name", "d"), [("plain", 1), ("periodic", 5), ("ansatz", 20), ("all", 2)]
)
def test_orders_of_networks(name, d):
    check_orders(once(NETWORKS[name])(d), points(d), TS)


@pytest.mark.parametrize(
    "name",
    only(
        FUNCTIONS,
        *(
            "scan",
            "cond",
            "while",
            "matrix products",
            "powers",
            "clip",
            "max",
            "gather",
        ),
        *("own rule", "stopped", "cast", "complex", "constant", "literal"),
    ),
)
def test_orders_of_functions(name):
    check_orders(FUNCTIONS[name], points(5), rtol=1e-4 if name == "cast" else 1e-12)


@pytest.mark.parametrize(
    ("name", "d", "order"),
    [("plain", 5, 3), ("ansatz", 5, 2), ("all", 2, 2)],
)
def test_gradient_by_parameters(name, d, order):
    xs, weights = points(d), jnp.array(WEIGHTS[:order])

    def ours(u):
        return jnp.mean(weighted(weights)(u, chunk=3)(xs, TS))

    def oracle(u):
        return jnp.mean(jnp.tensordot(weights, all_terms(u, xs, TS, order).sum(2), 1))

    @once
    def gradients(u):
        return [
            jax.flatten_util.ravel_pytree(eqx.filter_grad(loss)(u))[0]
            for loss in (ours, oracle)
        ]

    agree(*gradients(once(NETWORKS[name])(d)), rtol=1e-11)


def moving(x, t):
    return jnp.sum(jnp.sin(SQUARE[:, :2] @ x + t))


def test_transformations_around_single_points():
    xs, t = points(2), jnp.asarray(0.4)

    def oracle(x, t):
        return jnp.trace(hessian(lambda x: moving(x, t), x))

    def results(value):
        at = lambda x: value(x, t)
        return {
            "vmap": jax.vmap(at)(xs),
            "jvp in t": jax.jvp(lambda t: value(xs[0], t), (t,), (1.0,))[1],
            "grad in t": jax.grad(value, 1)(xs[0], t),
            "vmap of grad": jax.vmap(jax.grad(at))(xs),
            "hessian": jax.hessian(at)(xs[0]),
        }

    @once
    def run():
        return results(sdifp.laplacian()(moving)), results(oracle)

    got, want = run()
    for name in want:
        agree(got[name], want[name], rtol=1e-11)


def test_transformations_around_batches():
    xs, op = points(2), sdifp.laplacian()

    def results(value):
        rate = jax.jvp(lambda t: value(xs, t), (TS,), (jnp.ones(3),))[1]
        slope = jax.grad(lambda x: jnp.sum(value(x, TS) ** 2))(xs)
        more = jax.vmap(lambda s: value(s * xs, TS))(jnp.array([1.0, 0.5]))
        return rate, slope, more

    @once
    def run():
        values = jax.vmap(op(moving)), op(moving), op(moving, chunk=2)
        return [results(value) for value in values]

    single, *batches = run()
    for batch in batches:
        for got, want in zip(batch, single, strict=True):
            agree(got, want)


def test_operators_of_operators():
    u, x = FUNCTIONS["checkpoint"], points(5)[0]
    laplacian = lambda u: lambda x: jnp.trace(hessian(u, x))

    @once
    def run(x):
        twice = sdifp.laplacian()(sdifp.laplacian()(u))
        return twice(x), laplacian(laplacian(u))(x)

    agree(*run(x), rtol=1e-11)


def test_batches_chunks_and_single_points_are_the_same():
    xs, ts = points(2, 7), jnp.linspace(0.0, 1.0, 7)
    op = sdifp.operators.third_derivatives() + sdifp.operators.advection(
        lambda x, t: t * x
    )

    @once
    def run():
        batches = [op(moving, chunk=c)(xs, ts) for c in (None, 1, 3, 4, 7, 100)]
        return batches, op(moving)(xs[1], ts[1])

    (whole, *chunked), single = run()
    for got in chunked:
        agree(got, whole, rtol=1e-14)
    agree(single, whole[1], rtol=1e-14)


def test_layouts_of_points_and_times():
    xs = points(2, 6)
    grid = xs.reshape(3, 2, 2)
    u, still = moving, lambda x: moving(x, TS[0])
    op = sdifp.laplacian(lambda x, t: 1.0 + t * x) + sdifp.operators.reaction(
        lambda x, t: t
    )
    op_still = sdifp.laplacian(lambda x: 1.0 + TS[0] * x) + sdifp.operators.reaction(
        TS[0]
    )

    @once
    def run():
        varying = jax.vmap(op(u))(xs, jnp.repeat(TS, 2))
        same = jax.vmap(op(u), (0, None))(xs, TS[0])
        return [
            (op(u)(xs, jnp.repeat(TS, 2)), varying),
            (op(u)(grid, TS), varying.reshape(3, 2)),
            (op(u)(xs, 0.3), same),
            (op(u)(grid, TS[0]), same.reshape(3, 2)),
            (op(u)(xs[0], 0.3), same[0]),
            (op_still(still)(xs), same),
            (op_still(still)(grid), same.reshape(3, 2)),
            (op_still(still)(xs[0]), same[0]),
        ]

    for got, want in run():
        agree(got, want)


@pytest.mark.parametrize("name", ["constant", "literal"])
def test_constants_at_many_points(name):
    got = once(sdifp.laplacian()(FUNCTIONS[name]))(points(5))
    assert np.array_equal(got, np.zeros(3))


def test_integers_are_points_and_times():
    u = lambda x, t: t * jnp.sum(x**3)
    got = once(lambda: sdifp.laplacian()(u)(np.array([1, 2]), 3))()
    agree(got, 54.0, rtol=1e-14)


def check_float32(operators):
    u = lambda x: VECTOR.astype(x.dtype) @ jnp.tanh(SQUARE.astype(x.dtype) @ x)

    @once
    def run(xs):
        return [op(u)(xs) for op in operators], [
            op(u)(xs.astype(float)) for op in operators
        ]

    for got, want in zip(*run(points(5, dtype=jnp.float32)), strict=True):
        assert got.dtype == jnp.float32
        agree(got, want, rtol=1e-4)


def test_float32_stays_float32():
    drift, diffusion = lambda x: -x, lambda x: 1.0 + 0.1 * x**2
    check_float32(
        [
            0.3 * sdifp.laplacian() + sdifp.operators.third_derivatives(VECTOR),
            sdifp.operators.mixed_derivatives(SQUARE)
            + sdifp.operators.mixed_derivative(0, 1),
            sdifp.operators.fokker_planck(drift, diffusion).sample(KEY, 2),
        ]
    )


def test_float32_stays_float32_in_the_biharmonic():
    check_float32(
        [sdifp.operators.biharmonic(), sdifp.operators.biharmonic().sample(KEY, 4)]
    )


def test_paths_agree():
    xs = points(5)
    u = lambda x, t: VECTOR @ jnp.tanh(SQUARE @ x + t)
    operators = {
        "second": sdifp.laplacian(VECTOR) + sdifp.operators.advection(lambda x, t: x),
        "fourth": sdifp.operators.derivative(4, [0, 3])
        - sdifp.operators.third_derivatives(VECTOR),
        "biharmonic": sdifp.operators.biharmonic() + sdifp.laplacian(),
        "mixed": sdifp.operators.mixed_derivative(1, 3)
        + sdifp.operators.mixed_derivatives(SQUARE),
    }
    paths = [Nested(), ByDirections(), Automatic(), VmappedJet()]

    @once
    def run():
        return [
            [
                op(u, path=path, chunk=3)(xs, TS)
                for path in (paths[:3] if name == "mixed" else paths)
            ]
            for name, op in operators.items()
        ]

    for want, *others in run():
        for got in others:
            agree(got, want)


WIDE = 12
LAYER = jax.random.normal(KEYS[7], (4, WIDE)) / 3.0
DEFICIENT = LAYER.at[1].set(0.0).at[2].set(2.0 * LAYER[0])


def branches(x):
    a, b = LAYER[:2] @ x, LAYER @ jnp.exp(0.3 * x)
    return jnp.sum(jnp.sin(a)) * jnp.sum(jnp.tanh(b)) + x[3] ** 2 * jnp.prod(x[:2])


def features(x):
    both = jnp.concatenate([jnp.sin(x), jnp.cos(x), jnp.array([0.5])])
    weights = jnp.concatenate([LAYER, LAYER[:, ::-1], jnp.ones((4, 1))], 1)
    return jnp.prod(1.0 + jnp.tanh(weights @ both))


LAYERED = {
    "features": features,
    "deficient": lambda x: jnp.sum(jnp.tanh(DEFICIENT @ x + 0.3) ** 2),
    "branches": branches,
    "ansatz": lambda x: (1.0 - x @ x) * jnp.sum(jnp.tanh(LAYER @ x + 0.3) ** 2),
    "no layer": lambda x: jnp.sum(jnp.sin(x) * x**2),
    "last layer": lambda x: LAYER[0] @ jnp.concatenate([x[:6], x[6:] ** 2]),
}
# Here single coordinates are used again after they have met.
AGAIN = {
    "centred": lambda x: jnp.sum(jnp.tanh(LAYER @ (x - jnp.mean(x)))),
    "gated": lambda x: jnp.sum(jnp.sin(x) * jnp.tanh(LAYER[0] @ x)),
    "skip": lambda x: jnp.sum(jnp.tanh(LAYER.T @ jnp.sin(LAYER @ x) + x)),
}


def check_through_layer(u, paths):
    xs = points(WIDE)
    signed = jnp.linspace(-1.0, 2.0, WIDE)
    matrix = jax.random.normal(KEY, (WIDE, WIDE))
    operators = [
        sdifp.laplacian() + sdifp.operators.advection(jnp.cos),
        sdifp.laplacian(lambda x: signed * x),
        sdifp.laplacian(signed)
        - sdifp.operators.mixed_derivatives(lambda x: x[0] * matrix),
    ]

    def oracle(x):
        h = hessian(u, x)
        return jnp.stack(
            [
                jnp.trace(h) + jnp.cos(x) @ jax.grad(u)(x),
                (signed * x) @ jnp.diag(h),
                signed @ jnp.diag(h) - x[0] * jnp.sum(matrix * h),
            ]
        )

    @once
    def run(xs):
        got = [
            jnp.stack([op(u, path=path, chunk=3)(xs) for op in operators], 1)
            for path in paths
        ]
        return got, jax.vmap(oracle)(xs)

    values, want = run(xs)
    for got in values:
        agree(got, want)


@pytest.mark.parametrize("name", LAYERED)
def test_through_the_first_layer(name):
    check_through_layer(LAYERED[name], [ThroughLayer()])


@pytest.mark.parametrize("name", AGAIN)
def test_points_that_are_used_again_after_the_first_layer(name):
    check_through_layer(AGAIN[name], [Automatic(), ThroughLayer()])


def test_gradient_by_parameters_through_the_first_layer():
    net, xs = once(Ansatz)(WIDE, 4), points(WIDE)

    @once
    def gradients(net):
        def loss(net, path):
            return jnp.mean(sdifp.laplacian()(net, path=path, chunk=3)(xs, TS))

        return [
            jax.flatten_util.ravel_pytree(eqx.filter_grad(loss)(net, path))[0]
            for path in (ThroughLayer(), Nested())
        ]

    agree(*gradients(net), rtol=1e-11)


@pytest.mark.parametrize(("d", "wide"), [(7, False), (8, True)])
def test_automatic_takes_the_layer_exactly_when_the_input_is_wide(d, wide):
    u = lambda x: jnp.sum(jnp.tanh(jnp.ones((4, d)) @ x))
    (step,) = sdifp.laplacian().plan(u, points(d)).steps
    assert step.path == ("through the first layer" if wide else "collapsed Taylor mode")
    assert step.directions == (4 if wide else d)
    assert step.order == 2


def test_automatic_takes_the_layer_for_whole_second_order_operators_only():
    u = lambda x: jnp.sum(jnp.sin(LAYER @ x))
    operators = {
        "mixed": sdifp.operators.mixed_derivatives(jnp.eye(WIDE)),
        "with third": sdifp.operators.third_derivatives() + sdifp.laplacian(),
        "some": sdifp.operators.derivative(2, [0, 1]),
        "sampled": sdifp.laplacian().sample(KEY, 5),
    }
    path = lambda op: op.plan(u, points(WIDE)[0]).steps[0].path
    taken = [name for name, op in operators.items() if "layer" in path(op)]
    assert taken == ["mixed"]


class Shallow(eqx.Module):
    weight: jax.Array

    def __call__(self, x, t):
        return jnp.sum(jnp.tanh(self.weight @ x + t))


def test_plan_of_a_network():
    plan = sdifp.laplacian().plan(Shallow(SQUARE), points(5, 20), 0.3, chunk=8)
    assert plan.points == 20
    assert plan.chunk == 8
    assert [(s.order, s.directions, s.fallbacks) for s in plan.steps] == [(2, 5, ())]
    assert plan.memory > 0
    assert plan.gradient_memory > 0
    assert "5 directions of order 2" in str(plan)
    assert "20 points, 8 at a time" in str(plan)


def test_plan_without_parameters_names_fallbacks():
    plan = sdifp.laplacian().plan(scanned, points(5, 20))
    assert plan.steps[0].fallbacks == ("scan",)
    assert plan.gradient_memory is None
    assert "nested jvp through scan" in str(plan)


def test_plan_of_lower_orders_and_of_other_paths():
    plan = lambda op, path=Automatic(): op.plan(jnp.sum, points(5)[0], path=path)
    assert plan(sdifp.operators.advection(1.0)).steps[0].path == "jvp"
    assert plan(sdifp.operators.reaction(1.0)).steps == ()
    assert "no derivatives" in str(plan(sdifp.operators.reaction(1.0)))
    assert plan(sdifp.laplacian(), Nested()).steps[0].path == "nested jvp"
    assert plan(sdifp.laplacian(), VmappedJet()).steps[0].path == "vmapped jet"
    assert plan(sdifp.laplacian()).points == 1
    assert plan(sdifp.operators.biharmonic()).steps[0].directions == 25


def test_chunk_shrinks_with_the_number_of_directions():
    u = lambda x: jnp.sum(jnp.sin(SQUARE @ x))
    chunk = lambda op: op.plan(u, points(5, 5000)).chunk
    assert 5000 > chunk(sdifp.operators.derivative(2, 0)) > chunk(sdifp.laplacian()) > 1


def test_gradient_memory_does_not_grow_with_the_number_of_points():
    def memory(n):
        plan = sdifp.laplacian().plan(Shallow(SQUARE), points(5, n), 0.3, chunk=50)
        return plan.gradient_memory

    # What grows is the points themselves and a few numbers for each.
    assert memory(2000) - memory(200) < 1800 * 8 * 10
