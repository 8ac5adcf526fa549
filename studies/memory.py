"""Peak memory of the reverse pass against every size that the paper names."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from sdifp import Box, Residual, conserve
from sdifp.estimators import Estimator, Full, Independent
from sdifp.field import Subsampled
from sdifp.operators import derivative
from sdifp.quadrature import sobol
from sdifp.taylor import ByDirections

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

# What is held fixed while one of them varies: |I|, |J|, points at each time, times,
# dimension, hidden layers and order of the operator.
_BASE = {"I": 10, "J": 10, "B": 100, "times": 1, "d": 100, "depth": 4, "order": 2}
_VALUES: dict[str, tuple[int, ...]] = {
    "I": (1, 3, 10, 30, 90),
    "J": (1, 3, 10, 30, 90),
    "B": (25, 50, 100, 200, 400),
    "times": (1, 2, 4, 8),
    "d": (50, 100, 200, 400),
    "depth": (1, 2, 4, 8),
    "order": (1, 2, 3, 4),
}
_TINY: dict[str, tuple[int, ...]] = {"I": (1, 2), "d": (4, 8)}
# More than all points: one block.
_WHOLE = 2**31 - 1
_WAYS = ("sampled, one block", "full, one block", "sampled, chunks", "full, chunks")


def _cases(setting: Setting) -> list[Case]:
    values = _TINY if setting == "tiny" else _VALUES
    if setting == "quick":
        values = {name: all_values[::2] for name, all_values in values.items()}
        values["d"] = (50, 100)
    return [
        {"varied": name, "value": value, "way": way}
        for name, all_values in values.items()
        for value in all_values
        for way in _WAYS
        # The full operator has neither I nor J.
        if name not in ("I", "J") or way.startswith("sampled")
    ]


class _Network(eqx.Module):
    """A tanh network of x and t."""

    mlp: eqx.nn.MLP

    def __init__(self, d: int, width: int, depth: int, key: Array):
        self.mlp = eqx.nn.MLP(d + 1, "scalar", width, depth, jnp.tanh, key=key)

    def __call__(self, x: Array, t: Array) -> Array:
        return self.mlp(jnp.concatenate([x, t[None]]))


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    sizes = _BASE | ({"d": 4, "I": 2, "J": 2} if setting == "tiny" else {})
    sizes |= {case["varied"]: case["value"]}
    d, key = sizes["d"], jax.random.key(seed)
    box = Box.cube(d, periodic=True)
    net = _Network(d, 8 if setting == "tiny" else 128, sizes["depth"], key)
    rule = sobol(box, 256, key=key)
    u = conserve(net, rule, mass=1.0, squared_norm=2.0, gradient=Subsampled(16))
    kind, _, way = case["way"].partition(", ")
    chunk = _WHOLE if way == "one block" else None
    estimator: Estimator = (
        Full(ByDirections(), chunk)
        if kind == "full"
        else Independent(sizes["I"], sizes["J"], path=ByDirections(), chunk=chunk)
    )
    residual = Residual(derivative(sizes["order"]))
    x = box.sample(key, sizes["times"] * sizes["B"])
    x = x.reshape(sizes["times"], sizes["B"], d)
    t = jnp.linspace(0.1, 0.9, sizes["times"])
    params, static = eqx.partition(u, eqx.is_inexact_array)

    def loss(params: Any) -> Array:
        return estimator(residual, eqx.combine(params, static), x, t, key=key).loss

    compiled: Any = jax.jit(jax.grad(loss)).lower(params).compile()
    return {"MiB": compiled.memory_analysis().temp_size_in_bytes / 2**20}


def _draw(rows: Rows) -> Figure:
    names = rows.known("varied")
    figure = new_figure(11.0, 5.6)
    grid = figure.subplots(2, 4, sharey=True, squeeze=False).ravel()
    for axes, name in zip(grid, names, strict=False):
        for k, way in enumerate(_WAYS):
            x, y = rows.line("value", "MiB", varied=name, way=way)
            dash = "-" if way.endswith("block") else ":"
            axes.loglog(x, y, dash, marker="osD^"[k], ms=4, color=CYCLE[k], label=way)
        axes.set_xticks(rows.where(varied=name).known("value"))
        axes.get_xaxis().set_major_formatter("{x:.0f}")
        axes.minorticks_off()
        plain(axes, "", _TITLES[name], "MiB" if axes in (grid[0], grid[4]) else "")
    for axes in grid[len(names) :]:
        axes.axis("off")
    handles = grid[min(len(names), 3) - 1].get_legend_handles_labels()
    grid[-1].legend(*handles, fontsize=9, frameon=False, loc="center")
    return figure


_TITLES = {
    "I": "|I|, differentiated terms",
    "J": "|J|, terms of the residual",
    "B": "|B|, points at each time",
    "times": "times",
    "d": "dimension d",
    "depth": "hidden layers",
    "order": "order of the operator",
}


def _power(rows: Rows, varied: str, way: str) -> float:
    """The exponent that fits best."""
    x, y = rows.line("value", "MiB", varied=varied, way=way)
    return float(np.polyfit(np.log(x), np.log(y), 1)[0]) if len(x) > 1 else np.nan


def _grows(rows: Rows, varied: str, way: str) -> float:
    _, y = rows.line("value", "MiB", varied=varied, way=way)
    return float(y[-1] / y[0]) if y else np.nan


def _claims(rows: Rows) -> list[Claim]:
    sampled, full, chunks = _WAYS[0], _WAYS[1], _WAYS[2]
    p = {name: _power(rows, name, sampled) for name in rows.known("varied")}
    by_i, by_j = (_grows(rows, name, sampled) for name in ("I", "J"))
    # The dimension of which |I| is a tenth.
    known = rows.where(varied="d").known("value")
    d = 10 * _BASE["I"] if 10 * _BASE["I"] in known else known[-1]
    at = {"varied": "d", "value": d}
    ratio = rows.one("MiB", **at, way=full) / rows.one("MiB", **at, way=sampled)
    few = rows.one("MiB", varied="I", value=1, way=sampled)
    most = rows.where("MiB", varied="I", way=sampled)[-1]
    listed = ", ".join(
        f"{_TITLES[name]} {power:.2f} ({_power(rows, name, chunks):.2f})"
        for name, power in p.items()
    )
    return [
        Claim(
            "Memory of the reverse pass is proportional to |B| max(|I|, |J|) times "
            "constants of depth and order (main text); to |I| alone (appendix).",
            CONDITION if by_j < 1.5 < by_i else CONFIRMED if by_j >= 1.5 else NOT,
            f"In one block, from 1 to {most['case']['value']} terms: {by_i:.1f} times "
            f"as much with |I|, {by_j:.1f} times with |J|, which is evaluated forward "
            f"only. Fitted exponents in one block (in chunks): {listed}.",
        ),
        Claim(
            "Sampling |I| = d / 10 terms takes far less memory than the full operator.",
            (CONFIRMED if ratio >= 5.0 else CONDITION) if ratio > 1.5 else NOT,
            f"{ratio:.1f} times less at d = {d}, in one block. One term takes "
            f"{few:.1f} MiB: what is left then is the network itself at all points and "
            f"the nodes of the correction.",
        ),
    ]


STUDY = Study(
    name="memory",
    title="Memory of the reverse pass",
    labels=("prop:forward_reverse_cost",),
    text=(
        "Bytes of temporaries of the compiled gradient of the loss, `Independent` and "
        "`Full`, of a conserved field with a 128-wide tanh network, float64, 256 "
        "nodes of which 16 carry the gradient. One size varies at a time, the others "
        "are |I| = |J| = 10, |B| = 100 points at one time, d = 100, 4 hidden layers, "
        "order 2. One block evaluates all points at once, as the paper's model "
        "assumes; in chunks is what the library does. Nothing is timed, so one seed "
        "is enough."
    ),
    cases=_cases,
    measure=_measure,
    columns={"MiB": "temporaries, MiB"},
    draw=_draw,
    alt="Temporaries against seven sizes, sampled and full, in one block and in chunks",
    claims=_claims,
    seeds={"tiny": 1, "quick": 1, "full": 1},
    seconds=4.0,
)
