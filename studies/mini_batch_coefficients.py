"""Scale from a mini-batch of the nodes: its bias, and that of its gradient."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from sdifp import Box, conserve
from sdifp.field import ConservedField, GradientMode, MiniBatch, Subsampled
from sdifp.quadrature import sobol
from sdifp.training import MLP

from ._study import CONFIRMED, NOT, Case, Claim, Rows, Setting, Study, Value
from ._style import BLUE, GREY, RED, new_figure, plain

_DIMENSION = 10
_NODES: dict[Setting, int] = {"tiny": 256, "quick": 1024, "full": 16384}
_BATCHES: dict[Setting, tuple[int, ...]] = {
    "tiny": (8, 32),
    "quick": (8, 32, 128, 512),
    "full": (8, 32, 128, 512, 2048),
}
_DRAWS: dict[Setting, int] = {"tiny": 64, "quick": 2048, "full": 16384}
_MODES = ("mini-batch", "subsampled")
# Nodes that are evaluated at a time.
_AT_ONCE = 2**14
_TIME = 0.5
# Two-sided, at 99 %.
_QUANTILE = float(scipy.stats.norm.ppf(0.995))


def _cases(setting: Setting) -> list[Case]:
    return [{"mode": mode, "K": k} for mode in _MODES for k in _BATCHES[setting]]


def _mode(name: str, k: int) -> GradientMode:
    # The same simple sample for both.
    return MiniBatch(k) if name == "mini-batch" else Subsampled(k, stratified=False)


def _field(seed: int, nodes: int) -> ConservedField:
    box = Box.cube(_DIMENSION, 0.0, 2.0, periodic=True, normalised=True)
    net = MLP(16, 2).build(box, 1.0, key=jax.random.key(seed))
    rule = sobol(box, nodes, key=jax.random.key(seed))
    return conserve(net, rule, 0.5, 1.0)


def predicted_scale(
    values: Float[Array, " M"], variance: float, k: int
) -> Float[Array, ""]:
    """The expected scale from K of M nodes of equal weights, drawn without replacement,
    up to terms of higher order in 1/K.

    With `sigma^2` and `kappa` the variance and the kurtosis of the values,
    `E[alpha_K] = alpha (1 + c (M - K) / (K (M - 1)))`, `c = 1/2 + 3/8 (kappa - 1)`:
    the variance of a batch is too small by 1/K on average, and scatters.
    """
    m = len(values)
    centred = values - jnp.mean(values)
    spread = jnp.mean(centred**2)
    kurtosis = jnp.mean(centred**4) / spread**2
    c = 0.5 + 0.375 * (kurtosis - 1.0)
    return jnp.sqrt(variance / spread) * (1.0 + c * (m - k) / (k * (m - 1)))


def _flat(tree: Any) -> Array:
    return ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0]


def _scale_and_slope(u: ConservedField) -> tuple[Array, Array]:
    scale, slope = eqx.filter_value_and_grad(lambda net: u.over(net).at(_TIME).scale)(
        u.net
    )
    return scale, _flat(slope)


@functools.lru_cache(maxsize=2)
def _truth(seed: int, nodes: int) -> tuple[ConservedField, Array, Array]:
    u = _field(seed, nodes)
    scale, slope = eqx.filter_jit(_scale_and_slope)(u)
    return u, scale, slope


@eqx.filter_jit
def _prediction(u: ConservedField, k: int) -> tuple[Array, Array]:
    """The expected scale, and its gradient."""
    x = jnp.asarray(u.rule.nodes)

    def expected(net: Any) -> Array:
        values = jax.vmap(lambda x: net(x, jnp.asarray(_TIME)))(x)
        return predicted_scale(values, 1.0 - 0.5**2, k)

    value, slope = eqx.filter_value_and_grad(expected)(u.net)
    return value, _flat(slope)


@eqx.filter_jit
def _draws(u: ConservedField, truth: Array, keys: Array) -> tuple[Array, ...]:
    """Of each draw: the scale, its gradient along the exact one, relative to it, and
    the squared distance from it, relative too."""
    size = truth @ truth

    def one(key: Array) -> tuple[Array, ...]:
        scale, slope = _scale_and_slope(u.resample(key, rule=False))
        off = slope - truth
        return scale, off @ truth / size, off @ off / size

    # Under vmap the pass over all nodes, which no draw changes, is made once.
    return jax.vmap(one)(keys)


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    nodes, k = _NODES[setting], case["K"]
    u, scale, slope = _truth(seed, nodes)
    sampled = u.with_gradient(_mode(case["mode"], k))
    keys = jax.random.split(jax.random.key(1000 + seed), _DRAWS[setting])
    at_once = max(1, min(len(keys), _AT_ONCE // k))
    parts = [
        [np.asarray(a) for a in _draws(sampled, slope, keys[i : i + at_once])]
        for i in range(0, len(keys), at_once)
    ]
    scales, along, squares = (np.concatenate(a) for a in zip(*parts, strict=True))
    off = scales / float(scale) - 1.0
    margin = lambda a: float(_QUANTILE * a.std(ddof=1) / np.sqrt(len(a)))
    out: dict[str, Value] = {
        "scale_bias": float(off.mean()),
        "scale_margin": margin(off),
        "scale_noise": float(np.sqrt(np.mean(off**2))),
        "gradient_bias": float(along.mean()),
        "gradient_margin": margin(along),
        "gradient_noise": float(np.sqrt(squares.mean())),
    }
    if case["mode"] == "mini-batch":
        value, direction = _prediction(u, k)
        out["effective"] = (nodes - k) / (k * (nodes - 1))
        out["scale_formula"] = float(value / scale) - 1.0
        out["gradient_formula"] = float(direction @ slope / (slope @ slope)) - 1.0
    return out


def fitted_power(sizes: Any, bias: Any, margin: Any) -> tuple[float, float]:
    """The exponent of a power law through biases, weighted by their margins, and its
    own margin."""
    x, y = np.log(np.asarray(sizes, float)), np.log(np.abs(bias))
    error = np.asarray(margin) / np.abs(bias)
    weights = error**-2.0
    centre = weights @ x / weights.sum()
    spread = weights @ (x - centre) ** 2
    return float(weights @ ((x - centre) * y) / spread), float(spread**-0.5)


def _powers(rows: Rows, part: str) -> list[tuple[float, float]]:
    """The exponents of each seed, with margins; none where a bias is not seen."""
    bias = rows.where(f"{part}_bias", mode="mini-batch")
    margins = rows.where(f"{part}_margin", mode="mini-batch")
    out = []
    for k in range(len(bias[0]["values"])):
        y, e = ([row["values"][k] for row in found] for found in (bias, margins))
        seen = [abs(b) > m for b, m in zip(y, e, strict=True)]
        if sum(seen) < 2:
            continue
        # Of M nodes: what the formula is a power of.
        sizes = [1.0 / row["values"][k] for row in rows.where("effective")]
        chosen = [(n, b, m) for n, b, m, s in zip(sizes, y, e, seen, strict=True) if s]
        out.append(fitted_power(*zip(*chosen, strict=True)))
    return out


def _draw(rows: Rows) -> Figure:
    figure = new_figure(10.0, 3.8)
    grid = figure.subplots(1, 2)
    for axes, part, title in (
        (grid[0], "scale", "Scale"),
        (grid[1], "gradient", "Gradient of the scale, along the exact one"),
    ):
        for mode, colour, marker in zip(_MODES, (RED, BLUE), "so", strict=True):
            x, bias = rows.line("K", f"{part}_bias", mode=mode)
            _, margin = rows.line("K", f"{part}_margin", mode=mode)
            beside = np.asarray(x) * (0.95 if mode == "mini-batch" else 1.05)
            axes.errorbar(
                beside,
                bias,
                margin,
                fmt=marker,
                ms=5,
                capsize=3,
                color=colour,
                label=f"{mode}: bias",
            )
            _, noise = rows.line("K", f"{part}_noise", mode=mode)
            axes.plot(x, noise, ":", color=colour, label=f"{mode}: noise of one draw")
        at, formula = rows.line("K", f"{part}_formula", mode="mini-batch")
        axes.plot(at, formula, "-", color=GREY, lw=1.0, label="formula")
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.axhline(0.0, color="0.6", lw=0.8)
        plain(axes, title, "nodes in a batch, K", "relative to the exact value")
    grid[0].legend(fontsize=8, frameon=False, loc="lower left")
    return figure


def _seen(rows: Rows, part: str, mode: str) -> tuple[int, int]:
    """In how many tests zero is outside the interval."""
    pairs = [
        (abs(b), m)
        for bias, margin in zip(
            rows.where(f"{part}_bias", mode=mode),
            rows.where(f"{part}_margin", mode=mode),
            strict=True,
        )
        for b, m in zip(bias["values"], margin["values"], strict=True)
    ]
    return sum(b > m for b, m in pairs), len(pairs)


def _claims(rows: Rows) -> list[Claim]:
    # Where the formula is beyond the interval, so is the bias, if the formula holds.
    expected = [
        (abs(b) > m)
        for found in zip(
            *(
                rows.where(f"scale_{q}", mode="mini-batch")
                for q in ("bias", "margin", "formula")
            ),
            strict=True,
        )
        for b, m, f in zip(*(row["values"] for row in found), strict=True)
        if f > 2.0 * m
    ]
    words = []
    for part in ("scale", "gradient"):
        powers = _powers(rows, part)
        seen, tests = _seen(rows, part, "mini-batch")
        text = f"of the {part} seen in {seen} of {tests} tests"
        if powers:
            text += (
                f", like n to the power {min(p for p, _ in powers):.2f} to "
                f"{max(p for p, _ in powers):.2f} (+-{max(m for _, m in powers):.2f})"
            )
        words.append(text)
    sizes = rows.known("K")
    bias, formula = (
        [rows.one(f"scale_{q}", mode="mini-batch", K=k) for k in sizes]
        for q in ("bias", "formula")
    )
    ratios = [b / f for b, f in zip(bias, formula, strict=True)]
    # A wrong test in a hundred is expected.
    wrong, tests = _seen(rows, "gradient", "subsampled")
    chance = float(scipy.stats.binom.sf(wrong - 1, tests, 0.01))
    exact = max(abs(v) for v in rows.values("scale_bias", mode="subsampled"))
    narrow = min(rows.values("gradient_margin", mode="subsampled"))
    return [
        Claim(
            "Coefficients that are computed from a mini-batch of the nodes are biased.",
            CONFIRMED if expected and all(expected) else NOT,
            f"Bias {'; '.join(words)}, where 1/n = 1/K - 1/M. The scale is too large "
            f"by {bias[0]:.1e} for K = {sizes[0]} and {bias[-1]:.1e} for K = "
            f"{sizes[-1]}; measured over the formula: "
            + ", ".join(
                f"{r:.2f} (K = {k})" for r, k in zip(ratios, sizes, strict=True)
            )
            + f". The noise of one draw, {rows.one('scale_noise', K=sizes[-1]):.1e} "
            f"for K = {sizes[-1]}, is larger than the bias.",
        ),
        Claim(
            "With the coefficients from all nodes, their gradient from a sample of K "
            "is unbiased.",
            CONFIRMED if chance > 0.01 and exact < 1e-12 else NOT,
            f"Zero is outside the interval in {wrong} of {tests} tests at 99 % each; "
            f"that many or more by chance: {chance:.0%}. The narrowest interval is "
            f"+-{narrow:.1e} of the gradient. The scale itself is off by {exact:.0e}.",
        ),
    ]


STUDY = Study(
    name="mini-batch-coefficients",
    title="Scale and its gradient from a mini-batch of the nodes",
    labels=("Remark 9.2", "app:unbiased_subsampling"),
    text=(
        f"A network that is not trained (2 hidden layers of 16) on the torus in "
        f"{_DIMENSION} dimensions and a rule of M Sobol nodes (1024; 16 384 in the "
        "full setting). The scale and its "
        "gradient with respect to the parameters from K nodes drawn at random, by "
        "`MiniBatch(K)`, where they alone give the moments, and by `Subsampled(K, "
        "stratified=False)`, where all nodes give the moments and K of them the "
        "gradient. Bias with a 99 % interval, and root mean square error (noise) over "
        "draws, relative to the exact value; the bias of the gradient is its part "
        "along the exact gradient. The formula is the term of order 1/K - 1/M, from "
        "the kurtosis of the values on the rule."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "scale_bias": "scale: bias",
        "scale_margin": "+-",
        "scale_formula": "formula",
        "scale_noise": "noise",
        "gradient_bias": "gradient: bias",
        "gradient_margin": "+-",
        "gradient_formula": "formula",
        "gradient_noise": "noise",
    },
    draw=_draw,
    alt="Bias and noise of the scale and of its gradient against the size of the batch",
    claims=_claims,
    seconds=4.0,
)
