"""One training of one method, and what became of its integrals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sdifp import Problem, Recipe
from sdifp.field import ConservedField
from sdifp.quadrature import monte_carlo
from sdifp.training import Method, Training

from ._data import write_arrays
from ._fields import nodes_of, targets
from ._study import Value

# Curves have so many times.
TIMES = 17


# A training that is interrupted loses so many seconds.
_SAVE_EVERY = 60.0


def begun(problem: Problem, method: Method, recipe: Recipe, seed: int) -> Training:
    """A training, before its first step."""
    return Training(
        problem,
        method,
        recipe=recipe,
        key=jax.random.key(seed),
        every=recipe.steps,
        check=False,
    )


def run_of(problem: Problem, method: Method, recipe: Recipe, seed: int) -> Training:
    """A training, done."""
    run = begun(problem, method, recipe, seed)
    run.advance(recipe.steps)
    return run


def in_single_precision(begin: Callable[[], Training], checkpoint: Path) -> Training:
    """A training of one window, done in float32, and to be measured in float64. Goes
    on from a checkpoint if there is one, and leaves it to be removed once the
    measurement is saved."""
    with jax.enable_x64(False):
        run = begin()
        if checkpoint.exists():
            with np.load(checkpoint) as saved:
                run.restore(dict(saved))
        while not run.finished:
            run.advance(run.steps_within(_SAVE_EVERY))
            write_arrays(checkpoint, run.snapshot())
        arrays = run.snapshot()
    done = begin()
    wanted = done.snapshot()
    done.restore({name: a.astype(wanted[name].dtype) for name, a in arrays.items()})
    return done


def outcome(
    run: Training, points: int, seed: int, count: int = TIMES
) -> dict[str, Value]:
    """Errors on the rule, in the continuum and on random points (if any), the worst of
    `count` times, the relative L2 error, and curves."""
    problem, u = run.problem, run.final_field
    rules = {"rule": run.final_rule, "continuum": run.independent_rule}
    if points:
        key = jax.random.key(10_000 + seed)
        rules["random"] = monte_carlo(problem.domain, points, key=key)
    places = {name: nodes_of(rule) for name, rule in rules.items()}
    times = np.linspace(0.0, problem.duration, count)
    # All nodes at once: one program serves all rules.
    nodes = np.concatenate([x for x, _ in places.values()])
    got, exact = (np.asarray(v) for v in _on_nodes(problem, u, nodes, times))
    wanted = np.asarray([targets(problem, t) for t in times.tolist()])
    # The error of a mass that is small is relative to the root of the squared norm.
    units = np.stack(
        [np.maximum(abs(wanted[:, 0]), np.sqrt(wanted[:, 1])), wanted[:, 1]], 1
    )
    out: dict[str, Value] = {}
    start = 0
    for name, (x, weights) in places.items():
        part = slice(start, start + len(x))
        start += len(x)
        v = got[:, part]
        found = np.stack([v @ weights, v**2 @ weights], 1)
        off = np.abs(found - wanted) / units
        for k, symbol in enumerate(("c1", "c2")):
            out[f"{symbol}_{name}"] = float(off[:, k].max())
            if name != "random":
                out[f"{symbol}_{name}_over_time"] = off[:, k].tolist()
            if name == "continuum":
                out[f"{symbol}_over_time"] = found[:, k].tolist()
                out[f"{symbol}_target"] = wanted[:, k].tolist()
        if name == "continuum":
            squares = (
                (v - exact[:, part]) ** 2 @ weights,
                exact[:, part] ** 2 @ weights,
            )
            out["l2"] = float(np.sqrt(squares[0].sum() / squares[1].sum()))
    return out | {"times": times.tolist()}


@eqx.filter_jit
def _on_nodes(
    problem: Problem, u: Any, nodes: Array | np.ndarray, times: Array | np.ndarray
) -> tuple[Float[Array, "times nodes"], Float[Array, "times nodes"]]:
    """The field and the solution at all nodes, a line for each time."""
    x = jnp.asarray(nodes)

    def at(t: Array) -> tuple[Array, Array]:
        now = u.at(t) if isinstance(u, ConservedField) else lambda x: u(x, t)
        (solution,) = problem.references
        return jax.vmap(now)(x), jax.vmap(lambda x: solution(x, t))(x)

    found: tuple[Array, Array] = jax.lax.map(at, jnp.asarray(times))
    return found
