"""What an invariant and its target are. Arrays may be NumPy's, JAX's or PyTorch's."""

import abc
import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

Array = Any


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
                f"{name} must be a number or a function of t for each component, got "
                f"{given!r}"
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


@dataclasses.dataclass(frozen=True)
class Invariant(abc.ABC):
    """An integral of a field over its domain, and the value it must have.

    **Arguments:**

    - `target`: the integral: a number, or a differentiable function of t. None for an
        integral that is measured and not prescribed.
    - `component`: of which component of the field; left out for a field with one.
    """

    target: Any
    component: int | None = None

    kind: ClassVar[str]
    "the name of the short form, such as `mass`"
    density_in_words: ClassVar[str]
    "what is integrated, such as `u^2`"
    is_central: ClassVar[bool] = False
    "whether the density is about the mean"

    def __post_init__(self) -> None:
        if self.target is not None and not isinstance(self.target, Target):
            object.__setattr__(self, "target", Target(self.kind, self.target))
        if self.component is None:
            return
        try:
            found = operator.index(self.component)
        except TypeError:
            found = -1
        if isinstance(self.component, bool) or found < 0:
            raise ValueError(
                f"component must be the index of a component, got {self.component!r}"
            )

    @property
    def name(self) -> str:
        """The name under which it appears in tables, files and messages."""
        return self.kind if self.component is None else f"{self.kind}[{self.component}]"

    @property
    def words(self) -> str:
        """The name in a sentence."""
        return self.name.replace("_", " ")

    @property
    def index(self) -> int:
        """Of its component."""
        return self.component or 0

    @abc.abstractmethod
    def density(self, u: Array, mean: Array | float) -> Array:
        """What is integrated, from the values of its component and the prescribed mean
        of that (zero where there is none)."""

    def value(self, integral: float, mass_error: float, volume: float) -> float:
        """The invariant, from the integral of its density and the error of the mass of
        its component."""
        # The density is about the prescribed mean, not about that of the field.
        return integral - mass_error**2 / volume if self.is_central else integral

    @abc.abstractmethod
    def unit(self, target: Array, squared_norm: Array, volume: float, xp: Any) -> Array:
        """What its error is relative to, zero where there is nothing; `xp` is the
        module of array functions."""


def densities(
    invariants: Sequence[Invariant], u: Array, means: Sequence[Any]
) -> list[Array]:
    """The density of each invariant, then the square of each component, from values
    with components on the last axis and their prescribed means."""
    rows = [i.density(u[..., i.index], means[i.index]) for i in invariants]
    return rows + [u[..., k] ** 2 for k in range(len(means))]


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

    - `squared_norm`: the integral of the square of its component, which stands in for
        a target that is small beside it.
    - `xp`: the module of array functions, NumPy or `jax.numpy`.
    """
    unit = invariant.unit(target, xp.abs(squared_norm), volume, xp)
    return (value - target) / xp.where(unit > 0.0, unit, 1.0)


def time_list(times: Any) -> list[float] | list[None]:
    """The times to look at; one without a name for a network without time."""
    if times is None:
        return [None]
    grid: list[float] = np.ravel(np.asarray(times, float)).tolist()
    if not grid:
        raise ValueError("times must hold at least one time, got none")
    return grid
