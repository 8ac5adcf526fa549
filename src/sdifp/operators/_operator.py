"""Linear differential operators: small objects that add up and are applied to
fields."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from .._checks import check_count, check_finite, is_concrete
from ..taylor import Automatic, Path
from ._apply import AppliedOperator, Plan
from ._coefficient import Coefficient, CoefficientLike
from ._samplers import Coordinates, OneTerm, Sample, Sampler
from ._term import PointOperator, ScaledTerm, Term
from ._terms import (
    Biharmonic,
    Diffusion,
    Drift,
    Mixed,
    MixedPair,
    Power,
    Reaction,
    TimeDerivative,
)

Number = float | int | np.ndarray | np.generic | jax.Array


class Operator(eqx.Module):
    """A linear differential operator in any dimension: of order zero to four in space,
    and up to two in time.

    Made by `laplacian`, `advection` and their like; operators add up, and can be
    multiplied by numbers. `op(u)(x, t)` is the operator applied to a field or to any
    function of one point and one time (or of the point alone), at one point of shape
    (d,) or at many. It acts on each component of a field with several; a matrix in
    front, `J @ op`, mixes them: row k is the sum of `J[k, j] op(u_j)` over j.

    Examples:
        >>> import jax, jax.numpy as jnp, sdifp
        >>> op = 0.5 * sdifp.laplacian() - sdifp.operators.advection([1.0, 2.0])
        >>> op(lambda x: x[0] ** 2 + x[0] * x[1])(jnp.array([1.0, 3.0])).item()
        -6.0
        >>> noisy = op.sample(jax.random.key(0), 1)   # one term of two, times two
        >>> turn = jnp.array([[0.0, -1.0], [1.0, 0.0]]) @ sdifp.laplacian()
        >>> turn(lambda x: jnp.stack([x[0] ** 2, x[0] ** 3]))(jnp.array([1.0])).tolist()
        [-6.0, 2.0]
    """

    # NumPy leaves products with arrays to this class.
    __array_ufunc__ = None

    terms: tuple[Term, ...]
    samples: tuple[Sample, ...] = ()
    mixtures: tuple["Mixture", ...] = ()
    "what has a matrix in front"

    @property
    def parts(self) -> tuple["Mixture", ...]:
        """The operator as a sum of such with a matrix in front, and one without."""
        own = Operator(self.terms, self.samples)
        without = (Mixture(None, own),) if self.terms or self.samples else ()
        return without + self.mixtures

    @property
    def is_sampled(self) -> bool:
        """Whether it is an estimate of another operator."""
        return any(part.operator.samples for part in self.parts)

    def shape(self, of_u: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of its value at a point, () or (m,), for a field whose values have
        the shape () or (n,). Raises `ValueError` if a matrix does not fit them."""
        if not of_u and all(part.matrix is None for part in self.parts):
            return ()
        (n,) = of_u or (1,)
        shapes = [(n, n) if p.matrix is None else p.matrix.shape for p in self.parts]
        for shape in shapes:
            if shape[1] != n:
                raise ValueError(
                    f"a matrix in front of an operator must have a column for each of "
                    f"the {n} components of u, got shape {shape}"
                )
            if shape[0] != shapes[0][0]:
                raise ValueError(
                    f"operators that are added must have as many rows, got matrices "
                    f"of shapes {shapes[0]} and {shape} (without a matrix each of the "
                    f"{n} components of u has a row)"
                )
        return (shapes[0][0] if shapes else n,)

    def at_point(self, x: Array, t: Array | None) -> PointOperator:
        """The operator at a point."""
        exact = [term.exact(x, t) for term in self.terms]
        drawn = [sample.at_point(x, t) for sample in self.samples]
        return sum(exact + drawn, PointOperator())

    def kinds(self, x: Any, t: Any) -> PointOperator:
        """The shapes of the operator at a point, whatever the matrices: None where it
        has no such terms."""
        every = [part.operator for part in self.parts]
        merged = lambda x, t: sum((a.at_point(x, t) for a in every), PointOperator())
        return jax.eval_shape(merged, x, t)

    def __call__(
        self, u: Any, *, path: Path = Automatic(), chunk: int | None = None
    ) -> AppliedOperator:
        """The operator applied to a function.

        **Arguments:**

        - `u`: a conserved field, or a function of one point, shape (d,), and one time,
            or of the point alone; it returns one number, or one for each component.
        - `path`: how derivatives are found; by default the cheapest way.
        - `chunk`: how many points are evaluated at a time; by default as many as fill
            the matrix products.
        """
        return AppliedOperator(self, u, path, chunk)

    def sample(
        self,
        key: Array,
        n: int,
        directions: Sampler = Coordinates(),
        piece: tuple[int, int] | None = None,
    ) -> "Operator":
        """An unbiased estimate of the operator; callable inside `jit`.

        **Arguments:**

        - `key`: another one in every step.
        - `n`: how many terms, without replacement, or how many directions.
        - `directions`: `Coordinates()`, the operator's own terms; or `Rademacher()` or
            `Gaussian()`, random directions for operators of order two.
        - `piece`: take only `piece[0]` to `piece[1] - 1` of the n terms drawn: pieces
            of one draw have no term in common.
        """
        n = check_count("n", n)
        if not isinstance(directions, Sampler):
            raise TypeError(
                f"directions must be a Sampler such as Rademacher(), got {directions!r}"
            )
        if self.is_sampled:
            raise ValueError("the operator is sampled already; sample the exact one")
        # The same terms of each.
        return self._each(lambda a: (Sample(a.terms, directions, key, n, piece),))

    def only(self, k: Array) -> "Operator":
        """The term number k of those that are sampled."""
        return self._each(lambda a: (Sample(a.terms, OneTerm(k), None, 1),))

    def _each(self, samples: Callable[["Operator"], tuple[Sample, ...]]) -> "Operator":
        """The same matrices, with samples in place of terms."""
        own = samples(self) if self.terms else ()
        drawn = [(p.matrix, Operator((), samples(p.operator))) for p in self.mixtures]
        return Operator((), own, tuple(Mixture(*pair) for pair in drawn))

    def plan(
        self, u: Any, x: ArrayLike, t: ArrayLike | None = None, **options: Any
    ) -> Plan:
        """How `op(u, **options)(x, t)` would be evaluated: path, directions, chunk, and
        memory of the value and of its gradient with respect to the parameters, as the
        compiler reports it."""
        return self(u, **options).plan(x, t)

    def __add__(self, other: "Operator") -> "Operator":
        if not isinstance(other, Operator):
            return NotImplemented
        return Operator(
            self.terms + other.terms,
            self.samples + other.samples,
            _merged(self.mixtures + other.mixtures),
        )

    def __radd__(self, other: Any) -> "Operator":
        # So that sum([...]) works, which begins with zero.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, factor: Any) -> "Operator":
        number = jnp.asarray(factor if isinstance(factor, Number) else jnp.nan, float)
        if number.ndim or (is_concrete(number) and not bool(jnp.isfinite(number))):
            got = "another operator" if isinstance(factor, Operator) else repr(factor)
            raise TypeError(
                f"an operator can be multiplied by one finite number, got {got}; "
                f"functions of x and t go into its coefficients, and a matrix that "
                f"mixes components goes in front, matrix @ operator"
            )
        scaled = lambda terms: tuple(ScaledTerm(a, number) for a in terms)
        samples = tuple(
            eqx.tree_at(lambda s: s.terms, s, scaled(s.terms)) for s in self.samples
        )
        mixtures = tuple(Mixture(p.matrix, p.operator * factor) for p in self.mixtures)
        return Operator(scaled(self.terms), samples, mixtures)

    def __rmatmul__(self, matrix: Any) -> "Operator":
        matrix = _matrix(matrix)
        products = [
            (matrix if p.matrix is None else _product(matrix, p.matrix), p.operator)
            for p in self.parts
        ]
        return Operator((), (), _merged(tuple(Mixture(*pair) for pair in products)))

    __rmul__ = __mul__

    def __truediv__(self, number: ArrayLike) -> "Operator":
        is_number = isinstance(number, Number)
        return self * (1.0 / jnp.asarray(number, float) if is_number else number)

    def __neg__(self) -> "Operator":
        return self * -1.0

    def __sub__(self, other: "Operator") -> "Operator":
        if not isinstance(other, Operator):
            return NotImplemented
        return self + (-other)


class Mixture(eqx.Module):
    """An operator on each component of a field, with a matrix in front."""

    matrix: Array | None
    "None for the identity"
    operator: Operator


def _matrix(given: Any) -> Array:
    try:
        matrix = jnp.asarray(given)
    except (TypeError, ValueError):
        matrix = jnp.asarray(False)
    if jnp.iscomplexobj(matrix):
        raise TypeError(
            "a matrix in front of an operator must be real, got complex numbers: "
            "write a complex field as two real components"
        )
    if not jnp.issubdtype(matrix.dtype, jnp.number) or matrix.ndim != 2:
        raise ValueError(
            f"a matrix in front of an operator must be an array of numbers of shape "
            f"(residuals, components), got {given!r}"
        )
    if 0 in matrix.shape:
        raise ValueError(
            f"a matrix in front of an operator must not be empty, got shape "
            f"{matrix.shape}"
        )
    matrix = matrix.astype(jnp.result_type(float, matrix))
    if is_concrete(matrix):
        check_finite("a matrix in front of an operator", matrix)
    return matrix


def _product(a: Array, b: Array) -> Array:
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"a matrix of shape {a.shape} cannot be in front of an operator that has "
            f"one of shape {b.shape}"
        )
    return a @ b


def _merged(mixtures: tuple[Mixture, ...]) -> tuple[Mixture, ...]:
    """Those with the same matrix as one: they are evaluated in one pass."""
    out: list[Mixture] = []
    for new in mixtures:
        for k, old in enumerate(out):
            if _is_same(old.matrix, new.matrix):
                out[k] = Mixture(old.matrix, old.operator + new.operator)
                break
        else:
            out.append(new)
    return tuple(out)


def _is_same(a: Array | None, b: Array | None) -> bool:
    if a is b:
        return True
    known = a is not None and b is not None and is_concrete(a) and is_concrete(b)
    return known and np.array_equal(np.asarray(a), np.asarray(b))


def _check_order(order: Any, most: int, hint: str = "") -> int:
    whole = isinstance(order, int | np.integer) and not isinstance(order, bool)
    if not whole or not 1 <= order <= most:
        raise ValueError(f"order must be from 1 to {most}, got {order!r}{hint}")
    return int(order)


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
    order, axes = _check_order(order, 4, "; for order 0 use reaction()"), None
    if axis is not None:
        several = tuple(axis) if isinstance(axis, Sequence) else (axis,)
        axes = tuple(check_count("axis", k, 0) for k in several)
        if not axes or len(set(axes)) < len(axes):
            raise ValueError(
                f"axis must name a coordinate, or several different ones, got {axis!r}"
            )
    return Operator(
        (Power(order, Coefficient("coefficient", coefficient, 0, 1), axes),)
    )


def laplacian(coefficient: CoefficientLike = 1.0) -> Operator:
    """`sum_k c_k d^2 u / dx_k^2`; see `derivative` for the coefficient."""
    return derivative(2, None, coefficient)


def advection(velocity: CoefficientLike) -> Operator:
    """`sum_k c_k du / dx_k`.

    **Arguments:**

    - `velocity`: c: one number for all coordinates, one for each, or a function of
        (x, t) that returns either.
    """
    return Operator((Power(1, Coefficient("velocity", velocity, 0, 1)),))


def third_derivatives(coefficient: CoefficientLike = 1.0) -> Operator:
    """`sum_k c_k d^3 u / dx_k^3`; see `derivative` for the coefficient."""
    return derivative(3, None, coefficient)


def reaction(coefficient: CoefficientLike) -> Operator:
    """`c u`, of order zero: a shift of u enters it.

    **Arguments:**

    - `coefficient`: one number, or a function of (x, t) that returns one.
    """
    return Operator((Reaction(Coefficient("coefficient", coefficient, 0)),))


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
    hint = "; write time_derivative()(u)" if callable(order) else ""
    return Operator((TimeDerivative(_check_order(order, 2, hint)),))


def mixed_derivative(j: int, k: int, coefficient: CoefficientLike = 1.0) -> Operator:
    """`c d^2 u / dx_j dx_k`, for one pair of coordinates."""
    j, k = check_count("j", j, 0), check_count("k", k, 0)
    return Operator((MixedPair(j, k, Coefficient("coefficient", coefficient, 0)),))


def mixed_derivatives(coefficient: CoefficientLike) -> Operator:
    """`sum_jk c_jk d^2 u / dx_j dx_k`, over all d^2 pairs.

    **Arguments:**

    - `coefficient`: an array of shape (d, d), or a function of (x, t) that returns one.
    """
    return Operator((Mixed(Coefficient("coefficient", coefficient, 2)),))


def biharmonic(coefficient: CoefficientLike = 1.0) -> Operator:
    """`c sum_jk d^4 u / dx_j^2 dx_k^2`, over all d^2 pairs.

    **Arguments:**

    - `coefficient`: one number, or a function of (x, t) that returns one.
    """
    return Operator((Biharmonic(Coefficient("coefficient", coefficient, 0)),))


def fokker_planck(drift: CoefficientLike, diffusion: CoefficientLike) -> Operator:
    """`- sum_k d(b_k u)/dx_k + sum_jk d^2(D_jk u)/dx_j dx_k`.

    The probability density of `dX = b dt + s dW` has `D = s s^T / 2`. The derivatives
    of b and D are taken by autodiff.

    **Arguments:**

    - `drift`: b: an array of shape (d,), or a function of (x, t) that returns one.
    - `diffusion`: D: one number, a diagonal of shape (d,), a matrix of shape (d, d), or
        a function of (x, t) that returns any of them.
    """
    c = Coefficient("diffusion", diffusion, 0, 1, 2)
    second: Term
    if c.varies:
        second = Diffusion(c)
    else:
        second = Mixed(c) if jnp.ndim(c.value) == 2 else Power(2, c)
    return Operator((Drift(Coefficient("drift", drift, 1)), second))
