"""The integral of a quadratic form of a field and its gradient."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ._arguments import needed_arguments, time_derivative_hint, value_of
from ._invariant import At, Invariant, check_named


@dataclasses.dataclass(frozen=True)
class QuadraticForm(Invariant):
    """The integral of a quadratic form of u and its gradient over the domain, such as
    the energy `1/2 (v^2 + c^2 |grad u|^2)` of the wave equation as a first-order system
    for (u, v).

    It needs the gradient of the network on the nodes. The correction adds constants (or
    multiples of the weights of the linear moments), so it is not the nearest field.

    **Arguments:**

    - `form`: a function of u, one number for each component, and of its gradient, one
        row for each component; or of these and the point x. It must be quadratic, and
        not negative.
    - `target`: the integral: a number, or a differentiable function of t. None for a
        form that is measured and not prescribed.
    - `components`: the components that it is of; by default all.
    - `name`: under which it appears in tables, files and messages.
    """

    form: Callable[..., Any]
    target: Any
    components: Sequence[int] | int | None = None
    name: str = "quadratic_form"

    kind: ClassVar[str] = "quadratic_form"
    density_in_words: ClassVar[str] = "q(u, grad u)"
    needs_gradient = True

    def __post_init__(self) -> None:
        check_named(self, "form")
        names = needed_arguments(self.form) or ["u", "grad"]
        hint = time_derivative_hint(names)
        if len(names) not in (2, 3) or hint or "t" in names:
            raise ValueError(
                f"form of {self.name} must be a function of (u, grad) or of (u, grad, "
                f"x), got one of ({', '.join(names)}){hint}"
            )

    @property
    def only(self) -> tuple[int, ...] | None:
        return self.components  # type: ignore[return-value]

    def weight_at(self, x: Any, t: Any, count: int) -> None:
        del x, t, count

    def form_at(self, u: Any, gradient: Any, x: Any) -> Any:
        """The form of its own components at a point."""
        given = {"u": u, "grad": gradient, "x": x}
        count = len(needed_arguments(self.form)) or 2
        return value_of(
            f"form of {self.name}",
            self.form,
            dict(list(given.items())[:count]),
            [()],
            f"one real number, of u of shape {np.shape(u)} and grad of shape "
            f"{np.shape(gradient)}",
        )

    def check_indices(self, components: int, dimension: int) -> None:
        """Raise `ValueError` if the form asks for entries that u or its gradient do not
        have. JAX takes the last one in place of them, NumPy does not."""
        shape = (components, dimension)
        given = (np.ones(components), np.ones(shape), np.ones(dimension))
        try:
            self.form(*given[: len(needed_arguments(self.form)) or 2])
        except IndexError as error:
            raise ValueError(
                f"form of {self.name} must take u of shape ({components},) and grad of "
                f"shape {shape}, the derivatives in x alone: {error}"
                f"{time_derivative_hint(['u_t'])}"
            ) from error
        except Exception:
            # What else NumPy cannot evaluate, JAX may.
            return

    def density(self, at: At) -> Any:
        own = np.asarray(self.among(at.u.shape[-1]))
        return self.form_at(at.u[own], at.gradient[own], at.x)

    def unit(self, target: Any, squared_norm: Any, volume: float, xp: Any) -> Any:
        del squared_norm, volume
        return xp.abs(target)
