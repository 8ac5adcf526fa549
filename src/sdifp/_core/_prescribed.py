"""All that is prescribed of a field, and why it cannot be met."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ._status import Status
from ._targets import Target, targets_for


@dataclasses.dataclass(frozen=True)
class Prescribed:
    """The targets of a field, one entry per component."""

    mass: tuple[Target | None, ...]
    energy: tuple[Target | None, ...]
    variance: tuple[Target | None, ...]
    "instead of the energy"
    volume: float
    "of the domain, or 1 where the targets are means"
    has_profile: bool

    def of(self, k: int) -> dict[str, Target]:
        """The targets of component `k` that are given, by their names."""
        all_of_them = {
            "mass": self.mass[k],
            "energy": self.energy[k],
            "variance": self.variance[k],
        }
        return {name: t for name, t in all_of_them.items() if t is not None}

    def moments(self, k: int, evaluate: Callable[[Target], Any]) -> dict[str, Any]:
        """The targets of component `k` as the moments that the closed form takes.

        The difference `s - m^2` of two numbers is formed here, in double precision: in
        single precision it would lose a small variation beside a large mean. (With a
        profile it is another difference that counts, which depends on the network.)

        **Arguments:**

        - `evaluate`: a target as a Python float if it is a number, else as an array.
        """
        targets = self.of(k)
        means = {n: evaluate(t) / self.volume for n, t in targets.items()}
        numbers = all(isinstance(means.get(n), float) for n in ("mass", "energy"))
        if numbers and not self.has_profile:
            means["variance"] = self.variance_of(k, means["mass"], means.pop("energy"))
        names = {"mass": "mean", "energy": "second_moment", "variance": "variance"}
        return {names[n]: value for n, value in means.items()}

    def check(self, nodes: int) -> None:
        """Raise `ValueError` if no field on a rule of so many nodes can meet the
        targets, as far as these are numbers."""
        for k in range(len(self.mass)):
            targets = self.of(k)
            if "variance" in targets and "energy" in targets:
                raise ValueError("give energy or variance, not both")
            if "variance" in targets and "mass" not in targets:
                raise ValueError("variance needs mass as well")
            known = {n: t.value(None) for n, t in targets.items() if not t.is_function}
            for name in ("energy", "variance"):
                if known.get(name, 0.0) < 0.0:
                    raise ValueError(f"{name} must not be negative, got {known[name]}")
            variance = known.get("variance")
            if {"mass", "energy"} <= known.keys():
                mean, square = (known[n] / self.volume for n in ("mass", "energy"))
                variance = self.variance_of(k, mean, square)
                if variance < 0.0:
                    reason = self._below_the_least(**known)
                    raise ValueError(self.complaint(k, None, reason))
            if len(targets) == 2 and nodes == 1 and variance != 0.0:
                raise ValueError(
                    f"rule must have at least two nodes where {' and '.join(targets)} "
                    f"are prescribed, got one: values on one node have no variance"
                )

    def variance_of(self, k: int, mean: float, second_moment: float) -> float:
        """`s - m^2`, for targets of component `k` that are numbers."""
        rounding = max(target.rounding for target in self.of(k).values())
        return float(variance_of(mean, second_moment, rounding))

    def complaint(self, k: int, t: float | None, reason: str) -> str:
        """The sentence for a component and a time."""
        which = f" of component {k}" if len(self.mass) > 1 else ""
        when = "" if t is None else f" at t = {t:g}"
        return f"the targets{which} cannot be met{when}: {reason}"

    def reason(
        self,
        k: int,
        status: Status,
        evaluate: Callable[[Target], float],
        *,
        second_moment: float,
        dtype: str,
    ) -> str:
        """Why a status from `DEGENERATE` on came out for component `k`.

        **Arguments:**

        - `evaluate`: a target at the time in question.
        - `second_moment`: that of the raw network on the rule.
        - `dtype`: in which the sums are formed.
        """
        values = {name: evaluate(target) for name, target in self.of(k).items()}
        spread = {n: v for n, v in values.items() if n != "mass"}
        asked = ", ".join(f"{n} = {v:g}" for n, v in spread.items())
        limits = np.finfo(dtype)
        is_small = second_moment <= float(limits.tiny) / float(limits.eps)
        if status == Status.NOT_FINITE:
            for name, value in values.items():
                if not math.isfinite(value):
                    return f"{name} = {value:g} is not finite"
            if math.isfinite(second_moment):
                return "the corrected field overflows its dtype"
            return f"the network is not finite on the nodes, or its square in {dtype}"
        if status == Status.DEGENERATE:
            if is_small:
                found = f"zero, or so small that its square underflows {dtype},"
            elif self.has_profile:
                found = "a multiple of the profile"
            else:
                found = "constant"
            return f"the network is {found} on the nodes, so no scale gives it {asked}"
        if status == Status.UNDERFLOW:
            what = "the network" if is_small else f"the field with {asked}"
            return (
                f"{what} is so small that it, or its square in {dtype}, underflows; "
                f"rescale the problem"
                + ("" if dtype == "float64" else " or use float64")
            )
        if min(spread.values()) < 0.0:
            return f"{asked} is negative"
        return self._below_the_least(**values)

    def _below_the_least(self, **values: float) -> str:
        mass, volume = values["mass"], self.volume
        if "energy" in values:
            asked, least = f"energy = {values['energy']:g}", mass * mass / volume
        else:
            asked, least = f"variance = {values['variance']:g}", 0.0
        return (
            f"{asked} is below the least that a field of mass {mass:g} can have, "
            f"{least:g}" + (" or more, with a profile" if self.has_profile else "")
        )


def prescribe(
    mass: Any,
    energy: Any,
    variance: Any,
    *,
    components: int | None,
    has_time: bool,
    has_profile: bool,
    volume: float,
    nodes: int,
) -> Prescribed:
    """The targets as a user gives them, checked.

    **Arguments:**

    - `components`: of the network; None for one that returns a number.
    - `nodes`: how many the rule has.
    """
    given = {"mass": mass, "energy": energy, "variance": variance}
    names = [name for name, value in given.items() if value is not None]
    if not names:
        raise ValueError("give a target: mass, energy or both, or mass and variance")
    if has_profile and mass is None:
        raise ValueError("profile has no effect without mass: nothing is shifted")
    targets = {n: targets_for(n, value, components) for n, value in given.items()}
    for name, entries in targets.items():
        if not has_time and any(t is not None and t.is_function for t in entries):
            raise ValueError(f"{name} must be a number for a network without time")
    found = Prescribed(**targets, volume=volume, has_profile=has_profile)
    found.check(nodes)
    return found


def variance_of(
    mean: float | np.ndarray, second_moment: float | np.ndarray, rounding: float
) -> Any:
    """`s - m^2` in double precision, and 0 where that is no more than the rounding of
    s and m."""
    square = np.asarray(second_moment, np.float64)
    difference = square - np.asarray(mean, np.float64) ** 2
    found = np.where(abs(difference) <= 4.0 * rounding * abs(square), 0.0, difference)
    return float(found) if found.shape == () else found
