"""A steady problem of your own in twenty lines: a driven pendulum with noise.

The angle of an overdamped pendulum, dX = (F - sin X) dt + sqrt(2 D) dW, is driven by a
constant torque F. Its probability density p tends to a steady one, in which probability
keeps flowing around the circle. The equation is solved by every multiple of p, by p = 0
too: only the prescribed integral, 1, makes the solution unique.

python examples/your_own_steady_problem.py
sdifp train examples/your_own_steady_problem.py
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import sdifp

TORQUE, NOISE = 0.8, 0.3


def problem() -> sdifp.Problem:
    """(D p' - (F - sin x) p)' = 0 on a circle."""

    # With V(x) = -cos x - F x, the density of constant flux is proportional to the
    # integral over one turn s of exp((V(x + s) - V(x)) / D).
    def turn(x):
        s, weights = np.polynomial.legendre.leggauss(64)
        s, weights = np.pi * (1.0 + s), np.pi * weights
        rise = jnp.cos(x[0]) - jnp.cos(x[0] + s) - TORQUE * s
        return weights @ jnp.exp(rise / NOISE)

    circle = sdifp.Box([0.0], [2.0 * np.pi], periodic=True)
    total = sdifp.rule_for(circle, 256).integrate(turn)

    drift = lambda x: TORQUE - jnp.sin(x)
    return sdifp.Problem(
        domain=circle,
        equation=sdifp.Residual(sdifp.operators.fokker_planck(drift, NOISE)),
        mass=1.0,
        # A positive network, scaled to its integral.
        positive=True,
        # The mean angular velocity: measured, for nobody knows it beforehand.
        invariants=[sdifp.Density(lambda x, u: drift(x)[0] * u, "velocity")],
        reference=lambda x: turn(x) / total,
        name="pendulum",
        description="The stationary Fokker-Planck equation of a driven pendulum, "
        f"({NOISE} p' - ({TORQUE} - sin x) p)' = 0 on a circle.",
    )


# A recipe of its own for `sdifp train`; without it one follows from the dimension.
recipes = {
    "fast": sdifp.Recipe(
        network=sdifp.training.MLP(width=24, depth=2, harmonics=4),
        optimiser=sdifp.training.LevenbergMarquardt(),
        points=sdifp.training.RandomPoints(1, 256),
        steps=40,
        nodes=64,
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
    print(f"relative L2 error {trained.metrics.l2_error:.1e}")
    print(f"p(2) = {trained.field(jnp.array([2.0])):.6f}")


if __name__ == "__main__":
    main()
