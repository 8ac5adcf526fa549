"""The integral of any density, measured and never enforced."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from ._arguments import parameters, time_derivative_hint, value_of
from ._integral import unknown_arguments
from ._invariant import At, Invariant, check_function

_ARGUMENTS = ("x", "t", "u", "grad")


@dataclasses.dataclass(frozen=True)
class Density(Invariant):
    """The integral of any density `F(x, t, u, grad u)` over the domain, such as the
    Hamiltonian `1/2 u_x^2 - u^3` of the Korteweg-de Vries equation. It is measured and
    never enforced: it has no target, and its value and drift over time are reported.

    **Arguments:**

    - `function`: F at one point, one number: a function of those of `x`, `t`, `u` and
        `grad` that it names as arguments, in any order. `u` is one number for a field
        with one component, a vector for several; `grad` has shape (d,), or a row for
        each component.
    - `name`: under which it appears in tables, files and messages.

    Examples:
        >>> import sdifp
        >>> sdifp.Density(lambda u, grad: 0.5 * grad[0] ** 2 - u**3, "hamiltonian").name
        'hamiltonian'
    """

    function: Callable[..., Any]
    name: str
    needs_gradient: bool = dataclasses.field(init=False, repr=False)

    target = None
    only = None
    kind: ClassVar[str] = "density"
    density_in_words: ClassVar[str] = "F"

    def __post_init__(self) -> None:
        check_function(self.name, "function", self.function)
        other = unknown_arguments(self.function, _ARGUMENTS)
        if other or not self._takes:
            given = ", ".join(p.name for p in parameters(self.function))
            raise ValueError(
                f"function of {self.name} must take arguments named x, t, u or grad, "
                f"got one of ({given}){time_derivative_hint(other)}"
            )
        object.__setattr__(self, "needs_gradient", "grad" in self._takes)

    @property
    def _takes(self) -> list[str]:
        return [p.name for p in parameters(self.function) if p.name in _ARGUMENTS]

    def density(self, at: At) -> Any:
        u, gradient = at.u, at.gradient
        if u.shape[-1] == 1:
            u, gradient = u[..., 0], None if gradient is None else gradient[0]
        known = dict(zip(_ARGUMENTS, (at.x, at.t, u, gradient), strict=True))
        given = {name: known[name] for name in self._takes}
        if "t" in given and at.t is None:
            raise ValueError(
                f"function of {self.name} must not take t for a field without time"
            )
        return value_of(
            f"function of {self.name}",
            self.function,
            given,
            [()],
            "one real number for one point",
            by_name=True,
        )

    def weight_at(self, x: Any, t: Any, count: int) -> None:
        del x, t, count

    def unit(self, target: Any, squared_norm: Any, volume: float, xp: Any) -> Any:
        del target, volume, xp
        return squared_norm
