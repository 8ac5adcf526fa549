"""Project a noisy two-dimensional field on scattered weighted points, and draw it.

A field with known mass and squared norm is sampled at random points, many where it
varies and few elsewhere, and spoilt by noise and a drift. The projection restores both
integrals to rounding, on these very points and weights.

    python examples/project_scattered_field.py [--out FOLDER] [--points N]
"""

import argparse
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sdifp

BOX = sdifp.Box([0.0, 0.0], [2.0, 1.0])
CENTRE, WIDTH = np.array([0.7, 0.45]), 0.25
SHARE = 0.6  # of the points that crowd around the centre


def field(x):
    """The true field at one point: a bump on a slope."""
    return jnp.exp(-jnp.sum((x - CENTRE) ** 2) / (2 * WIDTH**2)) + 0.3 * x[0]


def sample(key):
    """One point: uniform, or around the centre and folded back into the box."""
    where, uniform, normal = jax.random.split(key, 3)
    spread = BOX.sample(uniform, 1)[0]
    near = CENTRE + WIDTH * jax.random.normal(normal, (2,))
    inside = BOX.contains(near)
    return jnp.where((jax.random.uniform(where) < SHARE) & inside, near, spread)


def density(x):
    """The density of those points: what the bump throws outside falls uniformly."""
    bump = jnp.exp(-jnp.sum((x - CENTRE) ** 2) / (2 * WIDTH**2))
    bump = bump / (2 * math.pi * WIDTH**2)
    lost = 1.0
    for centre, lower, upper in zip(CENTRE, BOX.lower, BOX.upper, strict=True):
        scale = WIDTH * math.sqrt(2)
        lost *= math.erf((upper - centre) / scale) - math.erf((lower - centre) / scale)
    lost = 1.0 - lost / 4
    return SHARE * bump + (1 - SHARE + SHARE * lost) / BOX.volume


def main() -> None:
    """Sample, spoil, project, draw, and say where to look."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        metavar="FOLDER",
        help="where the picture goes (default: %(default)s)",
    )
    parser.add_argument(
        "--points",
        type=int,
        default=3000,
        metavar="N",
        help="how many scattered points (default: %(default)s)",
    )
    options = parser.parse_args()
    if options.points < 2:
        parser.error(f"--points must be at least 2, got {options.points}")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {options.out} cannot be made: {error.strerror}")
    jax.config.update("jax_enable_x64", True)

    # The exact integrals, from a rule that is exact to rounding for this field.
    fine = sdifp.quadrature.gauss_legendre(BOX, 64)
    mass = float(fine.integrate(field))
    squared_norm = float(fine.integrate(lambda x: field(x) ** 2))

    rule = sdifp.quadrature.importance(
        BOX, options.points, sample, density, key=jax.random.key(0)
    )
    nodes, weights = np.asarray(rule.nodes), np.asarray(rule.weights)
    rng = np.random.default_rng(0)
    raw = np.asarray(jax.vmap(field)(jnp.asarray(nodes)))
    raw = 0.8 * raw + 0.15 + 0.05 * rng.standard_normal(len(raw))

    out = sdifp.project(
        raw, weights, mean=mass / BOX.volume, second_moment=squared_norm / BOX.volume
    )
    fixed = np.asarray(out.values)

    print(f"{rule}, weights from {weights.min():.1e} to {weights.max():.1e}")
    print(f"scale {float(out.scale):.6f}, shift {float(out.shift):.6f}\n")
    print("integral on the rule        target         before   error after")
    captions = []
    for name, power, target in (("mass", 1, mass), ("squared norm", 2, squared_norm)):
        before, after = (
            BOX.volume * math.fsum(weights * u**power) for u in (raw, fixed)
        )
        error = abs(after / target - 1)
        print(f"{name:<20} {target:>13.6f}  {before:>13.6f}   {error:>11.1e}")
        captions.append((before / target - 1, error))

    picture = options.out / "projection.png"
    draw(nodes, weights, raw, fixed, captions, picture)
    print(f"\nLook at {picture}")


def draw(nodes, weights, raw, fixed, captions, picture) -> None:
    """Before, after, and the difference, with both moment errors in the captions."""
    sizes = np.clip(6e3 * weights, 1.5, 40.0)
    low, high = min(raw.min(), fixed.min()), max(raw.max(), fixed.max())
    span = abs(fixed - raw).max()
    panels = [("before", raw, low, high), ("after", fixed, low, high)]
    panels.append(("after minus before", fixed - raw, -span, span))
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.3), layout="constrained")
    for k, (axis, (title, values, vmin, vmax)) in enumerate(
        zip(axes, panels, strict=True)
    ):
        cmap = "viridis" if k < 2 else "RdBu_r"
        points = axis.scatter(*nodes.T, sizes, values, cmap=cmap, vmin=vmin, vmax=vmax)
        if k < 2:
            title += (
                f"\nerror of the mass {captions[0][k]:.1e}, "
                f"of the squared norm {captions[1][k]:.1e}"
            )
        axis.set_title(title, fontsize=10)
        axis.set(aspect="equal", xlim=(0, 2), ylim=(0, 1), xlabel="x")
        figure.colorbar(points, ax=axis, shrink=0.75)
    axes[0].set_ylabel("y")
    figure.suptitle(
        f"One scale and one shift restore both integrals on {len(nodes)} scattered "
        "points (area of a dot: its weight; errors relative, on the rule)",
        fontsize=11,
    )
    figure.savefig(picture, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
