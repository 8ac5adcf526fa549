"""The same network in both engines."""

import equinox as eqx
import jax.numpy as jnp
import torch

# Networks this small gain nothing from threads, and tests run beside each other.
torch.set_num_threads(1)


def torch_net(seed=0, inputs=2, outputs=1, width=12, dtype=torch.float64):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, outputs),
    ).to(dtype)


class JaxNet(eqx.Module):
    """The layers of a `torch_net`, as a function of one point and one time."""

    layers: list
    scalar: bool = eqx.field(static=True)

    def __call__(self, x, t):
        h = jnp.concatenate([x, t[None]])
        for k, (weight, bias) in enumerate(self.layers):
            h = weight @ h + bias
            h = jnp.tanh(h) if k + 1 < len(self.layers) else h
        return h[0] if self.scalar else h


def jax_net(net, scalar=True):
    return JaxNet(
        [
            (jnp.asarray(m.weight.detach().numpy()), jnp.asarray(m.bias.detach()))
            for m in net
            if isinstance(m, torch.nn.Linear)
        ],
        scalar,
    )


def by_torch(y, z, times=1):
    """The derivative of each entry of y by its own entry of z, repeatedly."""
    for _ in range(times):
        (y,) = torch.autograd.grad(y.sum(), z, create_graph=True)
    return y
