"""Does a sampled gradient keep a network from fitting the noise of its nodes?"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from sdifp import Problem, Recipe
from sdifp.estimators import Full
from sdifp.field import ConservedField, Exact, GradientMode, Subsampled
from sdifp.operators import Residual
from sdifp.quadrature import QuadratureRule, monte_carlo
from sdifp.training import (
    MLP,
    SDIFP,
    Adam,
    Cosine,
    Instant,
    Method,
    PostHoc,
    RandomPoints,
)

from ._fields import nodes_of, problem_of, targets
from ._study import (
    CONDITION,
    CONFIRMED,
    NOT,
    Case,
    Claim,
    Rows,
    Setting,
    Study,
    Value,
)
from ._style import CYCLE, new_figure, plain
from ._trained import run_of

_EQUATIONS = ("advection", "reaction-diffusion")
_DIMENSION: dict[Setting, int] = {"tiny": 4, "quick": 10, "full": 10}
_STEPS: dict[Setting, int] = {"tiny": 2, "quick": 400, "full": 5000}
_NODES, _SAMPLE, _FINE = 32, 8, 2**12
_FRESH = 16
_TIMES = 5


class _FixedNodes(Method):
    """Training through the correction on the same nodes in every step."""

    inner: SDIFP

    needs_targets = True
    multiplier_rate = 0.0
    estimator = None

    def training_rule(self, problem: Problem, nodes: int, key: Array) -> QuadratureRule:
        return self.inner.training_rule(problem, nodes, key)

    def training_field(
        self, problem: Problem, net: Any, rule: QuadratureRule, recipe: Recipe
    ) -> ConservedField:
        return self.inner.training_field(problem, net, rule, recipe)

    def resample(self, field: ConservedField, key: Array) -> ConservedField:
        return field.resample(key, rule=False)

    def trained_field(self, problem: Problem, net: Any, rule: QuadratureRule) -> Any:
        return self.inner.trained_field(problem, net, rule)

    def rows(self, at: Instant) -> Float[Array, " m"]:
        return self.inner.rows(at)


_SAMPLED = Subsampled(_SAMPLE, stratified=False)
# Whether the nodes are resampled, and the gradient.
_WAYS: dict[str, tuple[bool, GradientMode]] = {
    "fixed, exact": (False, Exact()),
    "fixed, sampled": (False, _SAMPLED),
    "resampled, exact": (True, Exact()),
    "resampled, sampled": (True, _SAMPLED),
}
_AFTERWARDS = "PostHoc"


def method_of(way: str, rule: QuadratureRule) -> Method:
    """The way to train on a rule."""
    if way == _AFTERWARDS:
        return PostHoc()
    resampled, gradient = _WAYS[way]
    method = SDIFP(gradient=gradient, rule=rule)
    return method if resampled else _FixedNodes(method)


def _cases(setting: Setting) -> list[Case]:
    return [
        {"equation": e, "training": way}
        for e in _EQUATIONS[: 1 if setting == "tiny" else None]
        for way in (*_WAYS, _AFTERWARDS)
    ]


@eqx.filter_jit
def _coefficients(u: ConservedField, times: Array) -> tuple[Array, Array]:
    def at(t: Array) -> tuple[Array, Array]:
        now = u.at(t)
        return now.scale, now.shift

    found: tuple[Array, Array] = jax.lax.map(at, times)
    return found


@eqx.filter_jit
def _raw_and_exact(problem: Problem, net: Any, x: Array, times: Array) -> Any:
    solution = problem.reference
    assert solution is not None
    over = lambda f: jax.lax.map(lambda t: jax.vmap(lambda x: f(x, t))(x), times)
    return over(net), over(solution)


@eqx.filter_jit
def _loss(equation: Residual, u: ConservedField, x: Array, t: Array) -> Array:
    return Full()(equation, u, x, t, key=jax.random.key(0)).loss


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    problem = problem_of(case["equation"], _DIMENSION[setting])
    rule = monte_carlo(problem.domain, _NODES, key=jax.random.key(20_000 + seed))
    recipe = Recipe(
        MLP(32, 2, harmonics=2 if any(problem.neumann) else 1),
        Adam(5e-3, Cosine()),
        steps=_STEPS[setting],
        points=RandomPoints(2, 64),
        nodes=_NODES,
    )
    run = run_of(problem, method_of(case["training"], rule), recipe, seed)
    # The nodes of the training, where these are fixed.
    u = run.final_field.on(rule)
    key = jax.random.key(30_000 + seed)
    rules = [u.rule.resample(k) for k in jax.random.split(key, _FRESH)]
    fields = [u, *(u.on(rule) for rule in rules), u.on(problem.rule(_FINE, key))]
    times = jnp.linspace(0.0, problem.duration, _TIMES)
    wanted = np.asarray([targets(problem, t) for t in times.tolist()])
    nodes, weights = nodes_of(run.independent_rule)
    raw, exact = (
        np.asarray(a, np.float64)
        for a in _raw_and_exact(problem, u.net, jnp.asarray(nodes), times)
    )
    errors, l2 = [], []
    for field in fields:
        scale, shift = (np.asarray(a)[:, None] for a in _coefficients(field, times))
        v = scale * raw + shift
        # Of the mean relative to the root of the second moment, as everywhere.
        off = np.stack(
            [
                (v @ weights - wanted[:, 0]) / np.sqrt(wanted[:, 1]),
                (v**2 @ weights - wanted[:, 1]) / wanted[:, 1],
            ]
        )
        errors.append(np.sqrt(np.mean(off**2, axis=1)))
        l2.append(
            np.sqrt(np.sum((v - exact) ** 2 @ weights) / np.sum(exact**2 @ weights))
        )
    fresh = np.sqrt(np.mean(np.square(errors[1:-1]), axis=0))
    x, t = RandomPoints(2, 128).draw(key, problem.domain, 0.0, problem.duration)
    losses = [float(_loss(problem.residual, f, x, t)) for f in fields[:-1]]
    return {
        "l2": float(l2[-1]),
        "l2_nodes": float(l2[0]),
        "mass": float(errors[0][0]),
        "squared_norm": float(errors[0][1]),
        "mass_fresh": float(fresh[0]),
        "squared_norm_fresh": float(fresh[1]),
        "gap": float(np.linalg.norm(errors[0]) / np.linalg.norm(fresh)),
        "residual_gap": float(np.sqrt(np.mean(losses[1:]) / losses[0])),
    }


_TITLES = {
    "l2": "Relative L2 error, corrected on a lattice",
    "gap": "Error of the integrals: nodes of the training over fresh ones",
    "residual_gap": "Residual: fresh nodes over those of the training",
}


def _draw(rows: Rows) -> Figure:
    figure = new_figure(11.0, 3.6)
    grid = figure.subplots(1, 3)
    equations, ways = rows.known("equation"), rows.known("training")
    for axes, (quantity, title) in zip(grid, _TITLES.items(), strict=True):
        for k, equation in enumerate(equations):
            found = [
                rows.where(quantity, equation=equation, training=w)[0] for w in ways
            ]
            place = np.arange(len(ways)) + 0.2 * (k - 0.5)
            for at, row in zip(place, found, strict=True):
                axes.plot([at] * len(row["values"]), row["values"], ".", color=CYCLE[k])
            axes.plot(
                place,
                [row["measured"] for row in found],
                "_",
                ms=14,
                mew=2,
                color=CYCLE[k],
                label=equation,
            )
        axes.set_yscale("log")
        axes.set_xticks(range(len(ways)), ways, rotation=30, ha="right")
        if quantity != "l2":
            axes.axhline(1.0, color="0.6", lw=0.8)
        plain(axes, title, "")
        axes.set_title(title, fontsize=8, loc="left")
    grid[0].legend(fontsize=8, frameon=False)
    return figure


def _claims(rows: Rows) -> list[Claim]:
    def ratios(quantity: str, one: str, other: str, equation: str) -> list[float]:
        """Of each seed, whose nodes are the same in all trainings."""
        a, b = (
            rows.where(quantity, equation=equation, training=way)[0]["values"]
            for way in (one, other)
        )
        return [x / y for x, y in zip(a, b, strict=True)]

    names = rows.known("equation")
    # Above 1 in all seeds: fixed nodes are overfitted.
    fitted = {
        e: ratios("residual_gap", "fixed, exact", "resampled, exact", e) for e in names
    }
    plain_too = {
        e: ratios("residual_gap", "fixed, exact", _AFTERWARDS, e) for e in names
    }
    gains = {
        e: ratios("residual_gap", "fixed, exact", "fixed, sampled", e) for e in names
    }
    accuracy = {e: ratios("l2", "fixed, sampled", "fixed, exact", e) for e in names}
    overfits = [min(r) > 1.0 for r in fitted.values()]
    less = [min(r) > 1.0 for r in gains.values()]
    no_worse = all(min(r) <= 1.0 for r in accuracy.values())
    span = lambda found: "; ".join(
        f"{e} {np.median(r):.2f} ({min(r):.2f} to {max(r):.2f})"
        for e, r in found.items()
    )
    median = lambda quantity, way: ", ".join(
        f"{rows.one(quantity, equation=e, training=way):.2g}" for e in names
    )
    listed = lambda quantity: "; ".join(
        f"{way} {median(quantity, way)}" for way in rows.known("training")
    )
    return [
        Claim(
            "Values from all nodes and gradients from a sample of them: this "
            "decoupling reduces overfitting to the noise of the quadrature.",
            (CONFIRMED if all(less) and no_worse else CONDITION)
            if any(overfits) and any(less)
            else NOT,
            f"Residual on fresh nodes over that on the nodes of the training, fixed "
            f"nodes over resampled ones (above 1: overfitting): {span(fitted)}; over "
            f"PostHoc: {span(plain_too)}; exact gradient over a sampled one, both on "
            f"fixed nodes (above 1: less overfitting by the sample): {span(gains)}. L2 "
            f"error with the sampled gradient over that with the exact one, fixed "
            f"nodes: {span(accuracy)}. Median L2 errors for "
            f"{' and '.join(names)}: {listed('l2')}.",
        )
    ]


STUDY = Study(
    name="quadrature-noise",
    title="Fixed or resampled nodes, exact or sampled gradient",
    labels=("sec:sdifp",),
    text=(
        f"Short trainings in 10 dimensions with {_NODES} Monte Carlo nodes, a network "
        "of 2 hidden layers of 32 and Adam. Nodes are fixed or resampled in every "
        f"step; the gradient is exact or from {_SAMPLE} of them; PostHoc is the plain "
        "network, corrected afterwards. Then the network is corrected on the nodes of "
        "the training (where there are none that stay, on a set of the same size), on "
        f"{_FRESH} fresh sets of {_NODES} nodes, and on a lattice of {_FINE} nodes. "
        "The errors of the integrals, root mean squares over times, are those on an "
        "independent rule. On one set of nodes both ratios differ from 1 by chance, "
        "also for PostHoc, which does not see the nodes. So a training with fixed "
        "nodes is compared with one that does not see them, for each seed on the same "
        "nodes: where the residual on fresh nodes is larger in proportion, the noise "
        "of the nodes was fitted. The nodes are few on purpose, so that this can be "
        "seen in a short training."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "l2": "relative L2, corrected on a lattice",
        "l2_nodes": "relative L2, on the nodes of the training",
        "mass": "mass, nodes of the training",
        "mass_fresh": "mass, fresh nodes",
        "squared_norm": "squared norm, nodes of the training",
        "squared_norm_fresh": "squared norm, fresh nodes",
        "gap": "integrals, training over fresh",
        "residual_gap": "residual, fresh over training",
    },
    draw=_draw,
    alt="L2 errors and two measures of overfitting for five ways to train",
    claims=_claims,
    float64=lambda case: False,
    seconds=5.0,
)
