"""The names that a configuration may use, with one line each."""

import difflib
from collections.abc import Iterable

NAMES: dict[str, dict[str, str]] = {
    "problems": {
        "advection": "u_t + c sum_k du/dx_k = 0 on a torus",
        "fokker_planck": "the density of an Ornstein-Uhlenbeck process",
        "heat_dirichlet": "u_t = kappa Laplacian(u), with u = 0 on the walls",
        "kdv": "u_t + 6 u u_x + u_xxx = 0 on a circle, and along a diagonal",
        "manufactured": "u_t = Laplacian(u) + f, with a known solution",
        "reaction_diffusion": "u_t = kappa Laplacian(u) + lambda u: targets that move",
        "wave": "u_tt = c^2 Laplacian(u) on a torus",
    },
    "methods": {
        "Plain": "the network as it is",
        "PostHoc": "trained plainly, corrected afterwards",
        "Soft": "a penalty on the errors of the integrals (PINN-SC)",
        "AugmentedLagrangian": "a penalty with a multiplier for each time",
        "GridProjection": "projected on a uniform grid (PINN-proj), d <= 6",
        "SDIFP": "trained through the correction",
    },
    "optimisers": {
        "Adam": "Adam, with a rate that falls",
        "LBFGS": "L-BFGS with a line search",
        "LevenbergMarquardt": "Levenberg-Marquardt, for small networks in float64",
    },
    "decays": {
        "Constant": "the same rate always",
        "Linear": "linear to zero",
        "Cosine": "half a cosine to zero, after a warm-up",
    },
    "networks": {
        "Architecture": "a tanh network: width, depth, harmonics, bottleneck",
    },
    "points": {
        "RandomPoints": "fresh points in every step: n_t times, n_x points at each",
        "GridPoints": "the same uniform grid in every step",
    },
    "gradients": {
        "Exact": "the moments are differentiated at all nodes",
        "Subsampled": "at a few of them, without bias",
        "MiniBatch": "moments of a few nodes, with bias; for comparison",
        "Detached": "not at all, with bias; for comparison",
    },
    "estimators": {
        "Full": "the residual with all its terms",
        "Independent": "two independent samples of terms, without bias",
        "Symmetric": "the same, both ways round",
        "Disjoint": "two samples without a common term; for comparison",
        "Shared": "one sample of terms twice, with bias; for comparison",
        "stde": "STDE's way; for comparison",
    },
    "samplers": {
        "Coordinates": "terms of single coordinates",
        "Rademacher": "random signs",
        "Gaussian": "normal directions",
    },
    "paths": {
        "Automatic": "the cheapest way that applies",
        "ByDirections": "Taylor series along directions",
        "ThroughLayer": "through a narrow first layer",
        "VmappedJet": "jax.experimental.jet, direction by direction",
        "Nested": "nested forward and reverse mode",
    },
    "rules": {
        "trapezoid": "equal steps, for periodic axes",
        "midpoint": "midpoints of equal parts",
        "gauss_legendre": "Gauss nodes between walls",
        "tensor": "a product of rules on the axes, d <= 3",
        "lattice": "a shifted rank-1 lattice",
        "sobol": "a scrambled Sobol sequence",
        "halton": "a scrambled Halton sequence",
        "monte_carlo": "independent random nodes",
        "importance": "random nodes from a density",
        "from_points": "nodes and weights of your own",
    },
}

# What `sdifp list` shows.
LISTED = ("problems", "methods", "rules", "estimators", "optimisers", "gradients")


def nearest(name: str, names: Iterable[str]) -> str:
    """A sentence with the nearest of some names, or with all of them."""
    names = list(names)
    simple = {_simple(n): n for n in names}
    close = difflib.get_close_matches(_simple(name), simple, 1, 0.5)
    if close:
        return f"did you mean {simple[close[0]]}?"
    return f"there are {', '.join(names)}"


def match(name: str, names: Iterable[str]) -> str | None:
    """The one of some names that is meant, whatever its case and hyphens."""
    return next((n for n in names if _simple(n) == _simple(name)), None)


def _simple(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
