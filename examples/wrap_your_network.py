"""Wrap a network of your own, and its mass and squared norm hold at every time.

python examples/wrap_your_network.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp

import sdifp


class Network(eqx.Module):
    """Any function of one point and one time will do; this one is periodic in x."""

    mlp: eqx.nn.MLP

    def __call__(self, x, t):
        """The raw field at one point and time."""
        wave = jnp.pi * x
        return self.mlp(jnp.concatenate([jnp.sin(wave), jnp.cos(wave), t[None]]))


def main() -> None:
    """Wrap, evaluate, differentiate, certify, freeze."""
    jax.config.update("jax_enable_x64", True)
    net = Network(eqx.nn.MLP(3, "scalar", 32, 3, jnp.tanh, key=jax.random.key(0)))

    box = sdifp.Box([0.0], [2.0], periodic=True)
    rule = sdifp.rule_for(box, 128)
    u = sdifp.conserve(net, rule, mass=1.0, squared_norm=lambda t: 2.0 + 0.5 * t)

    x, t = jnp.array([0.3]), 0.25
    print(f"u(x, t)   = {u(x, t):.6f}")
    print(f"du/dt     = {jax.jvp(lambda t: u(x, t), (t,), (1.0,))[1]:.6f}")
    print(f"d2u/dx2   = {jax.hessian(lambda x: u(x, t))(x)[0, 0]:.6f}")

    # The gradient of any loss reaches the network through scale and shift as well.
    points = box.sample(jax.random.key(1), 64)

    @eqx.filter_jit
    def loss(u):
        now = u.at(t)  # one quadrature for all points of this time
        return jnp.mean(jax.vmap(now)(points) ** 4) + 0.01 * now.gauge()

    gradient = eqx.filter_grad(loss)(u)
    size = sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient)) ** 0.5
    print(f"|gradient| = {size:.6f}\n")

    print(u.certificate([0.0, 0.5, 1.0], key=jax.random.key(2)), "\n")

    fast = u.freeze((0.0, 1.0))
    print(f"frozen: {fast(x, t):.6f}, scale and shift to {fast.accuracy:.0e}")


if __name__ == "__main__":
    main()
