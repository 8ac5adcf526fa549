"""freeze: scale and shift as functions of time, computed once, for inference."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._core import Status, tabulate
from ._buffers import Float64Buffers
from ._field import ConservedField
from ._module import call_module, device_of, dtype_of

_TABLES = ("times", "weights", "scales", "shifts", "accuracy", "form")
_CALLS = ("x", "xt", "x, t")

# Derivatives by t that a frozen field has.
_ORDERS = 4


class FrozenField(Float64Buffers):
    """A conserved field whose scale and shift are interpolated in time: a point costs
    one evaluation of the network, one multiplication and one addition.

    Made by `ConservedField.freeze`. `accuracy` is the largest error of the
    interpolated scale and shift that was measured between the nodes, relative to the
    largest scale, and to the largest of shift and network. `torch.compile` and
    `torch.export` take it. Derivatives by t are those of the interpolant, up to the
    fourth.
    """

    times: Tensor
    weights: Tensor
    scales: Tensor
    shifts: Tensor
    accuracy: Tensor
    _series: Tensor

    def __init__(
        self,
        net: nn.Module,
        tables: dict[str, Tensor],
        profile: Callable[[Tensor], Tensor] | None,
    ) -> None:
        super().__init__()
        self.net, self.profile = net, profile
        dimension, takes, flat, has_profile = tables["form"].tolist()
        self.dimension, self.takes = dimension, _CALLS[takes]
        self.is_flat = bool(flat)
        if bool(has_profile) != (profile is not None):
            need = "needs" if has_profile else "has no"
            raise ValueError(f"the field {need} a profile, got profile = {profile!r}")
        for name in _TABLES:
            self.register_buffer(name, tables[name])
        both = torch.cat([tables["scales"], tables["shifts"]], 1)
        slopes, rows = _slopes(tables["times"], tables["weights"]), [both]
        for _ in range(_ORDERS):
            rows.append(slopes @ rows[-1])
        self.register_buffer("_series", torch.cat(rows, 1), persistent=False)

    def coefficients(self, t: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scale and shift at times of shape (N,), one column a component.

        Times outside the frozen range give NaN, by more than a rounding error.
        """
        if t is None:
            return self.scales, self.shifts
        first, last = self.times[0], self.times[-1]
        # A time in single precision may be rounded past the end of the range: back
        # into it.
        largest = torch.maximum(first.abs(), last.abs())
        slack = 1e-6 * (last - first) + torch.finfo(t.dtype).eps * largest
        t = t.double()
        now = t.detach()
        inside = (now >= first - slack) & (now <= last + slack)
        rows = _interpolate(
            torch.minimum(torch.maximum(now, first), last),
            self.times,
            self.weights,
            self._series,
        )
        # The Taylor series about the time itself: its value, with the derivatives
        # that were interpolated. Those of the formula are wrong on a node, where it
        # takes one row of the table, and lose digits beside one.
        n, step = self.scales.shape[1], (t - now)[:, None]
        both = rows[:, : 2 * n]
        for k in range(1, _ORDERS + 1):
            row = rows[:, 2 * n * k : 2 * n * (k + 1)]
            both = both + row * step**k / math.factorial(k)
        both = torch.where(inside[:, None], both, torch.nan)
        return both[:, :n], both[:, n:]

    def forward(self, x: Tensor, t: Tensor | float | None = None) -> Tensor:
        """The field at points and times, called as the field that was frozen."""
        d = self.dimension
        times: Any = t
        if self.takes == "xt" and t is None and x.shape[-1] == d + 1:
            x, times = x[..., :d], x[..., d]
        if x.shape[-1] != d:
            raise ValueError(
                f"x must have {d} coordinates on its last axis, got shape "
                f"{tuple(x.shape)}"
            )
        if (times is not None) != (self.takes != "x"):
            need = "be given" if t is None else "be left out: the network has none"
            raise ValueError(f"t must {need}, got {t!r}")
        shape = x.shape[:-1]
        x = x.reshape(-1, d)
        if times is not None:
            if not isinstance(times, Tensor):
                times = x.new_tensor(times, dtype=torch.float64)
            times = times[..., 0] if times.shape == (*shape, 1) else times
            times = times.expand(shape).reshape(-1)
        scale, shift = self.coefficients(times)
        raw = call_module(self.net, self.takes, x, times)
        values = raw[:, None] if self.is_flat else raw
        if self.profile is not None:
            shift = shift * self.profile(x).double().reshape(-1, 1)
        out = (scale * values.double() + shift).to(raw.dtype)
        return (
            out[:, 0].reshape(shape)
            if self.is_flat
            else out.reshape(*shape, out.shape[1])
        )

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
        missing = [n for n in _TABLES if n not in state]
        if missing:
            raise ValueError(f"{file} is not a frozen field: it has no {missing[0]}")
        tables = {name: state[name] for name in _TABLES}
        field = FrozenField(copy.deepcopy(net), tables, profile)
        field.load_state_dict(state)
        return field.to(device_of(net) or "cpu")


def freeze(field: ConservedField, times: Any, tolerance: float | None) -> FrozenField:
    """Tabulate scale and shift; see `ConservedField.freeze`."""
    device = field.rule.nodes.device

    def sample(grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            now = field.at(torch.as_tensor(grid, device=device))
            bad = (now.status >= int(Status.DEGENERATE)).reshape(len(grid), -1).any(1)
            if bool(bad.any()):
                field.check(grid[bad.cpu().numpy()])
            size = now.moments.second_moment.sqrt().cpu().numpy()
            both = [a.reshape(len(grid), -1) for a in (now.scale, now.shift)]
            return torch.stack(both, 1).cpu().numpy(), size

    if (times is not None) != field.has_time:
        need = "be given: the field depends on" if field.has_time else "be left out: no"
        raise ValueError(f"times must {need} time")
    if times is None:
        field.check()
        with torch.no_grad():
            now = field.at()
        row = torch.stack([a.reshape(1, -1) for a in (now.scale, now.shift)], 1).cpu()
        grid, weights, table, accuracy = np.zeros(1), np.ones(1), row.numpy(), 0.0
    else:
        eps = torch.finfo(dtype_of(field.net)).eps
        grid, weights, table, accuracy = tabulate(sample, times, tolerance, eps)
    arrays = {
        "times": grid,
        "weights": weights,
        "scales": table[:, 0],
        "shifts": table[:, 1],
        "accuracy": np.asarray(accuracy),
    }
    tables = {k: torch.tensor(v, dtype=torch.float64) for k, v in arrays.items()}
    call, has_profile = _CALLS.index(field.takes), field.profile is not None
    form = field.rule.dimension, call, int(field.is_flat), int(has_profile)
    tables["form"] = torch.tensor(form)
    return FrozenField(copy.deepcopy(field.net), tables, field.profile).to(device)


def _slopes(nodes: Tensor, weights: Tensor) -> Tensor:
    """The matrix that takes values at the nodes to derivatives there."""
    apart = nodes[:, None] - nodes + torch.eye(len(nodes), dtype=nodes.dtype)
    matrix = weights / weights[:, None] / apart
    matrix = matrix - torch.diag(torch.diag(matrix))
    return matrix - torch.diag(matrix.sum(1))


def _interpolate(t: Tensor, nodes: Tensor, weights: Tensor, table: Tensor) -> Tensor:
    """The rows of a table at times of shape (N,), by the barycentric formula."""
    gap = t[:, None] - nodes
    hit = gap == 0.0
    terms = weights / torch.where(hit, 1.0, gap)
    # On a node the formula is 0/0: the value of that node alone.
    terms = torch.where(hit.any(1, keepdim=True), hit.to(terms.dtype), terms)
    return terms @ table / terms.sum(1, keepdim=True)
