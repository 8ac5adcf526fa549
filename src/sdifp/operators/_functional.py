"""An energy to be minimised: the integral of a density of the field."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..field import Jets, jets_at, sums_at
from ..invariants import (
    Integral,
    check_asked_for,
    integrals_from,
    parameters,
    taken_by,
    unknown_arguments,
    value_of,
)

_ARGUMENTS = ("x", "u", "grad")


class Functional(eqx.Module):
    """The integral of a density of u over the domain, to be minimised.

    **Arguments:**

    - `density`: one number at one point: a function of those of `x`, `u` and `grad`
        (the gradient, of shape (d,)) that it names as arguments, and of integrals. For
        n components u has shape (n,) and grad (n, d).
    - `integrals`: integrals of the field that stand in the density, a function by each
        name, as for `Residual`: `{"mass": lambda u: u}`; the density asks for them by
        name.
    - `name`: what the functional is called in tables, files and messages.

    Examples:
        >>> import jax.numpy as jnp, sdifp
        >>> energy = sdifp.Functional(
        ...     lambda u, grad, x: 0.5 * jnp.sum(grad**2) + 0.5 * jnp.sum(x**2) * u**2
        ... )
        >>> rule = sdifp.rule_for(sdifp.Box([-8.0], [8.0]), 64)
        >>> u = lambda x: jnp.pi**-0.25 * jnp.exp(-0.5 * x[0] ** 2)
        >>> print(f"{energy(u, rule):.6f}")
        0.500000
    """

    density: Callable[..., Array]
    integrals: tuple[Integral, ...] = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(
        self,
        density: Callable[..., Array],
        integrals: Mapping[str, Callable[..., Any]] | None = None,
        name: str = "energy",
    ) -> None:
        self.density = density
        self.integrals = integrals_from(integrals)
        self.name = name

    def __check_init__(self) -> None:
        if not callable(self.density):
            raise TypeError(f"density must be a function, got {self.density!r}")
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name must be text, got {self.name!r}")
        names = [one.name for one in self.integrals]
        other = unknown_arguments(self.density, (*_ARGUMENTS, *names))
        known = [p.name for p in parameters(self.density)]
        if other or not {"u", "grad"} & set(known):
            also = f", {', '.join(names)}" if names else ""
            raise ValueError(
                f"density must be a function of u or grad, and besides of x{also} if "
                f"it needs them, got one of ({', '.join(known)})"
            )
        check_asked_for("density", self.density, self.integrals)

    def __call__(self, u: Callable[[Array], Array], rule: Any) -> Float[Array, ""]:
        """The functional of a function of one point, on a quadrature rule, all of whose
        nodes are held at once.

        **Arguments:**

        - `rule`: a quadrature rule.
        """
        nodes, weights = rule.at(jnp.arange(rule.size))
        return self.of_jets(nodes, weights, jets_at(u, nodes), rule.domain.volume)

    def of_jets(
        self,
        nodes: Float[Array, "m d"],
        weights: Float[Array, " m"],
        jets: Jets,
        volume: float,
    ) -> Float[Array, ""]:
        """The functional, from values and gradients on the nodes of a rule."""
        known = self.integrals_of(nodes, weights, jets, volume)
        values = jax.vmap(self.at_point)(nodes, *jets, known)
        return volume * (weights.astype(values.dtype) @ values)

    def integrals_of(
        self, nodes: Array, weights: Array, jets: Jets, volume: float
    ) -> dict[str, Float[Array, " m"]]:
        """The integrals in the density at each node, by name."""
        found = sums_at(self.integrals, nodes, None, nodes, weights, jets)
        full = lambda a: jnp.broadcast_to(volume * a, weights.shape)
        each = zip(self.integrals, found, strict=True)
        return {one.name: full(sums) for one, sums in each}

    def at_point(
        self, x: Array, u: Array, grad: Array, integrals: dict[str, Array]
    ) -> Array:
        """The density at one point."""
        known = {"x": x, "u": u, "grad": grad, **integrals}
        value = value_of(
            "density",
            self.density,
            taken_by(self.density, known),
            [()],
            "one real number for one point",
            by_name=True,
        )
        return jnp.asarray(value, u.dtype)

    def local_jets(
        self, nodes: Array, weights: Array, jets: Jets, volume: float
    ) -> tuple[Jets, Float[Array, "m k k"]]:
        """The derivative of the functional by the values and gradients at each node,
        divided by its weight, and the second derivatives at each node by itself, of
        the density in which integrals are held, with what they add of first order."""
        of = lambda jets: self.of_jets(nodes, weights, jets, volume)
        total = jax.grad(of)(jets)
        inverse = 1.0 / weights.astype(jets.u.dtype)
        shape = jets.u.shape[1:]
        slope = Jets.of_rows(inverse[:, None] * total.rows, shape)
        known = self.integrals_of(nodes, weights, jets, volume)
        known = jax.lax.stop_gradient(known)

        def density(z: Array, x: Array, known: dict[str, Array]) -> Array:
            u, grad = (a[0] for a in Jets.of_rows(z[None], shape))
            return volume * self.at_point(x, u, grad, known)

        # The densities of integrals, weighted by how the functional depends on them.
        by_known = jax.grad(
            lambda known: (
                volume * (weights @ jax.vmap(self.at_point)(nodes, *jets, known))
            )
        )(known)
        plain = [one for one in self.integrals if not one.is_kernel]

        def whole(z: Array, x: Array, known: dict[str, Array]) -> Array:
            out = density(z, x, known)
            u, grad = (a[0] for a in Jets.of_rows(z[None], shape))
            for one in plain:
                factor = volume * jnp.sum(by_known[one.name])
                out = out + factor * one.density(x, x, None, u, grad)
            return out

        return slope, jax.vmap(jax.hessian(whole))(jets.rows, nodes, known)
