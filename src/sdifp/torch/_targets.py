"""Prescribed integrals as tensors."""

from typing import Any

import torch
from torch import Tensor

from ..invariants import Target


def target_at(target: Target, times: Tensor) -> Tensor | float:
    """A target at times of shape (N,), in the dtype that it comes in: a number as a
    Python float."""
    try:
        value = target.value(times)
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{target.name} must be a function of a tensor of times, made of torch's "
            f"operations; for times of shape {tuple(times.shape)} it failed with: "
            f"{error}"
        ) from error
    if isinstance(value, float):
        return value
    out = value if isinstance(value, Tensor) else times.new_tensor(value)
    out = out.to(times.device)
    if out.shape not in ((), times.shape) or not out.is_floating_point():
        raise ValueError(
            f"{target.name} must return one floating-point number for each time, got "
            f"{out.dtype} of shape {tuple(out.shape)} for times of shape "
            f"{tuple(times.shape)}"
        )
    return out.expand(times.shape)


def without_tensors(name: str, given: Any, components: int | None) -> Any:
    """Targets as a user gives them, with numbers in place of tensors; a list of one is
    taken for one component."""
    entries = list(given) if isinstance(given, list | tuple) else [given]
    for k, entry in enumerate(entries):
        if isinstance(entry, Tensor):
            if entry.requires_grad:
                raise ValueError(
                    f"{name} must not be a tensor that requires grad; give a function "
                    f"of t that returns it"
                )
            known = entry.float() if entry.dtype == torch.bfloat16 else entry
            entries[k] = known.cpu().numpy()
    whole = isinstance(given, list | tuple) and (components, len(entries)) != (None, 1)
    return entries if whole else entries[0]
