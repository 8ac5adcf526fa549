"""A linear operator at one point: which directional derivatives, with which weights."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ._jet import add


class Bundle(eqx.Module):
    """Directions, and a weight for each of them in every order.

    The directions are all coordinates (`rows` is None), vectors with few entries
    (`rows` at the places `index`, shape (R, entries)) or any vectors (`rows` of shape
    (R, d)).
    """

    weights: dict[int, Array]
    "by order, one for each direction or one for all"
    rows: Array | None = None
    index: Array | None = None
    metric: Array | None = None
    "for all coordinates: of order 2, beside the weights"

    def vectors(self, x: Array) -> Array:
        """The directions, written out."""
        if self.rows is None:
            return jnp.eye(x.shape[0], dtype=x.dtype)
        if self.index is None:
            return self.rows
        count = jnp.arange(self.rows.shape[0])[:, None]
        zero = jnp.zeros((self.rows.shape[0], x.shape[0]), x.dtype)
        return zero.at[count, self.index].add(self.rows)

    def shares_directions(self, other: "Bundle") -> bool:
        """Whether both have the same directions, so that weights can be added."""
        return self.rows is other.rows and self.index is other.index


class Symbol(eqx.Module):
    """`A[u] = zero u + first . grad u + sum over bundles + rate u_t + acceleration
    u_tt` at a point; None is zero."""

    zero: Array | None = None
    first: Array | None = None
    bundles: tuple[Bundle, ...] = ()
    rate: Array | None = None
    acceleration: Array | None = None

    def __add__(self, other: "Symbol") -> "Symbol":
        bundles = list(self.bundles)
        for new in other.bundles:
            for k, old in enumerate(bundles):
                if old.shares_directions(new):
                    weights = dict(old.weights)
                    for order, weight in new.weights.items():
                        weights[order] = _sum(weights.get(order), weight)
                    bundles[k] = Bundle(
                        weights, old.rows, old.index, add(old.metric, new.metric)
                    )
                    break
            else:
                bundles.append(new)
        return Symbol(
            add(self.zero, other.zero),
            add(self.first, other.first),
            tuple(bundles),
            add(self.rate, other.rate),
            add(self.acceleration, other.acceleration),
        )

    def __mul__(self, factor: Array) -> "Symbol":
        times = lambda a: None if a is None else factor * a
        bundles = tuple(
            Bundle(
                {p: factor * w for p, w in b.weights.items()},
                b.rows,
                b.index,
                times(b.metric),
            )
            for b in self.bundles
        )
        return Symbol(
            times(self.zero),
            times(self.first),
            bundles,
            times(self.rate),
            times(self.acceleration),
        )


def _sum(a: Array | None, b: Array) -> Array:
    """The sum of weights, each one for all directions or one for each."""
    if a is None:
        return b
    if a.ndim < b.ndim:
        a = jnp.broadcast_to(a, b.shape)
    elif b.ndim < a.ndim:
        b = jnp.broadcast_to(b, a.shape)
    return a + b
