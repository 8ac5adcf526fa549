"""What is kept of a trained field for the report: curves and pictures, as numbers."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._field import Certificate, ConservedField, at_time
from .._quadrature import QuadratureRule
from .._quadrature._rule import two_means
from .._training import Trained
from ..problems import Problem

# Times of the certificate and of the curves; fewer where a quadrature is large.
_TIMES, _FEW_TIMES, _LARGE = 21, 5, 2**13
# Points of the pictures: along each axis in one dimension, in a slice, in a cloud.
_LINE, _FRAMES, _SLICE, _CLOUD = 257, 101, 97, 2048


def certificate_of(trained: Trained, end: float, key: Array) -> Certificate | None:
    """The certificate at the times of the curves, from 0 to `end`."""
    field = trained.field
    if not isinstance(field, ConservedField) or field.rule.size > _LARGE:
        return trained.certificate
    return field.certificate(np.linspace(0.0, end, _TIMES), key=key)


def integrals_of(
    trained: Trained, problem: Problem, rule: QuadratureRule, end: float
) -> Any:
    """Mass and energy over time on an independent rule, with their targets: of the
    field, and of the network without its correction."""
    field = trained.field
    large = isinstance(field, ConservedField) and field.rule.size > _LARGE
    times = jnp.linspace(0.0, end, _FEW_TIMES if large else _TIMES)
    volume = 1.0 if problem.normalised else problem.box.volume
    of = lambda f: volume * np.asarray(_moments(f, rule, times), float)
    curves = {"field": of(field)}
    if isinstance(field, ConservedField):
        curves["raw"] = of(trained.net)
    out: dict[str, Any] = {"times": np.asarray(times, float).tolist()}
    for k, name in enumerate(("mass", "energy")):
        target = [problem.target(name, t) for t in times]
        out[name] = {
            "target": None
            if target[0] is None
            else [volume * float(value) for value in target if value is not None],
            **{which: curve[:, k].tolist() for which, curve in curves.items()},
        }
    return out


@eqx.filter_jit
def _moments(
    function: Any, rule: QuadratureRule, times: Float[Array, " n"]
) -> Float[Array, "n 2"]:
    return jax.lax.map(lambda t: two_means(rule, at_time(function, t)), times)


@eqx.filter_jit
def values(
    function: Any, x: Float[Array, "n_t n_x d"], t: Float[Array, " n_t"]
) -> Float[Array, "n_t n_x"]:
    """The values at points of each time."""
    return jax.lax.map(lambda a: jax.vmap(at_time(function, a[1]))(a[0]), (x, t))


def picture_of(
    trained: Trained, problem: Problem, end: float, key: Array
) -> dict[str, np.ndarray]:
    """The numbers of a picture of the solution: all of space and time in one
    dimension, a slice at the last time in two and three, a cloud of points in more."""
    box = problem.box
    d = box.dimension
    if d == 1:
        axis = jnp.linspace(0.0, 1.0, _LINE)[:, None]
        times = jnp.linspace(0.0, end, _FRAMES)
        x = jnp.broadcast_to(box.from_unit(axis), (_FRAMES, _LINE, 1))
    elif d <= 3:
        times = jnp.full((1,), end)
        axis = jnp.linspace(0.0, 1.0, _SLICE)
        plane = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
        rest = jnp.full((len(plane), d - 2), 0.5)
        x = box.from_unit(jnp.concatenate([plane, rest], 1))[None]
    else:
        n_t = 8
        times = jnp.linspace(0.0, end, n_t)
        x = box.sample(key, _CLOUD).reshape(n_t, -1, d)
    found = {"times": times, "u": values(trained.field, x, times)}
    if problem.reference is not None:
        found["reference"] = values(problem.reference, x, times)
    if d <= 3:
        # Of points in high dimension only what they give is drawn.
        found["x"] = x[0]
    return {name: np.asarray(array) for name, array in found.items()}
