"""Time and memory of `project` against the memory bandwidth of the machine.

The floor is a STREAM-like copy: NumPy copies an array of the same length into memory
that is already mapped. `project` must move three times as much: the mean reads values
and weights, the centred sums read both again, the correction reads the values and
writes the result.
"""

import argparse
import json
import platform

import jax
import jax.numpy as jnp
import numpy as np

import sdifp
from sdifp._timing import interleaved

# Arrays of 8-byte numbers that `project` has to move, over the two that a copy moves.
COPIES = 3


def measure(size: int, runs: int) -> list[dict[str, object]]:
    """Rows for one number of nodes, in float64."""
    rng = np.random.default_rng(0)
    values = 1e4 + 1e-2 * rng.standard_normal(size)
    weights = 10.0 ** rng.uniform(-6, 0, size)
    weights /= weights.sum()
    target = np.empty_like(values)
    f, w = jnp.asarray(values), jnp.asarray(weights)

    def run(f: jax.Array, w: jax.Array) -> jax.Array:
        return sdifp.project(f, w, mean=0.3, second_moment=2.0).values

    def plain(f: jax.Array, w: jax.Array) -> jax.Array:
        mean = jnp.dot(w, f)
        variance = jnp.dot(w, f * f) - mean**2
        scale = jnp.sqrt((2.0 - 0.3**2) / variance)
        return scale * f + (0.3 - scale * mean)

    new = jax.jit(run).lower(f, w).compile()
    naive = jax.jit(plain).lower(f, w).compile()
    in_place = jax.jit(run, donate_argnums=0).lower(f, w).compile()
    moments = (
        jax.jit(lambda f, w: sdifp.correction.moments(f, w).variance)
        .lower(f, w)
        .compile()
    )
    copy = jax.jit(lambda f: f + 1.0).lower(f).compile()
    held = [f + 0.0]

    def donated() -> jax.Array:
        held[0] = in_place(held[0], w)
        return held[0]

    times = interleaved(
        runs,
        {
            "copy (NumPy, mapped memory)": lambda: np.copyto(target, values),
            "copy (XLA, new memory)": lambda: copy(f),
            "moments": lambda: moments(f, w),
            "project, in place": donated,
            "project, new array": lambda: new(f, w),
            "textbook a*f + b, new array": lambda: naive(f, w),
        },
    )
    memory = {
        "moments": moments,
        "project, in place": in_place,
        "project, new array": new,
        "textbook a*f + b, new array": naive,
    }
    floor = COPIES * times["copy (NumPy, mapped memory)"]
    return [
        {
            "measured": "projection",
            "nodes": size,
            "contender": name,
            "milliseconds": 1e3 * seconds,
            "ratio_to_floor": seconds / floor,
            "extra_bytes": memory[name].memory_analysis().temp_size_in_bytes
            if name in memory
            else None,
        }
        for name, seconds in times.items()
    ]


def main() -> None:
    """Measure, print a table, and write the same rows as JSON on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs, 1e5 nodes")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)

    sizes = [10**5] if options.quick else [10**5, 10**7]
    print(
        f"{platform.processor() or platform.machine()}, jax {jax.__version__}, float64"
    )
    print(f"floor = {COPIES} STREAM-like copies of the values\n")
    print(
        f"{'nodes':>10}  {'contender':<30} {'ms':>8} {'/ floor':>8} {'extra bytes':>12}"
    )
    rows = []
    for size in sizes:
        for row in measure(size, 6 if options.quick else 30):
            rows.append(row)
            extra = "" if row["extra_bytes"] is None else f"{row['extra_bytes']:,}"
            print(
                f"{size:>10,}  {row['contender']:<30} {row['milliseconds']:>8.3f} "
                f"{row['ratio_to_floor']:>8.2f} {extra:>12}"
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
