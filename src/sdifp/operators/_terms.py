"""The families of terms that operators are sums of, one class each."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._coefficient import Coefficient
from ._term import Axes, Pairs, PointOperator, Term, Time, WholeTerm, directional


def _unit(x: Array, k: Array) -> Array:
    return jnp.zeros_like(x).at[k].set(1.0)


def _check_axes(x: Array, axes: tuple[int, ...]) -> None:
    if max(axes) >= x.shape[0]:
        raise ValueError(
            f"axis must be below the dimension of the point, {x.shape[0]}, got "
            f"{max(axes)}"
        )


def _metric(c: Array) -> PointOperator:
    """`sum_jk c_jk d^2 u / dx_j dx_k`."""
    return directional({}, metric=0.5 * (c + c.T))


def _second_order(c: Array, rows: Array) -> PointOperator:
    """The mean of `D^2 u[v, c v]` over the rows v, for a number, a diagonal or a matrix
    c; the latter two by polarisation."""
    n = len(rows)
    if c.ndim == 0:
        return directional({2: c / n}, rows)
    others = c[None] * rows if c.ndim == 1 else rows @ c
    both = jnp.concatenate([rows + others, rows - others])
    sign = jnp.repeat(jnp.array([1.0, -1.0], rows.dtype), n)
    return directional({2: sign / (4 * n)}, both)


class Power(Term):
    """`sum_k c_k d^p u / dx_k^p` over all coordinates, or some."""

    order: int = eqx.field(static=True)
    coefficient: Coefficient
    axes: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def group(self, x: Array, t: Time) -> object:
        return None if self.axes and len(self.axes) == 1 else ("axes", self.axes)

    def _coefficient(self, x: Array, t: Time) -> Array:
        _check_axes(x, self.axes or (0,))
        return self.coefficient(x, t)

    def exact(self, x: Array, t: Time) -> PointOperator:
        c = self._coefficient(x, t)
        if self.axes is None and self.order > 1:
            return directional({self.order: c})
        if self.axes is None:
            return PointOperator(first=jnp.broadcast_to(c, x.shape))
        k = jnp.asarray(self.axes)
        c = jnp.broadcast_to(c, x.shape)[k]
        if self.order == 1:
            return PointOperator(first=jnp.zeros_like(x).at[k].set(c))
        return Axes.of(k, x.dtype).weighted({self.order: c})

    def sampled(self, x: Array, t: Time, drawn: Axes, scale: float) -> PointOperator:
        c = self._coefficient(x, t)
        if c.ndim:
            c = c[drawn.index]
        return drawn.weighted({self.order: scale * c})

    def along(self, x: Array, t: Time, rows: Array, gaussian: bool) -> PointOperator:
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
        return _second_order(c, rows)


class Reaction(WholeTerm):
    """`c u`."""

    coefficient: Coefficient

    def exact(self, x: Array, t: Time) -> PointOperator:
        return PointOperator(zero=self.coefficient(x, t))


class TimeDerivative(WholeTerm):
    """`du / dt`, or `d^2 u / dt^2`."""

    order: int = eqx.field(static=True)

    def exact(self, x: Array, t: Time) -> PointOperator:
        if t is None:
            raise ValueError(
                "time_derivative() needs a function of (x, t), and a time; a Problem "
                "with one needs interval=(0.0, T)"
            )
        one = jnp.ones((), x.dtype)
        first = self.order == 1
        return PointOperator(rate=one) if first else PointOperator(acceleration=one)


class Mixed(Term):
    """`sum_jk c_jk d^2 u / dx_j dx_k`."""

    coefficient: Coefficient

    def group(self, x: Array, t: Time) -> object:
        return "pairs"

    def exact(self, x: Array, t: Time) -> PointOperator:
        return _metric(self.coefficient(x, t))

    def sampled(self, x: Array, t: Time, drawn: Pairs, scale: float) -> PointOperator:
        return drawn.mixed(scale * self.coefficient(x, t)[drawn.j, drawn.k])

    def along(self, x: Array, t: Time, rows: Array, gaussian: bool) -> PointOperator:
        return _second_order(self.coefficient(x, t), rows)


class MixedPair(WholeTerm):
    """`c d^2 u / dx_j dx_k` for one pair."""

    j: int = eqx.field(static=True)
    k: int = eqx.field(static=True)
    coefficient: Coefficient

    def exact(self, x: Array, t: Time) -> PointOperator:
        _check_axes(x, (self.j, self.k))
        pair = Pairs.of(jnp.array([self.j]), jnp.array([self.k]), x.dtype)
        return pair.mixed(self.coefficient(x, t)[None])


# A coordinate direction among vectors of two entries.
_FIRST = np.array([[1.0, 0.0]])


class Biharmonic(Term):
    """`c sum_jk d^4 u / dx_j^2 dx_k^2`, with
    `12 d_j^2 d_k^2 = D^4[e_j + e_k] + D^4[e_j - e_k] - 2 d_j^4 - 2 d_k^4`."""

    coefficient: Coefficient

    def group(self, x: Array, t: Time) -> object:
        return "pairs"

    def exact(self, x: Array, t: Time) -> PointOperator:
        d = x.shape[0]
        j, k = (jnp.asarray(a) for a in np.triu_indices(d, 1))
        pairs = Pairs.of(j, k, x.dtype)
        # The coordinates beside the pairs, as vectors of two entries too.
        axis = jnp.arange(d)[:, None]
        first = jnp.tile(jnp.asarray(_FIRST, x.dtype), (d, 1))
        rows = jnp.concatenate([pairs.rows, first])
        places = jnp.concatenate([pairs.places, jnp.concatenate([axis, axis], 1)])
        share = jnp.where(jnp.arange(d * d) < d * (d - 1), 1.0 / 6.0, (4.0 - d) / 3.0)
        return directional(
            {4: self.coefficient(x, t) * share.astype(x.dtype)}, rows, places
        )

    def sampled(self, x: Array, t: Time, drawn: Pairs, scale: float) -> PointOperator:
        c = scale * self.coefficient(x, t)
        same = (drawn.j == drawn.k).astype(x.dtype)
        sums = c * (1.0 - same) / 12.0
        first = jnp.tile(jnp.asarray(_FIRST, x.dtype), (same.shape[0], 1))
        rows = jnp.concatenate([drawn.rows, first, 1.0 - first])
        weights = [sums, sums, c * same - 2.0 * sums, -2.0 * sums]
        places = jnp.concatenate([drawn.places, drawn.places])
        return directional({4: jnp.concatenate(weights)}, rows, places)

    def along(self, x: Array, t: Time, rows: Array, gaussian: bool) -> PointOperator:
        if not gaussian:
            raise ValueError(
                "the biharmonic operator can be estimated from Gaussian directions or "
                "from coordinates, not from Rademacher directions"
            )
        # E D^4 u[v] = 3 times the biharmonic operator, for Gaussian v.
        return directional({4: self.coefficient(x, t) / (3.0 * len(rows))}, rows)


class Drift(Term):
    """`- sum_k d (b_k u) / dx_k`."""

    drift: Coefficient

    def group(self, x: Array, t: Time) -> object:
        return ("axes", None)

    def _divergence(self, x: Array, t: Time, rows: Array) -> Array | None:
        """`v . (db/dx) v` for each row v; None if b is constant."""
        if not self.drift.varies:
            return None
        slope = lambda v: v @ jax.jvp(lambda x: self.drift(x, t), (x,), (v,))[1]
        return jax.vmap(slope)(rows)

    def exact(self, x: Array, t: Time) -> PointOperator:
        slopes = self._divergence(x, t, jnp.eye(x.shape[0], dtype=x.dtype))
        zero = None if slopes is None else -jnp.sum(slopes)
        return PointOperator(zero=zero, first=-self.drift(x, t))

    def sampled(self, x: Array, t: Time, drawn: Axes, scale: float) -> PointOperator:
        k = drawn.index
        out = drawn.weighted({1: -scale * self.drift(x, t)[k]})
        slopes = self._divergence(x, t, jax.vmap(lambda k: _unit(x, k))(k))
        zero = None if slopes is None else -scale * jnp.sum(slopes)
        return out + PointOperator(zero=zero)

    def along(self, x: Array, t: Time, rows: Array, gaussian: bool) -> PointOperator:
        slopes = self._divergence(x, t, rows)
        zero = None if slopes is None else -jnp.mean(slopes)
        return PointOperator(zero=zero, first=-self.drift(x, t))


class Diffusion(Term):
    """`sum_jk d^2 (D_jk u) / dx_j dx_k` with D a function that gives one number, a
    diagonal or a matrix."""

    diffusion: Coefficient

    def _rank(self, x: Array, t: Time) -> int:
        return jax.eval_shape(lambda: self.diffusion(x, t)).ndim

    def group(self, x: Array, t: Time) -> object:
        return "pairs" if self._rank(x, t) == 2 else ("axes", None)

    def _entries(
        self, x: Array, t: Time, j: Array, k: Array
    ) -> tuple[Array, Array, Array, Array]:
        """D_jk, its derivatives by x_j and by x_k, and the mixed one, for arrays of j
        and k."""

        def one(j: Array, k: Array) -> tuple[Array, Array, Array, Array]:
            def entry(x: Array) -> Array:
                full = self.diffusion(x, t)
                return full[(j, k)[: full.ndim]] if full.ndim else full

            by_j = lambda x: jax.jvp(entry, (x,), (_unit(x, j),))[1]
            slope, second = jax.jvp(by_j, (x,), (_unit(x, k),))
            other = jax.jvp(entry, (x,), (_unit(x, k),))[1]
            return entry(x), slope, other, second

        return jax.vmap(one)(j, k)

    def _lower(self, x: Array, t: Time) -> PointOperator:
        """The terms of order zero and one, all of them."""
        k = jnp.arange(x.shape[0])
        if self._rank(x, t) < 2:
            _, slope, _, second = self._entries(x, t, k, k)
            return PointOperator(zero=jnp.sum(second), first=2.0 * slope)
        j, k = (a.ravel() for a in jnp.meshgrid(k, k, indexing="ij"))
        _, by_j, by_k, second = self._entries(x, t, j, k)
        first = jnp.zeros_like(x).at[k].add(by_j).at[j].add(by_k)
        return PointOperator(zero=jnp.sum(second), first=first)

    def exact(self, x: Array, t: Time) -> PointOperator:
        c = self.diffusion(x, t)
        return self._lower(x, t) + (_metric(c) if c.ndim == 2 else directional({2: c}))

    def sampled(
        self, x: Array, t: Time, drawn: Axes | Pairs, scale: float
    ) -> PointOperator:
        if isinstance(drawn, Axes):
            c, slope, _, second = self._entries(x, t, drawn.index, drawn.index)
            out = drawn.weighted({1: 2.0 * scale * slope, 2: scale * c})
        else:
            c, by_j, by_k, second = self._entries(x, t, drawn.j, drawn.k)
            # d_j and d_k are half the sum and half the difference of the derivatives
            # along e_j + e_k and e_j - e_k.
            slopes = jnp.concatenate([by_k + by_j, by_k - by_j]) * (0.5 * scale)
            out = drawn.mixed(scale * c, slopes)
        return out + PointOperator(zero=scale * jnp.sum(second))

    def along(self, x: Array, t: Time, rows: Array, gaussian: bool) -> PointOperator:
        return _second_order(self.diffusion(x, t), rows) + self._lower(x, t)
