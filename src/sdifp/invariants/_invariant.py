"""What an invariant and its target are. Arrays may be NumPy's, JAX's or PyTorch's."""

import abc
import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ._arguments import needed_arguments, shown

Array = Any

# Characters of a name, which stands in tables and titles.
_LONGEST = 80


class Target:
    """A number or a function of t, as one constant without leaves."""

    def __init__(self, name: str, given: Any) -> None:
        self.is_function = callable(given)
        self.name = name
        self.rounding = float(np.finfo(np.float64).eps)
        "the relative rounding error of a number"
        if callable(given):
            self.given: float | Callable[[Any], Any] = given
            return
        array = np.asarray(given)
        if array.shape != () or not np.issubdtype(array.dtype, np.number):
            raise ValueError(
                f"{name} must be a number or a function of t, got {shown(given)}; the "
                f"components of a field have invariants of their own, such as "
                f"Mass(1.0, component=0)"
            )
        if np.iscomplexobj(array) or not np.isfinite(array):
            raise ValueError(f"{name} must be real and finite, got {given!r}")
        self.given = float(array)
        if array.dtype in (np.float16, np.float32):
            self.rounding = float(np.finfo(array.dtype).eps)

    def value(self, t: Any) -> Any:
        """The target at time t, as it was given: a number is a Python float."""
        value = self.given(t) if callable(self.given) else self.given
        return float(value) if isinstance(value, int | float | np.number) else value

    def __hash__(self) -> int:
        return hash((self.given, self.rounding))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and (self.given, self.rounding) == (
            other.given,
            other.rounding,
        )

    def __repr__(self) -> str:
        return repr(self.given)


def invariants_from(given: Any) -> tuple["Invariant", ...]:
    """Invariants as a user gives them, in a list."""
    single = isinstance(given, Invariant) or not hasattr(given, "__iter__")
    every = (given,) if single else tuple(given)
    wrong = [one for one in every if single or not isinstance(one, Invariant)]
    if wrong:
        what = "be a list of" if single else "hold"
        raise TypeError(
            f"invariants must {what} Mass, SquaredNorm, Moment, Quadratic or other "
            f"invariants, got {shown(wrong[0])}"
        )
    return every


class At(NamedTuple):
    """A field at some points: what densities are made of."""

    u: Array
    "its values, components on the last axis"
    means: Sequence[Any]
    "the prescribed mean of each component, zero where there is none"
    x: Array = None
    t: Array = None
    gradient: Array = None
    "of each component, coordinates on the last axis; where an invariant needs it"


class Invariant(abc.ABC):
    """An integral of a field over its domain, and the value it must have.

    An invariant has a `target`, None where it is measured and not prescribed, and a
    `name`, under which it appears in tables, files and messages.
    """

    target: Any
    name: Any

    kind: ClassVar[str]
    "the name of the short form, such as `mass`"
    density_in_words: ClassVar[str]
    "what is integrated, such as `u^2`"
    is_linear: ClassVar[bool] = False
    needs_gradient: bool = False
    has_weight: ClassVar[bool] = False
    is_central: ClassVar[bool] = False
    "whether the density is about the mean"

    @property
    def words(self) -> str:
        """The name in a sentence."""
        return self.name.replace("_", " ")

    @property
    @abc.abstractmethod
    def only(self) -> tuple[int, ...] | None:
        """The components that it is of; None for all of them."""

    def among(self, count: int) -> tuple[int, ...]:
        """The same, of a field with so many components."""
        return tuple(range(count)) if self.only is None else self.only

    @property
    def index(self) -> int:
        """The first of its components."""
        return 0 if self.only is None else self.only[0]

    @abc.abstractmethod
    def density(self, at: At) -> Array:
        """What is integrated."""

    @abc.abstractmethod
    def weight_at(self, x: Array, t: Array, count: int) -> Array:
        """What multiplies u at a point of a field with so many components: one number
        for each of its own if it is linear, a matrix, one number or None for 1 if it is
        quadratic."""

    def rows(self, at: At) -> dict[str, Array]:
        """What is integrated to measure it: the density, the squares of its components,
        and the square of a weight. Where it has no target, the absolute value of the
        density takes the place of the squares."""
        count, density = at.u.shape[-1], self.density(at)
        if self.target is None:
            rows = {"density": density, "size": abs(density)}
        else:
            squares = total([at.u[..., k] ** 2 for k in self.among(count)])
            rows = {"density": density, "size": squares}
        if self.has_weight and self.target is not None:
            psi = self.weight_at(at.x, at.t, count)
            rows["weight"] = total([a * a for a in entries(psi)])
        if self.is_central:
            rows["offset"] = at.u[..., self.index] - at.means[self.index]
        return rows

    @property
    def row_names(self) -> list[str]:
        """The names of its rows."""
        names = ["density", "size"]
        if self.has_weight and self.target is not None:
            names.append("weight")
        return [*names, "offset"] if self.is_central else names

    @abc.abstractmethod
    def unit(self, target: Array, squared_norm: Array, volume: float, xp: Any) -> Array:
        """What its error is relative to, zero where there is nothing; `xp` is the
        module of array functions."""


@dataclasses.dataclass(frozen=True)
class ComponentInvariant(Invariant):
    """An invariant that is known by its kind.

    **Arguments:**

    - `target`: the integral: a number, or a differentiable function of t. None for an
        integral that is measured and not prescribed.
    - `component`: of which component of the field; left out for a field with one, or
        for all components together.
    """

    target: Any
    component: int | None = None

    def __post_init__(self) -> None:
        if self.target is not None and not isinstance(self.target, Target):
            object.__setattr__(self, "target", Target(self.kind, self.target))
        if self.component is not None:
            check_component("component", self.component)

    @property
    def name(self) -> str:
        """The name under which it appears in tables, files and messages."""
        return self.kind if self.component is None else f"{self.kind}[{self.component}]"

    @property
    def only(self) -> tuple[int, ...] | None:
        return None if self.component is None else (self.component,)


def check_component(name: str, given: Any) -> None:
    """Raise `ValueError` unless it is the index of a component."""
    try:
        found = operator.index(given)
    except TypeError:
        found = -1
    if isinstance(given, bool) or found < 0:
        raise ValueError(f"{name} must be the index of a component, got {given!r}")


@dataclasses.dataclass(frozen=True)
class WeightedInvariant(Invariant):
    """An invariant with a weight, a function of the user's."""

    weight: Callable[..., Any]
    target: Any
    components: Sequence[int] | int | None = None
    name: str = ""

    most_arguments: ClassVar[int]
    "of the weight"
    arguments_in_words: ClassVar[str]

    def __post_init__(self) -> None:
        check_named(self, "weight")
        names = needed_arguments(self.weight)
        if len(names) > self.most_arguments:
            raise ValueError(
                f"weight of {self.name} must be a function of "
                f"{self.arguments_in_words}, got one of ({', '.join(names)})"
            )

    @property
    def only(self) -> tuple[int, ...] | None:
        return self.components  # type: ignore[return-value]


def check_named(invariant: Any, function: str) -> None:
    """Check the arguments of an invariant with a name, components and a function of the
    user's, and bring them into their form."""
    name = invariant.name
    check_function(name, function, getattr(invariant, function))
    target, components = invariant.target, invariant.components
    if target is not None and not isinstance(target, Target):
        object.__setattr__(invariant, "target", Target(name, target))
    if components is not None:
        object.__setattr__(invariant, "components", _indices(components))


def check_function(name: Any, argument: str, given: Any) -> None:
    """Check the name of an invariant, and that an argument of it is a function."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ValueError(f"name must be a printable text, not empty, got {name!r}")
    if len(name) > _LONGEST:
        raise ValueError(
            f"name must have at most {_LONGEST} characters, got {len(name)}: {name!r}"
        )
    if not callable(given):
        raise TypeError(f"{argument} of {name} must be a function, got {shown(given)}")
    try:
        hash(given)
    except TypeError:
        raise TypeError(
            f"{argument} of {name} must be a plain function, got an object of type "
            f"{type(given).__name__} that has arrays: call it in a function"
        ) from None


def _indices(given: Any) -> tuple[int, ...]:
    """Indices of components, each once."""
    single = isinstance(given, int | np.integer) or not hasattr(given, "__iter__")
    found = (given,) if single else tuple(given)
    for k in found:
        check_component("components", k)
    if not found or len(set(found)) < len(found):
        raise ValueError(
            f"components must hold different indices, at least one, got {given!r}"
        )
    return tuple(int(k) for k in found)


def total(terms: Sequence[Array]) -> Array:
    """Their sum."""
    return functools.reduce(operator.add, terms)


def entries(array: Array) -> list[Array]:
    """Those of a vector, or the one number that it is."""
    return [array] if np.ndim(array) == 0 else [array[k] for k in range(len(array))]


def densities(invariants: Sequence[Invariant], at: At) -> list[Array]:
    """The rows of each invariant, to be integrated."""
    return [row for one in invariants for row in one.rows(at).values()]


class Measured(NamedTuple):
    """What was integrated of one invariant, as integrals or as means."""

    value: Array
    size: Array
    "the squared norm of its components; without a target, that of |density|"
    weight: Array | float = 1.0
    "the squared norm of the weight, if it has one"


def read_rows(
    invariants: Sequence[Invariant], integrals: Any, volume: float
) -> list[Measured]:
    """Each invariant, from the integrals of the rows of all, these on the last axis.

    **Arguments:**

    - `volume`: of the domain; 1 where the integrals are means.
    """
    out, start = [], 0
    for one in invariants:
        names = one.row_names
        own = {name: integrals[..., start + k] for k, name in enumerate(names)}
        value = own["density"]
        if "offset" in own:
            # The density is about the prescribed mean, not about that of the field.
            value = value - own["offset"] ** 2 / volume
        # Without a target the size is that of the density, here about another mean.
        moved = "offset" in own and one.target is None
        size = value if moved else own["size"]
        out.append(Measured(value, size, own.get("weight", 1.0)))
        start += len(names)
    return out


def relative_error(
    invariant: Invariant,
    value: Array,
    target: Array,
    squared_norm: Array,
    volume: float,
    xp: Any = np,
) -> Array:
    """The relative error of an invariant.

    **Arguments:**

    - `squared_norm`: the integral of the squares of its components, which stands in for
        a target that is small beside it; times that of the square of a weight.
    - `xp`: the module of array functions, NumPy or `jax.numpy`.
    """
    unit = invariant.unit(target, xp.abs(squared_norm), volume, xp)
    return relative(value - target, unit, xp)


def relative(difference: Array, unit: Array, xp: Any = np) -> Array:
    """A difference over its unit; as it is where that is zero."""
    return difference / xp.where(unit > 0.0, unit, 1.0)


def time_list(times: Any) -> list[float] | list[None]:
    """The times to look at; one without a name for a network without time."""
    if times is None:
        return [None]
    grid: list[float] = np.ravel(np.asarray(times, float)).tolist()
    if not grid:
        raise ValueError("times must hold at least one time, got none")
    return grid
