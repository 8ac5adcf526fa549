"""conserve: from a module to one whose integrals hold at every time."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .._core import (
    AbsoluteFloor,
    Prescribed,
    RelativeFloor,
    check_profile,
    check_volume,
    prescribe,
)
from ..invariants import Invariant, Mass, SquaredNorm, Variance
from ._field import ConservedField
from ._gradient import Exact, GradientMode
from ._module import check_module, check_rows, find_call
from ._rule import Rule


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
    - `mass`, `squared_norm`, `variance`, `invariants`: the integrals, as in
        `sdifp.conserve`: numbers, or differentiable functions of a tensor of times, one
        number each. Of single components only; moments with a weight, totals over
        components and quadratic forms are for networks of JAX.
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
    call, components = find_call(module, rule, has_time)
    check_volume(rule.log_volume, "float64")
    short = {"mass": mass, "squared_norm": squared_norm, "variance": variance}
    prescribed = prescribe(
        {name: _without_tensors(name, g, components) for name, g in short.items()},
        invariants,
        components=components,
        has_time=call.has_time,
        has_profile=profile is not None,
        volume=rule.volume,
        nodes=rule.size,
    )
    _check_single(prescribed)
    if profile is not None:
        _check_profile(profile, rule)
    field = ConservedField(
        module,
        rule,
        prescribed,
        call,
        profile=profile,
        gradient=gradient,
        floor=floor,
    )
    if times is not None:
        field.check(times)
    return field


def _check_single(prescribed: Prescribed) -> None:
    """Raise `ValueError` for an invariant that only fields of JAX can have."""
    known, count = (Mass, SquaredNorm, Variance), prescribed.components
    for one in prescribed.every:
        own = one.among(count)
        if not isinstance(one, known) or len(own) > 1:
            which = f"component{'s' * (len(own) > 1)} {', '.join(map(str, own))}"
            raise ValueError(
                f"invariants of sdifp.torch must be Mass, SquaredNorm or Variance of "
                f"one component, got {one.name}, {type(one).__name__} of {which}; "
                f"sdifp.conserve takes it for networks of JAX"
            )


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
    check_profile(terms.sum(), terms.abs().sum(), torch.finfo(torch.float64).eps)


def _without_tensors(name: str, given: Any, components: int | None) -> Any:
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
