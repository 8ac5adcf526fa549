"""Whether devices, network and functions of a problem fit together, before a step is
compiled."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._mesh import device_count
from ..problems import Problem
from ._recipe import Recipe


def points_at_each_time(recipe: Recipe, problem: Problem) -> int:
    """How many points of a batch share a time: these are divided among devices."""
    draw = lambda key: recipe.points.draw(key, problem.domain, 0.0, 1.0)[0]
    return jax.eval_shape(draw, jax.random.key(0)).shape[1]


def check_devices(n: int) -> None:
    devices, processes = device_count(), jax.process_count()
    if n % devices:
        near = [devices * k for k in (n // devices, n // devices + 1) if k]
        fewer = [k for k in range(processes, devices, processes) if n % k == 0]
        raise ValueError(
            f"the {n} points of each time cannot be divided among {devices} devices: "
            f"points must have {' or '.join(map(str, near))} of them"
            + (f", or devices be {fewer[-1]}" if fewer else "")
        )


def check_network(net: Any, problem: Problem) -> None:
    d = problem.domain.dimension
    dtype = jnp.result_type(float)
    x, t = jax.ShapeDtypeStruct((d,), dtype), jax.ShapeDtypeStruct((), dtype)
    if not jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)):
        raise ValueError(
            "network has no parameters to train: they must be its leaves, as those of "
            "an Equinox module or of jax.tree_util.Partial(apply, parameters) are"
        )
    try:
        shape = getattr(eqx.filter_eval_shape(net, x, t), "shape", None)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        raise ValueError(
            f"network cannot be evaluated at a point of shape ({d},) and a time, which "
            f"{problem.name} needs ({reason})"
        ) from None
    if shape != ():
        raise ValueError(
            f"network must return one number for one point and time, got shape {shape}"
        )


def check_functions(net: Any, problem: Problem) -> None:
    """Let an error in the functions of a problem show before a step is compiled, and
    before a run has a folder."""
    dtype = jnp.result_type(float)
    x = jax.ShapeDtypeStruct((problem.domain.dimension,), dtype)
    t = jax.ShapeDtypeStruct((), dtype)
    eqx.filter_eval_shape(problem.equation, net, x, t)
    for invariant in problem.invariants:
        eqx.filter_eval_shape(lambda t, i=invariant: problem.mean_target(i, t), t)
