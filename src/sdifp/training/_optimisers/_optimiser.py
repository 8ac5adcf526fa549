"""What an optimiser is given, and what it does."""

import abc
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Float


@runtime_checkable
class Objective(Protocol):
    """What is minimised in one step."""

    def loss(self, net: Any) -> Float[Array, ""]:
        """The loss, or an estimate of it with an estimate of its gradient."""
        ...

    def total(self, net: Any) -> Float[Array, ""]:
        """The loss, no estimate of it."""
        ...

    def linearise(
        self, net: Any
    ) -> tuple[Float[Array, ""], Float[Array, " n"], Float[Array, "n p"]]:
        """The loss as of `total`, rows R and their derivatives J with respect to the
        parameters, in the order of `jax.flatten_util.ravel_pytree`: `J^T R` is the
        gradient of the loss, and `J^T J` about its second derivative. Of a sum of
        squares the rows are what is squared."""
        ...


class Optimiser(eqx.Module):
    """Changes the parameters of a network so that an objective falls."""

    @property
    @abc.abstractmethod
    def refresh(self) -> int:
        """How many steps share one batch of points."""

    @property
    @abc.abstractmethod
    def uses_rows(self) -> bool:
        """Whether rows are asked for, not only a loss."""

    @abc.abstractmethod
    def start(self, net: Any, steps: int) -> Any:
        """The state before the first of `steps` steps."""

    @abc.abstractmethod
    def step(
        self, net: Any, state: Any, objective: Objective, steps: int
    ) -> tuple[Any, Any, Float[Array, ""]]:
        """The network and the state after one step, and the loss before it."""
