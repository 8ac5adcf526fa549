"""Linear differential operators: small objects that add up and are applied to
fields."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from .._checks import check_count, is_concrete
from ._parts import (
    Biharmonic,
    CoefficientLike,
    Diffusion,
    Drift,
    Mixed,
    MixedPair,
    Part,
    Power,
    Reaction,
    TimeDerivative,
    check_coefficient,
)
from ._paths import Automatic, Path
from ._samplers import Coordinates, OneTerm, Sampler
from ._symbol import Symbol

if TYPE_CHECKING:
    from ._apply import Applied
    from ._plan import Plan


class _Scaled(Part):
    """A family of terms times a number."""

    part: Part
    factor: Array

    def group(self, x: Array, t: Array | None) -> Any:
        return self.part.group(x, t)

    def exact(self, x: Array, t: Array | None) -> Symbol:
        return self.part.exact(x, t) * self.factor.astype(x.dtype)

    def sampled(self, x: Array, t: Array | None, terms: Any, scale: float) -> Symbol:
        return self.part.sampled(x, t, terms, scale) * self.factor.astype(x.dtype)

    def along(self, x: Array, t: Array | None, rows: Array, gaussian: bool) -> Symbol:
        return self.part.along(x, t, rows, gaussian) * self.factor.astype(x.dtype)


class Drawn(eqx.Module):
    """A random estimate of a sum of families."""

    family: tuple[Part, ...]
    sampler: Sampler
    key: Array | None
    n: int = eqx.field(static=True)
    piece: tuple[int, int] | None = eqx.field(static=True, default=None)

    def symbol(self, x: Array, t: Array | None) -> Symbol:
        return self.sampler.symbol(self.family, x, t, self.key, self.n, self.piece)


class Operator(eqx.Module):
    """A linear differential operator in any dimension: of order zero to four in space,
    and up to two in time.

    Made by `laplacian`, `advection` and their like; operators add up, and can be
    multiplied by numbers. `op(u)(x, t)` is the operator applied to a field or to any
    function of one point and one time (or of the point alone), at one point of shape
    (d,) or at many.

    Examples:
        >>> import jax, jax.numpy as jnp, sdifp
        >>> op = 0.5 * sdifp.laplacian() - sdifp.advection([1.0, 2.0])
        >>> op(lambda x: x[0] ** 2 + x[0] * x[1])(jnp.array([1.0, 3.0])).item()
        -6.0
        >>> noisy = op.sample(jax.random.key(0), 1)   # one term of two, times two
    """

    # NumPy leaves products with arrays to this class.
    __array_ufunc__ = None

    family: tuple[Part, ...]
    drawn: tuple[Drawn, ...] = ()

    def symbol(self, x: Array, t: Array | None) -> Symbol:
        """The operator at a point."""
        out = Symbol()
        for part in self.family:
            out = out + part.exact(x, t)
        for random in self.drawn:
            out = out + random.symbol(x, t)
        return out

    def kinds(self, x: Any, t: Any) -> Symbol:
        """The shapes of the operator at a point: None where it has no such terms."""
        return jax.eval_shape(self.symbol, x, t)

    def __call__(
        self, u: Any, *, path: Path = Automatic(), chunk: int | None = None
    ) -> "Applied":
        """The operator applied to a function.

        **Arguments:**

        - `u`: a conserved field, or a function of one point, shape (d,), and one time,
            or of the point alone; it returns one number.
        - `path`: how derivatives are found; by default the cheapest way.
        - `chunk`: how many points are evaluated at a time; by default as many as fill
            the matrix products.
        """
        from ._apply import Applied

        return Applied(self, u, path, chunk)

    def sample(
        self, key: Array, n: int, directions: Sampler = Coordinates()
    ) -> "Operator":
        """An unbiased estimate of the operator; callable inside `jit`.

        **Arguments:**

        - `key`: another one in every step.
        - `n`: how many terms, without replacement, or how many directions.
        - `directions`: `Coordinates()`, the operator's own terms; or `Rademacher()` or
            `Gaussian()`, random directions for operators of order two.
        """
        return self.sample_piece(key, n, directions, None)

    def sample_piece(
        self, key: Array, n: int, directions: Sampler, piece: tuple[int, int] | None
    ) -> "Operator":
        """The same from some of the n terms drawn, `piece[0]` to `piece[1] - 1`: pieces
        of one draw have no term in common."""
        n = check_count("n", n)
        if not isinstance(directions, Sampler):
            raise TypeError(
                f"directions must be a Sampler such as Rademacher(), got {directions!r}"
            )
        if self.drawn:
            raise ValueError("the operator is sampled already; sample the exact one")
        return Operator((), (Drawn(self.family, directions, key, n, piece),))

    def only(self, k: Array) -> "Operator":
        """The term number k of those that are sampled."""
        return Operator((), (Drawn(self.family, OneTerm(k), None, 1),))

    def plan(
        self,
        u: Any,
        x: ArrayLike,
        t: ArrayLike | None = None,
        *,
        path: Path = Automatic(),
        chunk: int | None = None,
    ) -> "Plan":
        """How `op(u)(x, t)` would be evaluated: path, directions, chunk, and memory of
        the value and of its gradient by the parameters, as the compiler has it."""
        from ._plan import make_plan

        return make_plan(self, u, x, t, path, chunk)

    def __add__(self, other: "Operator") -> "Operator":
        if not isinstance(other, Operator):
            return NotImplemented
        return Operator(self.family + other.family, self.drawn + other.drawn)

    def __radd__(self, other: Any) -> "Operator":
        # So that sum([...]) works, which begins with zero.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, factor: ArrayLike) -> "Operator":
        if not isinstance(factor, float | int | np.ndarray | np.generic | jax.Array):
            raise TypeError(
                f"an operator can be multiplied by a number, got {factor!r}; functions "
                f"of x and t go into its coefficients"
            )
        number = jnp.asarray(factor, float)
        if number.ndim:
            raise ValueError(
                f"an operator can be multiplied by one number, got shape {number.shape}"
            )
        if is_concrete(number) and not bool(jnp.isfinite(number)):
            raise ValueError(
                f"an operator can be multiplied by a finite number, got {number}"
            )
        scaled = tuple(_Scaled(p, number) for p in self.family)
        drawn = tuple(
            eqx.tree_at(
                lambda r: r.family, r, tuple(_Scaled(p, number) for p in r.family)
            )
            for r in self.drawn
        )
        return Operator(scaled, drawn)

    __rmul__ = __mul__

    def __truediv__(self, number: ArrayLike) -> "Operator":
        if not isinstance(number, float | int | np.ndarray | np.generic | jax.Array):
            raise TypeError(f"an operator can be divided by a number, got {number!r}")
        return self * (1.0 / jnp.asarray(number, float))

    def __neg__(self) -> "Operator":
        return self * -1.0

    def __sub__(self, other: "Operator") -> "Operator":
        if not isinstance(other, Operator):
            return NotImplemented
        return self + (-other)


def derivative(
    order: int,
    axis: int | Sequence[int] | None = None,
    coefficient: CoefficientLike = 1.0,
) -> Operator:
    """`sum_k c_k d^p u / dx_k^p`.

    **Arguments:**

    - `order`: p, from 1 to 4.
    - `axis`: the coordinate k, or several; by default all.
    - `coefficient`: one number, one for each coordinate of x, or a function of (x, t)
        (of x alone where there is no time) that returns either.
    """
    return Operator((_power(order, axis, coefficient, "coefficient"),))


def _power(order: Any, axis: Any, coefficient: Any, name: str) -> Power:
    whole = isinstance(order, int | np.integer) and not isinstance(order, bool)
    if not whole or not 1 <= order <= 4:
        raise ValueError(
            f"order must be 1, 2, 3 or 4, got {order!r}; for order 0 use reaction()"
        )
    axes = None
    if axis is not None:
        several = tuple(axis) if isinstance(axis, Sequence) else (axis,)
        axes = tuple(check_count("axis", k, 0) for k in several)
        if not axes:
            raise ValueError("axis must name a coordinate, or several, got none")
        if len(set(axes)) < len(axes):
            raise ValueError(f"axis must not repeat a coordinate, got {axis!r}")
    return Power(int(order), check_coefficient(name, coefficient, (0, 1)), axes, name)


def laplacian(coefficient: CoefficientLike = 1.0) -> Operator:
    """`sum_k c_k d^2 u / dx_k^2`; see `derivative` for the coefficient."""
    return Operator((_power(2, None, coefficient, "coefficient"),))


def advection(velocity: CoefficientLike) -> Operator:
    """`sum_k c_k du / dx_k`.

    **Arguments:**

    - `velocity`: c: one number for all coordinates, one for each, or a function of
        (x, t) that returns either.
    """
    return Operator((_power(1, None, velocity, "velocity"),))


def third_derivatives(coefficient: CoefficientLike = 1.0) -> Operator:
    """`sum_k c_k d^3 u / dx_k^3`; see `derivative` for the coefficient."""
    return Operator((_power(3, None, coefficient, "coefficient"),))


def reaction(coefficient: CoefficientLike) -> Operator:
    """`c u`, of order zero: a shift of u enters it.

    **Arguments:**

    - `coefficient`: one number, or a function of (x, t) that returns one.
    """
    return Operator((Reaction(check_coefficient("coefficient", coefficient, (0,))),))


def time_derivative(order: int = 1) -> Operator:
    """`du / dt`, or `d^2 u / dt^2`. Never sampled; the first derivative costs next to
    nothing beside others, for all come from one pass through the network.

    **Arguments:**

    - `order`: 1 or 2.

    Examples:
        >>> import jax.numpy as jnp, sdifp
        >>> heat = sdifp.time_derivative() - sdifp.laplacian()
        >>> u = lambda x, t: jnp.exp(-2.0 * t) * jnp.sin(x[0]) * jnp.cos(x[1])
        >>> print(f"{abs(heat(u)(jnp.array([0.3, 0.4]), 0.5)):.5f}")
        0.00000
    """
    whole = isinstance(order, int | np.integer) and not isinstance(order, bool)
    if not whole or order not in (1, 2):
        hint = "; write time_derivative()(u)" if callable(order) else ""
        raise ValueError(f"order must be 1 or 2, got {order!r}{hint}")
    return Operator((TimeDerivative(int(order)),))


def mixed_derivative(j: int, k: int, coefficient: CoefficientLike = 1.0) -> Operator:
    """`c d^2 u / dx_j dx_k`, for one pair of coordinates."""
    j, k = check_count("j", j, 0), check_count("k", k, 0)
    return Operator(
        (MixedPair(j, k, check_coefficient("coefficient", coefficient, (0,))),)
    )


def mixed_derivatives(coefficient: CoefficientLike) -> Operator:
    """`sum_jk c_jk d^2 u / dx_j dx_k`, over all d^2 pairs.

    **Arguments:**

    - `coefficient`: an array of shape (d, d), or a function of (x, t) that returns one.
    """
    return Operator((Mixed(check_coefficient("coefficient", coefficient, (2,))),))


def biharmonic(coefficient: CoefficientLike = 1.0) -> Operator:
    """`c sum_jk d^4 u / dx_j^2 dx_k^2`, over all d^2 pairs.

    **Arguments:**

    - `coefficient`: one number, or a function of (x, t) that returns one.
    """
    return Operator((Biharmonic(check_coefficient("coefficient", coefficient, (0,))),))


def fokker_planck(drift: CoefficientLike, diffusion: CoefficientLike) -> Operator:
    """`- sum_k d(b_k u)/dx_k + sum_jk d^2(D_jk u)/dx_j dx_k`.

    The probability density of `dX = b dt + s dW` has `D = s s^T / 2`. The derivatives
    of b and D are taken by autodiff.

    **Arguments:**

    - `drift`: b: an array of shape (d,), or a function of (x, t) that returns one.
    - `diffusion`: D: one number, a diagonal of shape (d,), a matrix of shape (d, d), or
        a function of (x, t) that returns any of them.
    """
    b = Drift(check_coefficient("drift", drift, (1,)))
    c = check_coefficient("diffusion", diffusion, (0, 1, 2))
    second: Part
    if callable(c):
        second = Diffusion(c)
    elif jnp.ndim(c) == 2:
        second = Mixed(c, "diffusion")
    else:
        second = Power(2, c, None, "diffusion")
    return Operator((b, second))
