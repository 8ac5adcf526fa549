"""DeepXDE's diffusion example (PyTorch backend), before and after `conserve`.

The equation, the points and the network are those of DeepXDE's own example
`diffusion_1d`: u_t = u_xx - exp(-t) (sin(pi x) - pi^2 sin(pi x)) on [-1, 1], whose
solution exp(-t) sin(pi x) has mass 0 and squared norm exp(-2 t).

python examples/deepxde_diffusion.py
"""

import argparse
import json
import os

os.environ.setdefault("DDE_BACKEND", "pytorch")

import deepxde as dde
import numpy as np
import torch

import sdifp
import sdifp.torch


class Conserved(dde.nn.NN):
    """A conserved field as a network of DeepXDE."""

    def __init__(self, field):
        """Keep the field; its parameters are those of the network in it."""
        super().__init__()
        self.field = field

    def forward(self, inputs):
        """The field at points and times side by side, as DeepXDE hands them in."""
        return self.field(inputs)


def pde(x, y):
    """The residual."""
    dy_t = dde.grad.jacobian(y, x, i=0, j=1)
    dy_xx = dde.grad.hessian(y, x, i=0, j=0)
    wave = torch.sin(torch.pi * x[:, 0:1])
    return dy_t - dy_xx + torch.exp(-x[:, 1:]) * (wave - torch.pi**2 * wave)


def solution(x):
    """The exact solution."""
    return np.sin(np.pi * x[:, 0:1]) * np.exp(-x[:, 1:])


def run(conserved, iterations, seed):
    """Train, and measure the L2 error and the integrals on a rule of its own."""
    dde.config.set_random_seed(seed)
    time = dde.geometry.GeometryXTime(
        dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 1)
    )
    walls = dde.icbc.DirichletBC(time, solution, lambda _, on: on)
    start = dde.icbc.IC(time, solution, lambda _, on: on)
    counts = {"num_domain": 40, "num_boundary": 20, "num_initial": 10}
    data = dde.data.TimePDE(time, pde, [walls, start], **counts, num_test=100)
    net = dde.nn.FNN([2] + [32] * 3 + [1], "tanh", "Glorot uniform")
    if conserved:
        rule = sdifp.quadrature.gauss_legendre(sdifp.Box([-1.0], [1.0]), 16)
        squared_norm = lambda t: torch.exp(-2 * t)
        net = Conserved(
            sdifp.torch.conserve(net, rule, mass=0.0, squared_norm=squared_norm)
        )
    model = dde.Model(data, net)
    model.compile("adam", lr=1e-3)
    model.train(iterations=iterations, display_every=iterations, verbose=0)

    nodes, weights = np.polynomial.legendre.leggauss(100)
    grid = np.linspace(0, 1, 21)
    points = np.stack(np.meshgrid(nodes, grid, indexing="ij"), -1).reshape(-1, 2)
    values = model.predict(points).astype(float).reshape(100, 21)
    exact = solution(points).reshape(100, 21)
    return {
        "L2": float(np.sqrt(((values - exact) ** 2).sum() / (exact**2).sum())),
        "mass": float(abs(weights @ values).max()),
        "squared_norm": float(abs(weights @ values**2 * np.exp(2 * grid) - 1).max()),
    }


def main():
    """Both, for some seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    options = parser.parse_args()
    rows = []
    print(f"{'':10} {'seed':>4} {'L2 error':>9} {'mass off':>9} {'norm^2 off':>10}")
    for seed in range(options.seeds):
        for name in ("before", "after"):
            row = run(name == "after", options.iterations, seed)
            rows.append({"measured": name, "seed": seed, **row})
            print(
                f"{name:10} {seed:4d} {row['L2']:9.1e} {row['mass']:9.1e} "
                f"{row['squared_norm']:10.1e}",
                flush=True,
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
