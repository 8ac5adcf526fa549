"""Positive values with prescribed moments: `u = c f^q e^(lambda . psi)`.

Pure functions of the values on the nodes of a rule. The power q and the tilt lambda
are found with constant values, in loops through which no derivative flows. A few Newton
steps from there carry the derivatives with respect to values, targets and psi.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._core import Orthonormalised, Status, orthonormalised
from ._maps import PositiveMap

# Steps of the safeguarded Newton methods, of which a few are usual.
_MOST_STEPS = 64

# Newton steps from the solution that derivatives flow through: k of them make all
# derivatives up to the order 2^k - 1 exact.
_LIVE_STEPS = 3

_fixed = jax.lax.stop_gradient


class Exponential(NamedTuple):
    """`u = factor e^(power (log f - pivot) + tilt . tests)` for positive f."""

    factor: Array
    pivot: Array
    "of the size of `log f`, where u has its mean; no derivative flows through it"
    power: Array | None = None
    "None for 1"
    tilt: Float[Array, " p"] | None = None
    "None without moments"

    def apply(
        self, positive: PositiveMap, z: Array, tests: Array | None = None
    ) -> Array:
        """u where f is the map of z; tests are on the first axis."""
        if self.power is not None:
            log = self.power * (positive.log(z) - self.pivot)
            return self.factor * jnp.exp(log)
        exponent: Array | float = 0.0
        if self.tilt is not None and tests is not None:
            exponent = self.tilt @ tests
        return self.factor * positive.times(z, exponent, self.pivot)

    def moved(self, by: Float[Array, " n"]) -> "Exponential":
        """The same with other unknowns: the logarithm of the factor, then the power or
        the tilt."""
        out = self._replace(factor=self.factor * jnp.exp(by[0]))
        if self.power is not None:
            return out._replace(power=self.power + by[1])
        return out if self.tilt is None else out._replace(tilt=self.tilt + by[1:])

    @property
    def level(self) -> Array:
        """The logarithm of what multiplies the power of f, or the tilted f."""
        share = 1.0 if self.power is None else self.power
        return jnp.log(self.factor) - share * self.pivot

    @property
    def unknowns(self) -> int:
        """How many there are."""
        tilt = 0 if self.tilt is None else self.tilt.shape[-1]
        return 1 + (self.power is not None) + tilt

    def about(self, pivot: Array) -> "Exponential":
        """The same u, represented about another pivot."""
        step = pivot - self.pivot
        step = step if self.power is None else self.power * step
        return self._replace(pivot=pivot, factor=self.factor * jnp.exp(step))


class TestFunctions(NamedTuple):
    """Combinations of given functions psi_k whose mean is to be zero, of variance one
    and uncorrelated under the weights of a rule."""

    centre: Array
    "the means of the psi_k under the weights"
    change: Orthonormalised
    goal: Array
    "the targets of the orthonormal functions"

    @staticmethod
    def of(psi: Any, targets: Any, weights: Any) -> "TestFunctions":
        """From the psi_k on the nodes and their targets over the mean; arrays of NumPy
        or of JAX."""
        gram = lambda d: (d * weights[None]) @ d.T
        centre = psi @ weights
        centred = psi - centre[:, None]
        change = orthonormalised(gram(centred), lambda once: gram(once(centred)))
        return TestFunctions(centre, change, change(targets - centre))

    def __call__(self, psi: Any) -> Any:
        """Of the psi_k at a point, or on the last axis at many."""
        column = lambda a: a.reshape(-1, *[1] * (psi.ndim - 1))
        return self.change(psi - column(self.centre)) - column(self.goal)


class Wanted(NamedTuple):
    """What is prescribed, as arrays: a mean, and log(s / m^2) or tests whose mean is
    zero."""

    mean: Array
    ratio: Array | None
    tests: Float[Array, "p M"] | None


def residuals(
    found: Exponential,
    wanted: Wanted,
    positive: PositiveMap,
    z: Float[Array, " M"],
    w: Float[Array, " M"],
) -> Float[Array, " n"]:
    """Sums over nodes that are prescribed, as many as there are unknowns: of u and,
    with a power, of u^2, relative to their targets, and of u times the tests."""
    u = found.apply(positive, z, wanted.tests) / wanted.mean
    rows = [jnp.sum(w * u)]
    if wanted.ratio is not None:
        rows.append(jnp.sum(w * u * u) * jnp.exp(-wanted.ratio))
    if wanted.tests is not None:
        rows.extend(wanted.tests @ (w * u))
    return jnp.stack(rows)


def solve_exponential(
    wanted: Wanted,
    positive: PositiveMap,
    z: Float[Array, " M"],
    w: Float[Array, " M"],
    field: Any,
) -> tuple[Exponential, Int[Array, ""]]:
    """The positive values with prescribed moments that are made of `f = positive(z)`,
    and a `Status`.

    **Arguments:**

    - `w`: the weights, with sum 1.
    - `field`: the `finfo` of the dtype of the field.
    """
    mean, ratio, tests = wanted
    logs = positive.log(_fixed(z))
    top = jnp.max(logs)
    vanishes = top == -jnp.inf
    top = jnp.where(vanishes, 0.0, top)
    power = tilt = None
    met = jnp.asarray(True)
    # With constant values, the logarithm of what the factor multiplies.
    raised = logs - top
    if ratio is not None:
        power, met = power_of(positive.log(z), w, ratio)
        raised = _fixed(power) * raised
    elif tests is not None:
        times = lambda exponent: positive.times(z, exponent, top)
        tilt, met = tilt_of(times, raised, w, tests)
        raised = raised + _fixed(tilt @ tests)
    largest = jnp.max(raised)
    level = largest + jnp.log(jnp.sum(w * jnp.exp(raised - largest)))
    # A power of zero makes a constant, whatever the pivot.
    share = 1.0 if power is None else _fixed(jnp.where(power > 0.0, power, 1.0))
    pivot = jnp.where(vanishes, 0.0, top + level / share)
    one = Exponential(jnp.ones_like(mean), _fixed(pivot), power, tilt)
    total = jnp.sum(w * one.apply(positive, z, tests))
    out = one._replace(factor=mean / jnp.where(vanishes, 1.0, total))
    found = met
    met = met & (mean > 0.0)
    status = jnp.where(met, Status.REGULAR, Status.INFEASIBLE)
    degenerate = vanishes
    if ratio is not None:
        degenerate = vanishes | ((jnp.max(logs) == jnp.min(logs)) & (ratio > 0.0))
        status = jnp.where((ratio == 0.0) & (mean > 0.0), Status.CONSTANT, status)
    status = jnp.where(degenerate & (mean > 0.0), Status.DEGENERATE, status)
    most = mean * jnp.exp(largest - level)
    small = met & (most < float(field.tiny)) & ~degenerate
    status = jnp.where(small, Status.UNDERFLOW, status)
    # Without a solution the numbers mean nothing.
    finite = ~found | (jnp.isfinite(out.factor) & ~(most > float(field.max)))
    finite = finite & jnp.all(~jnp.isnan(logs)) & (top < jnp.inf)
    status = jnp.where(finite, status, Status.NOT_FINITE)
    return out, _fixed(status.astype(jnp.int32))


def most_ratio(logs: Array, w: Array) -> Array:
    """One over the weight of the nodes where f is largest, from `log f`: the second
    moments of the powers of f are below that many squared means."""
    return 1.0 / jnp.sum(jnp.where(logs == jnp.max(logs), w, 0.0))


def power_of(
    logs: Float[Array, " M"], w: Float[Array, " M"], ratio: Array
) -> tuple[Array, Array]:
    """The q with `log Q[f^2q] - 2 log Q[f^q] = ratio` from `log f`, and whether there
    is one."""

    def terms(q: Array, logs: Array) -> tuple[Array, Array]:
        """The left-hand side, which increases in q, and its derivative."""
        raised = q * logs
        raised = raised - _fixed(jnp.max(raised))
        once, twice = w * jnp.exp(raised), w * jnp.exp(2.0 * raised)
        first, second = jnp.sum(once), jnp.sum(twice)
        slope = 2.0 * (twice @ logs / second - once @ logs / first)
        return jnp.log(second) - 2.0 * jnp.log(first), slope

    fixed, goal = _fixed(logs), _fixed(ratio)
    most = most_ratio(fixed, w)
    fixed = fixed - w @ fixed
    met = (goal > 0.0) & (goal < jnp.log(most))
    start = jnp.where(met, jnp.sqrt(jnp.abs(goal) / (w @ fixed**2)), 0.0)

    def step(state: Any) -> Any:
        q, low, high, _, count = state
        value, slope = terms(q, fixed)
        below = value < goal
        low = jnp.where(below, jnp.maximum(low, q), low)
        high = jnp.where(below, high, jnp.minimum(high, q))
        # Newton's step for the logarithms of both sides, kept inside what is known.
        by = jnp.log(goal / value) * value / (slope * q)
        new = q * jnp.exp(jnp.clip(by, -3.0, 3.0))
        middle = jnp.where(jnp.isfinite(high), 0.5 * (low + high), 2.0 * q)
        new = jnp.where((new > low) & (new < high), new, middle)
        done = (new == q) | (value == goal)
        return jnp.where(value == goal, q, new), low, high, done, count + 1

    going = lambda s: ~s[3] & (s[4] < _MOST_STEPS)
    zero, far = jnp.zeros_like(start), jnp.full_like(start, jnp.inf)
    q = jax.lax.while_loop(going, step, (start, zero, far, ~met, jnp.asarray(0)))[0]
    centred = logs - w @ logs
    met = met & (terms(q, _fixed(centred))[1] > 0.0)
    for _ in range(_LIVE_STEPS):
        value, slope = terms(q, centred)
        q = q - jnp.where(met, value - ratio, 0.0) / jnp.where(met, slope, 1.0)
    return q, met & (q > 0.0)


def tilt_of(
    times: Callable[[Array], Array],
    logs: Float[Array, " M"],
    w: Float[Array, " M"],
    tests: Float[Array, "p M"],
) -> tuple[Array, Array]:
    """The lambda with `Q[tests f e^(lambda . tests)] = 0`, and whether there is one:
    where the convex `log Q[f e^(lambda . tests)]` is least.

    **Arguments:**

    - `times`: the product of f with the exponential of some numbers on the nodes.
    - `logs`: `log f`, as constants.
    """

    def terms(
        tilt: Array, tests: Array, times: Callable[[Array], Array]
    ) -> tuple[Array, Array, Array]:
        """The function, its gradient and its second derivative."""
        raised = tilt @ tests
        top = _fixed(jnp.max(logs + raised))
        mass = w * times(raised - top)
        total = jnp.sum(mass)
        slope = tests @ mass / total
        centred = tests - slope[:, None]
        return top + jnp.log(total), slope, (centred * (mass / total)[None]) @ centred.T

    known = _fixed(tests)
    fixed = lambda tilt: terms(tilt, known, lambda e: jnp.exp(logs + e))
    eps = float(jnp.finfo(logs.dtype).eps)

    def step(state: Any) -> Any:
        tilt, _, count = state
        value, slope, curve = fixed(tilt)
        move = -jnp.linalg.solve(curve, slope)
        move = jnp.where(jnp.all(jnp.isfinite(move)), move, -slope)
        gain = -(slope @ move)
        # Down to rounding it goes down.
        goal = lambda a: value - 0.1 * a * gain + 8 * eps
        lower = lambda a: fixed(tilt + a * move)[0] <= goal(a)
        a = jax.lax.while_loop(
            lambda a: ~lower(a) & (a > 1e-12), lambda a: 0.5 * a, jnp.ones_like(gain)
        )
        return tilt + a * move, gain <= eps**2, count + 1

    going = lambda s: ~s[1] & (s[2] < _MOST_STEPS)
    start = (jnp.zeros(len(tests), logs.dtype), jnp.asarray(False), jnp.asarray(0))
    tilt = jax.lax.while_loop(going, step, start)[0]
    _, slope, curve = fixed(tilt)
    # On the boundary of the hull the mass is on so few nodes that nothing varies.
    met = (jnp.max(jnp.abs(slope)) <= 1e3 * eps) & (
        jnp.linalg.eigvalsh(curve)[0] > eps * jnp.linalg.eigvalsh(curve)[-1]
    )
    for _ in range(_LIVE_STEPS):
        _, slope, curve = terms(tilt, tests, times)
        safe = jnp.where(met, curve, jnp.eye(len(tests), dtype=curve.dtype))
        tilt = tilt - jnp.linalg.solve(safe, jnp.where(met, slope, 0.0))
    return tilt, met
