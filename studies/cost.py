"""What each part of a step costs, apart, and the paper's cost model fitted to it."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from sdifp import Problem, conserve
from sdifp._timing import interleaved
from sdifp.estimators import Estimator, Full, Independent
from sdifp.field import ConservedField, Exact, GradientMode, Subsampled
from sdifp.problems import manufactured
from sdifp.quadrature import QuadratureRule, sobol
from sdifp.taylor import ByDirections
from sdifp.training import MLP

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
from ._style import BLUE, GREEN, GREY, ORANGE, RED, new_figure, plain

_DIMENSION: dict[Setting, int] = {"tiny": 4, "quick": 100, "full": 100}
_SHAPE: dict[Setting, tuple[int, int]] = {
    "tiny": (8, 1),
    "quick": (128, 4),
    "full": (128, 4),
}
_NODES: dict[Setting, tuple[int, ...]] = {
    "tiny": (64, 128),
    "quick": (1024, 4096, 16384, 65536),
    "full": (1024, 4096, 16384, 65536, 262144),
}
_TERMS: dict[Setting, tuple[int, ...]] = {
    "tiny": (1, 2),
    "quick": (5, 10, 20, 50),
    "full": (5, 10, 20, 50, 90),
}
_POINTS, _SAMPLE = 100, 256


def _cases(setting: Setting) -> list[Case]:
    parts = [
        {"part": part, "size": m}
        for part in (
            "quadrature, forward",
            "gradient, whole graph",
            "gradient, in chunks",
            f"gradient, K = {_SAMPLE}",
        )
        for m in _NODES[setting]
    ]
    parts += [{"part": "residual, sampled", "size": n} for n in _TERMS[setting]]
    parts += [{"part": "residual, full", "size": _DIMENSION[setting]}]
    return parts + [
        {"part": part, "size": _POINTS}
        for part in ("inference, network", "inference, frozen field")
    ]


class _WholeGraph(GradientMode):
    """What autodiff does by itself: all nodes at once, all activations kept."""

    def moments(self, live: Any, frozen: Any, rule: QuadratureRule, t: Any) -> Any:
        # As one part: `Exact` cuts large rules, however many nodes it may take at once.
        return live.part(*rule.block(0, rule.size))

    def resample(self, key: Array) -> "_WholeGraph":
        del key
        return self


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    part, size = case["part"], case["size"]
    problem = manufactured(_DIMENSION[setting])
    key = jax.random.key(seed)
    net = MLP(*_SHAPE[setting]).build(problem.domain, 1.0, key=key)
    kind, _, way = part.partition(", ")
    if kind in ("quadrature", "gradient"):
        sample = min(_SAMPLE, size)
        gradient = {
            "forward": Exact(),
            "whole graph": _WholeGraph(),
            "in chunks": Exact(),
            f"K = {_SAMPLE}": Subsampled(sample),
        }[way]
        rule = sobol(problem.domain, size, key=key)
        u = _conserved(problem, net, rule, gradient).resample(key, rule=False)
        run, argument = _coefficients(u, backward=kind == "gradient")
    elif kind == "residual":
        estimator = Full(ByDirections()) if way == "full" else Independent(size)
        run, argument = _residual(problem, net, estimator, key)
    else:
        run, argument = _inference(problem, net, way, key)
    compiled: Any = jax.jit(run).lower(argument).compile()
    seconds = interleaved(
        2 if setting == "tiny" else 6, {"it": lambda: compiled(argument)}
    )["it"]
    memory = compiled.memory_analysis().temp_size_in_bytes
    return {"ms": 1e3 * seconds, "MiB": memory / 2**20}


def _conserved(
    problem: Problem, net: Any, rule: QuadratureRule, gradient: GradientMode
) -> ConservedField:
    return conserve(net, rule, invariants=problem.invariants, gradient=gradient)


def _coefficients(u: ConservedField, backward: bool) -> tuple[Callable[..., Any], Any]:
    """Scale and shift at a time, or a gradient through them."""
    params, static = eqx.partition(u, eqx.is_inexact_array)

    def value(params: Any) -> Array:
        now = eqx.combine(params, static).at(0.3)
        return now.scale + now.shift

    return (jax.grad(value) if backward else value), params


def _residual(
    problem: Problem, net: Any, estimator: Estimator, key: Array
) -> tuple[Callable[..., Any], Any]:
    """The gradient of the loss of the plain network."""
    x = problem.domain.sample(key, _POINTS)[None]
    t = jnp.full((1,), 0.3)
    params, static = eqx.partition(net, eqx.is_inexact_array)

    def loss(params: Any) -> Array:
        net = eqx.combine(params, static)
        return estimator(problem.residual, net, x, t, key=key).loss

    return jax.grad(loss), params


def _inference(
    problem: Problem, net: Any, way: str, key: Array
) -> tuple[Callable[..., Any], Any]:
    x = problem.domain.sample(key, _POINTS)
    if way == "network":
        return lambda x: jax.vmap(lambda x: net(x, jnp.asarray(0.3)))(x), x
    rule = sobol(problem.domain, 1024, key=key)
    u = _conserved(problem, net, rule, Exact())
    frozen = u.freeze((0.0, 1.0), tolerance=1e-2)
    # Scale and shift are interpolated in time, which is part of it.
    return lambda x: jax.vmap(frozen.at(0.3))(x), x


def _draw(rows: Rows) -> Figure:
    figure = new_figure(10.0, 6.6)
    grid = figure.subplots(2, 2)
    styles = {
        "quadrature, forward": (BLUE, "o", "-"),
        "gradient, whole graph": (RED, "s", ":"),
        "gradient, in chunks": (ORANGE, "^", "--"),
        f"gradient, K = {_SAMPLE}": (GREEN, "D", "-."),
    }
    for axes, quantity, title in (
        (grid[0, 0], "ms", "Coefficients: time"),
        (grid[0, 1], "MiB", "Coefficients: temporaries"),
    ):
        for part, (colour, marker, dash) in styles.items():
            x, y = rows.line("size", quantity, part=part)
            axes.loglog(
                x,
                np.maximum(y, 1e-4),
                dash,
                marker=marker,
                color=colour,
                label=part,
            )
        plain(axes, title, "nodes M", quantity)
    grid[0, 0].legend(fontsize=8, frameon=False)
    for axes, quantity, title in (
        (grid[1, 0], "ms", "Gradient of the residual: time"),
        (grid[1, 1], "MiB", "Gradient of the residual: temporaries"),
    ):
        x, y = rows.line("size", quantity, part="residual, sampled")
        axes.loglog(x, y, "-", marker="o", color=BLUE, label="sampled terms")
        x, y = rows.line("size", quantity, part="residual, full")
        axes.loglog(x, y, "*", ms=11, color=RED, label="full operator")
        plain(axes, title, f"terms (at {_POINTS} points)", quantity)
    bare = rows.one("ms", part="inference, network")
    frozen = rows.one("ms", part="inference, frozen field")
    grid[1, 0].axhline(bare, color=GREY, lw=1.0, ls="--", label="inference, network")
    grid[1, 0].axhline(frozen, color="k", lw=1.0, ls=":", label="inference, frozen")
    grid[1, 0].legend(fontsize=8, frameon=False)
    return figure


def _power(rows: Rows, quantity: str, part: str) -> float:
    """The exponent of the size that fits best."""
    x, y = rows.line("size", quantity, part=part)
    if len(x) < 2 or min(y) <= 0.0:
        return float("nan")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _claims(rows: Rows) -> list[Claim]:
    sampled = f"gradient, K = {_SAMPLE}"
    forward = _power(rows, "ms", "quadrature, forward")
    most = max(rows.known("size"))
    at = lambda part, q: rows.one(q, part=part, size=most)
    whole, kept = at("gradient, whole graph", "MiB"), at(sampled, "MiB")
    chunks = at("gradient, in chunks", "MiB")
    extra = at(sampled, "ms") / at("quadrature, forward", "ms")
    slow = at("gradient, whole graph", "ms") / at("quadrature, forward", "ms")
    terms = _power(rows, "MiB", "residual, sampled")
    time = _power(rows, "ms", "residual, sampled")
    few = rows.where("MiB", part="residual, sampled")[0]
    full = rows.one("MiB", part="residual, full")
    inference = rows.one("ms", part="inference, frozen field") / rows.one(
        "ms", part="inference, network"
    )
    return [
        Claim(
            "The quadrature costs O(M) network evaluations forward, and its graph is "
            "avoided.",
            CONFIRMED if 0.7 < forward < 1.2 and kept < 0.2 * whole else NOT,
            f"Time like M to the power {forward:.2f}. At M = {most} the whole graph "
            f"takes {whole:.0f} MiB and {slow:.1f} times the forward pass, {_SAMPLE} "
            f"sampled nodes {kept:.1f} MiB and {extra:.2f} times. (The exact gradient "
            f"in chunks takes {chunks:.1f} MiB: memory alone is no reason to sample.)",
        ),
        Claim(
            "The graph of the residual scales with the sampled terms, O(|I| |B|).",
            (CONFIRMED if 0.5 < terms < 1.3 else CONDITION) if terms < 1.5 else NOT,
            f"Temporaries like |I| to the power {terms:.2f}, time like {time:.2f}; "
            f"{few['measured']:.1f} MiB with {few['case']['size']} terms, {full:.1f} "
            f"MiB with the full operator, which is evaluated in chunks of points.",
        ),
        Claim(
            "Inference costs what the network costs, once scale and shift are known.",
            (CONFIRMED if inference < 1.1 else CONDITION) if inference < 2.0 else NOT,
            f"Frozen field over bare network {inference:.2f} at one time and {_POINTS} "
            f"points, the interpolation of scale and shift included. (The paper "
            f"calls alpha and beta fixed scalars; they are functions of time.)",
        ),
    ]


STUDY = Study(
    name="cost",
    title="What each part of a step costs",
    labels=("fig:sdifp_cost_decomposition", "prop:forward_reverse_cost"),
    text=(
        "A 4x128 network in 100 dimensions, float64, each part compiled and timed "
        "apart. Times compare within this table only. Exponents of the cost model are "
        "fitted to the sizes of the table."
    ),
    cases=_cases,
    measure=_measure,
    columns={"ms": "ms", "MiB": "temporaries, MiB"},
    draw=_draw,
    alt="Times and temporaries of the parts of a step against their sizes",
    claims=_claims,
    seeds={"tiny": 1, "quick": 1, "full": 3},
    seconds=8.0,
    alone=lambda case: True,
)
