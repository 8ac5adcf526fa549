"""The values of a problem at a few points, to test whether two problems are equal."""

import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._check import once

if TYPE_CHECKING:
    from ._problem import Problem

# Parts of the duration; at each there is one point.
_TIMES = (0.07, 0.43, 0.91)


def fingerprint(problem: "Problem") -> dict[str, str]:
    """The parts of a problem at a few points and times, to five digits."""
    found = {k: np.asarray(v) for k, v in once(_values)(problem).items()}
    values = {k: " ".join(f"{x:.4e}" for x in v) for k, v in found.items()}
    box = f"{problem.domain.dimension} axes"
    return {"domain": box, "duration": f"{problem.duration:.4e}", **values}


def _values(problem: "Problem") -> dict[str, Array]:
    d = problem.domain.dimension
    # Scattered, and never on a wall.
    k = np.arange(1.0, len(_TIMES) * d + 1).reshape(-1, d)
    x = problem.domain.from_unit(jnp.asarray(0.02 + 0.96 * (k * math.sqrt(2.0) % 1.0)))
    t = jnp.asarray(_TIMES, x.dtype) * problem.duration
    # Of no equation that comes to mind.
    trial = lambda x, t: jnp.exp(0.3 * t) * jnp.sin(jnp.sum(x) / math.sqrt(d) + t)
    functions: dict[str, Any] = {
        name: lambda x, t, f=f: f(x)
        for name in ("initial", "velocity", "profile")
        if (f := getattr(problem, name)) is not None
    }
    functions |= {
        invariant.name: lambda x, t, i=invariant: problem.mean_target(i, t)
        for invariant in problem.invariants
    }
    functions["equation"] = lambda x, t: problem.equation(trial, x, t)
    if problem.reference is not None:
        functions["reference"] = problem.reference
    return {name: jax.vmap(f)(x, t) for name, f in functions.items()}
