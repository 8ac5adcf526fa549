"""freeze: scale and shift as functions of time, computed once, for inference."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._core import FrozenTables, Status, fit_arrays, load_frozen, save_frozen, tabulate
from ._buffers import float64_apply
from ._field import ConservedField
from ._module import call_module, device_of, dtype_of

_TABLES = ("times", "weights", "scales", "shifts", "accuracy", "form")
_CALLS = ("x", "xt", "x, t")

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
        """Write the tables of scale and shift and the `state_dict` of the network to an
        `.npz` file, without pickle and with a checksum. A file of that name is replaced
        when the new one is complete, and not before."""
        times, weights, scales, shifts, accuracy = (
            getattr(self, name).cpu().numpy() for name in _TABLES[:-1]
        )
        if self.takes == "x":
            times = weights = None
        if self.is_flat:
            scales, shifts = scales[:, 0], shifts[:, 0]
        has_profile, state = self.profile is not None, self.net.state_dict()
        save_frozen(
            file,
            FrozenTables(
                *(times, weights, scales, shifts),
                *(float(accuracy), self.dimension, has_profile),
            ),
            {"takes": np.array(self.takes)}
            | {f"net.{k}": _as_numpy(f"net.{k}", v) for k, v in state.items()},
        )

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
        tables, saved = load_frozen(file, profile is not None)
        takes = str(saved.pop("takes", ""))
        if takes not in _CALLS or (takes == "x") != (tables.times is None):
            raise ValueError(f"{file} is not a frozen field of sdifp.torch")
        state = net.state_dict()
        arrays = {f"net.{k}": _as_numpy(f"net.{k}", v) for k, v in state.items()}
        wanted = {
            k: (a.shape, None if a.dtype.kind == "V" else a.dtype, a.dtype.itemsize)
            for k, a in arrays.items()
        }
        fit_arrays(file, saved, wanted)
        rows, copied = len(tables.scales), copy.deepcopy(net)
        copied.load_state_dict(
            {k: _as_tensor(saved[f"net.{k}"], v.dtype) for k, v in state.items()}
        )
        form = tables.dimension, _CALLS.index(takes), tables.scales.ndim == 1
        field = FrozenField(
            copied,
            _tensors(
                np.zeros(1) if tables.times is None else tables.times,
                np.ones(1) if tables.weights is None else tables.weights,
                tables.scales.reshape(rows, -1),
                tables.shifts.reshape(rows, -1),
                tables.accuracy,
            )
            | {"form": torch.tensor([*form, tables.has_profile], dtype=torch.int64)},
            profile,
        )
        return field.to(device_of(net) or "cpu")


def _tensors(
    times: np.ndarray,
    weights: np.ndarray,
    scales: np.ndarray,
    shifts: np.ndarray,
    accuracy: float,
) -> dict[str, Tensor]:
    arrays = (times, weights, scales, shifts, np.asarray(accuracy))
    return {
        name: torch.tensor(array, dtype=torch.float64)
        for name, array in zip(_TABLES[:-1], arrays, strict=True)
    }


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
    tables = _tensors(grid, weights, table[:, 0], table[:, 1], accuracy)
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
