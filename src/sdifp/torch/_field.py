"""A module whose integrals hold at every time."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .._core import (
    AbsoluteFloor,
    Correction,
    Prescribed,
    RelativeFloor,
    solve,
)
from ..invariants import Target, time_list
from ._gradient import GradientMode, Subsampled
from ._module import Call, Parameters, check_rows, device_of, dtype_of
from ._moments import Network, Part, moments_at
from ._rule import Rule, float64_apply
from ._slice import FieldSlice

if TYPE_CHECKING:
    from .._core import Certificate
    from ._freeze import FrozenField


class ConservedField(nn.Module):
    """A network with prescribed integrals; made by `conserve`.

    Call it as you called the network. Its parameters and its `state_dict` are those of
    the network, under `net.`.
    """

    _apply = float64_apply

    _subset: Tensor | None
    _factor: Tensor | None

    def __init__(
        self,
        net: nn.Module,
        rule: Rule,
        prescribed: Prescribed,
        call: Call,
        *,
        profile: Callable[[Tensor], Tensor] | None,
        gradient: GradientMode,
        floor: RelativeFloor | AbsoluteFloor,
    ) -> None:
        super().__init__()
        if isinstance(gradient, Subsampled) and gradient.k > rule.size:
            raise ValueError(
                f"k must be at most the {rule.size} nodes of the rule, got {gradient.k}"
            )
        self.net, self.rule = net, rule
        self.prescribed, self.call, self.profile = prescribed, call, profile
        self.gradient, self.floor = gradient, floor
        # Targets that are modules themselves move and train with the field.
        given = [invariant.target.given for invariant in prescribed.invariants]
        self.targets = nn.ModuleList(g for g in given if isinstance(g, nn.Module))
        self._has_parameters = next(net.parameters(), None) is not None
        # The nodes that the gradient is estimated from.
        self.register_buffer("_subset", None, persistent=False)
        self.register_buffer("_factor", None, persistent=False)

    @property
    def has_time(self) -> bool:
        """Whether the field depends on time."""
        return self.call.has_time

    def forward(self, x: Tensor, t: Tensor | float | None = None) -> Tensor:
        """The field at points and times.

        **Arguments:**

        - `x`: points, shape (..., d); or, for a network of one argument, points and
            times side by side, shape (..., d + 1), time last.
        - `t`: one time, or one for each point, shape (...) or (..., 1). Each
            *distinct* time costs one quadrature.
        """
        self._check_input("x", x)
        x, times = self.call.split(x, t)
        return self.at(times)(x)

    def at(self, t: Tensor | float | None = None) -> FieldSlice:
        """The field at one time, or at several, of any shape; left out if the network
        has none."""
        self.call.check_time(t)
        check_rows(self.net)
        parameters = dict(self.net.named_parameters())
        if self._has_parameters and not parameters:
            raise ValueError(
                "the network has lost its parameters, as in torch.nn.DataParallel; use "
                "torch.nn.parallel.DistributedDataParallel"
            )
        nodes = self.rule.nodes
        given = None
        if t is not None:
            given = t if isinstance(t, Tensor) else nodes.new_tensor(t)
            self._check_input("t", given)
        times = nodes.new_zeros(1) if given is None else given.reshape(-1).double()

        raw = moments_at(
            times,
            Network(self._evaluate, parameters),
            (nodes, self.rule.weights, self.profile_at(nodes)),
            self._subset_part(),
            self.gradient,
        )
        parts, means = [], []
        limits = torch.finfo(dtype_of(self.net))
        for k in range(self.prescribed.components):
            own, eps = raw.component(k), torch.finfo(torch.float64).eps
            targets = self.prescribed.moments(k, lambda g: target_at(g, times))
            for name, value in targets.items():
                if isinstance(value, Tensor):
                    eps = max(eps, torch.finfo(value.dtype).eps)
                    targets[name] = value.double()
                else:
                    targets[name] = torch.full_like(times, value)
            means.append(targets.get("mean"))
            parts.append(
                solve(own, **targets, rounding=eps, floor=self.floor, field=limits)
                if targets
                else Correction.identity(own.pivot)
            )
        correction = Correction(*(torch.stack(c, -1) for c in zip(*parts, strict=True)))
        return FieldSlice(self, given, raw, correction, means)

    def profile_at(self, x: Tensor) -> Tensor | None:
        """The profile at points (N, d), in float64."""
        if self.profile is None:
            return None
        return self.profile(x).double().reshape(len(x))

    def _evaluate(self, nodes: Tensor, times: Tensor, parameters: Parameters) -> Tensor:
        x = nodes.to(dtype_of(self.net))
        return self.call.raw(self.net, x, times, parameters).double()

    def _subset_part(self) -> Part | None:
        if self._subset is None or self._factor is None:
            return None
        nodes = self.rule.nodes[self._subset]
        weights = self._factor * self.rule.weights[self._subset]
        return nodes, weights, self.profile_at(nodes)

    def _check_input(self, name: str, given: Tensor) -> None:
        if not given.is_floating_point():
            raise TypeError(
                f"{name} must hold floating-point numbers, got {given.dtype}"
            )
        devices = {
            "the rule": self.rule.nodes.device,
            "the network": device_of(self.net),
        }
        for what, device in devices.items():
            if device not in (None, given.device):
                raise ValueError(
                    f"{name} must be on the device of the field, got {name} on "
                    f"{given.device} and {what} on {device}; move the whole field "
                    f"with u.to({str(given.device)!r})"
                )

    def resample(
        self, generator: torch.Generator | None = None, *, rule: bool | None = None
    ) -> None:
        """Fresh randomness for one training step.

        **Arguments:**

        - `generator`: by default the global one.
        - `rule`: whether to resample the rule as well as the nodes of the gradient. By
            default where the rule is randomised, in more than three dimensions.
        """
        if rule is None:
            rule = self.rule.dimension > 3 and self.rule.is_randomised
        if rule:
            self.rule.resample(generator)
        if isinstance(self.gradient, Subsampled):
            self._subset, self._factor = self.rule.sample(
                self.gradient.k,
                stratified=self.gradient.stratified,
                generator=generator,
            )

    def on(self, rule: Any) -> "ConservedField":
        """The same network, not a copy of it, conserving on another rule of the same
        box."""
        return ConservedField(
            self.net,
            self.rule.like("rule", rule),
            self.prescribed,
            self.call,
            profile=self.profile,
            gradient=self.gradient,
            floor=self.floor,
        )

    def check(self, times: Any = None) -> None:
        """Raise `ValueError` if a target cannot be met, naming the first time.

        **Arguments:**

        - `times`: the times to look at; left out if the network has no time.
        """
        for t in time_list(times):
            with torch.no_grad():
                self.at(t).check()

    def target_at(self, target: Target, t: float | None) -> float:
        """A target at one time."""
        time = self.rule.nodes.new_full((1,), 0.0 if t is None else t)
        return float(target_at(target, time))

    def freeze(
        self, times: Any = None, *, tolerance: float | None = None
    ) -> "FrozenField":
        """Compute scale and shift once, as functions of time, for inference.

        **Arguments:**

        - `times`: the first and the last time, or a whole grid; left out if the network
            has no time. See `sdifp.field.ConservedField.freeze`.
        - `tolerance`: the relative error of the interpolated scale and shift, measured
            half way between the nodes; by default 1e-9.
        """
        from ._freeze import freeze

        return freeze(self, times, tolerance)

    def certificate(
        self,
        times: Any = None,
        *,
        seed: int = 0,
        other_rule: Any = None,
        replicates: int = 16,
    ) -> "Certificate":
        """Measure what holds: the error of each integral on the rule, on an
        independent rule, and in the continuum with a confidence interval.

        **Arguments:**

        - `times`: the times to look at; left out if the network has no time.
        - `seed`: of the independent rule and the randomisations.
        - `other_rule`, `replicates`: as in `sdifp.field.ConservedField.certificate`.

        The independent rules are made by `sdifp`, which imports JAX.
        """
        from ._certificate import certify

        return certify(self, times, seed, other_rule, replicates)

    def extra_repr(self) -> str:
        """The targets, for print."""
        targets = {i.name: i.target for i in self.prescribed.invariants}
        return f"targets={targets}, gradient={self.gradient}"


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
