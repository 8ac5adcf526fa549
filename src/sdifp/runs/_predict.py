"""The values of a trained field at any points and times."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..field import at_time
from ._run import Run

# Points that are evaluated together, at the most.
_CHUNK = 2**14


def predict(run: Run, table: Float[np.ndarray, "n columns"]) -> np.ndarray:
    """The values of the field of a run at points: one per row, its time last. Points of
    one time share its quadrature."""
    if run.loop.finished:
        run.loop.check()
    field = run.loop.final_field
    out = np.empty(len(table))
    order = np.argsort(table[:, -1], kind="stable")
    times, starts = np.unique(table[order, -1], return_index=True)
    for t, rows in zip(times, np.split(order, starts[1:]), strict=True):
        for first in range(0, len(rows), _CHUNK):
            some = rows[first : first + _CHUNK]
            # Few sizes, so that few programs are compiled.
            size = max(16, 1 << (len(some) - 1).bit_length())
            padded = np.resize(table[some, :-1], (size, table.shape[1] - 1))
            found = _values(field, jnp.asarray(padded), jnp.asarray(t))
            out[some] = np.asarray(found)[: len(some)]
    return out


@eqx.filter_jit
def _values(field: Any, x: Float[Array, "n d"], t: Float[Array, ""]) -> Array:
    return jax.vmap(at_time(field, t))(x)
