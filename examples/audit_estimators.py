"""Which estimator of the gradient can be trusted? Measure them on a problem of your
own.

A network in 20 dimensions, periodic, with prescribed mass and squared norm, and the
residual of a heat equation with a source. Prints bias, noise, time and memory of each
estimator against the full gradient, and draws them.
"""

import argparse
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp

import sdifp

jax.config.update("jax_enable_x64", True)


class Network(eqx.Module):
    """A tanh network of sin(pi x) and t."""

    mlp: eqx.nn.MLP

    def __call__(self, x: jax.Array, t: jax.Array) -> jax.Array:
        """The raw field at one point and time."""
        return self.mlp(jnp.concatenate([jnp.sin(jnp.pi * x), t[None]]))


def main() -> None:
    """Audit the estimators and say where the picture is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="out/audit", help="folder of the picture")
    parser.add_argument(
        "--draws", type=int, default=4096, help="draws of each estimator"
    )
    parser.add_argument("--dimension", type=int, default=20, help="of space")
    parser.add_argument("--quick", action="store_true", help="two estimators only")
    options = parser.parse_args()
    if options.draws < 8:
        parser.error(f"--draws must be at least 8, got {options.draws}")
    if options.dimension < 8:
        parser.error(f"--dimension must be at least 8, got {options.dimension}")
    out = Path(options.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {options.out} cannot be made: {error.strerror}")

    d, key = options.dimension, jax.random.key(0)
    box = sdifp.Box.cube(d, periodic=True)
    net = Network(eqx.nn.MLP(d + 1, "scalar", 32, 2, jnp.tanh, key=key))
    rule = sdifp.rule_for(box, 256, key=key)
    u = sdifp.conserve(net, rule, mass=1.0, squared_norm=2.0)
    heat = sdifp.Residual(
        sdifp.time_derivative() - sdifp.laplacian(),
        source=lambda x, t: jnp.sin(jnp.sum(jnp.cos(jnp.pi * x)) / d**0.5 + t),
    )
    times = jnp.array([0.1, 0.4, 0.6, 0.9])
    points = box.sample(key, 4 * 16).reshape(4, 16, d)
    two = {
        "independent(4, 4)": sdifp.estimators.Independent(4),
        "shared(4)": sdifp.estimators.Shared(4),
    }
    result = sdifp.estimators.audit(
        heat,
        u,
        points,
        times,
        key=key,
        n=4,
        estimators=two if options.quick else None,
        repeats=options.draws,
    )
    print(result)
    print(f"Look at {result.draw(out / 'audit.png')}")


if __name__ == "__main__":
    main()
