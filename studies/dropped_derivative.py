"""The time derivative without those of scale and shift, and what it does to the
residual."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from sdifp import Recipe
from sdifp.field import ConservedField
from sdifp.operators import Residual
from sdifp.training import MLP, SDIFP, Adam, PostHoc, RandomPoints

from ._fields import EQUATIONS, problem_of
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
from ._style import BLUE, GREEN, ORANGE, new_figure, plain
from ._trained import begun, run_of

_NETWORKS = {
    "not trained": SDIFP(),
    "trained, SDIFP": SDIFP(),
    "trained, PostHoc": PostHoc(),
}
_STEPS: dict[Setting, int] = {"tiny": 2, "quick": 200, "full": 3000}
_NODES = {1: 128, 2: 24**2}
_TIMES = 9
# Random points of the norms.
_POINTS = 128


def _cases(setting: Setting) -> list[Case]:
    tiny = setting == "tiny"
    return [
        {"equation": e, "d": d, "network": state}
        for e in (["wave"] if tiny else EQUATIONS)
        for d in ((1,) if tiny else _NODES)
        for state in _NETWORKS
        # In two dimensions their programs take minutes to compile.
        if setting == "full" or d == 1 or e not in ("wave", "KdV")
    ]


def dropped_error(
    u: ConservedField, x: Float[Array, "n d"], t: Float[Array, ""], order: int
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """The time derivative of a corrected field at points x, of first or second order,
    and what it lacks if scale and shift are held constant."""

    def both(t: Array) -> tuple[Array, Array]:
        return jax.vmap(u.at(t))(x), jax.vmap(lambda x: u.net(x, t))(x)

    def derivative(t: Array, order: int) -> tuple[Array, Array]:
        if order == 0:
            return both(t)
        found: tuple[Array, Array] = jax.jvp(
            lambda t: derivative(t, order - 1), (t,), (jnp.ones_like(t),)
        )[1]
        return found

    whole, raw = derivative(t, order)
    return whole, whole - u.at(t).scale * raw


@eqx.filter_jit
def _norms(
    equation: Residual, u: ConservedField, x: Array, times: Array, order: int
) -> Any:
    """Mean squares at each time: of the time derivative, of what it lacks, of the
    residual, and of the residual without what it lacks."""

    def at(t: Array) -> Array:
        whole, lacking = dropped_error(u, x, t, order)
        residual = equation(u, x[None], t[None])[0]
        parts = (whole, lacking, residual, residual - lacking)
        return jnp.stack([jnp.mean(part**2) for part in parts])

    return jax.lax.map(at, times)


def _measure(case: Case, seed: int, setting: Setting) -> dict[str, Value]:
    problem, d = problem_of(case["equation"], case["d"]), case["d"]
    state = case["network"]
    recipe = Recipe(
        MLP(32, 2, harmonics=4 if d == 1 else 2),
        Adam(5e-3),
        steps=_STEPS[setting],
        points=RandomPoints(4, 64),
        nodes=_NODES[d],
    )
    # Of a training that has not begun nothing is compiled.
    run = (begun if state == "not trained" else run_of)(
        problem, _NETWORKS[state], recipe, seed
    )
    key = jax.random.key(20_000 + seed)
    x = problem.domain.sample(key, _POINTS)
    times = jnp.linspace(0.0, problem.duration, _TIMES)
    found = np.asarray(
        _norms(problem.residual, run.final_field, x, times, problem.order)
    )
    whole, lacking, residual, without = np.sqrt(found.mean(0))
    return {
        "derivative": float(lacking / whole),
        "residual": float(lacking / residual),
        "seen": float(without / residual),
        "over_time": np.sqrt(found[:, 1] / found[:, 0].mean()).tolist(),
    }


def _draw(rows: Rows) -> Figure:
    figure = new_figure(10.0, 3.8)
    grid = figure.subplots(1, 2, sharey=True)
    styles = zip(_NETWORKS, (ORANGE, BLUE, GREEN), "soD", strict=True)
    titles = {
        "derivative": "What the time derivative lacks, relative to it",
        "residual": "The same, relative to the residual",
    }
    pairs = [(row["case"]["equation"], row["case"]["d"]) for row in rows]
    names = list(dict.fromkeys(pairs))
    for k, (state, colour, marker) in enumerate(styles):
        for axes, quantity in zip(grid, titles, strict=True):
            found = [
                rows.where(quantity, equation=e, d=d, network=state)[0]
                for e, d in names
            ]
            middle, low, high = (
                np.asarray([row[q] for row in found], float)
                for q in ("measured", "low", "high")
            )
            axes.errorbar(
                np.arange(len(names)) + 0.15 * (k - 1),
                middle,
                [middle - low, high - middle],
                fmt=marker,
                ms=5,
                capsize=2,
                color=colour,
                label=state,
            )
    for axes, (quantity, title) in zip(grid, titles.items(), strict=True):
        axes.set_yscale("log")
        axes.axhline(1.0, color="0.6", lw=0.8)
        axes.set_xticks(
            np.arange(len(names)), [f"{e} {d}-D" for e, d in names], rotation=30
        )
        plain(axes, title, "", "ratio of norms" if quantity == "derivative" else "")
    grid[0].legend(fontsize=8, frameon=False)
    return figure


def _claims(rows: Rows) -> list[Claim]:
    span = lambda quantity, state: (
        f"{min(rows.values(quantity, network=state)):.1e} to "
        f"{max(rows.values(quantity, network=state)):.1e}"
    )
    trained = rows.values("residual", network="trained, SDIFP")
    matters = sum(x > 0.1 for x in trained)
    seen = rows.values("seen", network="trained, SDIFP")
    return [
        Claim(
            "Replacing the time derivative of the corrected field by alpha f_t is "
            "correct only where m', alpha' and mu' vanish; otherwise the residual that "
            "is minimised is not the one of the corrected field.",
            (CONFIRMED if matters == len(trained) else CONDITION) if matters else NOT,
            f"As training begins the time derivative lacks "
            f"{span('derivative', 'not trained')} of its norm; after a short training "
            f"{span('derivative', 'trained, SDIFP')}, which is "
            f"{span('residual', 'trained, SDIFP')} of the residual, above a tenth of "
            f"it in {matters} of {len(trained)} cases: the residual without those "
            f"derivatives is {min(seen):.2g} to {max(seen):.2g} times the real one. In "
            f"a network that is corrected after training it lacks "
            f"{span('derivative', 'trained, PostHoc')}, but training does not see it.",
        )
    ]


STUDY = Study(
    name="dropped-derivative",
    title="The time derivative without those of scale and shift",
    labels=("prop:time_derivative", "Remark 10.2"),
    text=(
        "The highest time derivative in the equation (u_t; u_tt for the wave equation) "
        "of a corrected field, and the same with scale and shift held constant in "
        "time: the norm of their difference at random points and 9 times, relative to "
        "that of the derivative and to that of the residual; and the norm of the "
        "residual without those derivatives relative to the real one. Networks (2 "
        "hidden layers of 32) as training begins with them, after a short training "
        "with Adam through the exact derivative (SDIFP), and after the same training "
        "of the plain network, corrected afterwards (PostHoc). The wave and KdV "
        "equations are measured in two dimensions in the full setting only."
    ),
    cases=_cases,
    measure=_measure,
    columns={
        "derivative": "lacking, relative to the derivative",
        "residual": "lacking, relative to the residual",
        "seen": "residual without, relative to the real one",
    },
    draw=_draw,
    alt="What the time derivative lacks, relative to it and to the residual",
    claims=_claims,
    seconds=8.0,
)
