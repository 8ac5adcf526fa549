"""The families of terms that operators are sums of, one class each.

Each gives its part of the operator at a point: exactly, over some coordinates or pairs
of them, or by random directions. Knows symbols; knows nothing of how they are
evaluated.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from .._checks import check_finite, is_concrete
from ._symbol import Bundle, Symbol

CoefficientLike = ArrayLike | Sequence[Any] | Callable[..., Array]
"""A number, an array, or a function of (x, t), of x alone where there is no time."""


def check_coefficient(name: str, value: Any, ranks: tuple[int, ...]) -> Any:
    """A coefficient as given, arrays converted, or one sentence that says what is
    wrong."""
    if callable(value):
        return value
    if isinstance(value, bool | str) or value is None:
        raise TypeError(
            f"{name} must be numbers or a function of (x, t), got {value!r}"
        )
    try:
        array = jnp.asarray(value)
    except TypeError:
        raise TypeError(
            f"{name} must be numbers or a function of (x, t), got {value!r}"
        ) from None
    if jnp.issubdtype(array.dtype, jnp.integer):
        array = array.astype(float)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must be real numbers, got {array.dtype}")
    if array.ndim not in ranks:
        raise ValueError(f"{name} must be {_shapes(ranks)}, got shape {array.shape}")
    if is_concrete(array):
        check_finite(name, array)
    return array


def _shapes(ranks: tuple[int, ...], d: int | None = None) -> str:
    one, two = ("(d,)", "(d, d)") if d is None else (f"({d},)", f"({d}, {d})")
    words = {0: "one number", 1: f"an array of shape {one}", 2: f"of shape {two}"}
    return " or ".join(words[r] for r in ranks)


def call(function: Callable[..., Array], x: Array, t: Array | None) -> Array:
    """A function of (x, t), or of x where there is no time."""
    return function(x) if t is None else function(x, t)


def evaluate(
    name: str, value: Any, x: Array, t: Array | None, ranks: tuple[int, ...]
) -> Array:
    """A coefficient at a point, its shape checked against the dimension."""
    if callable(value):
        try:
            out = jnp.asarray(call(value, x, t))
        except TypeError as error:
            arguments = "(x)" if t is None else "(x, t)"
            raise ValueError(
                f"{name} cannot be evaluated as {name}{arguments} at a point of shape "
                f"{x.shape}: {str(error).splitlines()[0]}"
            ) from error
        what = f"{name} must return"
    else:
        out, what = jnp.asarray(value), f"{name} must be"
    d = x.shape[0]
    if out.ndim not in ranks or any(n != d for n in out.shape):
        raise ValueError(
            f"{what} {_shapes(ranks, d)} at a point of dimension {d}, got shape "
            f"{out.shape}"
        )
    return out.astype(x.dtype)


def _unit(x: Array, k: Array) -> Array:
    return jnp.zeros_like(x).at[k].set(1.0)


class Part(eqx.Module):
    """A family of terms of a linear operator."""

    def group(self, x: Array, t: Array | None) -> Any:
        """Families of the same group are sampled together: term k of the operator is
        the sum of their terms k. None if the family is never sampled."""
        return None

    @abc.abstractmethod
    def exact(self, x: Array, t: Array | None) -> Symbol:
        """All terms."""

    def sampled(self, x: Array, t: Array | None, terms: Any, scale: float) -> Symbol:
        """The terms that were drawn, times `scale`; all of a family never sampled."""
        return self.exact(x, t)

    def along(self, x: Array, t: Array | None, rows: Array, gaussian: bool) -> Symbol:
        """An unbiased estimate from directions with mean zero and covariance one."""
        return self.exact(x, t)


class Axes(eqx.Module):
    """Some coordinates, as the directions of a bundle."""

    index: Array
    rows: Array
    places: Array

    @staticmethod
    def of(k: Array, dtype: Any) -> "Axes":
        """The coordinates k, an array of shape (n,)."""
        return Axes(k, jnp.ones((k.shape[0], 1), dtype), k[:, None])

    def bundle(self, weights: dict[int, Array]) -> Symbol:
        return Symbol(bundles=(Bundle(weights, self.rows, self.places),))


class Power(Part):
    """`sum_k c_k d^p u / dx_k^p` over all coordinates, or some."""

    order: int = eqx.field(static=True)
    coefficient: Any
    axes: tuple[int, ...] | None = eqx.field(static=True, default=None)
    name: str = eqx.field(static=True, default="coefficient")

    def group(self, x: Array, t: Array | None) -> Any:
        return None if self.axes and len(self.axes) == 1 else ("axes", self.axes)

    def _coefficient(self, x: Array, t: Array | None) -> Array:
        if self.axes and max(self.axes) >= x.shape[0]:
            raise ValueError(
                f"axis must be below the dimension of the point, {x.shape[0]}, got "
                f"{max(self.axes)}"
            )
        return evaluate(self.name, self.coefficient, x, t, (0, 1))

    def exact(self, x: Array, t: Array | None) -> Symbol:
        c = self._coefficient(x, t)
        if self.axes is None and self.order > 1:
            return Symbol(bundles=(Bundle({self.order: c}),))
        if self.axes is None:
            return Symbol(first=jnp.broadcast_to(c, x.shape))
        k = jnp.asarray(self.axes)
        c = jnp.broadcast_to(c, x.shape)[k]
        if self.order == 1:
            return Symbol(first=jnp.zeros_like(x).at[k].set(c))
        return Axes.of(k, x.dtype).bundle({self.order: c})

    def sampled(self, x: Array, t: Array | None, terms: Any, scale: float) -> Symbol:
        c = self._coefficient(x, t)
        if c.ndim:
            c = c[terms.index]
        return terms.bundle({self.order: scale * c})

    def along(self, x: Array, t: Array | None, rows: Array, gaussian: bool) -> Symbol:
        if self.order == 1:
            return self.exact(x, t)
        if self.order > 2:
            raise ValueError(
                f"random directions estimate operators of order 1 and 2, got order "
                f"{self.order}; sample coordinates instead"
            )
        c = self._coefficient(x, t)
        if self.axes is not None:
            c = c * jnp.zeros_like(x).at[jnp.asarray(self.axes)].set(1.0)
        if c.ndim == 0:
            return Symbol(bundles=(Bundle({2: c / len(rows)}, rows),))
        return _bilinear(rows, c[None] * rows)


def _bilinear(rows: Array, others: Array) -> Symbol:
    """The mean of `D^2 u[v_r, w_r]`, by polarisation."""
    both = jnp.concatenate([rows + others, rows - others])
    sign = jnp.repeat(jnp.array([1.0, -1.0], rows.dtype), len(rows))
    return Symbol(bundles=(Bundle({2: sign / (4 * len(rows))}, both),))


class Reaction(Part):
    """`c u`."""

    coefficient: Any

    def exact(self, x: Array, t: Array | None) -> Symbol:
        return Symbol(zero=evaluate("coefficient", self.coefficient, x, t, (0,)))


class TimeDerivative(Part):
    """`du / dt`, or `d^2 u / dt^2`."""

    order: int = eqx.field(static=True)

    def exact(self, x: Array, t: Array | None) -> Symbol:
        if t is None:
            raise ValueError("time_derivative() needs a function of (x, t), and a time")
        one = jnp.ones((), x.dtype)
        return Symbol(rate=one) if self.order == 1 else Symbol(acceleration=one)


class Pairs(eqx.Module):
    """Some pairs of coordinates, and the directions e_j + e_k, e_j - e_k."""

    j: Array
    k: Array
    rows: Array
    places: Array

    @staticmethod
    def of(j: Array, k: Array, dtype: Any) -> "Pairs":
        """The pairs (j, k), arrays of shape (n,)."""
        # Entries at one place are added, so that e_j + e_j is one entry of 2.
        same = (j == k).astype(dtype)
        rows = jnp.concatenate(
            [
                jnp.stack([1.0 + same, 1.0 - same], 1),
                jnp.stack([1.0 - same, same - 1.0], 1),
            ]
        )
        places = jnp.stack([j, k], 1)
        return Pairs(j, k, rows, jnp.concatenate([places, places]))

    def mixed(self, weights: Array) -> Symbol:
        """`sum weights d^2 u / dx_j dx_k`, by polarisation."""
        weights = jnp.concatenate([weights, -weights]) / 4.0
        return Symbol(bundles=(Bundle({2: weights}, self.rows, self.places),))


class Mixed(Part):
    """`sum_jk c_jk d^2 u / dx_j dx_k`."""

    coefficient: Any
    name: str = eqx.field(static=True, default="coefficient")

    def group(self, x: Array, t: Array | None) -> Any:
        return "pairs"

    def _coefficient(self, x: Array, t: Array | None) -> Array:
        return evaluate(self.name, self.coefficient, x, t, (2,))

    def exact(self, x: Array, t: Array | None) -> Symbol:
        c = self._coefficient(x, t)
        return Symbol(bundles=(Bundle({}, metric=0.5 * (c + c.T)),))

    def sampled(self, x: Array, t: Array | None, terms: Any, scale: float) -> Symbol:
        return terms.mixed(scale * self._coefficient(x, t)[terms.j, terms.k])

    def along(self, x: Array, t: Array | None, rows: Array, gaussian: bool) -> Symbol:
        return _bilinear(rows, rows @ self._coefficient(x, t))


class MixedPair(Part):
    """`c d^2 u / dx_j dx_k` for one pair."""

    j: int = eqx.field(static=True)
    k: int = eqx.field(static=True)
    coefficient: Any

    def exact(self, x: Array, t: Array | None) -> Symbol:
        if max(self.j, self.k) >= x.shape[0]:
            raise ValueError(
                f"axes must be below the dimension of the point, {x.shape[0]}, got "
                f"{self.j} and {self.k}"
            )
        c = evaluate("coefficient", self.coefficient, x, t, (0,))
        pair = Pairs.of(jnp.array([self.j]), jnp.array([self.k]), x.dtype)
        return pair.mixed(c[None])


# A coordinate direction among vectors of two entries.
_FIRST = np.array([[1.0, 0.0]])


class Biharmonic(Part):
    """`c sum_jk d^4 u / dx_j^2 dx_k^2`, with
    `12 d_j^2 d_k^2 = D^4[e_j + e_k] + D^4[e_j - e_k] - 2 d_j^4 - 2 d_k^4`."""

    coefficient: Any

    def group(self, x: Array, t: Array | None) -> Any:
        return "pairs"

    def exact(self, x: Array, t: Array | None) -> Symbol:
        c = evaluate("coefficient", self.coefficient, x, t, (0,))
        d = x.shape[0]
        j, k = (jnp.asarray(a) for a in np.triu_indices(d, 1))
        pairs = Pairs.of(j, k, x.dtype)
        # The coordinates beside the pairs, as vectors of two entries too.
        axis = jnp.arange(d)[:, None]
        rows = jnp.concatenate(
            [pairs.rows, jnp.tile(jnp.asarray(_FIRST, x.dtype), (d, 1))]
        )
        places = jnp.concatenate([pairs.places, jnp.concatenate([axis, axis], 1)])
        share = jnp.where(jnp.arange(d * d) < d * (d - 1), 1.0 / 6.0, (4.0 - d) / 3.0)
        return Symbol(bundles=(Bundle({4: c * share.astype(x.dtype)}, rows, places),))

    def sampled(self, x: Array, t: Array | None, terms: Any, scale: float) -> Symbol:
        c = scale * evaluate("coefficient", self.coefficient, x, t, (0,))
        same = (terms.j == terms.k).astype(x.dtype)
        sums = c * (1.0 - same) / 12.0
        first = jnp.tile(jnp.asarray(_FIRST, x.dtype), (same.shape[0], 1))
        rows = jnp.concatenate([terms.rows, first, 1.0 - first])
        weights = [sums, sums, c * same - 2.0 * sums, -2.0 * sums]
        places = jnp.concatenate([terms.places, terms.places])
        return Symbol(bundles=(Bundle({4: jnp.concatenate(weights)}, rows, places),))

    def along(self, x: Array, t: Array | None, rows: Array, gaussian: bool) -> Symbol:
        if not gaussian:
            raise ValueError(
                "the biharmonic operator can be estimated from Gaussian directions or "
                "from coordinates, not from Rademacher directions"
            )
        # E D^4 u[v] = 3 times the biharmonic operator, for Gaussian v.
        c = evaluate("coefficient", self.coefficient, x, t, (0,))
        return Symbol(bundles=(Bundle({4: c / (3.0 * len(rows))}, rows),))


class Drift(Part):
    """`- sum_k d (b_k u) / dx_k`."""

    drift: Any

    def group(self, x: Array, t: Array | None) -> Any:
        return ("axes", None)

    def _drift(self, x: Array, t: Array | None) -> Array:
        return evaluate("drift", self.drift, x, t, (1,))

    def _slopes(self, x: Array, t: Array | None, rows: Array) -> Array:
        """`v . (db/dx) v` for each row v."""
        slope = lambda v: v @ jax.jvp(lambda x: self._drift(x, t), (x,), (v,))[1]
        return jax.vmap(slope)(rows)

    def exact(self, x: Array, t: Array | None) -> Symbol:
        first = -self._drift(x, t)
        if not callable(self.drift):
            return Symbol(first=first)
        eye = jnp.eye(x.shape[0], dtype=x.dtype)
        return Symbol(-jnp.sum(self._slopes(x, t, eye)), first)

    def sampled(self, x: Array, t: Array | None, terms: Any, scale: float) -> Symbol:
        k = terms.index
        out = terms.bundle({1: -scale * self._drift(x, t)[k]})
        if not callable(self.drift):
            return out
        rows = jax.vmap(lambda k: _unit(x, k))(k)
        return out + Symbol(-scale * jnp.sum(self._slopes(x, t, rows)))

    def along(self, x: Array, t: Array | None, rows: Array, gaussian: bool) -> Symbol:
        first = -self._drift(x, t)
        if not callable(self.drift):
            return Symbol(first=first)
        return Symbol(-jnp.mean(self._slopes(x, t, rows)), first)


class Diffusion(Part):
    """`sum_jk d^2 (D_jk u) / dx_j dx_k` with D a function that gives one number, a
    diagonal or a matrix."""

    diffusion: Callable[..., Array]

    def _rank(self, x: Array, t: Array | None) -> int:
        return jax.eval_shape(lambda: self._diffusion(x, t)).ndim

    def _diffusion(self, x: Array, t: Array | None) -> Array:
        return evaluate("diffusion", self.diffusion, x, t, (0, 1, 2))

    def group(self, x: Array, t: Array | None) -> Any:
        return "pairs" if self._rank(x, t) == 2 else ("axes", None)

    def _entry(
        self, x: Array, t: Array | None, j: Array, k: Array
    ) -> tuple[Array, Array, Array, Array]:
        """D_jk, its derivatives by x_j and by x_k, and the mixed one."""

        def entry(x: Array) -> Array:
            full = self._diffusion(x, t)
            return full if full.ndim == 0 else full[j] if full.ndim == 1 else full[j, k]

        by_j = lambda x: jax.jvp(entry, (x,), (_unit(x, j),))[1]
        slope, second = jax.jvp(by_j, (x,), (_unit(x, k),))
        other = jax.jvp(entry, (x,), (_unit(x, k),))[1]
        return entry(x), slope, other, second

    def _lower(self, x: Array, t: Array | None) -> tuple[Array, Array]:
        """The coefficients of order zero and one, over all terms."""
        d = x.shape[0]
        k = jnp.arange(d)
        if self._rank(x, t) < 2:
            _, slope, _, second = jax.vmap(lambda k: self._entry(x, t, k, k))(k)
            return jnp.sum(second), 2.0 * slope
        j, k = (a.ravel() for a in jnp.meshgrid(k, k, indexing="ij"))
        _, by_j, by_k, second = jax.vmap(lambda j, k: self._entry(x, t, j, k))(j, k)
        first = jnp.zeros_like(x).at[k].add(by_j).at[j].add(by_k)
        return jnp.sum(second), first

    def exact(self, x: Array, t: Array | None) -> Symbol:
        c = self._diffusion(x, t)
        zero, first = self._lower(x, t)
        bundle = Bundle({}, metric=0.5 * (c + c.T)) if c.ndim == 2 else Bundle({2: c})
        return Symbol(zero, first, (bundle,))

    def sampled(self, x: Array, t: Array | None, terms: Any, scale: float) -> Symbol:
        if isinstance(terms, Axes):
            k = terms.index
            c, slope, _, second = jax.vmap(lambda k: self._entry(x, t, k, k))(k)
            out = terms.bundle({1: 2.0 * scale * slope, 2: scale * c})
            return out + Symbol(scale * jnp.sum(second))
        j, k = terms.j, terms.k
        c, by_j, by_k, second = jax.vmap(lambda j, k: self._entry(x, t, j, k))(j, k)
        # d_j and d_k are half the sum and half the difference along e_j + e_k, e_j -
        # e_k.
        slopes = jnp.concatenate([by_k + by_j, by_k - by_j]) * (0.5 * scale)
        (bundle,) = terms.mixed(scale * c).bundles
        bundle = Bundle({1: slopes, **bundle.weights}, bundle.rows, bundle.index)
        return Symbol(scale * jnp.sum(second), None, (bundle,))

    def along(self, x: Array, t: Array | None, rows: Array, gaussian: bool) -> Symbol:
        zero, first = self._lower(x, t)
        own = Mixed if self._rank(x, t) == 2 else lambda c: Power(2, c)
        second = own(self._diffusion(x, t)).along(x, t, rows, gaussian)
        return second + Symbol(zero, first)
