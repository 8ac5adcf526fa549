"""certificate: what holds, measured, on the rule and in the continuum."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .._core import Certificate, assemble
from ..invariants import At, densities, time_list
from ._field import ConservedField
from ._module import dtype_of
from ._rule import Rule
from ._slice import FieldSlice

# Points that are evaluated at a time.
_CHUNK = 2**16


def certify(
    field: ConservedField, times: Any, seed: int, other_rule: Any, replicates: int
) -> Certificate:
    """Measure a field; see `ConservedField.certificate`."""
    if replicates < 2:
        raise ValueError(f"replicates must be at least 2, got {replicates}")
    import jax

    from .._domain import Box
    from ..field import independent_rule
    from ..quadrature import rule_for

    own, device = field.rule, field.rule.nodes.device
    box = Box(own.lower, own.upper, own.periodic.tolist(), own.normalised)
    keys = jax.random.split(jax.random.key(seed), 3)
    base = independent_rule(box, own.size, keys[0])
    if other_rule is None:
        other_rule = independent_rule(box, own.size, keys[2])
    rules = [own, own.like("other_rule", other_rule)]
    rules += [Rule.of(r).to(device) for r in base.replicates(keys[1], replicates)]
    finer_key = jax.random.fold_in(keys[0], 1)

    def at(
        t: float | None,
    ) -> tuple[np.ndarray, np.ndarray, Callable[[Rule], np.ndarray]]:
        with torch.no_grad():
            now = field.at(t)
        scale, status = (a.reshape(-1).cpu().numpy() for a in (now.scale, now.status))
        return scale, status, functools.partial(_integrals, field, now)

    return assemble(
        time_list(times),
        field.prescribed,
        rules,
        base,
        evaluate=field.target_at,
        at=at,
        finer=lambda nodes: Rule.of(rule_for(box, nodes, key=finer_key)).to(device),
        eps=float(torch.finfo(dtype_of(field.net)).eps),
    )


@torch.no_grad()
def _integrals(field: ConservedField, now: FieldSlice, rule: Rule) -> np.ndarray:
    """Of the density of each invariant, and of the square of each component."""
    nodes, sums = rule.nodes.to(dtype_of(field.net)), []
    means = [0.0 if m is None else m.reshape(()) for m in now.means]
    for x, weights in zip(nodes.split(_CHUNK), rule.weights.split(_CHUNK), strict=True):
        values = now.unchecked(x).double().reshape(len(x), -1)
        rows = torch.stack(densities(field.prescribed.every, At(values, means)))
        sums.append((weights * rows).sum(1))
    total = torch.stack(sums).sum(0) / rule.weights.sum()
    return field.prescribed.volume * total.cpu().numpy()
