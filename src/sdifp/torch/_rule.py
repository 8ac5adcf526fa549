"""Quadrature rules as tensors."""

import copy
import functools
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._core import check_weights


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


class Rule(nn.Module):
    """Nodes `x_i` on a box and weights `w_i > 0` with `sum w_i = 1`.

    Rules of `sdifp`, such as `sdifp.rule_for(box, 128)`, become one by themselves where
    they are given to `conserve`; make one here from nodes and weights of your own.

    **Arguments:**

    - `lower`, `upper`: the bounds of the box, one number per axis.
    - `nodes`: shape (M, d), inside the box.
    - `weights`: shape (M,), positive, with sum 1; equal if left out.
    - `periodic`: the axes on which the field is periodic, which lets `certificate`
        look at the continuum with more digits.
    - `normalised`: integrals over the box are means: its volume counts as 1. Needed
        where the volume overflows, in very high dimension.
    - `name`: what the rule is called in print.

    Examples:
        >>> import sdifp.torch
        >>> sdifp.torch.Rule([0.0], [1.0], [[0.1], [0.4], [0.9]])
        points(3 nodes, 1 dimension)
    """

    _apply = float64_apply

    nodes: Tensor
    "shape (M, d), float64"
    weights: Tensor
    "shape (M,), float64, with sum 1"
    _unit: Tensor

    def __init__(
        self,
        lower: Sequence[float] | np.ndarray,
        upper: Sequence[float] | np.ndarray,
        nodes: Any,
        weights: Any = None,
        *,
        periodic: bool | Sequence[bool] | np.ndarray = False,
        normalised: bool = False,
        name: str = "points",
    ) -> None:
        super().__init__()
        self.lower, self.upper = (np.array(b, np.float64) for b in (lower, upper))
        fits = self.lower.ndim == 1 and self.lower.shape == self.upper.shape
        width = self.upper - self.lower if fits else np.zeros(1)
        if not np.all(np.isfinite(width) & (width > 0.0)):
            raise ValueError(
                f"upper must be above lower on every axis, one finite number per axis, "
                f"got {lower!r} and {upper!r}"
            )
        self.periodic = np.broadcast_to(np.asarray(periodic, bool), self.lower.shape)
        self.normalised = normalised
        points = torch.as_tensor(nodes).detach().to(torch.float64)
        if points.ndim != 2 or points.shape[1] != self.dimension or not len(points):
            raise ValueError(
                f"nodes must have shape (M, {self.dimension}) for this box, got "
                f"{tuple(points.shape)}"
            )
        low, high = (self._like(b, points) for b in (self.lower, self.upper))
        # Nodes in single precision may lie past a wall by one unit in the last place.
        slack = 2.0**-23 * torch.maximum(low.abs(), high.abs())
        inside = ((points >= low - slack) & (points <= high + slack)).all(1)
        if not bool(inside.all()):
            i = int(torch.nonzero(~inside)[0])
            raise ValueError(
                f"every node must be finite and lie in the box, got nodes[{i}] = "
                f"{points[i].tolist()} ({int((~inside).sum())} of {len(points)} are "
                f"outside)"
            )
        self.name = name
        # What kind of rule this is decides how a resample changes the nodes and how a
        # sample of them is spread.
        self._family = "points"
        self._folded = np.zeros(self.dimension, bool)
        inside_box = torch.minimum(torch.maximum(points, low), high)
        self.register_buffer("nodes", inside_box, persistent=False)
        self.register_buffer("weights", _weights(weights, points), persistent=False)
        self.register_buffer("_unit", None, persistent=False)

    def like(self, name: str, rule: Any) -> "Rule":
        """Another rule of the same box, on the same device; `name` is the argument."""
        other = Rule.of(rule).to(self.nodes.device)
        mine, its = ([r.lower.tolist(), r.upper.tolist()] for r in (self, other))
        if its != mine:
            raise ValueError(
                f"{name} must live on the box of the field, {mine[0]} to {mine[1]}, "
                f"got {its[0]} to {its[1]}"
            )
        return other

    @staticmethod
    def of(rule: Any) -> "Rule":
        """A copy of a rule, or a rule of `sdifp` as tensors in float64."""
        if isinstance(rule, Rule):
            return copy.deepcopy(rule)
        if not all(hasattr(type(rule), a) for a in ("at", "block", "resample")):
            raise TypeError(
                f"rule must be a rule of sdifp, such as sdifp.rule_for(box, 128), or a "
                f"sdifp.torch.Rule, got {type(rule).__name__}"
            )
        # Whatever JAX computes in elsewhere, nodes have sixteen digits here.
        with sys.modules["jax"].enable_x64(True):
            nodes, weights = np.array(rule.nodes), np.array(rule.weights)
        box = rule.domain
        out = Rule(
            *(box.lower, box.upper, nodes, weights),
            periodic=box.periodic,
            normalised=box.normalised,
            name=rule.name,
        )
        if not rule.is_randomised:
            return out
        unit = (nodes - box.lower) / box.width
        out._family = {
            "SobolRule": "sobol",
            "LatticeRule": "lattice",
            "HaltonRule": "shifted",
            "TensorRule": "shifted",
            "MonteCarloRule": "independent",
        }.get(type(rule).__name__, "points")
        if out._family == "lattice":
            # The nodes before they are folded.
            digits = (
                np.asarray(rule.generator, np.uint64)[None, :]
                * (np.arange(rule.size, dtype=np.uint64)[:, None])
            )
            digits = digits * np.uint64(2**32 // rule.size)
            digits = (digits + np.asarray(rule.shift, np.uint64)) % np.uint64(2**32)
            unit = (digits.astype(np.float64) + 0.5) * 2.0**-32
            out._folded = ~box.periodic
        out._unit = torch.as_tensor(unit)
        return out

    @property
    def size(self) -> int:
        """The number of nodes, M."""
        return len(self.nodes)

    @property
    def dimension(self) -> int:
        """The number of coordinates of a node, d."""
        return len(self.lower)

    @property
    def log_volume(self) -> float:
        """The natural logarithm of the volume of the box."""
        return 0.0 if self.normalised else math.fsum(np.log(self.upper - self.lower))

    @property
    def volume(self) -> float:
        """The volume of the box, 1 where integrals are means."""
        return 1.0 if self.normalised else float(np.prod(self.upper - self.lower))

    @property
    def is_randomised(self) -> bool:
        """Whether `resample` gives fresh nodes."""
        return self._family != "points"

    def resample(self, generator: torch.Generator | None = None) -> None:
        """Replace the nodes by fresh ones of the same kind."""
        uniform = functools.partial(self._uniform, generator)
        if self._family == "independent":
            unit = uniform(self.size, self.dimension)
        elif self._family in ("shifted", "lattice"):
            unit = (self._unit + uniform(self.dimension)) % 1.0
        elif self._family == "sobol":
            # Each node is the middle of a cell of width 2^-32.
            digits, shift = (
                (u * 2.0**32).long() for u in (self._unit, uniform(self.dimension))
            )
            unit = ((digits ^ shift).double() + 0.5) * 2.0**-32
        else:
            raise ValueError(
                f"the rule {self.name} is not randomised here, so it cannot be "
                f"resampled; sobol, lattice, halton, monte_carlo and a trapezoid rule "
                f"on a fully periodic box can"
            )
        if self._folded.any():
            folded = torch.as_tensor(self._folded, device=unit.device)
            unit = torch.where(folded, 1.0 - (2.0 * unit - 1.0).abs(), unit)
        low, high = (self._like(b, unit) for b in (self.lower, self.upper))
        self.nodes = torch.minimum(low + (high - low) * unit, high)

    def sample(
        self,
        k: int,
        *,
        stratified: bool = True,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The indices of `k` different random nodes, and the factors on their weights
        that make sums over them unbiased: the inverse of the probability with which
        each was chosen.

        **Arguments:**

        - `stratified`: spread as evenly as the rule knows how: for Sobol points and
            lattices a smaller rule of their kind if `k` is a power of two, else one
            node from each of `k` runs of neighbours.
        """
        device = self.nodes.device
        source = device if generator is None else generator.device
        if not 1 <= k <= self.size:
            raise ValueError(
                f"k must be between 1 and the {self.size} nodes of the rule, got {k}"
            )
        equal = torch.full((k,), self.size / k, dtype=torch.float64, device=device)
        if not stratified:
            index = torch.randperm(self.size, generator=generator, device=source)[:k]
            return index.to(device), equal
        if self._family in ("sobol", "lattice"):
            start = torch.randint(self.size, (), generator=generator, device=source)
            run = torch.arange(k, device=device) ^ start.to(device)
            if self._family == "sobol":
                # A run of 2^i nodes that begins at a multiple of 2^i is a net itself.
                return run, equal
            # With their binary digits reversed, runs of indices become every so many
            # nodes: a lattice with fewer nodes.
            index = torch.zeros_like(run)
            for bit in range(self.size.bit_length() - 1):
                index = 2 * index + ((run >> bit) & 1)
            return index, equal
        edges = torch.arange(k + 1, device=device) * self.size // k
        lengths = edges.diff()
        steps = (self._uniform(generator, k) * lengths).long().clamp(max=lengths - 1)
        return edges[:-1] + steps, lengths.double()

    def _uniform(self, generator: torch.Generator | None, *shape: int) -> Tensor:
        device = self.nodes.device
        source = device if generator is None else generator.device
        options: Any = {"device": source, "dtype": torch.float64}
        return torch.rand(shape, generator=generator, **options).to(device)

    def _like(self, bounds: np.ndarray, points: Tensor) -> Tensor:
        return torch.as_tensor(bounds, dtype=points.dtype, device=points.device)

    def __repr__(self) -> str:
        nodes = "node" if self.size == 1 else "nodes"
        axes = "dimension" if self.dimension == 1 else "dimensions"
        return f"{self.name}({self.size} {nodes}, {self.dimension} {axes})"


def _weights(given: Any, points: Tensor) -> Tensor:
    size = len(points)
    if given is None:
        return torch.full((size,), 1.0 / size, dtype=points.dtype, device=points.device)
    weights = torch.as_tensor(given, device=points.device).detach().to(points.dtype)
    checked = check_weights(weights.cpu().numpy(), size)
    return weights / math.fsum(checked.tolist())
