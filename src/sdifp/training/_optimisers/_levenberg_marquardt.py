"""Levenberg-Marquardt on fresh batches, for networks of some thousand parameters."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..._mesh import gathered, is_divided, share_of
from ._optimiser import Objective, Optimiser

# Parts of a step that are tried, all on the batch that the step was made from: a step
# judged on another batch is refused for the noise between the two.
_PARTS = (1.0, 0.5, 0.25, 0.125)
# More of them save more work, but the products are then too small to be fast.
_BLOCKS = 2


class LevenbergMarquardt(Optimiser):
    """Levenberg-Marquardt, for networks of some thousand parameters in float64.

    With rows R and derivatives J, the step is `-(J^T J + damping I)^-1 J^T R`, by a
    Cholesky factor of the smaller of `J J^T` and `J^T J`.

    Costs the square of the number of rows times the number of parameters, and needs
    float64 to be worth it. The best of 1, 1/2, 1/4 and 1/8 of the step is taken if it
    lowers the loss; the damping falls by `fall` after a full step, doubles after a
    part of one, and grows by `rise` after none.

    **Arguments:**

    - `damping`: at the beginning.
    - `least`, `most`: bounds of the damping.
    """

    damping: float = eqx.field(static=True, default=1e-2)
    least: float = eqx.field(static=True, default=1e-14)
    most: float = eqx.field(static=True, default=1e4)
    fall: float = eqx.field(static=True, default=4.0)
    rise: float = eqx.field(static=True, default=4.0)

    refresh = 1
    uses_rows = True

    def __check_init__(self) -> None:
        if not 0.0 < self.least <= self.damping <= self.most < float("inf"):
            raise ValueError(
                f"damping must be positive and between least and most, got damping = "
                f"{self.damping}, least = {self.least}, most = {self.most}"
            )
        for name in ("fall", "rise"):
            if not getattr(self, name) > 1.0:
                raise ValueError(f"{name} must be above 1, got {getattr(self, name)}")

    def start(self, net: Any, steps: int) -> Float[Array, ""]:
        return jnp.asarray(self.damping)

    def step(
        self, net: Any, state: Float[Array, ""], objective: Objective, steps: int
    ) -> tuple[Any, Float[Array, ""], Float[Array, ""]]:
        params, static = eqx.partition(net, eqx.is_inexact_array)
        flat, unravel = ravel_pytree(params)
        with_flat = lambda flat: eqx.combine(unravel(flat), static)
        loss, rows, jacobian = objective.linearise(net)
        direction = damped_step(rows, jacobian, state)
        parts = jnp.asarray(_PARTS, flat.dtype)

        def trial(part: Array) -> Array:
            return objective.total(with_flat(flat + part * direction))

        trials = jax.lax.map(trial, parts)
        # A step that is not finite is no step.
        trials = jnp.where(jnp.isfinite(trials), trials, jnp.inf)
        best = jnp.argmin(trials)
        better = trials[best] < loss
        moved = jnp.where(better, flat + parts[best] * direction, flat)
        factor = jnp.where(
            better, jnp.where(best == 0, 1.0 / self.fall, 2.0), self.rise
        )
        damping = jnp.clip(state * factor, self.least, self.most)
        return with_flat(moved), damping, loss


def damped_step(
    rows: Float[Array, " n"], jacobian: Float[Array, "n p"], damping: Float[Array, ""]
) -> Float[Array, " p"]:
    """`-(J^T J + damping I)^-1 J^T R`, through `J J^T` where that is smaller."""
    n, p = jacobian.shape
    if n <= p:
        return -jacobian.T @ _solve(jacobian, damping, rows)
    return -_solve(jacobian.T, damping, jacobian.T @ rows)


def _solve(a: Array, damping: Array, right: Array) -> Array:
    """`(A A^T + damping I)^-1 right`, by Cholesky."""
    gram = lower_gram(a) + damping * jnp.eye(len(a), dtype=a.dtype)
    factor = jsp.linalg.cho_factor(gram, lower=True)
    return jsp.linalg.cho_solve(factor, right)


def lower_gram(a: Float[Array, "n p"]) -> Float[Array, "n n"]:
    """`A A^T` on and below the diagonal, which is all that a Cholesky factor is made
    of: three quarters of the work, which is most of that of a step. Where there are
    several devices, each makes some of the rows, whole."""
    n = len(a)
    if is_divided():
        own = a[jnp.minimum(share_of(n), n - 1)]
        return gathered(own @ a.T)[:n]
    edges = [n * k // _BLOCKS for k in range(_BLOCKS + 1)]
    strips = [
        jnp.pad(a[start:stop] @ a[:stop].T, ((0, 0), (0, n - stop)))
        for start, stop in itertools.pairwise(edges)
    ]
    return jnp.concatenate(strips)
