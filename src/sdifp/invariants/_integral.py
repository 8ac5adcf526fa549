"""Integrals of a field that stand in its own equation."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._arguments import parameters, time_derivative_hint, value_of

# Of a density, in this order; y is the variable of integration of a kernel.
_ARGUMENTS = ("x", "y", "t", "u", "grad")


@dataclasses.dataclass(frozen=True)
class Integral:
    """The integral over the domain of a density of the field, or of a kernel against
    it, under the name by which an equation asks for it.

    **Arguments:**

    - `name`: of the keyword argument that receives it.
    - `function`: one number: of those of `x`, `t`, `u` and `grad` that it names as
        arguments. One that names `y` as well is a kernel: it is integrated over y, `u`
        and `grad` are those at y, and its integral is a function of x.
    """

    name: str
    function: Callable[..., Any]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(
                f"integrals must be given by names that can be arguments of a "
                f"function, got {self.name!r}"
            )
        if not callable(self.function):
            raise TypeError(
                f"integrals must hold functions, got {self.function!r} for {self.name}"
            )
        takes = self.takes
        other = unknown_arguments(self.function, _ARGUMENTS)
        if other or not {"u", "grad"} & set(takes):
            given = ", ".join(p.name for p in parameters(self.function))
            raise ValueError(
                f"integral {self.name} must be a function of u or grad, and besides of "
                f"x, y or t if it needs them, got one of ({given})"
                f"{time_derivative_hint(other)}"
            )

    @property
    def takes(self) -> tuple[str, ...]:
        """The arguments that it names."""
        named = [p.name for p in parameters(self.function)]
        return tuple(name for name in _ARGUMENTS if name in named)

    @property
    def is_kernel(self) -> bool:
        """Whether it is a function of x."""
        return "y" in self.takes

    @property
    def needs_gradient(self) -> bool:
        """Whether it asks for the gradient of the field."""
        return "grad" in self.takes

    def density(self, x: Any, node: Any, t: Any, u: Any, grad: Any) -> Any:
        """What is integrated, at one node; `x` is the point of a kernel."""
        where = {"x": x, "y": node} if self.is_kernel else {"x": node}
        known = {**where, "t": t, "u": u, "grad": grad}
        given = {name: known[name] for name in self.takes}
        if "t" in given and t is None:
            raise ValueError(
                f"integral {self.name} must not take t for a field without time"
            )
        return value_of(
            f"integral {self.name}",
            self.function,
            given,
            [()],
            "one real number for one point",
            by_name=True,
        )


def integrals_from(given: Any) -> tuple[Integral, ...]:
    """Integrals as a user gives them, a function by each name."""
    if isinstance(given, tuple) and all(isinstance(one, Integral) for one in given):
        return given
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise TypeError(
            f"integrals must be a dict from names to functions, got {given!r}"
        )
    return tuple(Integral(name, function) for name, function in given.items())


def taken_by(function: Callable[..., Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some arguments that a function takes by their names."""
    found = parameters(function)
    if any(p.kind == p.VAR_KEYWORD for p in found):
        return dict(known)
    return {p.name: known[p.name] for p in found if p.name in known}


def check_asked_for(
    what: str, function: Callable[..., Any], integrals: Iterable[Integral]
) -> None:
    """Raise `ValueError` unless a function takes all integrals by their names."""
    names = [one.name for one in integrals]
    taken = taken_by(function, dict.fromkeys(names))
    idle = [name for name in names if name not in taken]
    if idle:
        raise ValueError(
            f"integrals must be asked for by name in {what}, and {', '.join(idle)} is "
            f"not"
        )


def unknown_arguments(function: Callable[..., Any], known: Iterable[str]) -> list[str]:
    """The arguments that a function needs beyond those known by name."""
    by_name = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    names = set(known)
    return [
        p.name
        for p in parameters(function)
        if p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        and not (p.kind in by_name and p.name in names)
    ]
