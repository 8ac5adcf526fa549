"""All that is prescribed of a field, and why it cannot be met."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..invariants import (
    ComponentInvariant,
    Invariant,
    Mass,
    SquaredNorm,
    Target,
    Variance,
    invariants_from,
)
from ._scale import Status

# The invariants that have a short form, an argument of their own, in its order.
_SHORT = (Mass, SquaredNorm, Variance)

# What targets of the first moment are called.
_FIRST = ("mass", "mean")


@dataclasses.dataclass(frozen=True)
class Group:
    """Components that are corrected together, with one common scale."""

    components: tuple[int, ...]
    linear: tuple[Invariant, ...]
    quadratic: Invariant | None

    @property
    def names(self) -> str:
        """Of its invariants, in a sentence."""
        every = [*self.linear, *([self.quadratic] if self.quadratic else [])]
        return ", ".join(one.name for one in every)


@dataclasses.dataclass(frozen=True)
class Prescribed:
    """The targets of a field: one entry per component or, where invariants are of
    several components or have weights, groups of these."""

    invariants: tuple[Invariant, ...]
    components: int
    volume: float
    "of the domain, or 1 where integrals are means"
    has_profile: bool
    groups: tuple[Group, ...] = ()
    measured: tuple[Invariant, ...] = ()
    "invariants without targets"

    @property
    def every(self) -> tuple[Invariant, ...]:
        """The invariants, and those without targets after them."""
        return (*self.invariants, *self.measured)

    def of(self, k: int) -> dict[str, Target]:
        """The targets of component `k` that are given, by kind."""
        return {i.kind: i.target for i in self.invariants if i.index == k}

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
        both = [means.get(n) for n in ("mass", "squared_norm")]
        if all(isinstance(value, float) for value in both) and not self.has_profile:
            mean, square = means["mass"], means.pop("squared_norm")
            means["variance"] = self.variance_of(k, mean, square)
        names = {"mass": "mean", "squared_norm": "second_moment"}
        return {names.get(n, n): value for n, value in means.items()}

    def check(self, nodes: int) -> None:
        """Raise `ValueError` if no field on a rule of so many nodes can meet the
        targets, as far as these are numbers."""
        for k in range(self.components):
            targets = self.of(k)
            if "variance" in targets and "squared_norm" in targets:
                raise ValueError("give squared_norm or variance, not both")
            if "variance" in targets and "mass" not in targets:
                raise ValueError("variance needs mass as well")
            known = {n: t.value(None) for n, t in targets.items() if not t.is_function}
            for name in ("squared_norm", "variance"):
                if known.get(name, 0.0) < 0.0:
                    raise ValueError(f"{name} must not be negative, got {known[name]}")
            variance = known.get("variance")
            if {"mass", "squared_norm"} <= known.keys():
                mean, square = (
                    known[n] / self.volume for n in ("mass", "squared_norm")
                )
                variance = self.variance_of(k, mean, square)
                if variance < 0.0:
                    raise self.error(
                        k, None, Status.INFEASIBLE, lambda t: t.value(None)
                    )
            if len(targets) == 2 and nodes == 1 and variance != 0.0:
                raise ValueError(
                    f"rule must have at least two nodes where {' and '.join(targets)} "
                    f"are prescribed, got one: values on one node have no variance"
                )

    def variance_of(self, k: int, mean: float, second_moment: float) -> float:
        """`s - m^2`, for targets of component `k` that are numbers."""
        rounding = max(target.rounding for target in self.of(k).values())
        return float(variance_of(mean, second_moment, rounding))

    def error(
        self,
        k: int,
        t: float | None,
        status: Status,
        evaluate: Callable[[Target], float],
        second_moment: float = 1.0,
        dtype: str = "float64",
    ) -> ValueError:
        """What to raise for a status from `DEGENERATE` on of component `k` at a time.

        **Arguments:**

        - `evaluate`: a target at that time.
        - `second_moment`: that of the raw network on the rule.
        - `dtype`: in which the sums are formed.
        """
        values = {name: evaluate(target) for name, target in self.of(k).items()}
        mass = values.get("mass", 0.0)
        least = mass * mass / self.volume if "squared_norm" in values else 0.0
        reason = explain(
            status,
            values,
            second_moment=second_moment,
            dtype=dtype,
            has_profile=self.has_profile,
            least=f"{least:g}" + (" or more, with a profile" * self.has_profile),
        )
        which = f" of component {k}" if self.components > 1 else ""
        when = "" if t is None else f" at t = {t:g}"
        return ValueError(f"the targets{which} cannot be met{when}: {reason}")


def prescribe(
    short: dict[str, Any],
    invariants: Sequence[Invariant],
    *,
    components: int | None,
    has_time: bool,
    has_profile: bool,
    volume: float,
    nodes: int,
    support: Callable[[Invariant], Sequence[int]] | None = None,
) -> Prescribed:
    """The invariants as a user gives them, checked.

    **Arguments:**

    - `short`: the targets that are given in the short form, by kind.
    - `components`: of the network; None for one that returns a number.
    - `nodes`: how many the rule has.
    - `support`: the components on which a linear invariant does not vanish.
    """
    found = [i for c in _SHORT for i in _from_short(c, short.get(c.kind), components)]
    found += [_on_component(i, components) for i in invariants_from(invariants)]
    # In the order of the short form, component by component, and others at the end.
    order: dict[type, int] = {kind: k for k, kind in enumerate(_SHORT)}
    found.sort(key=lambda i: (i.index, order.get(type(i), len(order))))
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is given twice; give them different names")
    measured = tuple(one for one in found if one.target is None)
    found = [one for one in found if one.target is not None]
    if not found:
        only = ", ".join(one.name for one in measured)
        raise ValueError(
            "give a target: mass, squared_norm or both, or mass and variance"
            + (f"; without one {only} can only be measured" if only else "")
        )
    if has_profile and not any(i.is_linear for i in found):
        raise ValueError("profile has no effect without mass: nothing is shifted")
    for one in found:
        if not has_time and one.target.is_function:
            raise ValueError(f"{one.name} must be a number for a network without time")
    count = components or 1
    groups: tuple[Group, ...] = ()
    if any(not isinstance(i, _SHORT) or len(i.among(count)) > 1 for i in found):
        groups = grouped(found, count, support or (lambda i: i.among(count)))
    out = Prescribed(tuple(found), count, volume, has_profile, groups, measured)
    if not groups:
        out.check(nodes)
    return out


def grouped(
    invariants: Sequence[Invariant],
    count: int,
    support: Callable[[Invariant], Sequence[int]],
) -> tuple[Group, ...]:
    """The components that invariants couple, as groups. Raises `ValueError` for what
    one scale for each group cannot do.

    **Arguments:**

    - `count`: of components.
    - `support`: the components on which a linear invariant does not vanish.
    """
    for one in invariants:
        if isinstance(one, Variance):
            raise ValueError(
                f"{one.name} cannot be prescribed beside moments or invariants of "
                f"several components; give squared_norm instead"
            )
    linear = {i: tuple(support(i)) for i in invariants if i.is_linear}
    owner: dict[int, Invariant] = {}
    for one in invariants:
        if one.is_linear:
            continue
        for k in one.among(count):
            if k in owner:
                raise ValueError(
                    f"component {k} is in two quadratic invariants, {owner[k].name} "
                    f"and {one.name}: one scale cannot meet both"
                )
            owner[k] = one
    for one, own in linear.items():
        scales = {owner[k].name if k in owner else None for k in own}
        if len(scales) > 1:
            names = " and ".join(sorted(n for n in scales if n))
            what = (
                f"components of different quadratic invariants, {names}"
                if None not in scales
                else f"components with a quadratic invariant, {names}, and without one"
            )
            raise ValueError(
                f"{one.name} couples {what}: scaling these by themselves would change "
                f"it; prescribe one quadratic invariant of all of them"
            )
    # Joined by what they share, until nothing is left to join.
    parts = [set(one.among(count)) for one in owner.values()] + [
        set(own) for own in linear.values()
    ]
    joined: list[set[int]] = []
    for part in parts:
        apart = [p for p in joined if not p & part]
        joined = [*apart, set().union(part, *(p for p in joined if p & part))]
    out = []
    for components in sorted(joined, key=min):
        inside = [i for i, own in linear.items() if set(own) & components]
        known = {owner[k] for k in components if k in owner}
        quadratic = known.pop() if known else None
        out.append(Group(tuple(sorted(components)), tuple(inside), quadratic))
    return tuple(out)


def _from_short(
    cls: type[ComponentInvariant], given: Any, components: int | None
) -> list[Invariant]:
    """The invariants of one kind that the short form gives: one target, or a list with
    one entry per component."""
    several = components is not None and components > 1
    if isinstance(given, list | tuple):
        if len(given) != components:
            count = "one number" if components is None else f"{components} components"
            raise ValueError(
                f"{cls.kind} has {len(given)} entries, but the network returns {count}"
            )
    elif given is not None and several:
        raise ValueError(
            f"{cls.kind} must be a list with one entry for each of the {components} "
            f"components of the network, None where there is no target"
        )
    else:
        given = [given]
    targets = [(k if several else None, t) for k, t in enumerate(given)]
    return [cls(target, k) for k, target in targets if target is not None]


def _on_component(invariant: Invariant, components: int | None) -> Invariant:
    """An invariant of the user's, with its components checked."""
    count = components or 1
    several = invariant.only is None and count > 1
    if several and isinstance(invariant, Variance):
        raise ValueError(
            f"component must be given for {invariant.name}: the network has {count} "
            f"components"
        )
    for k in invariant.among(count):
        if k >= count:
            raise ValueError(
                f"component must be below {count}, the number of components of the "
                f"network, got {k} for {invariant.kind}"
            )
    if count == 1 and isinstance(invariant, ComponentInvariant):
        return type(invariant)(invariant.target)
    return invariant


def variance_of(
    mean: float | np.ndarray, second_moment: float | np.ndarray, rounding: float
) -> Any:
    """`s - m^2` in double precision, and 0 where that is no more than the rounding of
    s and m."""
    square = np.asarray(second_moment, np.float64)
    difference = square - np.asarray(mean, np.float64) ** 2
    found = np.where(abs(difference) <= 4.0 * rounding * abs(square), 0.0, difference)
    return float(found) if found.shape == () else found


def explain(
    status: Status,
    targets: dict[str, float],
    *,
    second_moment: float,
    dtype: str,
    has_profile: bool,
    least: str,
    raw: str = "the network",
) -> str:
    """Why a status from `DEGENERATE` on came out.

    **Arguments:**

    - `targets`: by name.
    - `second_moment`: that of the raw field on the rule.
    - `dtype`: in which the sums are formed.
    - `least`: that the target of the second moment could be.
    - `raw`: what the raw field is called.
    """
    spread = {n: v for n, v in targets.items() if n not in _FIRST}
    asked = ", ".join(f"{n} = {v:g}" for n, v in spread.items())
    limits = np.finfo(dtype)
    is_small = second_moment <= float(limits.tiny) / float(limits.eps)
    if status == Status.NOT_FINITE:
        for name, value in targets.items():
            if not np.isfinite(value):
                return f"{name} = {value:g} is not finite"
        if np.isfinite(second_moment):
            return "the corrected field overflows its dtype"
        return f"{raw} is not finite on the nodes, or its square in {dtype}"
    if status == Status.DEGENERATE:
        if is_small:
            found = f"zero, or so small that its square underflows {dtype},"
        else:
            found = "a multiple of the profile" if has_profile else "constant"
        return f"{raw} is {found} on the nodes, so no scale gives it {asked}"
    if status == Status.UNDERFLOW:
        what = raw if is_small else f"the field with {asked}"
        what += f" is so small that it or its square underflows {dtype}; rescale it"
        return what + ("" if dtype == "float64" else " or use float64")
    if min(spread.values()) < 0.0:
        return f"{asked} is negative"
    first = next(f"{n} {v:g}" for n, v in targets.items() if n in _FIRST)
    return f"{asked} is below the least that a field of {first} can have, {least}"
