"""certificate: what holds, measured, on the rule and in the continuum."""

from typing import Any

import numpy as np
import torch

from .._core import Certificate, assemble, time_list
from ._field import ConservedField, check_same_box
from ._field_at import FieldAt
from ._module import dtype_of
from ._rule import Rule

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
    from .._quadrature import rule_for

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
            found = [_integrals(field, now, r) for r in (field.rule, other, *rules)]
            scale, status = (a.reshape(-1).cpu() for a in (now.scale, now.status))
        return scale.numpy(), status.numpy(), found

    def finer(nodes: int, t: float | None) -> tuple[str, np.ndarray]:
        found = rule_for(box, nodes, key=jax.random.fold_in(keys[0], 1))
        with torch.no_grad():
            integrals = _integrals(field, field.at(t), Rule.of(found).to(device))
        return found.name, integrals

    return assemble(
        time_list(times),
        field.prescribed,
        field.target_at,
        measure,
        finer,
        size=field.rule.size,
        dimension=field.rule.dimension,
        rule=repr(field.rule),
        other_rule=repr(other),
        replicates=f"{replicates} randomisations of {base!r}",
        eps=float(torch.finfo(dtype_of(field.net)).eps),
    )


def _integrals(field: ConservedField, now: FieldAt, rule: Rule) -> np.ndarray:
    """Of the field, of its square, and of its square about the target mean."""
    nodes, sums = rule.nodes.to(dtype_of(field.net)), []
    centre = torch.stack(
        [rule.weights.new_zeros(()) if m is None else m.reshape(()) for m in now.means]
    )
    for x, weights in zip(nodes.split(_CHUNK), rule.weights.split(_CHUNK), strict=True):
        values = now.unchecked(x).double().reshape(len(x), -1)
        powers = torch.stack([values, values**2, (values - centre) ** 2])
        sums.append((weights[:, None] * powers).sum(1))
    total = torch.stack(sums).sum(0) / rule.weights.sum()
    return field.prescribed.volume * total.cpu().numpy()
