"""A conserved field at given times."""

from typing import Any

import torch
from torch import Tensor

from .._core import Correction, Moments, Status


class FieldSlice:
    """A conserved field at given times: the quadrature is done, points cost one
    evaluation of the network and one multiplication and addition."""

    def __init__(
        self,
        field: Any,
        times: Tensor | None,
        moments: Moments,
        correction: Correction,
        means: list[Tensor | None],
    ) -> None:
        self._field, self._times, self.moments = field, times, moments
        self._correction, self.means = correction, means

    @property
    def scale(self) -> Tensor:
        """alpha, for each time and component."""
        return self._outside(self._correction.scale)

    @property
    def shift(self) -> Tensor:
        """beta, for each time and component; it multiplies the profile."""
        return self._outside(self._correction.shift)

    @property
    def status(self) -> Tensor:
        """A `Status` for each time and component."""
        return self._outside(self._correction.status)

    def _outside(self, rows: Tensor) -> Tensor:
        """Of the shape of the times, and of the components where there are several."""
        shape = () if self._times is None else self._times.shape
        rows = rows.reshape(*shape, rows.shape[-1])
        return rows if rows.shape[-1] > 1 else rows[..., 0]

    def __call__(self, x: Tensor) -> Tensor:
        """The field at points of shape (..., d): all of one time, or one for each.
        Raises what `check` does."""
        self.check()
        return self.unchecked(x)

    def unchecked(self, x: Tensor) -> Tensor:
        """The same, whether or not the targets are met."""
        field, shape = self._field, x.shape[:-1]
        times = self._times
        if times is not None:
            if times.numel() != 1 and times.shape != shape:
                raise ValueError(
                    f"x must have one point for each time, times of shape "
                    f"{tuple(times.shape)}, got points of shape {tuple(shape)}"
                )
            times = times.reshape(-1).expand(shape.numel())
        x = x.reshape(-1, x.shape[-1])
        raw = field.call.raw(field.net, x, times)
        phi = field.profile_at(x)
        phi = None if phi is None else phi[:, None]
        out = self._correction.apply(raw.double(), phi).to(raw.dtype)
        return field.call.shaped(out, shape)

    def check(self) -> None:
        """Raise `ValueError` if the targets are not met here and the numbers can be
        looked at: not where PyTorch compiles, exports or maps over a batch."""
        if torch.compiler.is_compiling():
            return
        status = self._correction.status
        try:
            is_met = not bool((status >= int(Status.DEGENERATE)).any())
        except RuntimeError:
            # Under torch.vmap, or on a device without numbers.
            return
        if is_met:
            return
        row, k = torch.nonzero(status >= int(Status.DEGENERATE))[0].tolist()
        t, field = self._times, self._field
        time = None if t is None else float(t.detach().reshape(-1)[row])
        raise field.prescribed.error(
            k,
            time,
            Status(int(status[row, k])),
            lambda target: field.target_at(target, time),
            second_moment=float(self.moments.second_moment[row, k].detach()),
        )

    def gauge(self) -> Tensor:
        """`(log |scale|)^2 + (Q[f] - m)^2 / V`, summed over components with targets,
        the mean over the times.

        Scale and offset of the raw network do not matter to the field, so they drift
        in training. A small multiple of this (0.01) in the loss pins them softly; V is
        the variance of the corrected field on the rule.
        """
        raw, spread = self.moments.mean, self.moments.spread
        total = torch.zeros_like(raw[..., 0])
        for k, mean in enumerate(self.means):
            # A component without targets has scale 1 and adds nothing.
            factor = self._correction.scale[..., k].abs()
            live = factor > 0.0
            total = total + torch.log(torch.where(live, factor, 1.0)) ** 2
            if mean is not None:
                variance = (factor**2 * spread[..., k]).detach()
                safe = torch.where(variance > 0.0, variance, 1.0)
                missed = (raw[..., k] - mean) ** 2 / safe
                total = total + torch.where(variance > 0.0, missed, 0.0)
        return total.mean()
