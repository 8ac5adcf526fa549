"""The moments of a network on a rule as differentiable functions of time.

A batch of points has few distinct times, and each of them costs a quadrature; but the
derivative by the time of one point must not mix with that of another point of the same
time. So the sums and their derivatives by t are computed once for each distinct time,
a block of nodes at a time, and handed to the points through a function whose derivative
is known: the next row of the series, made when it is asked for.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._core import Moments
from ._gradient import Detached, GradientMode
from ._module import Parameters


class Network(NamedTuple):
    """A network to be integrated, and its parameters."""

    evaluate: Callable[[Tensor, Tensor, Parameters], Tensor]
    """Points (N, d), times (N,) and parameters to float64 values (N, components)."""
    parameters: Parameters

    @property
    def constants(self) -> Parameters:
        """The parameters, without a gradient."""
        return {k: p.detach() for k, p in self.parameters.items()}


Part = tuple[Tensor, Tensor, Tensor | None]
"""Nodes, weights and profile of one part of a rule."""


def moments_at(
    t: Tensor, net: Network, rule: Part, subset: Part | None, mode: GradientMode
) -> Moments:
    """The moments at times of shape (N,), differentiable by t and the parameters.

    `subset` are the nodes that the gradient is estimated from, with the factors on
    their weights, or None for all nodes.
    """
    weights, phi = rule[1], rule[2]
    profile = None if phi is None else (weights * phi).sum()
    profile_square = None if phi is None else (weights * phi * phi).sum()
    frozen = isinstance(mode, Detached) or subset is not None
    if _is_transformed(t, *net.parameters.values()):
        pivot, rows = _direct(t, net, rule, subset, frozen)
    else:
        times, place = torch.unique(t.detach(), return_inverse=True)

        def compute(order: int) -> tuple[Tensor, list[Tensor]]:
            live = torch.is_grad_enabled()
            whole = live and not frozen
            pivot, rows = _streamed(times, net, rule, whole, mode.chunk, order)
            if subset is not None and live:
                _, some = _streamed(times, net, subset, True, mode.chunk, order, pivot)
                rows = [a + (b - b.detach()) for a, b in zip(rows, some, strict=True)]
            return pivot, rows

        series = _Series(compute, place)
        rows = series.at(t, 0, int(t.requires_grad and torch.is_grad_enabled()))
        pivot = series.pivot[place]
    # Without a profile the sum of g and that of phi g are one row.
    sums = rows[0], rows[-2], rows[-1]
    return Moments(pivot, weights.sum(), profile, profile_square, *sums)


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
        values = net.evaluate(*_grid(times, part), parameters)
        return [values.reshape(len(times), len(part[0]), values.shape[1])]

    parameters = net.constants if frozen else net.parameters
    pivot, (rows,) = _sums_of(values(rule, parameters), rule, None)
    if subset is not None:
        # The difference is zero in value and in every derivative by x and t; its
        # gradient with respect to the parameters is the estimate.
        live, dead = (
            _sums_of(values(subset, parameters), subset, pivot)[1][0]
            for parameters in (net.parameters, net.constants)
        )
        rows = rows + (live - dead)
    return pivot, rows


def _grid(times: Tensor, part: Part) -> tuple[Tensor, Tensor]:
    """Every node with every time, nodes inside times: points (N, d) and times (N,)."""
    shape, dimension = (len(times), len(part[0])), part[0].shape[1]
    x = part[0].expand(*shape, dimension).reshape(-1, dimension)
    return x, times[:, None].expand(shape).reshape(-1)


def _streamed(
    times: Tensor,
    net: Network,
    rule: Part,
    live: bool,
    chunk: int,
    order: int,
    about: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """The pivot and the sums about it with their derivatives by t, with at most about
    `chunk` rows of the network in memory; differentiable in the parameters if live."""
    if len(times) > chunk:
        pivots = itertools.repeat(None) if about is None else about.split(chunk)
        columns = [
            _streamed(part, net, rule, live, chunk, order, pivot)
            for part, pivot in zip(times.split(chunk), pivots, strict=False)
        ]
        series = zip(*(c[1] for c in columns), strict=True)
        return torch.cat([c[0] for c in columns]), [torch.cat(r, 1) for r in series]
    length, size = max(1, chunk // max(1, len(times))), len(rule[0])
    if length >= size:
        parameters = net.parameters if live else net.constants
        return _derivatives(times, net, rule, parameters, order, about)
    found = []
    for start in range(0, size, length):
        nodes, weights = (a[start : start + length] for a in rule[:2])
        phi = None if rule[2] is None else rule[2][start : start + length]
        part = nodes, weights, phi
        pivot, rows = _derivatives(times, net, part, net.constants, order, about)
        if live:
            again = functools.partial(_derivatives, times, net, part, order=order)
            names, tensors = list(net.parameters), net.parameters.values()
            values = torch.stack(rows)
            rows = list(_MadeAgain.apply(again, pivot, names, values, *tensors))
        squares = weights if phi is None else weights * phi * phi
        profiles = weights if phi is None else weights * phi
        found.append((pivot, rows, profiles.sum(), squares.sum()))

    # One pivot for all parts, from which what is left of the mean is rounding.
    total = torch.stack([f[3] for f in found]).sum()
    shares = [p * s + rows[0][-2].detach() for p, rows, _, s in found]
    pivot = torch.stack(shares).sum(0) / torch.where(total > 0.0, total, 1.0)
    pivot = pivot if about is None else about
    sums: list[Tensor] = []
    for k in range(order + 1):
        moved = []
        for own, rows, profile, square in found:
            step = own - pivot
            residual, cross, quadratic = rows[k][0], rows[k][-2], rows[k][-1]
            quadratic = quadratic + 2.0 * step * cross
            if k == 0:
                quadratic = quadratic + step * step * square
                residual, cross = residual + step * profile, cross + step * square
            three = [residual, cross, quadratic]
            moved.append(torch.stack(three if len(rows[k]) == 3 else three[1:]))
        sums.append(torch.stack(moved).sum(0))
    return pivot, sums


class _MadeAgain(torch.autograd.Function):
    """Sums that are known, whose graph is made in the backward pass and not kept."""

    @staticmethod
    def forward(
        ctx: Any, again: Any, pivot: Tensor, names: Any, values: Tensor, *tensors: Any
    ) -> Tensor:
        ctx.again, ctx.pivot, ctx.names = again, pivot, names
        ctx.save_for_backward(*tensors)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        tensors, create = ctx.saved_tensors, torch.is_grad_enabled()
        with torch.enable_grad():
            parameters = dict(zip(ctx.names, tensors, strict=True))
            rows = torch.stack(ctx.again(parameters, pivot=ctx.pivot)[1])
        if not rows.requires_grad:
            return (None,) * (4 + len(tensors))
        wanted = [p for p in tensors if p.requires_grad]
        found = iter(
            torch.autograd.grad(
                rows, wanted, grads[0], create_graph=create, allow_unused=True
            )
        )
        own = (next(found) if p.requires_grad else None for p in tensors)
        return None, None, None, None, *own


def _derivatives(
    times: Tensor,
    net: Network,
    part: Part,
    parameters: Parameters,
    order: int,
    pivot: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """The pivot of one part of a rule, and the sums with their derivatives by t.

    Rows of a network do not mix, so one backward pass gives the derivatives of all of
    them, each by its own time.
    """
    live = torch.is_grad_enabled() and any(p.requires_grad for p in parameters.values())
    with torch.set_grad_enabled(live or order > 0):
        x, t = _grid(times, part)
        if order:
            t = t.detach().clone().requires_grad_()
        rows = [net.evaluate(x, t, parameters)]
        for k in range(order):
            rows.append(_by_time(rows[-1], t, create=live or k + 1 < order))
    shape = len(times), len(part[0])
    rows = [(r if live else r.detach()).reshape(*shape, r.shape[1]) for r in rows]
    return _sums_of(rows, part, pivot)


def _by_time(values: Tensor, t: Tensor, create: bool) -> Tensor:
    """The derivative of each row by its own time."""
    columns: list[Tensor | None] = [None] * values.shape[1]
    if values.requires_grad:
        for k in range(len(columns)):
            (columns[k],) = torch.autograd.grad(
                values[:, k].sum(),
                t,
                create_graph=create,
                retain_graph=True,
                allow_unused=True,
            )
    zero = torch.zeros_like(t)
    return torch.stack([zero if c is None else c for c in columns], 1)


def _sums_of(
    values: list[Tensor], part: Part, pivot: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    """The pivot, and the weighted sums about it with their derivatives: of g, of phi g
    if there is a profile, of g^2.

    `values` are those of the network, shape (times, nodes, components), and their
    derivatives by t.
    """
    weights, phi = part[1][:, None], part[2]
    if phi is None:
        tilted, square = weights, part[1].sum()
    else:
        tilted, square = weights * phi[:, None], (part[1] * phi * phi).sum()
    if pivot is None:
        # No moment depends on the pivot, so it is held fixed in derivatives.
        level = (tilted * values[0].detach()).sum(1)
        pivot = level / torch.where(square > 0.0, square, 1.0)
    middle = pivot[:, None] if phi is None else pivot[:, None] * phi[:, None]
    centred = [values[0] - middle, *values[1:]]
    out = []
    for k, g in enumerate(centred):
        rows = [(weights * g).sum(1)]
        if phi is not None:
            rows.append((tilted * g).sum(1))
        # The k-th derivative of a product, each pair of factors once.
        product = sum(
            (1 if 2 * j == k else 2) * math.comb(k, j) * centred[j] * centred[k - j]
            for j in range(k // 2 + 1)
        )
        rows.append((weights * product).sum(1))
        out.append(torch.stack(rows))
    return pivot, out
