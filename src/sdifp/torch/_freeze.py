"""freeze: scale and shift as functions of time, computed once, for inference."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._core import FrozenTables, fit_arrays, load_frozen, save_frozen, tabulate
from ._field import ConservedField
from ._module import CALLS, Call, device_of, dtype_of
from ._rule import float64_apply

_NAMES = ("scales", "shifts")
_TABLES = ("times", "weights", *_NAMES, "accuracy")

# Derivatives by t that a frozen field has.
_ORDERS = 4


class FrozenField(nn.Module):
    """A conserved field whose scale and shift are interpolated in time: a point costs
    one evaluation of the network, one multiplication and one addition.

    Made by `ConservedField.freeze`. `accuracy` is the largest error of the
    interpolated scale and shift that was measured between the nodes, relative to the
    largest scale, and to the largest of shift and network. `torch.compile` and
    `torch.export` take it. Derivatives by t are those of the interpolant, up to the
    fourth.
    """

    _apply = float64_apply

    times: Tensor
    weights: Tensor
    scales: Tensor
    shifts: Tensor
    accuracy: Tensor
    _series: Tensor

    def __init__(
        self,
        net: nn.Module,
        tables: FrozenTables,
        takes: str,
        profile: Callable[[Tensor], Tensor] | None,
    ) -> None:
        super().__init__()
        self.net, self.profile = net, profile
        scales, shifts = (tables.tables[name] for name in _NAMES)
        self.call = Call(takes, tables.dimension, scales.ndim == 1)
        rows = len(scales)
        arrays = (
            np.zeros(1) if tables.times is None else tables.times,
            np.ones(1) if tables.weights is None else tables.weights,
            scales.reshape(rows, -1),
            shifts.reshape(rows, -1),
            tables.accuracy,
        )
        for name, array in zip(_TABLES, arrays, strict=True):
            self.register_buffer(name, torch.tensor(array, dtype=torch.float64))
        slopes = _slopes(self.times, self.weights)
        series = [torch.cat([self.scales, self.shifts], 1)]
        for _ in range(_ORDERS):
            series.append(slopes @ series[-1])
        self.register_buffer("_series", torch.cat(series, 1), persistent=False)

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
        x, times = self.call.split(x, t)
        self.call.check_time(times)
        shape = x.shape[:-1]
        x = x.reshape(-1, self.call.dimension)
        if times is not None:
            if not isinstance(times, Tensor):
                times = x.new_tensor(times, dtype=torch.float64)
            # Not len(x), a constant to torch.export.
            times = times.reshape(-1).expand(x.shape[0])
        scale, shift = self.coefficients(times)
        raw = self.call.raw(self.net, x, times)
        if self.profile is not None:
            shift = shift * self.profile(x).double().reshape(-1, 1)
        out = (scale * raw.double() + shift).to(raw.dtype)
        return self.call.shaped(out, shape)

    def save(self, file: str | Path) -> None:
        """Write the tables of scale and shift and the `state_dict` of the network to an
        `.npz` file, without pickle and with a checksum. A file of that name is replaced
        when the new one is complete, and not before."""
        times, weights, scales, shifts = (
            getattr(self, name).cpu().numpy() for name in _TABLES[:4]
        )
        if self.call.is_flat:
            scales, shifts = scales[:, 0], shifts[:, 0]
        timed = self.call.has_time
        tables = FrozenTables(
            times if timed else None,
            weights if timed else None,
            float(self.accuracy),
            self.call.dimension,
            self.profile is not None,
            dict(zip(_NAMES, (scales, shifts), strict=True)),
        )
        takes = {"takes": np.array(self.call.takes)}
        save_frozen(file, tables, takes | _state(self.net))

    @staticmethod
    def load(
        file: str | Path,
        net: nn.Module,
        profile: Callable[[Tensor], Tensor] | None = None,
    ) -> "FrozenField":
        """Read what `save` wrote. A file that is damaged, or anything else, is a
        `ValueError`; nothing in it is executed.

        **Arguments:**

        - `net`: a network of the same structure; it is copied, and its parameters
            are replaced by those of the file.
        - `profile`: the profile, if the field had one; functions are not saved.
        """
        tables, saved = load_frozen(file, _NAMES, profile is not None)
        shapes = {table.shape for table in tables.tables.values()}
        takes = str(saved.pop("takes", ""))
        fits = len(shapes) == 1 and len(shapes.pop()) in (1, 2)
        if takes not in CALLS or (takes == "x") != (tables.times is None) or not fits:
            raise ValueError(f"{file} is not a frozen field of sdifp.torch")
        fit_arrays(file, saved, _state(net))
        copied = copy.deepcopy(net)
        state = {
            k: _as_tensor(saved[f"net.{k}"], v.dtype)
            for k, v in net.state_dict().items()
        }
        copied.load_state_dict(state)
        field = FrozenField(copied, tables, takes, profile)
        return field.to(device_of(net) or "cpu")


def _state(net: nn.Module) -> dict[str, np.ndarray]:
    """The `state_dict` of a network as arrays."""
    state = net.state_dict().items()
    return {f"net.{k}": _as_numpy(f"net.{k}", v) for k, v in state}


def _as_numpy(name: str, tensor: Any) -> np.ndarray:
    """A tensor; one of a format that NumPy lacks (bfloat16) as plain bytes."""
    if not isinstance(tensor, Tensor):
        raise ValueError(
            f"net must have tensors alone in its state_dict, and {name} is a "
            f"{type(tensor).__name__}"
        )
    tensor = tensor.detach().cpu().contiguous()
    try:
        return tensor.numpy()
    except TypeError:
        flat = tensor.reshape(-1).view(torch.uint8).numpy()
        return flat.view(f"V{tensor.element_size()}").reshape(tuple(tensor.shape))


def _as_tensor(array: np.ndarray, dtype: torch.dtype) -> Tensor:
    if array.dtype.kind != "V":
        return torch.tensor(array).to(dtype)
    flat = torch.tensor(np.frombuffer(array.tobytes(), np.uint8))
    return flat.view(dtype).reshape(array.shape)


def freeze(field: ConservedField, times: Any, tolerance: float | None) -> FrozenField:
    """Tabulate scale and shift; see `ConservedField.freeze`."""
    device = field.rule.nodes.device

    @torch.no_grad()
    def sample(grid: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        now = field.at(None if grid is None else torch.as_tensor(grid, device=device))
        now.check()
        rows = 1 if grid is None else len(grid)
        scale, shift = (a.reshape(rows, -1) for a in (now.scale, now.shift))
        size = now.moments.second_moment.sqrt().reshape(rows, -1)
        unit = torch.maximum(shift.abs(), scale.abs() * size)
        stacked = torch.stack([scale, shift]), torch.stack([scale.abs(), unit])
        table, units = (a.transpose(0, 1).cpu().numpy() for a in stacked)
        return table, units

    if (times is not None) != field.has_time:
        need = "be given: the field depends on" if field.has_time else "be left out: no"
        raise ValueError(f"times must {need} time")
    if times is None:
        grid, weights, table, accuracy = None, None, sample(None)[0], 0.0
    else:
        eps = torch.finfo(dtype_of(field.net)).eps
        grid, weights, table, accuracy = tabulate(sample, times, tolerance, eps)
    if field.call.is_flat:
        table = table[..., 0]
    d, has_profile = field.call.dimension, field.profile is not None
    named = dict(zip(_NAMES, (table[:, 0], table[:, 1]), strict=True))
    tables = FrozenTables(grid, weights, accuracy, d, has_profile, named)
    net = copy.deepcopy(field.net)
    return FrozenField(net, tables, field.call.takes, field.profile).to(device)


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
