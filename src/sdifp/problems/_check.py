"""Whether the parts of a problem agree with each other."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._quadrature import QuadratureRule

if TYPE_CHECKING:
    from ._problem import Problem

# Nodes of the rules that integrals are compared on, in 1, 2, 3 and more dimensions.
_NODES = (1024, 96**2, 32**3, 2**13)
# Times at which targets are looked at, as parts of the duration.
_TIMES = (0.0, 0.21, 0.55, 1.0)
# How many times their estimated error integrals may differ by: the estimate is rough.
_SAFETY = 10.0


def check_problem(problem: "Problem", key: Array) -> None:
    """See `Problem.check`."""
    # A disagreement below this is rounding, or the accuracy of a numerical reference.
    tolerance = 1e-6 if jnp.result_type(float) == jnp.float64 else 1e-4
    for_points, for_rules = jax.random.split(key)
    points = problem.box.sample(for_points, 256)
    start = _values(problem.initial, points)
    if not np.all(np.isfinite(start)):
        raise ValueError("initial must be finite on the whole box, and is not")
    size = float(np.max(np.abs(start))) or 1.0
    _check_walls(problem, points, size, tolerance)
    _check_feasible(problem, tolerance)
    if problem.reference is not None:
        reference = problem.reference
        zero = jnp.zeros(())
        _close(
            "reference at time 0",
            _values(lambda x: reference(x, zero), points),
            "initial",
            start,
            size,
            tolerance,
        )
        if problem.velocity is not None:
            slope = lambda x: jax.jvp(
                lambda t: reference(x, t), (zero,), (jnp.ones(()),)
            )[1]
            moving = _values(problem.velocity, points)
            scale = float(np.max(np.abs(moving))) or 1.0
            name = "the time derivative of reference at time 0"
            found = _values(slope, points)
            _close(name, found, "velocity", moving, scale, 10 * tolerance)
    _check_integrals(problem, for_rules, tolerance)


def _values(function: Any, points: Array) -> np.ndarray:
    return np.asarray(eqx.filter_jit(jax.vmap(function))(points), np.float64)


def _close(
    name: str,
    found: np.ndarray,
    other: str,
    wanted: np.ndarray,
    size: float,
    tolerance: float,
) -> None:
    worst = float(np.max(np.abs(found - wanted)))
    if not worst <= tolerance * size:
        raise ValueError(
            f"{name} and {other} disagree by up to {worst:.2g}, {worst / size:.1%} of "
            f"the largest value"
        )


def _check_walls(
    problem: "Problem", points: Array, size: float, tolerance: float
) -> None:
    box = problem.box
    neumann = np.broadcast_to(problem.neumann, (box.dimension,)) & ~box.periodic
    # Some axes stand for all of them in high dimension.
    for k in range(min(box.dimension, 3)):
        low, high = (points.at[:, k].set(float(b[k])) for b in (box.lower, box.upper))
        if box.periodic[k]:
            _close(
                f"initial is not periodic: its values on the two walls of axis {k}",
                _values(problem.initial, low),
                "each other",
                _values(problem.initial, high),
                size,
                tolerance,
            )
            continue
        for wall in (low, high):
            if neumann[k]:
                slope = lambda x, k=k: jax.grad(problem.initial)(x)[k]
                scale = size / float(box.width[k])
                name = f"the normal derivative of initial on a wall of axis {k}"
                zero = np.zeros(len(wall))
                found = _values(slope, wall)
                # Data that die out before the wall are as good as even.
                _close(name, found, "zero", zero, scale, 1e3 * tolerance)
            elif problem.profile is not None:
                for name, part in (
                    ("profile", problem.profile),
                    ("initial", problem.initial),
                ):
                    where = f"{name} on a wall of axis {k}"
                    zero = np.zeros(len(wall))
                    _close(where, _values(part, wall), "zero", zero, size, tolerance)


def _check_feasible(problem: "Problem", tolerance: float) -> None:
    if problem.mass is None or problem.energy is None:
        return
    for part in _TIMES:
        t = part * problem.duration
        mean, square = (
            float(problem.target(name, t))  # type: ignore[arg-type]
            for name in ("mass", "energy")
        )
        if not square >= mean**2 * (1.0 - tolerance):
            raise ValueError(
                f"energy and mass disagree at t = {t:g}: a field with the mean "
                f"{mean:.6g} has a mean square of {mean**2:.6g} at the least, and "
                f"energy asks for {square:.6g}"
            )


def _check_integrals(problem: "Problem", key: Array, tolerance: float) -> None:
    """Compare the integrals of the data, and of the reference, with the targets."""
    d = problem.box.dimension
    nodes = _NODES[min(d, 4) - 1]
    if d <= 3:
        coarse = problem.rule(nodes // 2**d, key)
        rules = [problem.rule(nodes, key), coarse]
    else:
        rules = list(problem.rule(nodes, key).replicates(key, 8))
    reference, initial = problem.reference, problem.initial
    cases: list[tuple[str, float, Any]] = [("initial", 0.0, lambda x, t: initial(x))]
    if reference is not None:
        cases += [("reference", part * problem.duration, reference) for part in _TIMES]

    @eqx.filter_jit
    def both(rule: QuadratureRule, function: Any, t: Array) -> Array:
        def value(x: Array) -> Array:
            u = function(x, t)
            return jnp.stack([u, u * u])

        return rule.mean(value)

    for what, t, function in cases:
        time = jnp.asarray(t, float)
        found = np.stack([np.asarray(both(rule, function, time)) for rule in rules])
        value = found[0] if d <= 3 else found.mean(0)
        error = np.abs(found - value).max(0)
        units = (float(np.sqrt(abs(value[1]))) or 1.0, float(abs(value[1])) or 1.0)
        for k, name in enumerate(("mass", "energy")):
            wanted = problem.target(name, t)
            if wanted is None:
                continue
            off = abs(value[k] - float(wanted))
            allowed = tolerance * units[k] + _SAFETY * error[k]
            if not off <= allowed:
                integral = "the integral" if k == 0 else "the integral of the square"
                at = "" if what == "initial" else f" at t = {t:g}"
                raise ValueError(
                    f"{integral} of {what}{at}, over the volume of the box, is "
                    f"{value[k]:.8g}, and {name} asks for {float(wanted):.8g}: off by "
                    f"{off:.2g}, {off / units[k]:.2%} of the field's size"
                )
