"""Modules whose own numbers keep their sixteen digits."""

from typing import Any

import torch
from torch import nn


class Float64Buffers(nn.Module):
    """A module whose own buffers move with it from device to device, and stay in
    float64 where `module.float()` or `.half()` changes its parameters."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        before = {k: b for k, b in self._buffers.items() if b is not None}
        out = super()._apply(fn, recurse)
        for name, buffer in before.items():
            now = self._buffers[name]
            if buffer.dtype == torch.float64 and now is not None:
                self._buffers[name] = buffer.to(now.device)
        return out
