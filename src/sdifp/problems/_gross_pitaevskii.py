"""min int 1/2 |grad u|^2 + 1/2 |x|^2 u^2 + beta/2 u^4 with int u^2 = 1, in a box."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jaxtyping import Array, Float

from .._domain import Box, check_dimension
from ..invariants import Density
from ..operators import Functional
from ._conditions import Dirichlet
from ._data import cube_in_words
from ._problem import Problem
from ._spectral import chebyshev, gauss_legendre

_Map = Callable[[np.ndarray], np.ndarray]
# For one, two and three dimensions: the strength of the interaction, the width of the
# box, and the number of even functions on each axis. With more of them the references
# change by 1e-12, 1e-11 and 2e-9 of their maxima.
_BETA = (500.0, 200.0, 100.0)
_WIDTH = (20.0, 12.0, 10.0)
_COUNT = (64, 48, 28)
# The area of the unit sphere.
_SPHERE = (2.0, 2.0 * np.pi, 4.0 * np.pi)
# Of Newton's iteration: the most steps, and a relative residual that is rounding.
_STEPS, _SMALL = 60, 1e-13


def gross_pitaevskii(
    dimension: int = 1, *, beta: float | None = None, width: float | None = None
) -> Problem:
    """The ground state of the Gross-Pitaevskii equation,
    `-1/2 Laplacian(u) + 1/2 |x|^2 u + beta u^3 = mu u`, on a box about the origin, with
    u = 0 on its walls.

    It minimises the energy, the integral of
    `1/2 |grad u|^2 + 1/2 |x|^2 u^2 + beta/2 u^4`, among the functions whose squared
    norm is 1, and is unique up to its sign. The energy is 24.7811 in one dimension with
    the default arguments, 5.46246 in two. The multiplier mu, or chemical potential, is
    the integral of the same density with `beta u^4`: it is measured. The reference is
    spectral.

    **Arguments:**

    - `dimension`: d, up to 3.
    - `beta`: the strength of the repulsion, positive; by default 500, 200 and 100 in
        one, two and three dimensions.
    - `width`: the length of each side of the box; by default 20, 12 and 10.
    """
    d = check_dimension(dimension)
    if d > 3:
        raise ValueError(f"dimension must be at most 3, got {d}")
    beta = float(_BETA[d - 1] if beta is None else beta)
    width = float(_WIDTH[d - 1] if width is None else width)
    for name, value in {"beta": beta, "width": width}.items():
        if not 0.0 < value < np.inf:
            raise ValueError(f"{name} must be a positive number, got {value}")

    def density(x: Array, u: Array, grad: Array, quartic: float) -> Array:
        return 0.5 * (grad @ grad + (x @ x) * u**2) + quartic * u**4

    state = ground_state(d, beta, width)
    return Problem(
        domain=Box.cube(d, -0.5 * width, 0.5 * width),
        equation=Functional(lambda x, u, grad: density(x, u, grad, 0.5 * beta)),
        conditions=[Dirichlet(lambda x: jnp.prod(1.0 - (2.0 * x / width) ** 2))],
        invariants=[
            Density(lambda x, u, grad: density(x, u, grad, beta), "multiplier")
        ],
        reference=(state, lambda x: -state(x)),
        name=f"gross-pitaevskii-{d}d",
        squared_norm=1.0,
        minimum=state.energy,
        description=(
            f"The ground state of the Gross-Pitaevskii equation, the minimiser of the "
            f"integral of 1/2 |grad u|^2 + 1/2 |x|^2 u^2 + beta/2 u^4 with the "
            f"integral of u^2 prescribed, on "
            f"{cube_in_words(-0.5 * width, 0.5 * width, d)}, with "
            f"beta = {beta:g} and u = 0 on the walls. It solves "
            f"-1/2 Laplacian(u) + 1/2 |x|^2 u + beta u^3 = mu u; mu is the multiplier."
        ),
    )


class GroundState(eqx.Module):
    """A function that is even in each coordinate: on each axis a series in the
    Chebyshev polynomials of even degree, which are those of `2 (2 x / width)^2 - 1`."""

    coefficients: np.ndarray
    width: float = eqx.field(static=True)
    energy: float = eqx.field(static=True)
    multiplier: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """The value at one point."""
        values = jnp.asarray(self.coefficients, x.dtype)
        terms = chebyshev(2.0 * (2.0 * x / self.width) ** 2 - 1.0, len(values))
        for k in reversed(range(values.ndim)):
            values = values @ terms[:, k]
        return values


@functools.cache
def ground_state(
    dimension: int, beta: float, width: float, count: int | None = None
) -> GroundState:
    """The positive solution, by a Galerkin method with Newton's iteration.

    **Arguments:**

    - `dimension`, `beta`, `width`: as for `gross_pitaevskii`.
    - `count`: the number of functions on each axis.
    """
    d, n = dimension, _COUNT[dimension - 1] if count is None else count
    axis = _axis(n, width)
    linear = functools.reduce(np.add.outer, [axis.levels] * d)
    measure = functools.reduce(np.multiply.outer, [axis.weights] * d)
    values = lambda c: _on_each_axis(axis.modes, c)
    project = lambda v: _on_each_axis(axis.modes.T, v * measure)

    def hessian(mu: float, w: np.ndarray, v: np.ndarray) -> np.ndarray:
        return (linear - mu) * v + project(3.0 * w**2 * values(v))

    # Of w = sqrt(beta) u, which solves `A w + w^3 = mu w`. At a fixed mu this is convex
    # in w > 0, so that Newton's iteration from above cannot miss the positive solution;
    # mu is then moved until the squared norm is beta. It begins above the limit without
    # the Laplacian, where mu = |x|^2 / 2 + w^2.
    radius = (d * (d + 2) * beta / _SPHERE[d - 1]) ** (1.0 / (d + 2))
    mu = float(linear[(0,) * d]) + 0.5 * radius**2
    profile = functools.reduce(np.multiply.outer, [1.0 - axis.nodes**2] * d)
    c, move = project(2.0 * np.sqrt(mu) * profile), False
    for _ in range(_STEPS):
        w = values(c)
        residual = (linear - mu) * c + project(w**3)
        missing = beta - np.sum(c**2)
        small = np.linalg.norm(residual) < _SMALL * mu * np.linalg.norm(c)
        if small and abs(missing) < _SMALL * beta:
            break
        move = move or np.linalg.norm(residual) < 0.01 * mu * np.linalg.norm(c)
        # Errors of one step are left to the next.
        solve = _solver(
            functools.partial(hessian, mu, w), linear + mu, 1e-4 if move else 1e-2
        )
        step = solve(-residual)
        if move:
            along = solve(c)
            change = (0.5 * missing - np.sum(c * step)) / np.sum(c * along)
            mu, step = mu + change, step + change * along
        c = c + step
    else:
        raise RuntimeError(f"no ground state found for beta = {beta}, width = {width}")
    # No other solution is positive.
    if np.min(w) < -1e-3 * np.max(w):
        raise RuntimeError(f"no ground state found for beta = {beta}, width = {width}")
    quartic = float(np.sum(measure * w**4)) / beta
    multiplier = float(np.sum(linear * c**2)) / beta + quartic
    coefficients = _on_each_axis(axis.fit, c) / np.sqrt(beta)
    return GroundState(coefficients, width, multiplier - 0.5 * quartic, multiplier)


def _solver(hessian: _Map, scale: np.ndarray, tolerance: float) -> _Map:
    """The inverse of the Hessian, which is positive definite, by conjugate gradients
    with a diagonal preconditioner."""
    matrix, guess = (
        scipy.sparse.linalg.LinearOperator(
            (scale.size, scale.size), lambda v, f=f: f(v.reshape(scale.shape)).ravel()
        )
        for f in (hessian, lambda v: v / scale)
    )

    def solve(right: np.ndarray) -> np.ndarray:
        out, _ = scipy.sparse.linalg.cg(matrix, right.ravel(), rtol=tolerance, M=guess)
        return np.asarray(out).reshape(scale.shape)

    return solve


def _on_each_axis(matrix: np.ndarray, tensor: np.ndarray) -> np.ndarray:
    for _ in range(tensor.ndim):
        tensor = np.tensordot(tensor, matrix, (0, 1))
    return tensor


class _Axis(NamedTuple):
    """The even eigenfunctions of `-1/2 d^2/dx^2 + 1/2 x^2` between the walls."""

    levels: np.ndarray
    "their eigenvalues"
    nodes: np.ndarray
    "of Gauss and Legendre, in the right half of [-1, 1]"
    weights: np.ndarray
    "of integrals over both halves of the axis"
    modes: np.ndarray
    "the values on the nodes"
    fit: np.ndarray
    "from coefficients of eigenfunctions to Chebyshev coefficients"


def _axis(n: int, width: float) -> _Axis:
    half = 0.5 * width
    # Cubes of a resolved function are integrated to rounding.
    nodes, weights = gauss_legendre(4 * (n - n // 4))
    nodes, weights = (a[a.size // 2 :] for a in (nodes, width * weights))
    # Differences of even Legendre polynomials vanish on the walls, and their
    # derivatives are orthogonal.
    k = np.arange(n)
    scale = 1.0 / np.sqrt(2.0 * (4.0 * k + 3.0))

    def basis(y: np.ndarray) -> np.ndarray:
        p = np.polynomial.legendre.legvander(y, 2 * n)
        return (p[:, 2 * k + 2] - p[:, 2 * k]) * scale

    b = basis(nodes)
    mass = b.T @ (weights[:, None] * b)
    potential = b.T @ ((0.5 * weights * (half * nodes) ** 2)[:, None] * b)
    levels, vectors = scipy.linalg.eigh(0.5 / half * np.eye(n) + potential, mass)
    angles = np.pi * (np.arange(n + 1) + 0.5) / (n + 1)
    fit = 2.0 / (n + 1) * np.cos(np.outer(np.arange(n + 1), angles))
    fit[0] /= 2.0
    # The angle is that of 2 y^2 - 1.
    fit = fit @ basis(np.cos(0.5 * angles)) @ vectors
    return _Axis(levels, nodes, weights, b @ vectors, fit)
