"""An equation of your own: viscous Burgers on a periodic interval, in twenty lines.

The integral of u is constant; that of u^2 decays in a way that nobody tells us, so it
is left out. The reference is optional: with it, every report shows the error.

python examples/your_own_pde.py
sdifp train examples/your_own_pde.py
"""

import argparse

import jax
import jax.numpy as jnp

import sdifp

NU = 0.05


def problem() -> sdifp.Problem:
    """u_t + u u_x = nu u_xx."""

    # Cole and Hopf: u = -2 nu w_x / w solves it if w solves the heat equation.
    def exact(x, t):
        wave = jnp.exp(-NU * jnp.pi**2 * t)
        height = 1.2 + wave * jnp.cos(jnp.pi * x[0])
        return 2.0 * NU * jnp.pi * wave * jnp.sin(jnp.pi * x[0]) / height

    return sdifp.Problem(
        domain=sdifp.Box([0.0], [2.0], periodic=True),
        # A linear operator, and a function of u and grad u.
        equation=sdifp.Residual(
            sdifp.time_derivative() - NU * sdifp.laplacian(),
            lambda u, grad, x, t: u * grad[0],
        ),
        conditions=[sdifp.problems.Initial(lambda x: exact(x, 0.0))],
        interval=(0.0, 1.0),
        mass=0.0,
        reference=exact,
        name="burgers",
        description=f"Viscous Burgers, u_t + u u_x = {NU} u_xx, periodic on [0, 2].",
    )


# Recipes of its own for `sdifp train`; without them they follow from the dimension.
recipes = {
    "fast": sdifp.Recipe(
        network=sdifp.training.MLP(width=24, depth=2, harmonics=6),
        optimiser=sdifp.training.LevenbergMarquardt(),
        points=sdifp.training.RandomPoints(10, 32),
        steps=60,
        nodes=64,
    )
}


def main() -> None:
    """Define, train, look."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60, help="%(default)s")
    steps = parser.parse_args().steps
    jax.config.update("jax_enable_x64", True)

    burgers = problem()
    training = sdifp.train(
        burgers, recipe=recipes["fast"].replace(steps=steps), key=jax.random.key(0)
    )
    for metrics in training:
        print(metrics)
    trained = training.result()
    print(trained.certificate)
    print(f"u(0.5, 1) = {trained.field(jnp.array([0.5]), 1.0):.6f}")


if __name__ == "__main__":
    main()
