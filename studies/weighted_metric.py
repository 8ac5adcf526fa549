"""Weighted against Euclidean correction of the mean, for weights that vary."""

import numpy as np
from matplotlib.figure import Figure

from sdifp import project
from sdifp.correction import project_euclidean

from ._study import CONFIRMED, NOT, Case, Claim, Rows, Setting, Study, Value
from ._style import BLUE, GREY, ORANGE, new_figure, plain

_PAPER = {
    0.0: (2.1e-17, 2.1e-17, 1.00, 1.00),
    0.25: (1.7e-17, 1.8e-17, 1.06, 1.83),
    0.5: (2.0e-17, 1.8e-17, 1.25, 2.78),
    1.0: (2.1e-17, 2.1e-17, 1.79, 3.83),
    1.5: (2.2e-17, 2.3e-17, 2.14, 4.07),
}
_QUANTITIES = ("weighted_error", "euclidean_error", "objective", "nonconstant")
_NODES = 256
_DRAWS: dict[Setting, int] = {"tiny": 4, "quick": 200, "full": 1000}


def _cases(setting: Setting) -> list[Case]:
    return [{"CV": cv} for cv in _PAPER]


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    rng = np.random.default_rng([seed, round(100 * case["CV"])])
    sigma = np.sqrt(np.log1p(case["CV"] ** 2))
    rows = []
    for _ in range(_DRAWS[setting]):
        weights = np.exp(sigma * rng.standard_normal(_NODES))
        weights /= weights.sum()
        raw = rng.standard_normal(_NODES)
        mean = weights @ raw + 1.0
        ours = np.asarray(project(raw, weights, mean=mean).values)
        euclidean = np.asarray(project_euclidean(raw, weights, mean=mean))
        size = lambda v, raw=raw, weights=weights: weights @ (v - raw) ** 2
        rows.append(
            (
                abs(weights @ ours - mean),
                abs(weights @ euclidean - mean),
                size(euclidean) / size(ours),
                np.max(np.abs(euclidean - raw)) / np.max(np.abs(ours - raw)),
            )
        )
    found = np.mean(rows, 0).tolist()
    return dict(zip(_QUANTITIES, found, strict=True))


def _paper(case: Case) -> dict[str, float]:
    return dict(zip(_QUANTITIES, _PAPER[case["CV"]], strict=True))


def _draw(rows: Rows) -> Figure:
    figure = new_figure(6.0, 3.6)
    axes = figure.subplots()
    names = {
        "objective": ("weighted norm of the correction, squared", BLUE, "o"),
        "nonconstant": ("largest correction", ORANGE, "s"),
    }
    for quantity, (label, colour, marker) in names.items():
        axes.plot(*rows.line("CV", quantity), marker, color=colour, label=label, ls="-")
        published = [(r["case"]["CV"], r["paper"]) for r in rows.where(quantity)]
        axes.plot(*zip(*published, strict=True), "x", color=GREY, ms=9, zorder=5)
    axes.plot([], [], "x", color=GREY, ms=9, label="published")
    plain(
        axes,
        "Euclidean correction over the weighted one",
        "coefficient of variation of the weights",
        "ratio",
    )
    axes.legend(fontsize=8, frameon=False)
    return figure


def _claims(rows: Rows) -> list[Claim]:
    ratios, widths = (rows.values(q) for q in ("objective", "nonconstant"))
    grows = ratios == sorted(ratios) and widths == sorted(widths)
    worst = max(*rows.values("weighted_error"), *rows.values("euclidean_error"))
    return [
        Claim(
            "Both corrections have the mean; the Euclidean one is ever larger as the "
            "weights vary more.",
            CONFIRMED if grows and worst < 1e-14 else NOT,
            f"Mean to {worst:.1e}; the squared norm up to {max(ratios):.2f} times and "
            f"the largest value up to {max(widths):.2f} times that of the weighted "
            f"correction.",
        )
    ]


STUDY = Study(
    name="weighted-metric",
    title="Weighted against Euclidean correction of the mean",
    labels=("tab:weighted_metric",),
    text=(
        f"{_NODES} lognormal weights, normalised; a raw field of normal random numbers "
        "whose mean is to rise by one. Means over draws, and medians of them over "
        'seeds. The paper does not define "nonconst. ratio", nor its weights: ours is '
        "the largest correction at a node over the constant one of the weighted norm. "
        "With it, lognormal weights and this number of nodes give the published "
        "columns."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "weighted_error": "error of the mean, weighted",
        "euclidean_error": "error of the mean, Euclidean",
        "objective": "squared weighted norm, ratio",
        "nonconstant": "largest correction, ratio",
    },
    draw=_draw,
    alt="Two ratios that rise with the variation of the weights, on the published ones",
    claims=_claims,
    paper=_paper,
    seconds=1.0,
)
