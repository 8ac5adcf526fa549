"""Pinet on the linear constraint over N values, and where it stops."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from sdifp import project
from sdifp._timing import interleaved

from ._study import (
    CONFIRMED,
    NOT,
    Case,
    Claim,
    Rows,
    Setting,
    Study,
    Value,
)
from ._style import BLUE, ORANGE, ZERO, new_figure, plain

_LINEAR: dict[Setting, tuple[int, ...]] = {
    "tiny": (16,),
    "quick": (256, 1024, 4096, 16384, 65536, 262144),
    "full": (256, 1024, 4096, 16384, 65536, 262144, 1048576),
}
_QUADRATIC: dict[Setting, tuple[int, ...]] = {
    "tiny": (8, 16),
    "quick": (64, 128, 256, 512),
    "full": (64, 128, 256, 512, 1024, 2048),
}
_MEAN, _SECOND = 0.3, 2.0
_ITERATIONS = 200
_BOTH = "mean and squared norm"


def _cases(setting: Setting) -> list[Case]:
    return [{"constraint": "mean", "N": n} for n in _LINEAR[setting]] + [
        {"constraint": _BOTH, "N": n} for n in _QUADRATIC[setting]
    ]


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    rng = np.random.default_rng(seed)
    n, both = case["N"], case["constraint"] == _BOTH
    weights = np.full(n, 1.0 / n)
    # A squared norm below the one asked for: a convex set cannot ask for a larger one.
    raw = jnp.asarray(0.5 * rng.standard_normal(n))
    asked: dict[str, Any] = {"mean": _MEAN}
    if both:
        asked["second_moment"] = _SECOND
    w = jnp.asarray(weights)
    ours = jax.jit(lambda f: project(f, w, **asked).values).lower(raw).compile()
    theirs = _pinet(weights, both)
    point = raw[None, :, None]
    compiled = jax.jit(theirs).lower(point).compile()
    runs = 3 if setting == "tiny" else 15
    times = interleaved(
        runs, {"pinet": lambda: compiled(point), "closed form": lambda: ours(raw)}
    )
    out: dict[str, Value] = {
        "pinet_ms": 1e3 * times["pinet"],
        "ours_ms": 1e3 * times["closed form"],
        "pinet_bytes": float(_temporaries(compiled) + _constants(theirs)),
        "ours_bytes": float(_temporaries(ours)),
    }
    got = {"pinet": np.asarray(compiled(point)).ravel(), "ours": np.asarray(ours(raw))}
    for name, v in got.items():
        out[f"{name}_mean"] = float(abs(weights @ v - _MEAN))
        if both:
            out[f"{name}_second"] = float(abs(weights @ v**2 - _SECOND) / _SECOND)
    return out


def _pinet(weights: np.ndarray, both: bool) -> Any:
    """Pinet's layer: the mean as an equality, the squared norm as the convex
    inequality that it can have."""
    pinet = importlib.import_module("pinet")
    kinds = importlib.import_module("pinet.constraints.non_linear_types")
    given = importlib.import_module("pinet.dataclasses")

    n = len(weights)
    equality = pinet.EqualityConstraint(
        jnp.asarray(weights)[None, None, :], jnp.full((1, 1, 1), _MEAN)
    )
    ball: list[Any] = []
    if both:
        ball = [
            given.NonLinearSpecification(
                nl_type=kinds.SOCType,
                a_mat=jnp.diag(jnp.sqrt(jnp.asarray(weights)))[None],
                a=jnp.zeros((1, n, 1)),
                # The bound is a constant; without this row 0.2.0 counts wrongly.
                f=jnp.zeros((1, 1, n)),
                b=jnp.full((1, 1, 1), np.sqrt(_SECOND)),
            )
        ]
    layer = pinet.Project(
        eq_constraint=equality,
        nl_constraints=[pinet.NonLinearConstraint(spec) for spec in ball] or None,
    )

    def run(point: Any) -> Any:
        instance = pinet.ProjectionInstance(x=point, nl=ball or None)
        out = layer.call(y_raw=instance, n_iter=_ITERATIONS if both else 1)[0]
        return out.x[:, :n]

    run.layer = layer  # type: ignore[attr-defined]
    return run


def _temporaries(compiled: Any) -> int:
    return int(compiled.memory_analysis().temp_size_in_bytes)


def _constants(run: Any) -> int:
    """The matrices that the layer keeps."""
    layer = run.layer
    kept = [layer.single_constraint, getattr(layer, "lifted_eq_constraint", None)]
    return sum(leaf.nbytes for leaf in jax.tree.leaves(kept) if hasattr(leaf, "nbytes"))


def _draw(rows: Rows) -> Figure:
    figure = new_figure(11.0, 3.8)
    axes = figure.subplots(1, 3)
    for constraint, dash in (("mean", "-"), (_BOTH, "--")):
        for name, label, colour, marker in (
            ("pinet", "Pinet", ORANGE, "s"),
            ("ours", "closed form", BLUE, "o"),
        ):
            text = f"{label}, {constraint}"
            style = {"color": colour, "marker": marker, "ms": 4, "label": text}
            # The compiler may do without any temporaries: that is drawn at one byte.
            for axis, quantity, least in (
                (axes[0], "ms", 0.0),
                (axes[1], "bytes", 1.0),
            ):
                x, y = rows.line("N", f"{name}_{quantity}", constraint=constraint)
                axis.loglog(x, np.maximum(y, least), dash, **style)
            if constraint == _BOTH:
                x, y = rows.line("N", f"{name}_second", constraint=constraint)
                axes[2].loglog(x, np.maximum(y, ZERO), dash, **style)
    plain(axes[0], "Time of one projection", "values N", "ms")
    plain(axes[1], "Memory: temporaries and matrices kept", "values N", "bytes")
    plain(axes[2], "Error of the squared norm", "values N", "relative")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=4,
        fontsize=8,
        frameon=False,
    )
    axes[2].set_ylim(ZERO, 10.0)
    axes[2].xaxis.set_minor_formatter(NullFormatter())
    return figure


def _claims(rows: Rows) -> list[Claim]:
    linear, both = ({"constraint": c} for c in ("mean", _BOTH))
    largest = max(row["case"]["N"] for row in rows.where("pinet_ms", **linear))
    ratio = rows.one("pinet_ms", N=largest, **linear) / rows.one(
        "ours_ms", N=largest, **linear
    )
    miss = min(rows.values("pinet_second", **both))
    exact = max(rows.values("ours_second", **both))
    sizes, memory = rows.line("N", "pinet_bytes", **both)
    power = float(np.polyfit(np.log(sizes), np.log(memory), 1)[0])
    return [
        Claim(
            "Pinet projects onto affine and convex sets; its guarantees do not reach "
            "the quadratic equality.",
            CONFIRMED if miss > 0.1 and exact < 1e-12 else NOT,
            f"With the convex inequality in place of the equality the squared norm "
            f"stays off by {miss:.2f}; the closed form is off by {exact:.0e}.",
        ),
        Claim(
            "Projecting a dense vector couples all points in a linear system.",
            CONFIRMED if power > 1.5 else NOT,
            f"With the squared norm its memory grows like N to the power {power:.1f}: "
            f"its interface takes a matrix of N x N for a norm of N values. With the "
            f"mean alone Pinet, too, has a closed form: {ratio:.1f} times our "
            f"time at N = {largest}.",
        ),
    ]


STUDY = Study(
    name="pinet",
    title="Pinet beside the closed form",
    labels=("sec:motivation",),
    text=(
        "Pinet (pinet-hcnn) projects N values with equal weights onto a prescribed "
        f"mean, and onto mean and squared norm with {_ITERATIONS} iterations, where "
        "the squared norm can only be the inequality `Q[v^2] <= s`: the equality is "
        "not convex. The squared norm of the raw values is below the one asked for. "
        "Pinet is general, ours does this one thing."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "pinet_ms": "Pinet, ms",
        "ours_ms": "closed form, ms",
        "pinet_bytes": "Pinet, bytes",
        "ours_bytes": "closed form, bytes",
        "pinet_mean": "Pinet, error of the mean",
        "ours_mean": "closed form, error of the mean",
        "pinet_second": "Pinet, error of the squared norm",
        "ours_second": "closed form, error of the squared norm",
    },
    draw=_draw,
    alt="Time, memory and error of the squared norm against the number of values",
    claims=_claims,
    seconds=3.0,
    alone=lambda case: True,
    needs=("pinet", "pip install --no-deps pinet-hcnn"),
)
