"""Prescribed integrals: numbers or functions of time."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

Times = ArrayLike | Sequence[float]

TargetLike = float | np.floating | np.ndarray | Array | Callable[[Array], ArrayLike]


class Target:
    """A number or a function of t, as one constant without leaves."""

    def __init__(self, name: str, given: TargetLike) -> None:
        self.is_function = callable(given)
        self._name = name
        if callable(given):
            self._given: float | Callable[[Array], ArrayLike] = given
            return
        array = np.asarray(given)
        if array.shape != () or not np.issubdtype(array.dtype, np.number):
            raise ValueError(
                f"{name} must be a number or a function of t for each component, got "
                f"{given!r}"
            )
        if np.iscomplexobj(array) or not np.isfinite(array):
            raise ValueError(f"{name} must be real and finite, got {given!r}")
        self._given = float(array)

    def __call__(self, t: Array | float | None) -> Array:
        """The target at time t."""
        value = self._given(t) if callable(self._given) else self._given  # type: ignore[arg-type]
        out = jnp.asarray(value, jnp.result_type(float))
        if out.shape != ():
            raise ValueError(
                f"{self._name} must return one number at each time, got shape "
                f"{out.shape}"
            )
        return out

    def __hash__(self) -> int:
        return hash(self._given)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._given == other._given

    def __repr__(self) -> str:
        return repr(self._given)


def targets_for(
    name: str,
    given: TargetLike | Sequence[TargetLike | None] | None,
    components: int | None,
) -> tuple[Target | None, ...]:
    """One target or None for each component; `components` is None for a scalar."""
    if isinstance(given, list | tuple):
        if components is None or len(given) != components:
            count = "one number" if components is None else f"{components} components"
            raise ValueError(
                f"{name} has {len(given)} entries, and the network returns {count}"
            )
        entries = list(given)
    else:
        if given is not None and components is not None and components > 1:
            raise ValueError(
                f"{name} must be a list with one entry for each of the {components} "
                f"components of the network, None where there is no target"
            )
        entries = [given] * (components or 1)
    return tuple(None if e is None else Target(name, e) for e in entries)
