"""A PINN in plain PyTorch, and the same with conservation: one line more.

python examples/pytorch_pinn.py
"""

import argparse

import torch

import sdifp
import sdifp.torch


class Network(torch.nn.Module):
    """Any module of points (N, d) and times (N, 1); this one is periodic in x."""

    def __init__(self):
        super().__init__()
        sizes, layers = (3, 64, 64), []
        for k in range(2):
            layers += [torch.nn.Linear(sizes[k], sizes[k + 1]), torch.nn.Tanh()]
        self.mlp = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))

    def forward(self, x, t):
        wave = torch.pi * x
        return self.mlp(torch.cat([torch.sin(wave), torch.cos(wave), t], 1))


def exact(x, t):
    """A wave that moves with speed 1: u_t + u_x = 0."""
    return torch.exp(torch.sin(torch.pi * (x - t)))


def train(u, steps):
    """Adam on the residual and on the initial data; points share eight times."""
    optimiser = torch.optim.Adam(u.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        x = (2 * torch.rand(256, 1)).requires_grad_()
        t = torch.rand(8).repeat_interleave(32)[:, None].requires_grad_()
        u_x, u_t = torch.autograd.grad(u(x, t).sum(), (x, t), create_graph=True)
        start = u(x, 0 * t.detach()) - exact(x, 0 * t.detach())
        loss = ((u_t + u_x) ** 2).mean() + 10 * (start**2).mean()
        optimiser.zero_grad()
        loss.backward(inputs=list(u.parameters()))
        optimiser.step()
        schedule.step()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=1000)
steps = parser.parse_args().steps
rule = sdifp.rule_for(sdifp.Box([0.0], [2.0], periodic=True), 64)
mass, squared_norm = (2 * torch.special.i0(torch.tensor(k)).item() for k in (1.0, 2.0))
x, t = torch.arange(1024)[:, None] / 512, torch.ones(1024, 1)
for name in ("plain", "conserved"):
    torch.manual_seed(0)
    u = Network()
    if name == "conserved":
        u = sdifp.torch.conserve(u, rule, mass=mass, squared_norm=squared_norm)
    train(u, steps)
    found, wanted = u(x, t).detach().double(), exact(x, t).double()
    off = 2 * found.mean() / mass - 1, 2 * (found**2).mean() / squared_norm - 1
    error = (found - wanted).norm() / wanted.norm()
    print(f"{name:9}  L2 {error:.1e}  mass {off[0]:+.1e}  squared_norm {off[1]:+.1e}")
print(u.certificate([0.0, 0.5, 1.0]))
