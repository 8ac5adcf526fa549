"""certificate: what holds, measured, on the rule and in the continuum."""

from typing import Any

import numpy as np
import torch

from .._core import Certificate, assemble, time_list
from ._field import ConservedField, check_same_box
from ._field_at import FieldAt
from ._module import dtype_of
from ._rule import Rule
from ._targets import target_at

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
    from .._field import independent_rule

    device = field.rule.nodes.device
    box = Box(field.rule.lower, field.rule.upper, field.rule.periodic.tolist())
    keys = jax.random.split(jax.random.key(seed), 3)
    base = independent_rule(box, field.rule.size, keys[0])
    rules = [Rule.of(r).to(device) for r in base.replicates(keys[1], replicates)]
    if other_rule is None:
        other_rule = independent_rule(box, field.rule.size, keys[2])
    other = Rule.of(other_rule).to(device)
    check_same_box("other_rule", other, field.rule)

    def measure(t: float | None) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        with torch.no_grad():
            now = field.at(t)
            found = [
                field.volume * _two_integrals(field, now, r)
                for r in (field.rule, other, *rules)
            ]
            scale, status = (a.reshape(-1).cpu() for a in (now.scale, now.status))
        return scale.numpy(), status.numpy(), found

    return assemble(
        time_list(times),
        list(zip(field.mass, field.energy, strict=True)),
        lambda target, t: float(target_at(target, field._time(t))),
        measure,
        volume=field.volume,
        rule=repr(field.rule),
        other_rule=repr(other),
        replicates=f"{replicates} randomisations of {base!r}",
        eps=float(torch.finfo(dtype_of(field.net)).eps),
    )


def _two_integrals(field: ConservedField, now: FieldAt, rule: Rule) -> np.ndarray:
    nodes, sums = rule.nodes.to(dtype_of(field.net)), []
    for x, weights in zip(nodes.split(_CHUNK), rule.weights.split(_CHUNK), strict=True):
        values = now(x).double().reshape(len(x), -1)
        weights = weights[:, None]
        sums.append(torch.stack([weights * values, weights * values**2]).sum(1))
    return (torch.stack(sums).sum(0) / rule.weights.sum()).cpu().numpy()
