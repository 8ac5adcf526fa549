"""A system of your own: a reversible reaction between two species that diffuse.

A turns into B and back, A <-> B, and both diffuse at rates of their own between walls
that nothing passes. Neither amount is constant, but the total of both is: an invariant
that couples the two components of the field.

python examples/your_own_system.py
sdifp train examples/your_own_system.py
"""

import argparse

import jax
import jax.numpy as jnp

import sdifp

DIFFUSION = jnp.diag(jnp.array([0.05, 0.01]))
RATES = jnp.array([[-1.0, 0.5], [1.0, -0.5]])


def problem() -> sdifp.Problem:
    """a_t = D_a a_xx - a + b/2, b_t = D_b b_xx + a - b/2."""

    # A cosine stays a cosine: its two amplitudes solve a linear system.
    def exact(x, t):
        flow = lambda k: RATES - (k * jnp.pi) ** 2 * DIFFUSION
        amplitudes = lambda k, start: jax.scipy.linalg.expm(t * flow(k)) @ start
        mean = amplitudes(0, jnp.array([1.0, 0.5]))
        first = amplitudes(1, jnp.array([-0.6, 0.3]))
        second = amplitudes(2, jnp.array([0.2, 0.0]))
        waves = jnp.cos(jnp.pi * x[0]), jnp.cos(2.0 * jnp.pi * x[0])
        return mean + first * waves[0] + second * waves[1]

    return sdifp.Problem(
        domain=sdifp.Box([0.0], [1.0]),
        # A matrix mixes the components; the local term gets all of them.
        equation=sdifp.Residual(
            sdifp.time_derivative() - DIFFUSION @ sdifp.laplacian(),
            lambda u, grad, x, t: -RATES @ u,
        ),
        conditions=[
            sdifp.problems.Initial(lambda x: exact(x, 0.0)),
            sdifp.problems.Neumann(),
        ],
        interval=(0.0, 1.0),
        # The total of both; Mass(..., component=0) would be that of A alone.
        invariants=[sdifp.Mass(1.5)],
        reference=exact,
        name="reversible-reaction",
        components=("a", "b"),
        description="A reversible reaction with diffusion, a_t = 0.05 a_xx - a + b/2, "
        "b_t = 0.01 b_xx + a - b/2 on [0, 1], no flux through the walls.",
    )


# Recipes of its own for `sdifp train`; without them they follow from the dimension.
recipes = {
    "fast": sdifp.Recipe(
        network=sdifp.training.MLP(width=16, depth=2, harmonics=3),
        optimiser=sdifp.training.LevenbergMarquardt(),
        points=sdifp.training.RandomPoints(10, 24),
        steps=40,
        nodes=32,
    )
}


def main() -> None:
    """Define, train, look."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="%(default)s")
    steps = parser.parse_args().steps
    jax.config.update("jax_enable_x64", True)

    training = sdifp.train(
        problem(), recipe=recipes["fast"].replace(steps=steps), key=jax.random.key(0)
    )
    for metrics in training:
        print(metrics)
    trained = training.result()
    print(trained.certificate)
    for name, error in trained.metrics.l2_errors.items():
        print(f"relative L2 error of {name}: {error:.1e}")
    a, b = trained.field(jnp.array([0.25]), 1.0)
    print(f"a(0.25, 1) = {a:.6f}, b(0.25, 1) = {b:.6f}")


if __name__ == "__main__":
    main()
