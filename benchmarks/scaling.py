"""More devices: time of a step, bytes that they send each other, memory of each, and
what that predicts for machines with more of them.

python benchmarks/scaling.py                 # eight devices of one CPU
python benchmarks/scaling.py --streamed 27   # 2^27 nodes instead, in ten minutes
"""

import argparse
import contextlib
import dataclasses
import json
import math
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEVICES = (1, 2, 4, 8)

Rows = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Setting:
    """A step: nodes, points at each of two times, dimension."""

    nodes: int
    points: int
    dimension: int
    devices: int = 1


def begun(setting: Setting) -> Any:
    """The loop of a training, on its devices."""
    import jax

    import sdifp

    problem = sdifp.problems.reaction_diffusion(setting.dimension)
    recipe = sdifp.training.recipe_for(problem).replace(
        network=sdifp.training.MLP(64, 2),
        points=sdifp.training.RandomPoints(2, setting.points),
        nodes=setting.nodes,
        final_nodes=setting.nodes,
        optimiser=sdifp.training.Adam(),
        gradient=sdifp.field.Subsampled(256),
        estimator=sdifp.estimators.Independent(min(8, setting.dimension)),
        windows=1,
        steps=10_000,
    )
    return sdifp.training.Training(
        problem, recipe=recipe, check=False, key=jax.random.key(0)
    )


@contextlib.contextmanager
def on(devices: int) -> Any:
    """One device as it always is, or several."""
    import jax

    import sdifp

    if devices == 1:
        yield
    else:
        with jax.set_mesh(sdifp.training.mesh(devices)):
            yield


def times(settings: list[Setting], rounds: int) -> dict[Setting, float]:
    """Seconds of a step of each, in turns."""
    from sdifp._timing import interleaved

    def two_steps(setting: Setting) -> Callable[[], None]:
        with on(setting.devices):
            training = begun(setting)

        def run() -> None:
            with on(setting.devices):
                training.advance(2)

        return run

    found = interleaved(rounds, {s: two_steps(s) for s in settings})
    return {setting: seconds / 2 for setting, seconds in found.items()}


def scaling(rounds: int, quick: bool, rows: Rows) -> None:
    """Time of a step against devices, at equal work and at equal work for each."""
    d, unit = (3, 2**9) if quick else (20, 2**12)
    counts = DEVICES[:2] if quick else DEVICES
    strong = [Setting(8 * unit, 256, d, n) for n in counts]
    weak = [Setting(unit * n, 32 * n, d, n) for n in counts]
    found = times([*strong, *weak], rounds)
    print(f"\nTime of a step against that of one device, d = {d}")
    print("| devices | equal work | equal work for each device |")
    print("|---|---|---|")
    for n, a, b in zip(counts, strong, weak, strict=True):
        ratios = found[a] / found[strong[0]], found[b] / found[weak[0]]
        print(f"| {n} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
        names = ("equal work", "equal work for each device")
        for name, ratio in zip(names, ratios, strict=True):
            rows.append({"measured": name, "contender": str(n), "ratio": ratio})


def traffic(quick: bool, rows: Rows) -> None:
    """Bytes and memory of the compiled step."""
    print("\nBytes that devices exchange in a step, and temporary memory of each")
    print("| d | nodes | devices | sums | gradient and loss | parameters | MiB |")
    print("|---|---|---|---|---|---|---|")
    settings = [
        Setting(2**14, 64, 10, 8),
        Setting(2**17, 64, 10, 2),
        Setting(2**17, 64, 10, 8),
        Setting(2**20, 64, 10, 8),
        Setting(2**24, 64, 10, 8),
        Setting(2**20, 64, 100, 8),
        Setting(2**20, 64, 1000, 8),
    ]
    for setting in settings[:1] if quick else settings:
        import equinox as eqx
        import jax

        with on(setting.devices):
            training = begun(setting)
            sent, memory = dict(training.messages()), training.memory() / 2**20
        arrays = jax.tree.leaves(eqx.filter(training.state.net, eqx.is_array))
        size = sum(a.nbytes for a in arrays)
        sums, gradient = sent.pop("all-gather"), sent.pop("all-reduce")
        assert not sent, sent
        rows.append(
            {
                "measured": "bytes and memory",
                "contender": f"2^{setting.nodes.bit_length() - 1}",
                **dataclasses.asdict(setting),
                "sums": sums,
                "gradient": gradient,
                "parameters": size,
                "mebibytes": memory,
            }
        )
        print(
            f"| {setting.dimension} | 2^{setting.nodes.bit_length() - 1} | "
            f"{setting.devices} | {sums} | {gradient} | {size} | {memory:.1f} |"
        )


def model(rounds: int, quick: bool, rows: Rows) -> None:
    """Parts of a step on one device, and what they predict."""
    d, m = (3, 2**9) if quick else (100, 2**14)
    base, nodes, points = Setting(m, 64, d), Setting(4 * m, 64, d), Setting(m, 512, d)
    other = Setting(8 * m, 256, d)
    found = times([base, nodes, points, other], rounds)
    # Noise may be larger than either in a short run.
    slope = lambda more, count: max(0.0, found[more] - found[base]) / count
    of_node = slope(nodes, nodes.nodes - base.nodes)
    of_point = slope(points, points.points - base.points)
    rest = max(0.0, found[base] - base.nodes * of_node - base.points * of_point)
    print(f"\nParts of a step on one device, d = {d}, two times")
    print(f"a node {1e9 * of_node:.0f} ns, a point of each time ", end="")
    print(f"{1e6 * of_point:.2f} us, the rest {1e3 * rest:.2f} ms")
    ratio = found[other] / (other.nodes * of_node + other.points * of_point + rest)
    rows.append({"measured": "model", "contender": "Another step", "ratio": ratio})
    print(
        f"Another step, with {other.nodes} nodes and {other.points} points of each "
        f"time, took {ratio:.2f} times what these parts predict."
    )
    training = begun(base)
    import equinox as eqx
    import jax

    from sdifp.quadrature._stream import part_count

    arrays = jax.tree.leaves(eqx.filter(training.state.net, eqx.is_array))
    gradient = sum(a.nbytes for a in arrays)
    latency, bandwidth = 10e-6, 10e9
    print(
        f"Assumed: every device as fast as this one, {1e6 * latency:.0f} us for a "
        f"message and {bandwidth / 1e9:.0f} GB/s. A step with 2^24 nodes and 8192 "
        f"points of each time:"
    )
    print("| devices | nodes | points | rest | messages | step | efficiency |")
    print("|---|---|---|---|---|---|---|")
    alone = 0.0
    for n in (1, 8, 64, 1024):
        a = 2**24 * of_node / n
        # Seven sums of each part and their derivatives, at two times, in float32.
        sums = part_count(2**24, n) * 7 * 2 * 2 * 4
        b = 8192 * of_point / n
        # A ring: each byte passes every device once, a gradient twice; two sums and
        # one gradient, each in log2 n steps at the least.
        c = 0.0
        if n > 1:
            c = 3 * latency * math.log2(n) + (2 * gradient + sums) / bandwidth
        step = a + b + rest + c
        alone = alone or step
        rows.append({"measured": "model", "contender": str(n), "seconds": step})
        print(
            f"| {n} | {a:.3f} s | {b:.4f} s | {rest:.4f} s | {c:.5f} s | "
            f"{step:.3f} s | {alone / (n * step):.2f} |"
        )


def streamed(power: int, devices: int, rows: Rows) -> None:
    """Scale and shift of one time on very many nodes, and a step of a training."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import sdifp

    key, d = jax.random.key(0), 100
    mlp = eqx.nn.MLP(d + 1, "scalar", 32, 2, jnp.tanh, key=key)
    net = lambda x, t: mlp(jnp.concatenate([x, t[None]]))
    rule = sdifp.quadrature.sobol(sdifp.Box.cube(d), 2**power, key=key)
    u = sdifp.conserve(net, rule, 0.3, 1.0)
    print(
        f"\n2^{power} = {2**power:.3g} nodes in d = {d} on {devices} devices, ", end=""
    )
    print(f"which would take {4 * d * 2**power / 2**30:.3g} GiB")
    print("| | seconds | MiB of each device | MiB of the process |")
    print("|---|---|---|---|")

    def row(name: str, seconds: float, temporaries: int) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        each = temporaries / 2**20
        print(f"| {name} | {seconds:.0f} | {each:.1f} | {peak:.0f} |")
        rows.append(
            {
                "measured": "streamed",
                "contender": name,
                "nodes": 2**power,
                "seconds": seconds,
                "mebibytes": each,
                "process": peak,
            }
        )

    with on(devices):
        run = eqx.filter_jit(lambda u, t: u.at(t).correction)
        program = run.lower(u, jnp.asarray(0.5)).compile()
        began = time.perf_counter()
        found = jax.block_until_ready(program(u, jnp.asarray(0.5)))
        seconds = time.perf_counter() - began
        assert jnp.isfinite(found.scale), found.scale
        memory = program.compiled.memory_analysis().temp_size_in_bytes
        row("scale and shift at one time", seconds, memory)

        training = begun(Setting(2**power, 64, d, devices))
        training.advance(1)
        memory = training.memory()
        row("a step of a training", 1.0 / training.speed, memory)
        assert jnp.isfinite(training.state.total), training.state.total


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9, help="of each time")
    parser.add_argument("--streamed", type=int, help="2^so many nodes, and no tables")
    parser.add_argument("--quick", action="store_true", help="small, to try it")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = (
        f"{flags} --xla_force_host_platform_device_count={DEVICES[-1]}"
    )
    import jax

    print(
        f"JAX {jax.__version__}, {platform.machine()}, {os.cpu_count()} cores, "
        f"{jax.device_count()} devices, float32"
    )
    rows: Rows = []
    if args.streamed is not None:
        streamed(args.streamed, DEVICES[-1], rows)
    else:
        rounds = 1 if args.quick else args.rounds
        scaling(rounds, args.quick, rows)
        traffic(args.quick, rows)
        model(rounds, args.quick, rows)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
