"""conserve: from a module to one whose integrals hold at every time."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._core import AbsoluteFloor, RelativeFloor, prescribe
from ..invariants import Invariant
from ._field import ConservedField, check_subset
from ._gradient import Exact, GradientMode
from ._module import check_module, check_rows, find_call
from ._rule import Rule
from ._targets import without_tensors


def conserve(
    module: nn.Module,
    rule: Any,
    mass: Any = None,
    squared_norm: Any = None,
    *,
    variance: Any = None,
    invariants: Sequence[Invariant] = (),
    profile: Callable[[Tensor], Tensor] | None = None,
    gradient: GradientMode = Exact(),
    floor: RelativeFloor | AbsoluteFloor = RelativeFloor(),
    has_time: bool | None = None,
    times: Sequence[float] | None = None,
) -> ConservedField:
    """Wrap a module so that its integrals hold on a rule, at every time.

    **Arguments:**

    - `module`: takes points (N, d) and times (N, 1); or both side by side, (N, d + 1),
        time last; or points alone. It returns (N,), (N, 1), or (N, components), and
        treats every row by itself. It is kept, not copied.
    - `rule`: the quadrature rule on which the integrals hold: a rule of `sdifp`, or a
        `Rule`. It moves to the device of the module.
    - `mass`: the integral of u over the box: a number, or a differentiable function
        of a tensor of times, one number each. For several components a list with one
        entry each, None where there is no target; components without targets are left
        as they are.
    - `squared_norm`: the integral of u^2, likewise. Either may be left out.
    - `variance`: the integral of `(u - m)^2`, where m is the mean of u: that is
        `squared_norm - mass^2 / volume`, instead of the squared norm. It keeps the
        digits of a variation that is small beside the mean.
    - `invariants`: the same as objects, `Mass(1.0)`, `SquaredNorm(2.0, component=1)`;
        `mass`, `squared_norm` and `variance` are their short form.
    - `profile`: the function of points (N, d) that the shift multiplies; one that
        vanishes on the boundary keeps homogeneous Dirichlet data.
    - `gradient`: how the moments are differentiated with respect to the parameters:
        `Exact()`, `Subsampled(k)`, or for comparison `Detached()`.
    - `floor`: the least variance to divide by.
    - `has_time`: whether the module depends on time. Found out by calling it; needed
        for one that takes any number of columns.
    - `times`: times at which to check at once that the targets can be met.

    Examples:
        >>> import torch, sdifp, sdifp.torch
        >>> rule = sdifp.rule_for(sdifp.Box([0.0], [2.0], periodic=True), 64)
        >>> net = torch.nn.Sequential(
        ...     torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        ... )
        >>> u = sdifp.torch.conserve(net, rule, 1.0, squared_norm=lambda t: 2.0 + t)
        >>> now = u.at(0.5)(u.rule.nodes.float()).double()
        >>> print(f"{2 * now.mean():.4f} {2 * (now**2).mean():.4f}")
        1.0000 2.5000
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"module must be a torch.nn.Module, got {type(module).__name__}; JAX "
            f"networks are for sdifp.conserve"
        )
    if not isinstance(gradient, GradientMode):
        raise TypeError(
            f"gradient must be Exact(), Subsampled(k) or Detached() of sdifp.torch, "
            f"got {gradient!r}"
        )
    rule = Rule.of(rule)
    check_rows(module)
    device = check_module(module, gradient)
    if device is not None:
        rule = rule.to(device)
    check_subset(gradient, rule)
    takes, shape = find_call(module, rule, has_time)
    components = shape[1] if len(shape) == 2 and shape[1] > 1 else None
    limits = np.finfo(np.float64)
    low, high = np.log(limits.tiny), np.log(limits.max)
    if not low < rule.log_volume < high:
        raise ValueError(
            f"the volume of the box, exp({rule.log_volume:.6g}), does not fit float64; "
            f"give means as targets, with a rule on Box(..., normalised=True) or "
            f"Rule(..., normalised=True)"
        )
    short = {"mass": mass, "squared_norm": squared_norm, "variance": variance}
    prescribed = prescribe(
        {
            name: without_tensors(name, given, components)
            for name, given in short.items()
        },
        invariants,
        components=components,
        has_time=takes != "x",
        has_profile=profile is not None,
        volume=rule.volume,
        nodes=rule.size,
    )
    if profile is not None:
        _check_profile(profile, rule)
    field = ConservedField(
        module,
        rule,
        prescribed,
        profile=profile,
        gradient=gradient,
        floor=floor,
        takes=takes,
        is_flat=len(shape) == 1,
        components=components,
    )
    if times is not None:
        field.check(times)
    return field


def _check_profile(profile: Callable[[Tensor], Tensor], rule: Rule) -> None:
    values = profile(rule.nodes)
    if values.shape not in ((rule.size,), (rule.size, 1)):
        raise ValueError(
            f"profile must return one number for each point, got shape "
            f"{tuple(values.shape)} for {rule.size} points"
        )
    if values.requires_grad:
        raise ValueError("profile must not have parameters that require grad")
    terms = rule.weights * values.double().reshape(-1)
    if not bool(torch.isfinite(terms).all()):
        raise ValueError("profile must be finite on the nodes of the rule")
    mean, size = float(terms.sum()), float(terms.abs().sum())
    if size == 0.0:
        raise ValueError("profile must not be zero on every node of the rule")
    if abs(mean) <= 4 * torch.finfo(torch.float64).eps * size:
        raise ValueError("profile must not have mean zero on the rule")
