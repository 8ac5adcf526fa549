"""freeze: scale and shift as functions of time, computed once, for inference."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from .._core import Status, tabulate
from ._field import ConservedField

_TABLES = ("times", "weights", "slopes", "scales", "shifts", "accuracy", "form")


class FrozenField(nn.Module):
    """A conserved field whose scale and shift are interpolated in time: a point costs
    one evaluation of the network, one multiplication and one addition.

    Made by `ConservedField.freeze`. `accuracy` is the largest error of the
    interpolated scale and shift that was measured between the nodes, relative to the
    largest scale, and to the largest of shift and network. `torch.compile` and
    `torch.export` take it.
    """

    _times: Tensor
    _weights: Tensor
    _slopes: Tensor
    _scales: Tensor
    _shifts: Tensor
    _accuracy: Tensor

    def __init__(
        self,
        net: nn.Module,
        tables: dict[str, Tensor],
        profile: Callable[[Tensor], Tensor] | None,
    ) -> None:
        super().__init__()
        self.net, self.profile = net, profile
        dimension, takes, flat, has_profile = tables["form"].tolist()
        self.dimension, self.takes = dimension, ("x", "xt", "x, t")[takes]
        self.is_flat = bool(flat)
        if bool(has_profile) != (profile is not None):
            need = "needs" if has_profile else "has no"
            raise ValueError(f"the field {need} a profile, got profile = {profile!r}")
        for name in _TABLES:
            self.register_buffer(f"_{name}", _to_bits(tables[name]))

    @property
    def accuracy(self) -> float:
        """The largest error of scale and shift that was measured."""
        return float(_numbers(self._accuracy))

    @property
    def range(self) -> tuple[float, float] | None:
        """The first and the last time; None for a network without time."""
        times = _numbers(self._times)
        return (float(times[0]), float(times[-1])) if self.takes != "x" else None

    def coefficients(self, t: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scale and shift at times of shape (N,), one column a component.

        Times outside the frozen range give NaN, by more than a rounding error.
        """
        scales, shifts = _numbers(self._scales), _numbers(self._shifts)
        if t is None:
            return scales, shifts
        times, weights = _numbers(self._times), _numbers(self._weights)
        first, last = times[0], times[-1]
        t = t.double()
        # A time in single precision may be rounded past the end of the range: back
        # into it in value, without a kink in the derivative.
        slack = 1e-6 * (last - first)
        inside = (t >= first - slack) & (t <= last + slack)
        t = t - (t - torch.minimum(torch.maximum(t, first), last)).detach()
        n = scales.shape[1]
        table = torch.cat([scales, shifts], 1)
        both = _interpolate(t, times, weights, _numbers(self._slopes), table)
        both = torch.where(inside[:, None], both, torch.nan)
        return both[:, :n], both[:, n:]

    def forward(self, x: Tensor, t: Tensor | float | None = None) -> Tensor:
        """The field at points and times, called as the field that was frozen."""
        d, times = self.dimension, cast(Any, t)
        if self.takes == "xt" and t is None and x.shape[-1:] == (d + 1,):
            x, times = x[..., :d], x[..., d]
        if (times is not None) != (self.takes != "x"):
            need = "be given" if t is None else "be left out: the network has none"
            raise ValueError(f"t must {need}, got {t!r}")
        shape = x.shape[:-1]
        x = x.reshape(-1, d)
        if times is None:
            scale, shift = self.coefficients()
            raw = self.net(x)
        else:
            if not isinstance(times, Tensor):
                times = x.new_tensor(times, dtype=torch.float64)
            times = times[..., 0] if times.shape == (*shape, 1) else times
            times = times.expand(shape).reshape(-1)
            scale, shift = self.coefficients(times)
            column = times.to(x.dtype)[:, None]
            if self.takes == "xt":
                raw = self.net(torch.cat([x, column], -1))
            else:
                raw = self.net(x, column)
        values = raw[:, None] if self.is_flat else raw
        if self.profile is not None:
            shift = shift * self.profile(x).double().reshape(-1, 1)
        out = (scale * values.double() + shift).to(raw.dtype)
        return out[:, 0].reshape(shape) if self.is_flat else out.reshape(*shape, -1)

    def save(self, file: str | Path) -> None:
        """Write the `state_dict`: tables and parameters, no code."""
        torch.save(self.state_dict(), file)

    @staticmethod
    def load(
        file: str | Path,
        net: nn.Module,
        profile: Callable[[Tensor], Tensor] | None = None,
    ) -> "FrozenField":
        """Read what `save` wrote, with `weights_only=True`.

        **Arguments:**

        - `net`: a network of the same structure; it is copied, and its parameters
            are replaced by those of the file.
        - `profile`: the profile, if the field had one; functions are not saved.
        """
        state = torch.load(file, map_location="cpu", weights_only=True)
        missing = [n for n in _TABLES if f"_{n}" not in state]
        if missing:
            raise ValueError(f"{file} is not a frozen field: it has no {missing[0]}")
        tables = {n: _numbers(state[f"_{n}"]) for n in _TABLES if n != "form"}
        tables["form"] = state["_form"]
        field = FrozenField(copy.deepcopy(net), tables, profile)
        field.load_state_dict(state)
        return field


def freeze(field: ConservedField, times: Any, tolerance: float | None) -> FrozenField:
    """Tabulate scale and shift; see `ConservedField.freeze`."""

    def sample(grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            now = field.at(torch.as_tensor(grid, device=field.rule.nodes.device))
            bad = (now.status >= int(Status.DEGENERATE)).reshape(len(grid), -1).any(1)
            if bool(bad.any()):
                field.check(grid[bad.cpu().numpy()])
            size = now.moments.second_moment.sqrt().cpu().numpy()
            both = [a.reshape(len(grid), -1) for a in (now.scale, now.shift)]
            return torch.stack(both, 1).cpu().numpy(), size

    if times is None:
        if field.has_time:
            raise ValueError("times must be given: the field depends on time")
        field.check()
        with torch.no_grad():
            now = field.at()
        row = [a.reshape(1, -1) for a in (now.scale, now.shift)]
        zero = np.zeros(1)
        tables = dict.fromkeys(("times", "weights"), zero) | {
            "slopes": np.zeros((1, 1)),
            "scales": row[0].cpu().numpy(),
            "shifts": row[1].cpu().numpy(),
            "accuracy": np.zeros(()),
        }
    else:
        if not field.has_time:
            raise ValueError("times must be left out: the network has no time")
        grid, weights, table, accuracy = tabulate(
            sample, times, tolerance, torch.finfo(torch.float64).eps
        )
        tables = {
            "times": grid,
            "weights": weights,
            "slopes": _slopes(grid, weights),
            "scales": table[:, 0],
            "shifts": table[:, 1],
            "accuracy": np.asarray(accuracy),
        }
    tensors = {k: torch.as_tensor(v, dtype=torch.float64) for k, v in tables.items()}
    form = (
        field.rule.dimension,
        ("x", "xt", "x, t").index(field.takes),
        field.is_flat,
        field.profile is not None,
    )
    tensors["form"] = torch.tensor([int(a) for a in form])
    net = copy.deepcopy(field.net)
    out = FrozenField(net, tensors, field.profile)
    return out.to(field.rule.nodes.device)


def _slopes(nodes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The matrix that takes values at the nodes to derivatives there."""
    apart = nodes[:, None] - nodes[None, :]
    np.fill_diagonal(apart, 1.0)
    matrix = weights[None, :] / weights[:, None] / apart
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, -matrix.sum(1))
    return matrix


def _interpolate(
    t: Tensor, nodes: Tensor, weights: Tensor, slopes: Tensor, table: Tensor
) -> Tensor:
    if not (t.requires_grad and torch.is_grad_enabled()):
        return _barycentric(t, nodes, weights, table)
    out: Tensor = _Interpolant.apply(t, nodes, weights, slopes, table)
    return out


class _Interpolant(torch.autograd.Function):
    """Interpolate; and for the derivative, the derivatives at the nodes: that of the
    formula is wrong on a node, where it takes one entry of the table, and loses digits
    beside one."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        ctx.save_for_backward(*arguments)
        t, nodes, weights, _, table = arguments
        return _barycentric(t, nodes, weights, table)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None, None, None]:
        t, nodes, weights, slopes, table = ctx.saved_tensors
        slope = _interpolate(t, nodes, weights, slopes, slopes @ table)
        return (grads[0] * slope).sum(-1), None, None, None, None


def _barycentric(t: Tensor, nodes: Tensor, weights: Tensor, table: Tensor) -> Tensor:
    gap = t[:, None] - nodes
    hit = gap == 0.0
    terms = weights / torch.where(hit, 1.0, gap)
    # On a node the formula is 0/0: the value of that node alone.
    terms = torch.where(hit.any(1, keepdim=True), hit.to(terms.dtype), terms)
    return terms @ table / terms.sum(1, keepdim=True)


def _to_bits(numbers: Tensor) -> Tensor:
    # As integers, so that `module.float()` or `.half()` leaves every digit.
    numbers = numbers.contiguous()
    return numbers.view(torch.int64) if numbers.is_floating_point() else numbers


def _numbers(bits: Tensor) -> Tensor:
    return bits.view(torch.float64)
