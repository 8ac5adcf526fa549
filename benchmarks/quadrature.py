"""Error of each family of rules at equal numbers of nodes.

Two smooth fields of unit size that depend on all axes alike, with moments in closed
form: `exp(sum_k cos(2 pi x_k) / sqrt(d))` on a periodic box and
`exp(sum_k (2 x_k - 1) / sqrt(d))` on a plain one. The error is that of the mean and of
the mean square, whichever is larger, relative to the exact one; root mean square over
16 independent randomisations where the rule is randomised.
"""

import argparse
import json
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import i0

import sdifp

REPLICATES = 16


def periodic(x: jax.Array) -> jax.Array:
    """Smooth and periodic on the unit cube."""
    return jnp.exp(jnp.sum(jnp.cos(2 * jnp.pi * x)) / np.sqrt(x.size))


def plain(x: jax.Array) -> jax.Array:
    """Smooth, not periodic."""
    return jnp.exp(jnp.sum(2.0 * x - 1.0) / np.sqrt(x.size))


def exact(is_periodic: bool, d: int) -> np.ndarray:
    """The mean and the mean square of the field."""
    a = np.array([1.0, 2.0]) / np.sqrt(d)
    return (i0(a) if is_periodic else np.sinh(a) / a) ** d


def error(
    rule: sdifp.quadrature.QuadratureRule, is_periodic: bool, key: jax.Array
) -> float:
    """Relative error, over replicates where there are any."""
    field = periodic if is_periodic else plain

    @eqx.filter_jit
    def moments(rule: sdifp.quadrature.QuadratureRule) -> jax.Array:
        return rule.mean(lambda x: jnp.stack([field(x), field(x) ** 2]))

    fixed = rule.name in ("trapezoid", "midpoint", "gauss_legendre")
    rules = [rule] if fixed else rule.replicates(key, REPLICATES)
    found = np.stack([np.asarray(moments(r)) for r in rules])
    relative = found / exact(is_periodic, rule.dimension) - 1.0
    return float(np.max(np.sqrt(np.mean(relative**2, axis=0))))


def families(
    box: sdifp.Box, nodes: int, key: jax.Array
) -> dict[str, Callable[[], sdifp.quadrature.QuadratureRule]]:
    """The contenders: constructors, because some are slow."""
    out = {
        name: lambda family=family: family(box, nodes, key=key)
        for name, family in (
            ("lattice", sdifp.quadrature.lattice),
            ("sobol", sdifp.quadrature.sobol),
            ("halton", sdifp.quadrature.halton),
            ("monte_carlo", sdifp.quadrature.monte_carlo),
        )
    }
    if box.dimension <= 4:
        # More Gauss nodes than this on one axis gain nothing for smooth fields.
        n = min(int(nodes ** (1 / box.dimension) + 1e-9), 1024)
        tensor = (
            sdifp.quadrature.trapezoid
            if box.periodic.all()
            else sdifp.quadrature.gauss_legendre
        )
        out = {"tensor": lambda: tensor(box, n), **out}
    return out


def main() -> None:
    """Measure, print a table, and write the same rows as JSON on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="two dimensions, 256 nodes"
    )
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    key, shift = jax.random.split(jax.random.key(0))

    dimensions = [2] if options.quick else [1, 2, 3, 4, 6, 10, 16, 32, 100]
    sizes = [256] if options.quick else [1024, 16384]
    names = ["tensor", "lattice", "sobol", "halton", "monte_carlo"]
    rows = []
    for is_periodic in (True, False):
        print(f"\n{'periodic' if is_periodic else 'plain'} field, relative error")
        print(f"{'d':>4} {'nodes':>6} " + " ".join(f"{n:>11}" for n in names))
        for nodes in sizes:
            for d in dimensions:
                box = sdifp.Box.cube(d, periodic=is_periodic)
                cells = {}
                for name, make in families(box, nodes, key).items():
                    rule = make()
                    cells[name] = error(rule, is_periodic, shift)
                    rows.append(
                        {
                            "measured": "quadrature error",
                            "periodic": is_periodic,
                            "dimension": d,
                            "nodes": rule.size,
                            "contender": name,
                            "error": cells[name],
                            "ratio": None,
                        }
                    )
                for row in rows[-len(cells) :]:
                    row["ratio"] = row["error"] / cells["monte_carlo"]
                line = " ".join(
                    f"{cells[n]:>11.1e}" if n in cells else " " * 11 for n in names
                )
                print(f"{d:>4} {nodes:>6} {line}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
