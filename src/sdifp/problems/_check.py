"""Whether the parts of a problem agree with each other, and two problems as well."""

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import once
from ..field import ConservedField, PlainSlice, conserve, over_times, positive
from ..invariants import At, Invariant, read_rows
from ..quadrature import QuadratureRule

if TYPE_CHECKING:
    from ._problem import Problem

# Points at which functions are compared.
_POINTS = 256
# Nodes of the rules that integrals are compared on, in 1, 2, 3 and more dimensions.
_NODES = (1024, 96**2, 32**3, 2**13)
_REPLICATES = 8
# Times at which targets are looked at, as parts of the duration.
_TIMES = (0.0, 0.21, 0.55, 1.0)
# Those of a fingerprint, one point at each.
_SCATTERED = (0.07, 0.43, 0.91)
# How many times their estimated error integrals may differ by: the estimate is rough.
_SAFETY = 10.0
# Nodes of the rule of integrals and functionals in a fingerprint.
_FEW_NODES = 64
# Multiples of two shapes, among which u = 0 may minimise a functional.
_SIZES = (-10.0, -1.0, -0.01, 0.01, 1.0, 10.0)
# Axes whose walls are looked at: some stand for all of them in high dimension.
_AXES = 3


def check_problem(problem: "Problem", key: Array) -> None:
    """See `Problem.check`."""
    _check_conditions(problem)
    # A disagreement below this is rounding, or the accuracy of a numerical reference.
    tolerance = 1e-6 if jnp.result_type(float) == jnp.float64 else 1e-4
    for_points, for_rules = jax.random.split(key)
    points = problem.domain.sample(for_points, _POINTS)
    rules = _rules(problem, for_rules)
    found = jax.tree.map(np.asarray, once(_look)(problem, points, rules))
    for name, values in found["data"].items():
        if not np.all(np.isfinite(values)):
            raise ValueError(f"{name} must be finite on the whole box, and is not")
    for names, (one, other, unit, allowed) in found["pairs"].items():
        unit = float(unit) or 1.0
        worst = float(np.max(np.abs(one - other)))
        if not worst <= float(allowed) * tolerance * unit:
            raise ValueError(
                f"{names} disagree by up to {worst:.2g}, {worst / unit:.2g} of the "
                f"size of the field"
            )
    by_kind = {i.kind: found["targets"][i.name] for i in problem.prescribed}
    _check_feasible(by_kind, _times(problem), tolerance)
    _check_integrals(problem, found, tolerance)
    _check_correction(problem, rules[0])
    _warn_of_zero(problem, points)
    _warn_of_idle(problem, points)


def _warn_of_zero(problem: "Problem", points: Array) -> None:
    """Warn where u = 0 solves a steady problem and nothing keeps a network from it."""
    if not problem.is_steady:
        return
    targets = [float(one.target.value(None)) for one in problem.prescribed]
    if any(targets) or not bool(once(_is_zero)(problem, points)):
        return
    warnings.warn(
        f"{problem.name} is solved by u = 0, which no integral of it excludes: a "
        f"network that is trained on it goes there. Give it an invariant, such as "
        f"squared_norm=1.0",
        stacklevel=4,
    )


def _warn_of_idle(problem: "Problem", points: Array) -> None:
    """Warn of a component of a system that its equation does not contain."""
    if not problem.shape or problem.functional is not None:
        return
    touched = np.asarray(once(_touched)(problem, points))
    named = zip(problem.components, touched, strict=True)
    idle = [name for name, there in named if not there]
    if idle:
        warnings.warn(
            f"no residual of {problem.name} depends on {', '.join(idle)}: the training "
            f"leaves it as it is",
            stacklevel=4,
        )


def _touched(problem: "Problem", points: Array) -> Array:
    """Whether the residual changes with each component."""
    trial, rule = _trial_for(problem), problem.rule(_FEW_NODES, jax.random.key(0))
    times = () if problem.is_steady else (jnp.asarray(0.3 * problem.duration),)

    def at(x: Array, factors: Array) -> Array:
        u = lambda x, *t: factors * trial(x, *t)
        return problem.residual(u, x, *times, rule=rule)

    slopes = jax.vmap(jax.jacfwd(at, 1), (0, None))(points, jnp.ones(problem.shape))
    return jnp.any(slopes != 0.0, axis=(0, 1))


def _is_zero(problem: "Problem", points: Array) -> Array:
    """Whether u = 0 has the residual zero, or minimises the functional."""
    rule = problem.rule(_FEW_NODES, jax.random.key(0))
    functional = problem.functional
    if functional is None:
        zero = lambda x: jnp.zeros(problem.shape, x.dtype)
        at = lambda x: problem.residual(zero, x, rule=rule)
        return jnp.all(jax.vmap(at)(points) == 0.0)
    profile = problem.profile or (lambda x: jnp.ones((), x.dtype))
    found = []
    for shape in (profile, lambda x: profile(x) * _steady_trial(x)):
        of = lambda size, shape=shape: functional(lambda x: size * shape(x), rule)
        value, slope = jax.value_and_grad(of)(0.0)
        others = jnp.stack([of(size) for size in _SIZES])
        found.append((slope == 0.0) & jnp.all(others >= value))
    return found[0] & found[1]


def _check_conditions(problem: "Problem") -> None:
    """Refuse walls at which nothing is said of u: the solution is not unique then, and
    a network that is trained converges to any of them."""
    free = np.flatnonzero(~problem.domain.periodic & ~np.asarray(problem.neumann))
    # A profile vanishes on all walls that are not Neumann, which is looked at below. A
    # functional has natural conditions.
    declared = problem.is_free
    given = problem.profile is not None or problem.functional is not None
    if given or declared or not free.size:
        return
    named = ", ".join(map(str, free[:_AXES])) + (", ..." if free.size > _AXES else "")
    axes, walls = ("axis", "its") if free.size == 1 else ("axes", "their")
    raise ValueError(
        f"{problem.name} has no boundary condition on {axes} {named} of its box: give "
        f"the box periodic=True there, or the problem Neumann() (the normal derivative "
        f"vanishes) or Dirichlet(profile) with a profile that vanishes on {walls} "
        f"walls (u = 0) among its conditions, or Free() for an equation that needs "
        f"none there"
    )


def _look(
    problem: "Problem", points: Array, rules: list[QuadratureRule]
) -> dict[str, Any]:
    """Everything that is compared, in one program."""
    zero = jnp.zeros(())
    times = _times(problem)
    data = _data(problem)
    values = {name: jax.vmap(function)(points) for name, function in data.items()}
    pairs: dict[str, _Pair] = {}
    for name, function in data.items():
        size = jnp.max(jnp.abs(values[name]))
        size = jnp.where(size > 0.0, size, 1.0)
        pairs |= _walls(problem, name, function, points, size)
    integrals = {
        name: _integrals(
            problem,
            rules,
            lambda x, *t, f=function: f(x),
            None if times is None else zero[None],
        )
        for name, function in data.items()
    }
    if problem.initial is not None and problem.reference is not None:
        (reference,), start = problem.references, values["initial"]
        rate = lambda x: jax.jvp(
            lambda t: reference(x, t), (zero,), (jnp.ones_like(zero),)
        )
        value, slope = jax.vmap(rate)(points)
        size = jnp.max(jnp.abs(start))
        pairs["reference at time 0 and initial"] = (value, start, size, 1.0)
        if problem.velocity is not None:
            velocity = jax.vmap(problem.velocity)(points)
            names = "the time derivative of reference at time 0 and velocity"
            pairs[names] = (slope, velocity, jnp.max(jnp.abs(velocity)), 10.0)
        integrals["reference"] = _integrals(problem, rules, reference, times)
    target = lambda i: over_times(lambda t: problem.mean_target(i, t), times)
    targets = {invariant.name: target(invariant) for invariant in problem.prescribed}
    out = {"data": values, "pairs": pairs, "integrals": integrals}
    return out | {"targets": targets}


def _times(problem: "Problem") -> Array | None:
    """The times that are looked at; None for a steady problem."""
    if problem.is_steady:
        return None
    return jnp.asarray(_TIMES, float) * problem.duration


def _data(problem: "Problem") -> dict[str, Callable[[Array], Array]]:
    """The functions of x that must have the conditions and the integrals, by name."""
    if problem.initial is not None:
        return {"initial": problem.initial}
    names = ["reference", *(f"reference {k}" for k in range(1, 99))]
    return dict(zip(names, problem.references, strict=False))


def _rules(problem: "Problem", key: Array) -> list[QuadratureRule]:
    """Rules that differ from each other by about their error."""
    d = problem.domain.dimension
    nodes = _NODES[min(d, 4) - 1]
    if d <= 3:
        return [problem.rule(nodes, key), problem.rule(nodes // 2**d, key)]
    return list(problem.rule(nodes, key).replicates(key, _REPLICATES))


def _integrals(
    problem: "Problem",
    rules: list[QuadratureRule],
    function: Any,
    times: Array | None,
) -> Array:
    """The mean of the rows of each invariant on each rule (first axis) at each time
    (second)."""
    at = lambda rule, t: problem.means_of(
        problem.invariants, rule, PlainSlice(function, t), t
    )
    over = lambda rule: over_times(lambda t: at(rule, t), times)
    return jnp.stack([over(rule) for rule in rules])


_Pair = tuple[Array, Array | float, Array, float]
"""Two values that must be the same, their unit, and how much they may differ."""


def _walls(
    problem: "Problem",
    name: str,
    function: Callable[[Array], Array],
    points: Array,
    size: Array,
) -> dict[str, _Pair]:
    """What must hold on the walls of a function of x, by the names of both sides."""
    box = problem.domain
    out: dict[str, _Pair] = {}
    for k in range(min(box.dimension, _AXES)):
        low, high = (points.at[:, k].set(float(b[k])) for b in (box.lower, box.upper))
        walls = jnp.concatenate([low, high])
        if box.periodic[k]:
            names = f"{name} on one wall of the periodic axis {k} and the other"
            out[names] = (jax.vmap(function)(low), jax.vmap(function)(high), size, 1.0)
        elif problem.neumann[k]:
            slope = jax.vmap(lambda x, k=k: jax.jacrev(function)(x)[..., k])(walls)
            names = f"the slope of {name} at a wall of axis {k} and zero"
            # Data that die out before the wall are as good as even.
            out[names] = (slope, 0.0, size / float(box.width[k]), 1e3)
        elif problem.profile is not None:
            for what, part in {"profile": problem.profile, name: function}.items():
                names = f"{what} on a wall of axis {k} and zero"
                out[names] = (jax.vmap(part)(walls), 0.0, size, 1.0)
    return out


def _check_feasible(
    targets: dict[str, np.ndarray], times: Array | None, tolerance: float
) -> None:
    if not {"mass", "squared_norm"} <= targets.keys():
        return
    both = (targets[name].tolist() for name in ("mass", "squared_norm"))
    known = [None] if times is None else times.tolist()
    for t, mean, square in zip(known, *both, strict=True):
        if square < mean**2 * (1.0 - tolerance):
            at = "" if t is None else f" at t = {t:g}"
            raise ValueError(
                f"squared_norm and mass disagree{at}: a field "
                f"with the mean {mean:.6g} has a mean square of at least "
                f"{mean**2:.6g}, but the squared_norm target is {square:.6g}"
            )


def _check_correction(problem: "Problem", rule: QuadratureRule) -> None:
    """Raise the sentence of `conserve` for invariants that no field can have together,
    at some times."""
    if not problem.prescribed:
        return
    trial = _trial_for(problem)
    u = conserve(
        positive(trial) if problem.positive else trial,
        rule,
        invariants=problem.invariants,
        profile=problem.shift_profile,
    )
    if not u.prescribed.groups:
        # One scale and one shift: their targets have been compared already.
        return
    times = _times(problem)
    hopeless = once(_hopeless)(u, times)
    for t, wrong in zip([None] if times is None else times, hopeless, strict=True):
        if bool(wrong):
            u.at(t).check()


def _hopeless(u: ConservedField, times: Array | None) -> Array:
    """Whether a field cannot meet its targets, at each of some times."""
    return over_times(lambda t: u.at(t).is_hopeless, times)


def _check_integrals(
    problem: "Problem", found: dict[str, Any], tolerance: float
) -> None:
    """Compare the integrals of the data, and of the reference, with the targets."""
    low = problem.domain.dimension <= 3
    # The finest rule, or the mean of the randomisations.
    best_of = lambda a: a[0] if low else a.mean(0)
    for what, integrals in found["integrals"].items():
        known = read_rows(problem.invariants, integrals, 1.0)
        for invariant, measured in zip(problem.invariants, known, strict=True):
            means, size = (best_of(a) for a in (measured.value, measured.size))
            weight = best_of(np.broadcast_to(measured.weight, measured.size.shape))
            spread = np.abs(measured.value - means).max(0)
            for i, mean in enumerate(means):
                at = ""
                if what == "reference" and not problem.is_steady:
                    at = f" at t = {_TIMES[i] * problem.duration:g}"
                if not np.isfinite(mean):
                    raise ValueError(f"the {invariant.words} of {what}{at} is {mean}")
                if invariant.target is None:
                    continue
                wanted = found["targets"][invariant.name][i]
                # Relative to the data, whose integrals the targets should be.
                square = abs(size[i] * weight[i])
                unit = float(invariant.unit(mean, square, 1.0, np)) or 1.0
                off = abs(mean - wanted)
                if not off <= tolerance * unit + _SAFETY * spread[i]:
                    raise ValueError(
                        f"the {invariant.words} of {what}{at}, divided by the volume "
                        f"of the box, is {mean:.8g}, but the {invariant.name} target "
                        f"is {wanted:.8g}: off by {off:.2g}, {off / unit:.2%} of the "
                        f"size of the field"
                    )


def fingerprint(problem: "Problem") -> dict[str, str]:
    """The parts of a problem at a few points and times, to five digits, to test whether
    two problems are equal."""
    found = {k: np.asarray(v) for k, v in once(_values)(problem).items()}
    values = {k: " ".join(f"{x:.4e}" for x in v) for k, v in found.items()}
    box = f"{problem.domain.dimension} axes"
    known = "none" if problem.is_steady else f"{problem.duration:.4e}"
    sign = {"positive": "yes"} if problem.positive else {}
    return {"domain": box, "duration": known, **sign, **values}


def _values(problem: "Problem") -> dict[str, Array]:
    d = problem.domain.dimension
    # Scattered, and never on a wall.
    k = np.arange(1.0, len(_SCATTERED) * d + 1).reshape(-1, d)
    x = problem.domain.from_unit(jnp.asarray(0.02 + 0.96 * (k * math.sqrt(2.0) % 1.0)))
    steady = problem.is_steady
    t = None if steady else jnp.asarray(_SCATTERED, x.dtype) * problem.duration
    trial = _trial_for(problem)
    functions: dict[str, Any] = {
        name: lambda x, t, f=f: f(x)
        for name in ("initial", "velocity", "profile")
        if (f := getattr(problem, name)) is not None
    }
    functions |= {
        f"invariant {one.name}": lambda x, t, i=one: _invariant_at(problem, i, x, t)
        for one in problem.invariants
    }
    names = ["reference", *(f"reference {k}" for k in range(1, 99))]
    for name, one in zip(names, problem.references, strict=False):
        functions[name] = one if not steady else lambda x, t, f=one: f(x)
    over = lambda f: jax.vmap(f, (0, None if steady else 0))(x, t).reshape(-1)
    out = {name: over(f) for name, f in functions.items()}
    rule = problem.rule(_FEW_NODES, jax.random.key(0))
    if problem.functional is not None:
        out["equation"] = problem.functional(trial, rule)[None]
    else:
        residual = problem.residual
        out["equation"] = over(lambda x, t: residual(trial, x, t, rule=rule))
    return out


def _trial_for(problem: "Problem") -> Any:
    """A function of x, and of t where there is time, that solves no equation; it has
    the components of the problem."""
    one: Any = _steady_trial if problem.is_steady else _trial
    if not problem.shape:
        return one
    (n,) = problem.shape

    # Components that are no multiples of each other.
    def several(x: Array, *t: Array) -> Array:
        return jnp.stack([one(x + 0.7 * k, *t) * (1.0 + k) + 0.1 * k for k in range(n)])

    return several


def _trial(x: Array, t: Array) -> Array:
    """A function that solves no equation that comes to mind."""
    return jnp.exp(0.3 * t) * jnp.sin(jnp.sum(x) / math.sqrt(x.size) + t)


def _steady_trial(x: Array) -> Array:
    return _trial(x, jnp.asarray(0.4, x.dtype))


def _invariant_at(
    problem: "Problem", invariant: Invariant, x: Array, t: Array | None
) -> Array:
    """What is integrated at a point, and the target if there is one."""
    now, n = PlainSlice(_trial_for(problem), t), len(problem.components)
    u, slope = now(x).reshape(n), jax.jacfwd(now)(x).reshape(n, -1)
    density = invariant.density(At(u, (0.0,) * n, x, t, slope))
    if invariant.target is None:
        return density[None]
    return jnp.stack([density, problem.mean_target(invariant, t)])
