"""Whether the parts of a problem agree with each other."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._field import AtTime
from .._quadrature import QuadratureRule
from .._quadrature._rule import two_means

if TYPE_CHECKING:
    from ._problem import Problem

# Points at which functions are compared.
_POINTS = 256
# Nodes of the rules that integrals are compared on, in 1, 2, 3 and more dimensions.
_NODES = (1024, 96**2, 32**3, 2**13)
_REPLICATES = 8
# Times at which targets are looked at, as parts of the duration.
_TIMES = (0.0, 0.21, 0.55, 1.0)
# How many times their estimated error integrals may differ by: the estimate is rough.
_SAFETY = 10.0
# Axes whose walls are looked at: some stand for all of them in high dimension.
_AXES = 3

# The program runs once, so it is not worth the time to optimise it.
once: Any = eqx.filter_jit(  # type: ignore[call-overload]
    compiler_options={"xla_backend_optimization_level": 0}
)


def check_problem(problem: "Problem", key: Array) -> None:
    """See `Problem.check`."""
    _check_conditions(problem)
    # A disagreement below this is rounding, or the accuracy of a numerical reference.
    tolerance = 1e-6 if jnp.result_type(float) == jnp.float64 else 1e-4
    for_points, for_rules = jax.random.split(key)
    points = problem.box.sample(for_points, _POINTS)
    rules = _rules(problem, for_rules)
    found = jax.tree.map(np.asarray, once(_look)(problem, points, rules))
    initial = found["initial"]
    if not np.all(np.isfinite(initial)):
        raise ValueError("initial must be finite on the whole box, and is not")
    size = float(np.max(np.abs(initial))) or 1.0
    for what, one, other, unit, allowed in found["walls"]:
        _close(what, one, other, float(unit) * size, float(allowed) * tolerance)
    _check_feasible(found["targets"], problem.duration, tolerance)
    if problem.reference is not None:
        names = "reference at time 0", "initial"
        _close(names, found["reference"], initial, size, tolerance)
        if problem.velocity is not None:
            velocity = found["velocity"]
            unit = float(np.max(np.abs(velocity))) or 1.0
            names = "the time derivative of reference at time 0", "velocity"
            _close(names, found["rate"], velocity, unit, 10 * tolerance)
    _check_integrals(problem, found, tolerance)


def _check_conditions(problem: "Problem") -> None:
    """Refuse walls at which nothing is said of u: the solution is not unique then, and
    a network that is trained converges to any of them."""
    if problem.profile is not None:
        # It vanishes on all walls that are not Neumann, which is looked at below.
        return
    d, periodic = problem.box.dimension, problem.box.periodic
    free = np.flatnonzero(~periodic & ~np.broadcast_to(problem.neumann, (d,)))
    if not free.size:
        return
    named = ", ".join(map(str, free[:_AXES])) + (", ..." if free.size > _AXES else "")
    axes, walls = ("axis", "its") if free.size == 1 else ("axes", "their")
    raise ValueError(
        f"{problem.name} has no boundary condition on {axes} {named} of its box: give "
        f"the box periodic=True there, or the problem neumann=True (the normal "
        f"derivative vanishes) or a profile that vanishes on {walls} walls (u = 0). "
        f"periodic and neumann may be one bool for each axis; check=False (--no-check) "
        f"trains without a condition, for an equation that needs none"
    )


def _look(
    problem: "Problem", points: Array, rules: list[QuadratureRule]
) -> dict[str, Any]:
    """Everything that is compared, in one program."""
    initial, reference, zero = problem.initial, problem.reference, jnp.zeros(())
    times = jnp.asarray(_TIMES, float) * problem.duration
    out: dict[str, Any] = {
        "initial": jax.vmap(initial)(points),
        "walls": _walls(problem, points),
        "targets": jnp.stack(
            [
                jnp.full(len(_TIMES), jnp.nan)
                if getattr(problem, name) is None
                else jax.lax.map(lambda t, name=name: problem.target(name, t), times)
                for name in ("mass", "energy")
            ]
        ),
        "integrals of initial": _integrals(rules, lambda x, t: initial(x), zero[None]),
    }
    if problem.velocity is not None:
        out["velocity"] = jax.vmap(problem.velocity)(points)
    if reference is not None:
        rate = lambda x: jax.jvp(
            lambda t: reference(x, t), (zero,), (jnp.ones_like(zero),)
        )
        out["reference"], out["rate"] = jax.vmap(rate)(points)
        out["integrals of reference"] = _integrals(rules, reference, times)
    return out


def _rules(problem: "Problem", key: Array) -> list[QuadratureRule]:
    """Rules that differ from each other by about their error."""
    d = problem.box.dimension
    nodes = _NODES[min(d, 4) - 1]
    if d <= 3:
        return [problem.rule(nodes, key), problem.rule(nodes // 2**d, key)]
    return list(problem.rule(nodes, key).replicates(key, _REPLICATES))


def _integrals(rules: list[QuadratureRule], function: Any, times: Array) -> Array:
    """The mean and the mean square on each rule (first axis) at each time (second)."""
    at = lambda rule, t: two_means(rule, AtTime(function, t))
    over = lambda rule: jax.lax.map(lambda t: at(rule, t), times)
    return jnp.stack([over(rule) for rule in rules])


class _Names(tuple[str, str]):
    """Two names, as one constant of a program."""


jax.tree_util.register_static(_Names)


def _walls(
    problem: "Problem", points: Array
) -> list[tuple[_Names, Array, Array, float, float]]:
    """Pairs of values that must be the same: (names, one, other, unit, tolerance)."""
    box, initial = problem.box, problem.initial
    neumann = np.broadcast_to(problem.neumann, (box.dimension,)) & ~box.periodic
    out = []
    zero = jnp.zeros(_POINTS)
    for k in range(min(box.dimension, _AXES)):
        low, high = (points.at[:, k].set(float(b[k])) for b in (box.lower, box.upper))
        if box.periodic[k]:
            names = _Names(
                (f"initial on one wall of the periodic axis {k}", "the other")
            )
            one, other = jax.vmap(initial)(low), jax.vmap(initial)(high)
            out.append((names, one, other, 1.0, 1.0))
            continue
        for wall in (low, high):
            if neumann[k]:
                slope = jax.vmap(lambda x, k=k: jax.grad(initial)(x)[k])(wall)
                names = _Names((f"the slope of initial at a wall of axis {k}", "zero"))
                # Data that die out before the wall are as good as even.
                out.append((names, slope, zero, 1.0 / float(box.width[k]), 1e3))
            elif problem.profile is not None:
                parts = {"profile": problem.profile, "initial": initial}
                for name, part in parts.items():
                    names = _Names((f"{name} on a wall of axis {k}", "zero"))
                    out.append((names, jax.vmap(part)(wall), zero, 1.0, 1.0))
    return out


def _close(
    names: tuple[str, str],
    found: np.ndarray,
    wanted: np.ndarray,
    unit: float,
    tolerance: float,
) -> None:
    worst = float(np.max(np.abs(found - wanted)))
    if not worst <= tolerance * unit:
        raise ValueError(
            f"{names[0]} and {names[1]} disagree by up to {worst:.2g}, "
            f"{worst / unit:.2g} of the size of the field"
        )


def _check_feasible(targets: np.ndarray, duration: float, tolerance: float) -> None:
    for part, mean, square in zip(_TIMES, *targets.tolist(), strict=True):
        if square < mean**2 * (1.0 - tolerance):
            raise ValueError(
                f"energy and mass disagree at t = {part * duration:g}: a field with "
                f"the mean {mean:.6g} has a mean square of {mean**2:.6g} at the least, "
                f"and energy asks for {square:.6g}"
            )


def _check_integrals(
    problem: "Problem", found: dict[str, Any], tolerance: float
) -> None:
    """Compare the integrals of the data, and of the reference, with the targets."""
    low = problem.box.dimension <= 3
    for what in ("initial", "reference"):
        integrals = found.get(f"integrals of {what}")
        if integrals is None:
            continue
        # The finest rule, or the mean of the randomisations.
        best = integrals[0] if low else integrals.mean(0)
        errors = np.abs(integrals - best).max(0)
        for i, (value, error) in enumerate(zip(best, errors, strict=True)):
            units = (float(np.sqrt(abs(value[1]))) or 1.0, float(abs(value[1])) or 1.0)
            for k, name in enumerate(("mass", "energy")):
                wanted = float(found["targets"][k, i])
                off = abs(float(value[k]) - wanted)
                if getattr(problem, name) is None:
                    continue
                if not off <= tolerance * units[k] + _SAFETY * float(error[k]):
                    integral = ("", " of the square")[k]
                    when = _TIMES[i] * problem.duration
                    at = "" if what == "initial" else f" at t = {when:g}"
                    raise ValueError(
                        f"the integral{integral} of {what}{at}, over the volume of the "
                        f"box, is {float(value[k]):.8g}, and {name} asks for "
                        f"{wanted:.8g}: off by {off:.2g}, {off / units[k]:.2%} of the "
                        f"field's size"
                    )
