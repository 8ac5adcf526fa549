"""Numbers that a change of structure must not change.

`python tests/regression/record.py` writes `numbers.json` beside this file; with
`--check` it measures again and compares. Rules and the closed form must agree to the
last bit. Gradients and trainings, which XLA may fuse differently, must agree to 1e-12
of the largest entry. On another processor or with other versions, where the last bits
of elementary functions differ, everything is compared with a looser tolerance.
"""

import argparse
import json
import platform
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sdifp

FILE = Path(__file__).with_name("numbers.json")
EXACT = ("rule", "closed form", "field")
# A training that multiplies rounding: GridProjection leaves scale and offset of the raw
# network free, so their gradient is rounding, which Adam divides by its own size; six
# steps of Levenberg-Marquardt on third derivatives solve ill-conditioned systems.
SENSITIVE, SENSITIVE_TOLERANCE = ("GridProjection Adam", "LevenbergMarquardt 2"), 1e-9
TOLERANCE, ELSEWHERE = 1e-12, {"rule": 1e-12, "closed form": 1e-12, "training": 1e-4}


def machine():
    """What the last bits depend on."""
    flags = [
        line.split(":")[1].split()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("flags")
    ]
    vectors = (
        sorted(f for f in flags[0] if f.startswith(("avx", "fma"))) if flags else []
    )
    return {
        "processor": f"{platform.machine()} {' '.join(vectors)}",
        "jax": jax.__version__,
        "numpy": np.__version__,
    }


def network(box, key, harmonics=2):
    config = sdifp.training.MLP(8, 2, harmonics=harmonics)
    return config.build(box, 1.0, neumann=False, key=key)


def rules():
    """Nodes and weights of each rule."""
    key = jax.random.key(1)
    torus = sdifp.Box.cube(1, 0.0, 2.0, periodic=True)
    plane = sdifp.Box([0.0, -1.0], [1.0, 2.0], periodic=[True, False])
    ten = sdifp.Box.cube(10, 0.0, 2.0, periodic=True)
    lattice = sdifp.quadrature.lattice(ten, 64, key=key)
    made = {
        "midpoint": sdifp.quadrature.midpoint(plane, [4, 5]),
        "trapezoid": sdifp.quadrature.trapezoid(torus, 7),
        "gauss_legendre": sdifp.quadrature.gauss_legendre(plane, [4, 5]),
        "monte_carlo": sdifp.quadrature.monte_carlo(ten, 16, key=key),
        "sobol": sdifp.quadrature.sobol(ten, 16, key=key),
        "halton": sdifp.quadrature.halton(plane, 16, key=key),
        "lattice": lattice,
        "lattice redrawn": sdifp.quadrature.lattice(ten, 64, key=key).resample(
            jax.random.key(2)
        ),
        "rule_for circle": sdifp.rule_for(torus, 32),
        "rule_for plane": sdifp.rule_for(plane, 64),
        "rule_for torus": sdifp.rule_for(ten, 64, key=key),
    }
    for name, rule in made.items():
        nodes, weights = rule.block(0, rule.size)
        yield f"rule {name} nodes", nodes
        yield f"rule {name} weights", weights


def closed_form():
    """Scale and shift of arrays, with all kinds of targets."""
    rng = np.random.default_rng(0)
    values = 3.0 + rng.normal(size=40)
    weights = rng.uniform(0.1, 1.0, size=40)
    weights /= weights.sum()
    profile = 1.0 + rng.uniform(size=40)
    for name, options in {
        "mean": {"mean": 1.0},
        "second moment": {"second_moment": 2.0},
        "both": {"mean": 1.0, "second_moment": 2.0},
        "variance": {"mean": 1.0, "variance": 0.5},
        "profile": {"mean": 1.0, "second_moment": 3.0, "profile": profile},
        "infeasible": {"mean": 2.0, "second_moment": 1.0, "throw": False},
    }.items():
        found = sdifp.project(values, weights, **options)
        c = found.correction
        yield f"closed form {name}", jnp.stack([c.scale, c.shift, c.status * 1.0])
        yield f"closed form {name} values", found.values


def fields():
    """Coefficients, values, residuals and gradients of conserved networks."""
    box = sdifp.Box.cube(2, 0.0, 2.0, periodic=True)
    rule = sdifp.rule_for(box, 144)
    net = network(box, jax.random.key(3))
    vector = lambda x, t: jnp.stack([net(x, t), 2.0 + net(x, t) ** 2])
    profile = lambda x: 1.5 + jnp.sin(jnp.pi * x[0])
    x, t = jnp.asarray([0.3, 1.1]), jnp.asarray(0.4)
    moving = lambda t: 9.0 + t
    operator = sdifp.time_derivative() - sdifp.laplacian()
    operator = operator + sdifp.operators.advection(np.asarray([1.0, 0.5]))
    equation = sdifp.Residual(
        operator + 0.1 * sdifp.operators.third_derivatives(),
        lambda u, grad, x, t: u * jnp.sum(grad),
    )
    for name, field in {
        "mass": sdifp.conserve(net, rule, 1.0),
        "both": sdifp.conserve(net, rule, 1.0, moving),
        "variance": sdifp.conserve(net, rule, lambda t: 1.0 + t, variance=2.0),
        "profile": sdifp.conserve(net, rule, 1.0, moving, profile=profile),
        "vector": sdifp.conserve(vector, rule, [1.0, None], [moving, 5.0]),
    }.items():
        now = field.at(t)
        yield f"field {name}", jnp.stack([now.scale, now.shift, now.status * 1.0])
        yield f"value {name}", now(x)
        if name != "vector":
            yield f"residual {name}", equation(field, x, t)
            loss = lambda u, name=name: equation(u, x, t) ** 2 + u.at(t).gauge()
            yield f"gradient {name}", flat(eqx.filter_grad(loss)(field).net)
    key = jax.random.key(4)
    for mode in (
        sdifp.field.Subsampled(16),
        sdifp.field.Detached(),
        sdifp.field.MiniBatch(16),
    ):
        field = sdifp.conserve(net, rule, 1.0, moving, gradient=mode).resample(key)
        gradient = eqx.filter_grad(lambda u: equation(u, x, t) ** 2)(field).net
        yield f"gradient {type(mode).__name__}", flat(gradient)
    field = sdifp.conserve(net, rule, 1.0, moving)
    found = field.certificate([0.0, 0.5], key=key, replicates=4)
    yield "certificate", [[r.target, r.continuum, r.scale] for r in found.rows]


def trainings():
    """A few steps of each problem, and of each method."""
    p, tiny = sdifp.problems, sdifp.training.MLP(6, 2, harmonics=2)
    adam = sdifp.Recipe(
        tiny,
        sdifp.training.Adam(1e-2),
        4,
        sdifp.training.RandomPoints(2, 8),
        nodes=32,
        final_nodes=64,
    )
    marquardt = adam.replace(optimiser=sdifp.training.LevenbergMarquardt(), steps=3)
    every_method = (
        *(
            sdifp.training.SDIFP(),
            sdifp.training.PostHoc(),
            sdifp.training.Plain(),
            sdifp.training.Soft(1.0),
        ),
        *(sdifp.training.AugmentedLagrangian(), sdifp.training.GridProjection()),
    )
    cases = [(p.advection(), method, adam) for method in every_method]
    cases += [(p.advection(), method, marquardt) for method in every_method[:2]]
    cases += [
        (problem, sdifp.training.SDIFP(), adam)
        for problem in (
            *(p.kdv(), p.wave(), p.reaction_diffusion(), p.heat_dirichlet()),
            *(p.fokker_planck(), p.manufactured(10), p.advection(2)),
        )
    ]
    cases.append((p.kdv(), sdifp.training.SDIFP(), marquardt.replace(windows=2)))
    cases.append(
        (p.wave(), sdifp.training.SDIFP(), adam.replace(hard_initial=False, causal=1.0))
    )
    cases.append(
        (p.manufactured(10), sdifp.training.SDIFP(sdifp.field.Subsampled(8)), adam)
    )
    for problem, method, recipe in cases:
        optimiser = type(recipe.optimiser).__name__
        name = f"training {problem.name} {type(method).__name__} {optimiser}"
        name += f" {recipe.windows} {recipe.hard_initial} {recipe.causal}"
        if getattr(method, "gradient", None) is not None:
            name += " subsampled"
        training = sdifp.training.Training(
            problem, method, recipe=recipe, check=False, key=jax.random.key(5)
        )
        for _ in range(recipe.steps * recipe.windows):
            training.go_on(1)
        last = training.state.total / jnp.maximum(training.state.counted, 1)
        yield f"{name} loss", last
        yield f"{name} network", flat(training.state.net)


def flat(tree):
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])


def record():
    """All numbers, by name."""
    groups = (rules(), closed_form(), fields(), trainings())
    pairs = [pair for group in groups for pair in group]
    found = {name: np.asarray(values, float).ravel().tolist() for name, values in pairs}
    assert len(found) == len(pairs)
    return found


def compare(found, saved, same_machine):
    """Sentences about what differs."""
    if found.keys() != saved.keys():
        yield f"other names: {sorted(found.keys() ^ saved.keys())}"
    for name in saved.keys() & found.keys():
        one, other = np.asarray(found[name]), np.asarray(saved[name])
        exact = name.startswith(EXACT)
        allowed = 0.0 if exact else TOLERANCE
        if any(part in name for part in SENSITIVE):
            allowed = SENSITIVE_TOLERANCE
        if not same_machine:
            allowed = ELSEWHERE.get(name.split()[0], 1e-9)
        size = np.max(np.abs(other[np.isfinite(other)]), initial=0.0)
        off = np.max(np.abs(one - other)) if one.shape == other.shape else np.inf
        if not (off <= allowed * size or np.array_equal(one, other, equal_nan=True)):
            yield f"{name} is off by {off / (size or 1.0):.1e} of its largest entry"


def main():
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    found = record()
    if not check:
        text = json.dumps({"machine": machine(), "numbers": found}, indent=0)
        FILE.write_text(text + "\n")
        return
    saved = json.loads(FILE.read_text())
    same = saved["machine"] == machine()
    complaints = list(compare(found, saved["numbers"], same))
    print("\n".join(complaints) or f"{len(found)} arrays agree")
    print(f"compared {'to the last bit' if same else 'loosely: another machine'}")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
