"""Collapsed Taylor mode over the jaxpr of a function of one point, and of a time.

Elementwise equations on one value are composed first and differentiated together.
Coefficients of vectors that have few entries in each direction (coordinate directions,
and what elementwise functions make of them) are kept as these entries. A primitive
without a rule is differentiated by nested `jax.jvp`. Knows jets, not operators.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array

from ._jet import Collapse, Jet, compose, constant, densify, multiply, nested, or_zero
from ._products import (
    as_function,
    evaluate,
    matrix_product,
    sparse_concatenate,
    sparse_product,
    sparse_sum,
)
from ._rules import called, is_elementwise, is_floating, rule_of

# Longer chains of elementwise equations are differentiated in pieces: nested
# derivatives of all of it would grow faster than those of its pieces.
_LONGEST = 32


def flat_jaxpr(function: Callable[..., Array], *at: Any) -> core.ClosedJaxpr:
    """The jaxpr of a function, with the calls in it inlined."""
    closed = jax.make_jaxpr(function)(*at)
    if len(closed.out_avals) != 1:
        raise ValueError(
            f"function must return one array, got {len(closed.out_avals)} of them"
        )
    return jax.make_jaxpr(lambda *at: _inlined(closed.jaxpr, closed.consts, at)[0])(*at)


def _inlined(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> Any:
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    env.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        values = [read(a) for a in eqn.invars]
        inner = called(eqn)
        out = evaluate(eqn, values) if inner is None else _inlined(*inner, values)
        env.update(zip(eqn.outvars, out, strict=True))
    return [read(a) for a in jaxpr.outvars]


class Composed:
    """An elementwise function of one jet, not differentiated yet: an equation, and its
    arguments, which are constants, the jet itself, or such functions of it."""

    linear: bool
    movable: bool
    length: int

    def __init__(self, eqn: Any, arguments: list[Any], base: Jet, linear: bool):
        inner = [a for a in arguments if isinstance(a, Composed)]
        self.eqn, self.arguments, self.base = eqn, arguments, base
        self.linear = linear and all(a.linear for a in inner)
        # Functions with a derivative rule have a shape of their own.
        custom = eqn.primitive.name == "custom_jvp_call"
        self.movable = not custom and all(a.movable for a in inner)
        self.length = 1 + sum(a.length for a in inner)
        self.done: Jet | None = None

    def function(self, x: Array, take: Callable[[Any], Any]) -> Array:
        """The value at x, with constants as `take` gives them."""
        known: dict[Composed, Array] = {}

        def value(node: Any) -> Any:
            if isinstance(node, Jet):
                return x
            if not isinstance(node, Composed):
                return take(node)
            if node not in known:
                known[node] = evaluate(node.eqn, [value(a) for a in node.arguments])[0]
            return known[node]

        return value(self)

    def jet(self, collapse: Collapse) -> Jet:
        """The function, differentiated."""
        if self.done is None:
            base = self.base
            if not self.movable:
                base = densify(base, collapse.directions)
            self.done = compose(self.function, base, collapse, linear=self.linear)
        return self.done

    def primal(self) -> Array:
        """The value alone."""
        if self.done is not None:
            return self.done.primal
        return self.function(self.base.primal, lambda c: c)


class Interpreter:
    """Walks through the equations with the jets of the variables.

    **Arguments:**

    - `token`: under a `vmap` over points, a value that differs among them: matrix
        products are then done for all points and directions at once.
    """

    def __init__(
        self, closed: core.ClosedJaxpr, collapse: Collapse, token: Array | None = None
    ):
        self.jaxpr, self.collapse, self.token = closed.jaxpr, collapse, token
        self.values: dict[Any, Any] = dict(
            zip(self.jaxpr.constvars, closed.consts, strict=True)
        )
        self.fallbacks: set[str] = set()

    def run(self, inputs: Sequence[Jet]) -> Jet:
        """The jet of the function's value, from those of its arguments."""
        self.values.update(zip(self.jaxpr.invars, inputs, strict=True))
        for eqn in self.jaxpr.eqns:
            self.step(eqn)
        return densify(self.jet(self.jaxpr.outvars[0]), self.collapse.directions)

    def read(self, atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else self.values[atom]

    def jet(self, atom: Any) -> Jet:
        value = self.read(atom)
        if isinstance(value, Composed):
            return value.jet(self.collapse)
        if isinstance(value, Jet):
            return value
        return constant(value, self.collapse.order)

    def primal(self, atom: Any) -> Any:
        value = self.read(atom)
        if isinstance(value, Composed):
            return value.primal()
        return value.primal if isinstance(value, Jet) else value

    def varying(self, eqn: Any) -> list[int]:
        """The places of the arguments that change along the directions."""
        values = map(self.read, eqn.invars)
        return [k for k, v in enumerate(values) if isinstance(v, Jet | Composed)]

    def step(self, eqn: Any) -> None:
        """Evaluate one equation."""
        places = self.varying(eqn)
        constant = rule_of(eqn).constant
        if not places or constant or not any(map(is_floating, eqn.outvars)):
            out = evaluate(eqn, [self.primal(a) for a in eqn.invars])
        else:
            composed = self._compose(eqn, places)
            out = self._rule(eqn, places) if composed is None else [composed]
        self.values.update(zip(eqn.outvars, out, strict=True))

    def _compose(self, eqn: Any, places: list[int]) -> Composed | None:
        """The equation as an elementwise function of one jet, if it is one."""
        if not is_elementwise(eqn, places, self.collapse.order):
            return None
        values = [self.read(a) for a in eqn.invars]
        lengths = [v.length for v in values if isinstance(v, Composed)]
        if sum(lengths) >= _LONGEST:
            values = [
                v.jet(self.collapse) if isinstance(v, Composed) else v for v in values
            ]
        moving = [values[k] for k in places]
        bases = [v.base if isinstance(v, Composed) else v for v in moving]
        base, shape = bases[0], eqn.outvars[0].aval.shape
        if any(b is not base for b in bases) or base.primal.shape != shape:
            return None
        if jnp.iscomplexobj(base.primal):
            # Not every function of complex values has a complex derivative.
            return None
        return Composed(eqn, values, base, rule_of(eqn).is_linear(places))

    def _rule(self, eqn: Any, places: list[int]) -> list[Any]:
        rule, collapse = rule_of(eqn), self.collapse
        jets = [self.jet(a) for a in eqn.invars]
        if any(j.index is not None for j in jets):
            sparse = self._sparse_rule(eqn, places, jets)
            if sparse is not None:
                return [sparse]
            jets = [densify(j, collapse.directions) for j in jets]
        if rule.is_linear(places):
            return self._linear(eqn, places, jets)
        if rule.jets is not None:
            return [rule.jets(jets, collapse, **eqn.params)]
        if rule.bilinear:
            product = lambda x, y: evaluate(eqn, [x, y])[0]
            return [multiply(jets[0], jets[1], collapse, product)]
        return self._fallback(eqn, places, jets)

    def _linear(self, eqn: Any, places: list[int], jets: list[Jet]) -> list[Jet]:
        """An equation that is affine in the arguments that vary."""
        product = matrix_product(eqn, places, self.token)
        if product is not None:
            (at,) = places
            jet, weight = jets[at], jets[1 - at].primal
            one = lambda r: product(r[None], weight)[0]
            lower = jax.tree.map(lambda r: product(r, weight), jet.lower)
            return [Jet(one(jet.primal), lower, jax.tree.map(one, jet.top))]
        function, primals = as_function(eqn, places, [j.primal for j in jets])

        def slope(*tangents: Array) -> tuple[Array, ...]:
            return jax.jvp(function, primals, tangents)[1]

        def apply(parts: list[Array | None], leading: tuple[int, ...]) -> Any:
            if all(p is None for p in parts):
                return (None,) * len(eqn.outvars)
            full = [or_zero(p, x, leading) for p, x in zip(parts, primals, strict=True)]
            return (jax.vmap(slope) if leading else slope)(*full)

        lower = [
            apply([jets[p].lower[k] for p in places], (self.collapse.directions,))
            for k in range(self.collapse.order - 1)
        ]
        top = apply([jets[p].top for p in places], ())
        return [
            Jet(value, tuple(row[m] for row in lower), top[m])
            for m, value in enumerate(function(*primals))
        ]

    def _fallback(self, eqn: Any, places: list[int], jets: list[Jet]) -> list[Any]:
        floating = list(map(is_floating, eqn.outvars))
        everything, primals = as_function(eqn, places, [j.primal for j in jets])

        def function(*parts: Array) -> tuple[Array, ...]:
            out = everything(*parts)
            return tuple(v for v, keep in zip(out, floating, strict=True) if keep)

        # The name of a primitive, and of the function if it calls one.
        name, inner = eqn.primitive.name, eqn.params.get("name")
        name = f"{name} ({inner})" if isinstance(inner, str) else name
        try:
            lower, top = nested(function, [jets[k] for k in places], self.collapse)
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"the function cannot be differentiated through the primitive "
                f"{name!r}: it has no rule in Taylor mode, and jax.jvp says: "
                f"{reason}"
            ) from error
        self.fallbacks.add(name)
        out: list[Any] = list(everything(*primals))
        for m, k in enumerate(k for k, keep in enumerate(floating) if keep):
            out[k] = Jet(out[k], tuple(row[m] for row in lower), top[m])
        return out

    def _sparse_rule(self, eqn: Any, places: list[int], jets: list[Jet]) -> Jet | None:
        """A rule that keeps sparse coefficients sparse, or sums over their entries;
        None if this equation has none."""
        name = eqn.primitive.name
        if name == "reduce_sum" and eqn.params["axes"] == (0,):
            return sparse_sum(jets[0])
        if name == "concatenate":
            return sparse_concatenate(jets, places)
        if name == "dot_general" and len(places) == 1:
            return sparse_product(eqn, jets, places[0], self.token)
        return None
