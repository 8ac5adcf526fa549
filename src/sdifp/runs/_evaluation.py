"""The values of a trained field at points and times, and what is kept of it for the
report: curves and pictures, as numbers."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..field import as_field, at_time, over_times
from ..invariants import (
    ComponentInvariant,
    Invariant,
    Mass,
    Measured,
    SquaredNorm,
    drift,
    read_rows,
    relative_errors,
)
from ..problems import Problem
from ..quadrature import QuadratureRule
from ..training import Trained, Training

# Times of the certificate and of the curves; fewer where a quadrature is large.
_TIMES, _FEW_TIMES, _LARGE = 21, 5, 2**13
# Points that are evaluated together, at the most.
_CHUNK = 2**14
# Points of the pictures: along each axis in one dimension, in a slice, in a cloud.
_LINE, _FRAMES, _SLICE, _CLOUD = 257, 101, 97, 2048
# Components whose names fit into a formula.
_FEW_NAMES = 3


def measured(training: Training, key: Array) -> Trained:
    """The field of a training as it is now, with its certificate at the times of the
    curves."""
    if _is_large(training.final_field):
        return training.so_far()
    return training.so_far(_TIMES, key)


def _is_large(field: Any) -> bool:
    """Whether a quadrature of a field takes long."""
    rule = as_field(field).rule
    return rule is not None and rule.size > _LARGE


def integrals_of(
    trained: Trained, problem: Problem, rule: QuadratureRule, end: float | None
) -> dict[str, Any]:
    """The invariants over time on an independent rule, by name, with their targets and
    relative errors, or their drifts where they have no target: of the field, and of the
    network without its correction. Mass and squared norm are measured where they are
    not among the invariants, too; of a system the squared norm of all components
    together, where they have the same unit."""
    field, volume = trained.field, problem.domain.volume
    few = _FEW_TIMES if _is_large(field) else _TIMES
    times = None if end is None else jnp.linspace(0.0, end, few)
    invariants = [*problem.prescribed, *problem.measured]
    for measured in _added(problem):
        if measured.name not in [i.name for i in invariants]:
            invariants.append(measured)
    every = tuple(invariants)
    of = lambda f: volume * np.asarray(_moments(problem, every, f, rule, times))
    curves = {"field": of(field)}
    if trained.certificate is not None:
        curves["raw"] = of(trained.net)
    read = {w: read_rows(invariants, curve, volume) for w, curve in curves.items()}
    every_time: Any = [None] if times is None else times
    targets = [
        volume * np.array([float(problem.mean_target(i, t)) for t in every_time])
        for i in problem.prescribed
    ]

    def errors(found: list[Measured]) -> list[np.ndarray]:
        # Of the network without its correction relative to the size of the field, too.
        pairs = list(zip(found, read["field"], strict=True))[: len(targets)]
        own = [measured._replace(size=field.size) for measured, field in pairs]
        return relative_errors(problem.prescribed, own, targets, volume)

    off = {which: errors(found) for which, found in read.items()}
    out: dict[str, Any] = {}
    for k, invariant in enumerate(invariants):
        found = {which: measured[k] for which, measured in read.items()}
        own: dict[str, Any] = {"density": _density(invariant, problem), "target": None}
        own["values"] = {which: m.value.tolist() for which, m in found.items()}
        if invariant.target is None and times is not None:
            change = {which: drift(m) for which, m in found.items()}
            own["drift"] = {w: d.change.tolist() for w, d in change.items()}
            own["relative_drift"] = {w: d.relative.tolist() for w, d in change.items()}
        elif invariant.target is not None:
            own["target"] = targets[k].tolist()
            own["errors"] = {w: np.abs(e[k]).tolist() for w, e in off.items()}
        out[invariant.name] = own
    known = [None] if times is None else np.asarray(times, float).tolist()
    return {"times": known, "invariants": out}


def _added(problem: Problem) -> tuple[Invariant, ...]:
    """What is measured of any field. A total of numbers with different units would be
    without meaning."""
    if not problem.shape:
        return Mass(None), SquaredNorm(None)
    return (SquaredNorm(None),) if len(set(problem.units)) == 1 else ()


def _density(invariant: Invariant, problem: Problem) -> str:
    """What is integrated, in the names of the components."""
    words, names = invariant.density_in_words, problem.components
    own = [names[k] for k in invariant.among(len(names))]
    usable = len(own) <= _FEW_NAMES and all(map(str.isidentifier, own))
    if not isinstance(invariant, ComponentInvariant) or not usable:
        return words
    return " + ".join(re.sub(r"\bu\b", name, words) for name in own)


@eqx.filter_jit
def _moments(
    problem: Problem,
    invariants: tuple[Invariant, ...],
    function: Any,
    rule: QuadratureRule,
    times: Float[Array, " n"] | None,
) -> Float[Array, "n m"]:
    at = lambda t: problem.means_of(invariants, rule, at_time(function, t), t)
    return over_times(at, times)


@eqx.filter_jit
def values(
    function: Any, x: Float[Array, "n_t n_x d"], t: Float[Array, " n_t"] | None
) -> Float[Array, "n_t n_x ..."]:
    """The values at points of each time; without time there is one entry. Of a system
    its components are on the last axis."""
    if t is None:
        return jax.vmap(jax.vmap(at_time(function, None)))(x)
    return jax.lax.map(lambda a: jax.vmap(at_time(function, a[1]))(a[0]), (x, t))


def predict(training: Training, table: Float[np.ndarray, "n columns"]) -> np.ndarray:
    """The values of the field of a training at points: one per row, its time last
    unless the problem is steady; of a system a column for each component. Points of one
    time share its quadrature."""
    if training.finished:
        training.check()
    field = training.final_field
    problem = training.problem
    d, out = problem.domain.dimension, np.empty((len(table), *problem.shape))
    times: Any = [None]
    groups = [np.arange(len(table))]
    if not problem.is_steady:
        order = np.argsort(table[:, -1], kind="stable")
        times, starts = np.unique(table[order, -1], return_index=True)
        groups = np.split(order, starts[1:])
    for t, rows in zip(times, groups, strict=True):
        for first in range(0, len(rows), _CHUNK):
            some = rows[first : first + _CHUNK]
            # Few sizes, so that few programs are compiled.
            size = max(16, 1 << (len(some) - 1).bit_length())
            padded = np.resize(table[some, :d], (size, d))
            at = None if t is None else jnp.asarray([t])
            found = values(field, jnp.asarray(padded)[None], at)[0]
            out[some] = np.asarray(found)[: len(some)]
    return out


def picture_of(
    trained: Trained, problem: Problem, end: float | None, key: Array
) -> dict[str, np.ndarray]:
    """The numbers of a picture of the solution: all of space and time in one
    dimension, a slice at the last time in two and three; in more, a cloud of points if
    there is a reference to compare it with, and a slice if not."""
    box = problem.domain
    d = box.dimension
    is_cloud = d > 3 and bool(problem.references)
    times: Array | None
    if d == 1:
        line = box.from_unit(jnp.linspace(0.0, 1.0, _LINE)[:, None])
        times = None if end is None else jnp.linspace(0.0, end, _FRAMES)
        x = jnp.broadcast_to(line, (1 if end is None else _FRAMES, _LINE, 1))
    elif not is_cloud:
        times = None if end is None else jnp.full((1,), end)
        axis = jnp.linspace(0.0, 1.0, _SLICE)
        plane = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
        rest = jnp.full((len(plane), d - 2), 0.5)
        x = box.from_unit(jnp.concatenate([plane, rest], 1))[None]
    else:
        n_t = 1 if end is None else 8
        times = None if end is None else jnp.linspace(0.0, end, n_t)
        x = box.sample(key, _CLOUD).reshape(n_t, -1, d)
    found = {"u": values(trained.field, x, times)}
    if times is not None:
        found["times"] = times
    known = [values(reference, x, times) for reference in problem.references]
    if known:
        # The nearest of several solutions.
        away = [float(jnp.sum((found["u"] - one) ** 2)) for one in known]
        found["reference"] = known[int(np.argmin(away))]
    if not is_cloud:
        # Of scattered points only what they give is drawn.
        found["x"] = x[0]
    return {name: np.asarray(array) for name, array in found.items()}
