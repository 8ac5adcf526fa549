"""The numbers of a run that its report shows, from what it saved."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._folder import Saved, interval_of


def is_steady(saved: Saved) -> bool:
    """Whether the problem has no time: it has one value of each invariant then, whose
    time is None."""
    return saved.result["until"] is None


class Component(NamedTuple):
    """A component of the field of a run, as its report shows it."""

    name: str
    unit: str
    suffix: str
    "of the names of its pictures; nothing for a field with one component"
    u: np.ndarray
    reference: np.ndarray | None

    @property
    def title(self) -> str:
        """Its name, with the unit if it has one."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


def components(saved: Saved) -> list[Component]:
    """Those of the field of a run."""
    u, reference = saved.solution["u"], saved.solution.get("reference")
    # Runs of before have one, without a name.
    names = saved.result.get("components", ["u"])
    units = saved.result.get("units", [""] * len(names))
    if len(names) == 1:
        return [Component(names[0], units[0], "", u, reference)]
    known = lambda k: None if reference is None else reference[..., k]
    return [
        Component(name, units[k], f"-{name}", u[..., k], known(k))
        for k, name in enumerate(names)
    ]


def l2_errors(saved: Saved) -> dict[str, float | None]:
    """The relative L2 error of each component of a system, by name."""
    # Runs of before have none.
    found: dict[str, float | None] = saved.result["metrics"].get("l2_errors", {})
    return found


def in_words(name: str) -> str:
    """The name of an invariant in a sentence."""
    return name.replace("_", " ")


def density_in_words(saved: Saved, name: str) -> str:
    """An invariant as an integral: `the integral of u^2`."""
    measure = "mean" if saved.result.get("normalised") else "integral"
    return f"the {measure} of {_curves(saved, name)['density']}"


def prescribed(saved: Saved) -> list[str]:
    """The names of the invariants that have targets."""
    found = saved.result["integrals"]["invariants"]
    return [name for name, curves in found.items() if curves["target"] is not None]


def measured(saved: Saved) -> list[str]:
    """The names of the invariants of the problem that have none."""
    # Runs of before have none of them.
    return list(saved.result["metrics"].get("measured", {}))


def measured_value(saved: Saved, name: str) -> str:
    """The value of an invariant without a target in a problem without time, with its
    interval where there is a certificate."""
    for row in (saved.certificate or {}).get("measured", []):
        if row["invariant"] == name:
            return interval_of(row, "value", ".6g").replace("+-", "±")
    return shown_number(_curves(saved, name)["values"]["field"][0])


def functional_value(saved: Saved) -> tuple[str, str, str] | None:
    """The functional that a problem minimises: its name, its value with the interval
    and, where the minimum is known, how far it is from that, relative to it."""
    found = saved.result.get("functional")
    if found is None:
        return None
    value, margin, least = (found[k] for k in ("value", "margin", "minimum"))
    if value is None or margin is None:
        return found["name"], "not finite", ""
    away = ""
    if least:
        off = (value - least) / abs(least)
        away = f"{abs(off):.1e} {'above' if off >= 0.0 else 'below'} the known minimum"
        away += ", relative to it"
    return found["name"], f"{value:.8g} ± {margin:.1e}", away


def worst_drift(saved: Saved, name: str) -> float | None:
    """The largest relative drift of an invariant without a target on the independent
    rule; None if it is not finite."""
    worst = float(np.max(drift(saved, name, "field")))
    return worst if np.isfinite(worst) else None


def drift(saved: Saved, name: str, which: str) -> np.ndarray:
    """The size of the relative drift over time, of the field or of the raw network."""
    return np.abs(numbers(_curves(saved, name)["relative_drift"][which]))


def worst_error(saved: Saved, name: str) -> float | None:
    """The largest relative error of an invariant on the independent rule, at all times
    that were measured; None if it is not finite."""
    known = number(saved.result["metrics"]["errors"][name])
    worst = float(np.max([known, *errors(saved, name, "field")]))
    return worst if np.isfinite(worst) else None


def errors(saved: Saved, name: str, which: str) -> np.ndarray:
    """Relative errors over time of the field or of the raw network."""
    return numbers(_curves(saved, name)["errors"][which])


def errors_over_time(saved: Saved, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Times, and the errors of the field on the independent rule; its drift where there
    is no target."""
    times = np.asarray(saved.result["integrals"]["times"])
    if name in prescribed(saved):
        return times, errors(saved, name, "field")
    # At the first time it is zero.
    return times[1:], drift(saved, name, "field")[1:]


def _curves(saved: Saved, name: str) -> dict[str, Any]:
    found: dict[str, Any] = saved.result["integrals"]["invariants"][name]
    return found


def number(value: float | None) -> float:
    """What was saved as a number, where JSON has None for what is not finite."""
    return float("nan") if value is None else value


def numbers(values: Sequence[float | None]) -> np.ndarray:
    """The same of several."""
    return np.array([number(v) for v in values], float)


def shown_number(value: float | None) -> str:
    """A value, such as a target, in a table."""
    return "not finite" if value is None else f"{value:.6g}"
