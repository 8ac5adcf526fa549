"""What a family of corrections is: from sums over a rule to a field with prescribed
integrals."""

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
from jaxtyping import Array

from .._core import Prescribed
from ..quadrature import QuadratureRule
from ._gradient import GradientMode
from ._protocol import Profile, evaluate

if TYPE_CHECKING:
    from ._slice import FieldSlice


class FrozenForm(eqx.Module):
    """How numbers that were tabulated over t correct a network. It holds no arrays."""

    profile: eqx.AbstractVar[Profile | None]
    names: eqx.AbstractClassVar[tuple[str, ...]]
    "of the tables in a file; the first one has a number for each component"

    @abc.abstractmethod
    def shapes(self, output: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The shapes of the numbers at one time, for a network whose values have a
        shape."""

    @abc.abstractmethod
    def raw(self, net: Callable[..., Array], x: Array, t: Array | None) -> Array:
        """What is corrected of a network at a point."""

    @abc.abstractmethod
    def __call__(
        self, numbers: tuple[Array, ...], raw: Array, x: Array, t: Array | None
    ) -> Array:
        """The field at a point, from that and the numbers of its time."""


class Affine(FrozenForm):
    """Scale and shift of each component."""

    profile: Profile | None = eqx.field(static=True)

    names: ClassVar[tuple[str, ...]] = ("scales", "shifts")

    def shapes(self, output: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        return output, output

    def raw(self, net: Callable[..., Array], x: Array, t: Array | None) -> Array:
        return evaluate(net, x, t)

    def __call__(
        self, numbers: tuple[Array, ...], raw: Array, x: Array, t: Array | None
    ) -> Array:
        scale, shift = numbers
        offset = shift if self.profile is None else shift * self.profile(x)
        return scale * raw + offset


class Family(eqx.Module):
    """How a network is corrected. It holds no arrays."""

    prescribed: eqx.AbstractVar[Prescribed]
    profile: eqx.AbstractVar[Profile | None]
    "what the shift multiplies; None for 1"
    is_affine: eqx.AbstractClassVar[bool]
    "whether operators may act on the network and on the profile by themselves"

    @abc.abstractmethod
    def solve(
        self,
        live: Callable[..., Array],
        frozen: Callable[..., Array],
        rule: QuadratureRule,
        gradient: GradientMode,
        time: Array | None,
    ) -> Any:
        """All that a slice at a time needs, arrays only, from one quadrature; `frozen`
        is the network `live` with constant parameters."""

    @abc.abstractmethod
    def slice(
        self, net: Callable[..., Array], time: Array | None, dimension: int, found: Any
    ) -> "FieldSlice":
        """The field at a time, from what `solve` found there."""

    @abc.abstractmethod
    def near(
        self, net: Callable[..., Array], series: Any, time: Array | None
    ) -> Callable[..., Array]:
        """The field as a function of (x, t) near a time, from the coefficients there
        with their derivatives in t on the first axis."""

    @property
    @abc.abstractmethod
    def frozen(self) -> FrozenForm:
        """How the numbers of `tabulated` correct the network."""

    @abc.abstractmethod
    def tabulated(self, now: Any) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The numbers that correct the network at the time of a slice, and what errors
        in them are relative to."""

    @abc.abstractmethod
    def live(self, series: Any) -> Sequence[Any]:
        """The coefficients that depend on the parameters of the network."""
