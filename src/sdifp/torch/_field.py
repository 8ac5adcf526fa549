"""A module whose integrals hold at every time."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from .._core import (
    AbsoluteFloor,
    Correction,
    FieldLimits,
    Prescribed,
    RelativeFloor,
    solve,
)
from ..invariants import Target, time_list
from ._buffers import float64_apply
from ._gradient import GradientMode, Subsampled
from ._module import Parameters, call_module, check_rows, device_of, dtype_of
from ._moments import moments_at
from ._rule import Rule
from ._slice import FieldSlice
from ._sums import Network, Part
from ._targets import target_at

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
        *,
        profile: Callable[[Tensor], Tensor] | None,
        gradient: GradientMode,
        floor: RelativeFloor | AbsoluteFloor,
        takes: str,
        is_flat: bool,
        components: int | None,
    ) -> None:
        super().__init__()
        self.net, self.rule = net, rule
        self.prescribed, self.profile = prescribed, profile
        self.gradient, self.floor = gradient, floor
        self.takes, self.is_flat, self.components = takes, is_flat, components
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
        return self.takes != "x"

    def forward(self, x: Tensor, t: Tensor | float | None = None) -> Tensor:
        """The field at points and times.

        **Arguments:**

        - `x`: points, shape (..., d); or, for a network of one argument, points and
            times side by side, shape (..., d + 1), time last.
        - `t`: one time, or one for each point, shape (...) or (..., 1). Each
            *distinct* time costs one quadrature.
        """
        self._check_input("x", x)
        d = self.rule.dimension
        times: Any = t
        if self.takes == "xt" and t is None and x.shape[-1:] == (d + 1,):
            x, times = x[..., :d], x[..., d]
        if x.shape[-1:] != (d,):
            and_time = f", or ({d + 1},) with the time" if self.takes == "xt" else ""
            raise ValueError(
                f"x must have {d} coordinates on its last axis{and_time}, got shape "
                f"{tuple(x.shape)}"
            )
        if isinstance(times, Tensor):
            points = x.shape[:-1]
            if times.shape == (*points, 1):
                times = times[..., 0]
            if times.shape != points and times.numel() != 1:
                raise ValueError(
                    f"t must be one time or have shape {tuple(points)} or "
                    f"{(*points, 1)}, one for each point of x, got "
                    f"{tuple(times.shape)}"
                )
        return self.at(times)(x)

    def at(self, t: Tensor | float | None = None) -> FieldSlice:
        """The field at one time, or at several, of any shape; left out if the network
        has none."""
        if (t is not None) != self.has_time:
            need = "be given" if self.has_time else "be left out: the network has none"
            raise ValueError(f"t must {need}, got {t!r}")
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
        limits = FieldLimits.of(torch.finfo(dtype_of(self.net)))
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
            if targets:
                parts.append(
                    solve(
                        own,
                        **targets,
                        rounding=eps,
                        floor=self.floor,
                        field=limits,
                    )
                )
            else:
                zero = torch.zeros_like(own.pivot)
                none = zero.to(torch.int32)
                one = torch.ones_like(zero)
                parts.append(Correction(one, zero, zero, zero, none))
        correction = Correction(*(torch.stack(c, -1) for c in zip(*parts, strict=True)))
        return FieldSlice(self, given, raw, correction, means)

    def raw(
        self, x: Tensor, t: Tensor | None, parameters: Parameters | None = None
    ) -> Tensor:
        """The network at points (N, d) and times (N,), one column a component; with
        parameters other than its own if given."""
        out = call_module(self.net, self.takes, x, t, parameters)
        return out[:, None] if self.is_flat else out

    def profile_at(self, x: Tensor) -> Tensor | None:
        """The profile at points (N, d), in float64."""
        if self.profile is None:
            return None
        return self.profile(x).double().reshape(len(x))

    def _evaluate(self, nodes: Tensor, times: Tensor, parameters: Parameters) -> Tensor:
        return self.raw(nodes.to(dtype_of(self.net)), times, parameters).double()

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
        for what, device in (
            ("the rule", self.rule.nodes.device),
            ("the network", device_of(self.net) or self.rule.nodes.device),
        ):
            if device != given.device:
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
        other = Rule.of(rule).to(self.rule.nodes.device)
        check_same_box("rule", other, self.rule)
        check_subset(self.gradient, other)
        return ConservedField(
            self.net,
            other,
            self.prescribed,
            profile=self.profile,
            gradient=self.gradient,
            floor=self.floor,
            takes=self.takes,
            is_flat=self.is_flat,
            components=self.components,
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

        - `times`: the first and the last time, between which a Chebyshev grid is
            refined until the tolerance is met, or a whole grid of your own. Left out
            if the network has no time.
        - `tolerance`: the error of the interpolated scale and shift, relative,
            measured half way between the nodes; by default 1e-9. A feature narrower
            than the gaps is not seen.
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
        - `other_rule`: the independent rule; by default a shifted lattice or scrambled
            Sobol points, at least as many as the rule has.
        - `replicates`: independent randomisations of such a rule that estimate the
            continuum.

        The independent rules are made by `sdifp`, which imports JAX.
        """
        from ._certificate import certify

        return certify(self, times, seed, other_rule, replicates)

    def extra_repr(self) -> str:
        """The targets, for print."""
        targets = {i.name: i.target for i in self.prescribed.invariants}
        return f"targets={targets}, gradient={self.gradient}"


def check_same_box(name: str, rule: Rule, other: Rule) -> None:
    """Raise unless both rules have the same bounds."""
    if not all(
        np.array_equal(a, b)
        for a, b in ((rule.lower, other.lower), (rule.upper, other.upper))
    ):
        raise ValueError(
            f"{name} must live on the box of the field, {other.lower.tolist()} to "
            f"{other.upper.tolist()}, got {rule.lower.tolist()} to "
            f"{rule.upper.tolist()}"
        )


def check_subset(gradient: GradientMode, rule: Rule) -> None:
    """Raise if there are fewer nodes than the gradient is to be estimated from."""
    if isinstance(gradient, Subsampled) and gradient.k > rule.size:
        raise ValueError(
            f"k must be at most the {rule.size} nodes of the rule, got {gradient.k}"
        )
