"""What the tests of problems on a circle share: residuals and integrals of references,
and an integrator that shares nothing with the package."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate


def points(problem, count, rng):
    """Random points and times of a problem."""
    box = problem.domain
    x = rng.uniform(box.lower, box.upper, (count, 1))
    return jnp.asarray(x), jnp.asarray(problem.duration * rng.uniform(size=count))


def pieces(u, x, t):
    """Value, du/dt, du/dx and d2u/dx2 of a reference, by autodiff: the components on
    the first axis."""

    def at(x, t):
        f = lambda x, t: jnp.atleast_1d(u(x[None], t))
        f_x = jax.jacfwd(f)
        return f(x, t), jax.jacfwd(f, 1)(x, t), f_x(x, t), jax.jacfwd(f_x)(x, t)

    found = jax.jit(jax.vmap(at))(x[:, 0], t)
    return [np.asarray(part).T for part in found]


def residual(problem, x, t):
    """That of the reference, as the package has it: the equations on the first axis."""
    found = jax.jit(lambda x, t: problem.equation(problem.reference, x, t))(x, t)
    return np.atleast_2d(np.asarray(found).T)


def grid(problem, count):
    """Equidistant points of the circle."""
    low, width = float(problem.domain.lower[0]), float(problem.domain.width[0])
    return low + width * np.arange(count) / count


def values(problem, x, t):
    """Of the reference, the components on the first axis."""
    at = jax.jit(jax.vmap(problem.reference, (0, None)))
    found = np.asarray(at(jnp.asarray(x)[:, None], jnp.asarray(t, float)))
    return np.atleast_2d(found.T)


def integral(problem, density, t, count=512):
    """Of a function of the components and their slopes, by the trapezoidal rule."""
    x = jnp.asarray(grid(problem, count))
    u, _, slope, _ = pieces(problem.reference, x[:, None], jnp.full(count, float(t)))
    return float(problem.domain.width[0]) * np.mean(density(u, slope))


def measured(problem, name, t):
    """The integral of an invariant that is a density, from its own function."""
    (found,) = [one for one in problem.invariants if one.name == name]
    scalar = not problem.shape

    def density(u, slope):
        given = (u[0], slope) if scalar else (u, slope[..., None])
        axis = (0, 1) if scalar else (1, 1)
        named = inspect.signature(found.function).parameters
        both = dict(zip(("u", "grad"), zip(given, axis, strict=True), strict=True))
        args, axes = zip(*(both[n] for n in named), strict=True)
        return np.asarray(jax.vmap(found.function, axes)(*args))

    return integral(problem, density, t)


def differences(n, width):
    """The matrices of the first and the second derivative on a circle, of the
    trigonometric polynomials, in closed form; n is even."""
    j = np.arange(1, n)
    first, second = np.zeros(n), np.zeros(n)
    first[1:] = 0.5 * (-1.0) ** j / np.tan(np.pi * j / n)
    second[1:] = -0.5 * (-1.0) ** j / np.sin(np.pi * j / n) ** 2
    second[0] = -(n**2) / 12.0 - 1.0 / 6.0
    scale = 2.0 * np.pi / width
    lag = (np.arange(n)[:, None] - np.arange(n)) % n
    return scale * first[lag], scale**2 * second[lag]


def integrated(rate, start, duration, method="LSODA"):
    """The last values of an ordinary differential equation."""
    done = scipy.integrate.solve_ivp(
        rate, (0.0, duration), start, method=method, rtol=1e-10, atol=1e-11
    )
    assert done.success
    return done.y[:, -1]
