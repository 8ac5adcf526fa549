"""What a module must be to be conserved, and how it is called."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ._gradient import Detached, GradientMode
from ._rule import Rule

Parameters = Mapping[str, Tensor]

CALLS = ("x", "xt", "x, t")
"""The ways to call a module: with points; points and times side by side; or both."""


class Call(NamedTuple):
    """How a module is called."""

    takes: str
    "one of `CALLS`"
    dimension: int
    is_flat: bool
    "whether it returns (N,) and not columns"

    @property
    def has_time(self) -> bool:
        """Whether it depends on time."""
        return self.takes != "x"

    def check_time(self, t: Any) -> None:
        """Raise unless a time is given where one is needed."""
        if (t is not None) != self.has_time:
            need = "be given" if self.has_time else "be left out: the network has none"
            raise ValueError(f"t must {need}, got {t!r}")

    def split(self, x: Tensor, t: Any) -> tuple[Tensor, Any]:
        """Points (..., d), and one time or one for each of them, (...)."""
        d = self.dimension
        if self.takes == "xt" and t is None and x.shape[-1:] == (d + 1,):
            x, t = x[..., :d], x[..., d]
        if x.shape[-1:] != (d,):
            and_time = f", or ({d + 1},) with the time" if self.takes == "xt" else ""
            raise ValueError(
                f"x must have {d} coordinates on its last axis{and_time}, got shape "
                f"{tuple(x.shape)}"
            )
        if isinstance(t, Tensor):
            points = x.shape[:-1]
            if t.shape == (*points, 1):
                t = t[..., 0]
            if t.shape != points and t.numel() != 1:
                raise ValueError(
                    f"t must be one time or have shape {tuple(points)} or "
                    f"{(*points, 1)}, one for each point of x, got {tuple(t.shape)}"
                )
        return x, t

    def raw(
        self,
        module: nn.Module,
        x: Tensor,
        t: Tensor | None,
        parameters: Parameters | None = None,
    ) -> Tensor:
        """A module at points (N, d) and times (N,), one column a component; with
        parameters other than its own if given."""
        arguments: tuple[Tensor, ...] = (x,)
        if t is not None and self.has_time:
            pair = x, t.to(x.dtype)[:, None]
            arguments = (torch.cat(pair, -1),) if self.takes == "xt" else pair
        if parameters is None:
            out = module(*arguments)
        else:
            out = functional_call(module, dict(parameters), arguments)
        return out[:, None] if self.is_flat else out

    def shaped(self, values: Tensor, shape: torch.Size) -> Tensor:
        """Columns as the module returns them, for points of this shape."""
        if self.is_flat:
            return values[:, 0].reshape(shape)
        return values.reshape(*shape, values.shape[1])


def dtype_of(module: nn.Module) -> torch.dtype:
    """The dtype of the floating-point parameters; float64 without any."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float64


def device_of(module: nn.Module) -> torch.device | None:
    """The device of the first parameter or buffer, if there is one."""
    return next((a.device for a in (*module.parameters(), *module.buffers())), None)


def check_rows(module: nn.Module) -> None:
    """Raise if a part of a module mixes the rows of a batch, or draws at random."""
    for name, part in module.named_modules():
        mixes = isinstance(part, _BatchNorm) or (
            isinstance(part, _DropoutNd) and part.p > 0.0
        )
        if mixes and part.training:
            raise ValueError(
                f"module must treat every row by itself and give the same values "
                f"twice, and {name or 'it'} is {type(part).__name__} in training mode; "
                f"call eval() on it"
            )


def check_module(module: nn.Module, gradient: GradientMode) -> torch.device | None:
    """The device of a module, all of it on one."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    first = next(iter(tensors), None)
    if first is None:
        return None
    device = tensors[first].device
    for name, tensor in tensors.items():
        if tensor.device != device:
            raise ValueError(
                f"module must be on one device, got {first} on {device} and {name} on "
                f"{tensor.device}"
            )
    if device.type in ("meta", "mps"):
        why = "holds no numbers" if device.type == "meta" else "has no float64"
        raise ValueError(
            f"module must be on a device such as cpu or cuda, got {device}, which {why}"
        )
    trainable = [p.requires_grad for p in module.parameters()]
    if trainable and not any(trainable) and not isinstance(gradient, Detached):
        raise ValueError(
            f"module has {len(trainable)} parameters and none requires grad, so "
            f"nothing could be trained; call module.requires_grad_(), or say "
            f"gradient=Detached() to evaluate only"
        )
    return device


def find_call(
    module: nn.Module, rule: Rule, has_time: bool | None
) -> tuple[Call, int | None]:
    """How a module is called, and how many components it has, None for one."""
    d = rule.dimension
    unit = torch.tensor([[0.25], [0.5], [0.8125]], dtype=torch.float64)
    lower, upper = (torch.as_tensor(np.array(b)) for b in (rule.lower, rule.upper))
    x = lower + (upper - lower) * unit
    x = x.to(rule.nodes.device, dtype_of(module))
    t = x.new_tensor([[0.25], [0.5], [0.75]])
    ways = {"x, t": (x, t), "xt": (torch.cat([x, t], -1),), "x": (x,)}
    found: dict[str, Any] = {}
    errors = []
    for takes, arguments in ways.items():
        if has_time is not None and (takes != "x") != has_time:
            continue
        try:
            with torch.no_grad():
                found[takes] = module(*arguments)
        except Exception as error:
            first = next(iter(str(error).splitlines()), "")
            errors.append(f"{takes}: {type(error).__name__}: {first}")
    if not found:
        raise ValueError(
            f"module cannot be called in the dimension of the rule, {d}: with points "
            f"x (3, {d}) and times t (3, 1), with both side by side as xt (3, "
            f"{d + 1}), or with x alone ({'; '.join(errors)})"
        )
    if {"xt", "x"} <= set(found):
        raise ValueError(
            f"module takes both {d} and {d + 1} columns: say has_time=True if the last "
            f"one is the time, else has_time=False"
        )
    takes, out = next(iter(found.items()))
    if not isinstance(out, Tensor) or out.ndim not in (1, 2) or len(out) != 3:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(
            f"module must return (N,), (N, 1) or (N, components) for N points, got "
            f"{got} for 3"
        )
    if out.numel() == 0 or not out.is_floating_point():
        raise TypeError(
            f"module must return floating-point numbers, got {out.dtype} of shape "
            f"{tuple(out.shape)}"
        )
    with torch.no_grad():
        again = module(*(a[:2] for a in ways[takes]))
    size = float(out.abs().max())
    if math.isfinite(size) and not torch.allclose(
        again, out[:2], rtol=1e-2, atol=1e-2 * size
    ):
        raise ValueError(
            "module must treat every row by itself and give the same values twice, "
            "and three points together were unlike two of them"
        )
    constant = {k: p.detach() for k, p in module.named_parameters()}
    if functional_call(module, constant, ways[takes]).requires_grad:
        raise ValueError(
            "module must not use tensors that require grad beside its own parameters, "
            "for their gradient through the moments would be lost; make them "
            "parameters of the module"
        )
    components = out.shape[1] if out.ndim == 2 and out.shape[1] > 1 else None
    return Call(takes, d, out.ndim == 1), components
