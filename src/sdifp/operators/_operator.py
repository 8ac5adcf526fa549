"""Linear differential operators: small objects that add up and are applied to
fields."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from .._checks import check_count, check_finite, is_concrete
from ..taylor import Automatic, Path
from ._apply import AppliedOperator, Plan
from ._samplers import Coordinates, OneTerm, Sample, Sampler
from ._term import PointOperator, ScaledTerm, Term

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
