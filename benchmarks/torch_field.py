"""Cost of a conserved PyTorch field over its bare network, beside the same in JAX.

One training-like gradient: residual u_t + u u_x, 4x128 tanh network, one dimension, 64
nodes of which 16 carry the gradient, 8 times with 32 or 128 points each, float32; as
ratios from one run. `backward()` also computes the gradient by the points and their
times, which nobody needs; `backward(inputs=parameters)` does not, for either contender.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable

try:
    import torch
except ModuleNotFoundError:
    print("PyTorch is not installed, so there is nothing to measure: make torch")
    sys.exit(0)

import jax
from field import gradient_cost

import sdifp
import sdifp.torch
from sdifp._timing import interleaved


class Network(torch.nn.Module):
    """A 4x128 tanh network of x and t, periodic in x."""

    def __init__(self) -> None:
        """The network in one dimension."""
        super().__init__()
        layers: list[torch.nn.Module] = []
        for wide in (3, 128, 128, 128):
            layers += [torch.nn.Linear(wide, 128), torch.nn.Tanh()]
        self.mlp = torch.nn.Sequential(*layers, torch.nn.Linear(128, 1))

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The raw field at points and times."""
        wave = torch.pi * x
        return self.mlp(torch.cat([torch.sin(wave), torch.cos(wave), t], 1))


def rows_for(points: int, runs: int) -> list[dict[str, object]]:
    """The conserved field over the bare network, in both engines."""
    torch.manual_seed(0)
    net = Network()
    rule = sdifp.quadrature.trapezoid(sdifp.Box([0.0], [2.0], periodic=True), 64)
    gradients = {
        "Subsampled(16)": sdifp.torch.Subsampled(16),
        "Exact()": sdifp.torch.Exact(),
    }
    fields = {
        name: sdifp.torch.conserve(net, rule, 1.0, 2.0, gradient=mode)
        for name, mode in gradients.items()
    }
    times = torch.linspace(0.05, 0.95, 8).repeat_interleave(points)[:, None]
    parameters = list(net.parameters())

    def step(u: torch.nn.Module, only: bool) -> Callable[[], None]:
        def run() -> None:
            if isinstance(u, sdifp.torch.ConservedField):
                u.resample()
            net.zero_grad()
            x = (2.0 * torch.rand(8 * points, 1)).requires_grad_()
            t = times.clone().requires_grad_()
            value = u(x, t)
            u_x, u_t = torch.autograd.grad(value.sum(), (x, t), create_graph=True)
            loss = ((u_t + value * u_x) ** 2).mean()
            loss.backward(inputs=parameters if only else None)

        return run

    rows = []
    for only in (False, True):
        found = interleaved(
            runs, {k: step(u, only) for k, u in {"bare": net, **fields}.items()}
        )
        way = "backward(inputs=parameters)" if only else "backward()"
        rows += [
            {
                "measured": f"PyTorch, 8 x {points} points, {way}",
                "contender": f"{name} over bare network",
                "milliseconds": 1e3 * found[name],
                "ratio": found[name] / found["bare"],
            }
            for name in fields
        ]
    (row,) = gradient_cost(8, points, runs, cheapest=False)
    rows.append(
        row
        | {
            "measured": f"JAX, compiled, 8 x {points} points",
            "contender": "Subsampled(16) over bare network",
        }
    )
    return rows


def main() -> None:
    """Measure, print a table, and write the same rows as JSON on request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few runs")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    options = parser.parse_args()
    print(
        f"{platform.processor() or platform.machine()}, torch {torch.__version__} "
        f"({torch.get_num_threads()} threads), jax {jax.__version__}"
    )
    print(f"{'measured':<52} {'contender':<34} {'ms':>8} {'ratio':>7}")
    rows = []
    for points in (32, 128):
        for row in rows_for(points, 3 if options.quick else 60):
            rows.append(row)
            print(
                f"{row['measured']:<52} {row['contender']:<34} "
                f"{row['milliseconds']:>8.2f} {row['ratio']:>7.3f}",
                flush=True,
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
