"""Problems from their parts, for tests that change one part at a time."""

import sdifp
from sdifp.problems import Dirichlet, Initial, Neumann


def make_problem(
    domain,
    equation,
    initial,
    velocity=None,
    profile=None,
    neumann=False,
    duration=1.0,
    **rest,
):
    """`neumann` is one bool, or one for each axis."""
    conditions = [Initial(initial, velocity)]
    if profile is not None:
        conditions.append(Dirichlet(profile))
    if neumann is True:
        conditions.append(Neumann())
    elif neumann:
        conditions.append(Neumann([k for k, holds in enumerate(neumann) if holds]))
    return sdifp.Problem(domain, equation, conditions, (0.0, duration), **rest)
