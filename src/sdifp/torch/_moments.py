"""The moments of a network on a rule as differentiable functions of time.

A batch of points has few distinct times, and each of them costs a quadrature; but the
derivative by the time of one point must not mix with that of another point of the same
time. So the sums and their derivatives by t are computed once for each distinct time,
and handed to the points through a function whose derivative is known: the next row of
the series, made when it is asked for.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._core import MomentAlgebra, overlap_of, spread_of
from ._gradient import Detached, GradientMode
from ._module import Parameters
from ._sums import Network, Part, grid, streamed, sums_of


@dataclasses.dataclass(frozen=True)
class Moments(MomentAlgebra):
    """Weighted sums about a pivot, for each time and component."""

    pivot: Tensor
    weight: Tensor
    profile: Tensor
    profile_square: Tensor
    residual: Tensor
    cross: Tensor
    square: Tensor

    # Each is used several times, and every operation costs its call; without a profile
    # most of them are not needed.

    @property
    def _is_plain(self) -> bool:
        return self.profile is self.weight

    @functools.cached_property
    def offset(self) -> Tensor:
        return self.residual / self.profile

    @functools.cached_property
    def level(self) -> Tensor:
        return self.pivot + self.offset

    @functools.cached_property
    def spread(self) -> Tensor:
        if not self._is_plain:
            return spread_of(self)
        return ((self.square - self.offset * self.residual) / self.weight).clip(min=0.0)

    @functools.cached_property
    def overlap(self) -> Tensor:
        return torch.zeros_like(self.pivot) if self._is_plain else overlap_of(self)

    @functools.cached_property
    def second_moment(self) -> Tensor:
        if not self._is_plain:
            return self.variance + self.mean**2
        return self.spread + self.level * self.level

    def component(self, k: int) -> "Moments":
        """The moments of one component."""
        own = (r[..., k] for r in (self.residual, self.cross, self.square))
        shared = self.weight, self.profile, self.profile_square
        return Moments(self.pivot[..., k], *shared, *own)


def moments_at(
    t: Tensor, net: Network, rule: Part, subset: Part | None, mode: GradientMode
) -> Moments:
    """The moments at times of shape (N,), differentiable by t and by the parameters.

    `subset` are the nodes that the gradient is estimated from, with the factors on
    their weights, or None for all nodes.
    """
    weights, phi = rule[1], rule[2]
    if phi is None:
        constants = (weights.sum(),) * 3
    else:
        terms = weights, weights * phi, weights * phi * phi
        constants = tuple(term.sum() for term in terms)  # type: ignore[assignment]
    frozen = isinstance(mode, Detached) or subset is not None
    if _is_transformed(t, *net.parameters.values()):
        pivot, rows = _direct(t, net, rule, subset, frozen)
    else:
        times, place = torch.unique(t.detach(), return_inverse=True)

        def compute(order: int) -> tuple[Tensor, list[Tensor]]:
            live = torch.is_grad_enabled()
            whole = live and not frozen
            pivot, rows = streamed(times, net, rule, whole, mode.chunk, order)
            if subset is not None and live:
                _, some = streamed(times, net, subset, True, mode.chunk, order, pivot)
                rows = [a + (b - b.detach()) for a, b in zip(rows, some, strict=True)]
            return pivot, rows

        series = _Series(compute, place)
        rows = series.at(t, 0, int(t.requires_grad and torch.is_grad_enabled()))
        pivot = series.pivot[place]
    # Without a profile the sum of g and that of phi g are one row.
    return Moments(pivot, *constants, rows[0], rows[-2], rows[-1])


def _is_transformed(*tensors: Tensor) -> bool:
    """Whether derivatives are taken in a way that cannot be seen from here: inside
    `torch.func`, or in forward mode."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return any(forward_ad.unpack_dual(a).tangent is not None for a in tensors)


class _Series:
    """The sums at each distinct time and their derivatives by t, and which of these
    times each point has."""

    def __init__(
        self, compute: Callable[[int], tuple[Tensor, list[Tensor]]], place: Tensor
    ) -> None:
        self._compute, self._place = compute, place
        self._known: dict[bool, list[Tensor]] = {True: [], False: []}

    def at(self, t: Tensor, order: int, up_to: int | None = None) -> Tensor:
        """The derivative of one order at the times of the points, as a function of
        them; those `up_to` an order are computed along with it."""
        # A derivative that was made without a graph must not be used in one.
        graph = torch.is_grad_enabled()
        known = self._known[graph]
        if not graph and len(known) <= order < len(self._known[True]):
            known[:] = [row.detach() for row in self._known[True]]
        if len(known) <= order:
            self.pivot, known[:] = self._compute(max(order, up_to or 0))
        out = known[order][:, self._place]
        if t.requires_grad and graph:
            out = out + _Link.apply(t, self, order + 1, out.shape)
        return out


class _Link(torch.autograd.Function):
    """Zero, with the next row of a series as its derivative by t."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, series: _Series, order: int, shape: Any) -> Tensor:
        ctx.save_for_backward(t)
        ctx.series, ctx.order = series, order
        ctx.set_materialize_grads(False)
        return t.new_zeros(shape)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, None, None, None]:
        if grads[0] is None:
            return None, None, None, None
        rows = ctx.series.at(*ctx.saved_tensors, ctx.order)
        return _Product.apply(grads[0], rows), None, None, None


class _Product(torch.autograd.Function):
    """The sum over rows and components of a product, that does not pass on zeros: where
    x and t are columns of one tensor, every derivative by x comes with zeros for t, and
    the next row of the series would be computed for them."""

    @staticmethod
    def forward(ctx: Any, factor: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(factor, rows)
        ctx.set_materialize_grads(False)
        return (factor * rows).sum((0, 2))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, Tensor | None]:
        grad = grads[0]
        if grad is None or not (grad.requires_grad or bool(grad.any())):
            return None, None
        factor, rows = ctx.saved_tensors
        return grad[None, :, None] * rows, grad[None, :, None] * factor


def _direct(
    times: Tensor, net: Network, rule: Part, subset: Part | None, frozen: bool
) -> tuple[Tensor, Tensor]:
    """Pivot and sums by plain operations, one quadrature for every time given."""

    def values(part: Part, parameters: Parameters) -> list[Tensor]:
        values = net.evaluate(*grid(times, part), parameters)
        return [values.reshape(len(times), len(part[0]), values.shape[1])]

    parameters = net.constants if frozen else net.parameters
    pivot, (rows,) = sums_of(values(rule, parameters), rule, None)
    if subset is not None:
        # The difference is zero in value and in every derivative by x and t; its
        # gradient by the parameters is the estimate.
        live, dead = (
            sums_of(values(subset, parameters), subset, pivot)[1][0]
            for parameters in (net.parameters, net.constants)
        )
        rows = rows + (live - dead)
    return pivot, rows
