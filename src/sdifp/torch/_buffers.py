"""Modules whose own numbers keep their sixteen digits."""

from typing import Any

import torch
from torch import nn


def float64_apply(self: nn.Module, fn: Any, recurse: bool = True) -> Any:
    """The method `_apply` of a module whose own buffers move with it from device to
    device, and stay in float64 where `.float()` or `.half()` changes its parameters."""
    before = {k: b for k, b in self._buffers.items() if b is not None}
    out = nn.Module._apply(self, fn, recurse)
    for name, buffer in before.items():
        now = self._buffers[name]
        if buffer.dtype == torch.float64 and now is not None:
            self._buffers[name] = buffer.to(now.device)
    return out
