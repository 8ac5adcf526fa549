"""Orders of convergence, fitted to root mean square errors over resamples."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from sdifp import Box
from sdifp.quadrature import lattice, monte_carlo, sobol

REPLICATES = 48
EXPONENTS = (5, 8, 11)
FAMILIES = {"monte_carlo": monte_carlo, "sobol": sobol, "lattice": lattice}


def fields(x):
    """Smooth; periodic with a jump in the third derivative; periodic and analytic."""
    return jnp.stack(
        [
            jnp.exp(jnp.sum(x)),
            jnp.prod(1.0 + x**2 * (1.0 - x) ** 2),
            jnp.exp(0.5 * jnp.sum(jnp.cos(2 * jnp.pi * x))),
        ]
    )


EXACT = np.array([math.expm1(1.0), 1.0 + 1 / 30, scipy.special.i0(0.5)]) ** 3


@functools.cache
def errors(family, periodic):
    keys = jax.random.split(jax.random.key(9), REPLICATES)
    rows = []
    for m in EXPONENTS:
        rule = FAMILIES[family](
            Box.cube(3, periodic=periodic), 2**m, key=jax.random.key(4)
        )
        means = eqx.filter_jit(
            lambda rule: jax.vmap(lambda k: rule.resample(k).mean(fields))(keys)
        )(rule)
        rows.append(np.sqrt(np.mean((np.asarray(means) / EXACT - 1.0) ** 2, axis=0)))
    return np.array(rows)


def slopes(family, periodic):
    octaves = np.array(EXPONENTS) * math.log(2.0)
    return np.polyfit(octaves, np.log(errors(family, periodic)), 1)[0]


@pytest.mark.validate
def test_monte_carlo_has_order_one_half():
    # An error over 48 resamples is known to 1 part in 10, so the slope to 0.035.
    assert np.all(np.abs(slopes("monte_carlo", False) + 0.5) < 0.12)


def test_sobol_is_clearly_better_than_monte_carlo_on_smooth_fields():
    assert np.all(slopes("sobol", False) < -0.9)


def test_the_lattice_has_second_order_on_a_periodic_field_of_that_smoothness():
    assert slopes("lattice", True)[1] < -1.5


def test_the_folded_lattice_has_nearly_second_order_on_a_field_that_is_not_periodic():
    assert slopes("lattice", False)[0] < -1.2


def test_without_folding_the_lattice_has_first_order_only():
    assert -1.2 < slopes("lattice", True)[0] < -0.7


def test_the_lattice_is_far_beyond_second_order_on_an_analytic_periodic_field():
    assert slopes("lattice", True)[2] < -4.0
