"""Moments and quadratic forms of groups of components hold on the rule to rounding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from group_cases import STRESSES, corrected, draw, field, with_case, worst
from group_fields import SETS, conserved, errors, on_nodes, points, uniform
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import once, only

from sdifp._core import Status
from sdifp.field import Exact

TIMES, NOW = jnp.asarray([0.2, 0.9]), jnp.asarray(0.4)

RULES = {
    "one chunk": (uniform, Exact()),
    "chunks": (uniform, Exact(7)),
    "weighted": (points, Exact()),
    "weighted chunks": (points, Exact(11)),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("rule", only(RULES, "weighted chunks"))
def test_they_hold_for_networks(name, rule):
    make, gradient = RULES[rule]
    u = conserved(name, make(), gradient=gradient)
    found = once(on_nodes)(u, TIMES)
    assert all(np.isfinite(a).all() for a in found)
    off = errors(u, TIMES, found)
    assert max(off.values()) <= 1e-13, off


@pytest.mark.parametrize("name", only(SETS, "moments", "metric", "wave"))
def test_they_hold_in_single_precision(name):
    """To 64 units of rounding; values and sums are both in single precision."""
    times = np.asarray(TIMES, np.float32)
    with jax.enable_x64(False):
        u = conserved(name, points())
        found = once(on_nodes)(u, times)
        assert found[0].dtype == np.float32
    wide = tuple(np.asarray(a, np.float64) for a in found)
    off = errors(u, times, wide)
    assert max(off.values()) <= 64 * np.finfo(np.float32).eps, off


@pytest.mark.parametrize("name", only(SETS, "groups", "profile"))
def test_coefficients_do_not_depend_on_the_point(name):
    """The field is the one on the nodes between these, too: `u - a f` is a combination
    of the weights."""
    u = conserved(name)
    now = u.at(NOW)
    xs = jnp.linspace(0.03, 1.95, 7)[:, None]
    for functions, one in zip(now.family.functions, now.corrections, strict=True):
        own = np.asarray(functions.group.components)
        over = lambda f: jax.vmap(lambda x: jnp.atleast_1d(f(x)))(xs)
        raw, got = over(lambda x: u.net(x, NOW))[:, own], over(now)[:, own]
        added = got - one.correction.scale * raw
        chi = jax.vmap(functools.partial(_directions, functions))(xs)
        if not functions.group.linear:
            assert np.abs(added).max() < 1e-14
            continue
        columns = jnp.moveaxis(chi, 1, 0).reshape(chi.shape[1], -1).T
        rest = np.linalg.lstsq(columns, added.reshape(-1))[1]
        assert rest.size == 0 or np.sqrt(rest.max()) < 1e-12


def _directions(functions, x):
    """`R^-1 psi`, or the profile times psi, by linear algebra."""
    if functions.is_oblique:
        return functions.directions(x, NOW)
    psi, metric = functions.tests(x, NOW), functions.metric(x)
    if metric is None or metric.ndim == 0:
        return psi if metric is None else psi / metric
    return jnp.linalg.solve(metric, psi.T).T


# Components, moments and nodes, and how many nodes are evaluated at a time.
SHAPES = [(1, 1, 16), (1, 3, 40), (2, 2, 33), (4, 8, 90), (2, 0, 20)]
CHUNKS = dict(zip(SHAPES, (7, 7, 4096, 11, 4096), strict=True))

cases = st.fixed_dictionaries(
    {
        "shape": st.sampled_from(SHAPES),
        "stresses": st.sets(st.sampled_from(STRESSES)),
        "excess": st.floats(-3.0, 3.0),
        "seed": st.integers(0, 2**32 - 1),
    }
)


@functools.cache
def template(shape):
    return field(shape, draw(shape, (), 0.0, 0), Exact(CHUNKS[shape]))


def check_exact(case):
    """Raw means of 1e4 over deviations of 1e-2, weights over six decades, Gram matrices
    of condition 1e8, and all of these together."""
    shape, stresses = case["shape"], case["stresses"]
    arrays = draw(shape, stresses, case["excess"], case["seed"])
    values, status = corrected(with_case(template(shape), arrays))
    assert np.max(status) == Status.REGULAR
    off = worst(values, arrays)
    assert off <= (1e-13 if len(stresses) < 2 else 1e-12)
    return off


@given(case=cases)
@settings(max_examples=300)
def test_they_hold_for_any_values(case):
    check_exact(case)


@pytest.mark.validate
def test_they_hold_for_any_values_in_thousands_of_cases(record_property):
    found = {"one stress": 0.0, "several": 0.0}

    @given(case=cases)
    @settings(max_examples=3000)
    def run(case):
        kind = "one stress" if len(case["stresses"]) < 2 else "several"
        found[kind] = max(found[kind], check_exact(case))

    run()
    for kind, off in found.items():
        record_property(f"groups, {kind}: worst error on the rule", f"{off:.1e}")
