"""One of two processes that train a conserved field together; see test_saving.py."""

import sys
from pathlib import Path

import jax
import torch
import torch.distributed as dist
from nets import torch_net

import sdifp
import sdifp.torch as sdt


def loss(field, x, t):
    t = t.clone().requires_grad_()
    value = field(x, t)
    (u_t,) = torch.autograd.grad(value.sum(), t, create_graph=True)
    return ((value[..., 0] + u_t) ** 2).mean()


def main(rank, folder):
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    rule = sdifp.quadrature.sobol(sdifp.Box.cube(4), 64, key=jax.random.key(0))
    u = sdt.conserve(
        torch_net(inputs=5), rule, 1.0, lambda t: 3 + t, gradient=sdt.Subsampled(8)
    )
    both = torch.nn.parallel.DistributedDataParallel(u)
    torch.manual_seed(5)
    x = torch.rand(2, 6, 4, dtype=torch.float64)
    t = torch.tensor([0.1, 0.1, 0.4, 0.4, 0.7, 0.7], dtype=torch.float64).repeat(2, 1)

    # Each process draws other nodes; those of the first one count.
    torch.manual_seed(rank)
    u.resample()
    loss(both, x[rank], t[rank]).backward()
    now = u.at(0.3)
    torch.save(
        {
            "scale": now.scale.detach(),
            "shift": now.shift.detach(),
            "nodes": u.rule.nodes,
            "gradient": {k: p.grad.clone() for k, p in u.named_parameters()},
        },
        folder / f"{rank}.pt",
    )
    if rank == 0:
        u.zero_grad()
        loss(u, x.reshape(12, 4), t.reshape(12)).backward()
        torch.save({k: p.grad for k, p in u.named_parameters()}, folder / "alone.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
