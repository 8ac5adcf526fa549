"""conserve: a module whose integrals hold at every time."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from .._core import (
    AbsoluteFloor,
    FieldLimits,
    Prescribed,
    RelativeFloor,
    Target,
    prescribe,
    solve,
    time_list,
)
from ._buffers import Float64Buffers
from ._field_at import FieldAt
from ._gradient import Exact, GradientMode, Subsampled
from ._module import (
    Parameters,
    call_module,
    check_module,
    check_rows,
    device_of,
    dtype_of,
    find_call,
)
from ._moments import Network, Part, moments_at
from ._rule import Rule
from ._targets import target_at, without_tensors

if TYPE_CHECKING:
    from .._core import Certificate
    from ._freeze import FrozenField


class ConservedField(Float64Buffers):
    """A network with prescribed integrals; made by `conserve`.

    Call it as you called the network. Its parameters and its `state_dict` are those of
    the network, under `net.`.
    """

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
        of_all = [prescribed.of(k).values() for k in range(len(prescribed.mass))]
        given = [target.given for targets in of_all for target in targets]
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

    def at(self, t: Tensor | float | None = None) -> FieldAt:
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
        for k in range(len(self.prescribed.mass)):
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
                parts.append((torch.ones_like(zero), zero, zero, zero, none))
        coefficients = tuple(torch.stack(c, -1) for c in zip(*parts, strict=True))
        return FieldAt(self, given, raw, coefficients, means)

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

    def redraw(
        self, generator: torch.Generator | None = None, *, rule: bool | None = None
    ) -> None:
        """Fresh randomness for one training step.

        **Arguments:**

        - `generator`: by default the global one.
        - `rule`: whether to redraw the rule as well as the nodes of the gradient. By
            default where the rule is randomised, in more than three dimensions.
        """
        if rule is None:
            rule = self.rule.dimension > 3 and self.rule.is_randomised
        if rule:
            self.rule.redraw(generator)
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
        targets = [self.prescribed.of(k) for k in range(len(self.prescribed.mass))]
        shown = targets[0] if len(targets) == 1 else targets
        return f"targets={shown}, gradient={self.gradient}"


def conserve(
    module: nn.Module,
    rule: Any,
    mass: Any = None,
    energy: Any = None,
    *,
    variance: Any = None,
    profile: Callable[[Tensor], Tensor] | None = None,
    gradient: GradientMode = Exact(),
    floor: RelativeFloor | AbsoluteFloor = RelativeFloor(),
    normalised: bool = False,
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
    - `energy`: the integral of u^2 (not the mechanical energy), likewise. Either may
        be left out.
    - `variance`: the integral of `(u - m)^2`, where m is the mean of u: that is
        `energy - mass^2 / volume`, instead of the energy. It keeps the digits of a
        variation that is small beside the mean.
    - `profile`: the function of points (N, d) that the shift multiplies; one that
        vanishes on the boundary keeps homogeneous Dirichlet data.
    - `gradient`: how the moments are differentiated by the parameters: `Exact()`,
        `Subsampled(k)`, or for comparison `Detached()`.
    - `floor`: the least variance to divide by.
    - `normalised`: the targets are integrals over the volume of the box, that is,
        means. Needed where the volume overflows, in very high dimension.
    - `has_time`: whether the module depends on time. Found out by calling it; needed
        for one that takes any number of columns.
    - `times`: times at which to check at once that the targets can be met.

    Examples:
        >>> import torch, sdifp, sdifp.torch
        >>> rule = sdifp.rule_for(sdifp.Box([0.0], [2.0], periodic=True), 64)
        >>> net = torch.nn.Sequential(
        ...     torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        ... )
        >>> u = sdifp.torch.conserve(net, rule, mass=1.0, energy=lambda t: 2.0 + t)
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
    if not normalised and not low < rule.log_volume < high:
        raise ValueError(
            f"the volume of the box, exp({rule.log_volume:.6g}), does not fit float64; "
            f"give means as targets, with normalised=True"
        )
    prescribed = prescribe(
        without_tensors("mass", mass, components),
        without_tensors("energy", energy, components),
        without_tensors("variance", variance, components),
        components=components,
        has_time=takes != "x",
        has_profile=profile is not None,
        volume=1.0 if normalised else rule.volume,
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
