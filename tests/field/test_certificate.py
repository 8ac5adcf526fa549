"""The certificate says what is measured, and says so when something does not hold."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdifp

KEY = jax.random.key(0)
BOX = sdifp.Box([0.0], [2.0], periodic=True)


def net(x, t):
    return jnp.exp(2 * jnp.sin(jnp.pi * (x[0] - t)))


def field(size, **kwargs):
    return sdifp.conserve(
        net, sdifp.quadrature.trapezoid(BOX, size), 1.0, lambda t: 2.0 + t, **kwargs
    )


def test_errors_on_the_rule_are_rounding_and_in_the_continuum_those_of_the_rule():
    got = field(8).certificate([0.0, 0.5], key=KEY)
    assert got.holds
    assert len(got.rows) == 4
    assert max(row.on_rule for row in got.rows) < 2e-15
    fine = sdifp.quadrature.trapezoid(BOX, 512)
    for row in got.rows:
        now = field(8).at(row.time)
        power = 1 if row.invariant == "mass" else 2
        exact = float(fine.integrate(lambda x, now=now, p=power: now(x) ** p))
        size = np.sqrt(2 * row.target) if power == 2 else 0.0
        del size
        error = exact - row.target
        unit = row.target if power == 2 else max(1.0, np.sqrt(2 * (2.0 + row.time)))
        assert row.continuum == pytest.approx(error / unit, abs=1e-10)
        assert abs(row.continuum - error / unit) <= 3 * row.continuum_margin + 1e-14
        assert row.on_other_rule == pytest.approx(abs(error / unit), abs=1e-10)


def test_interval_covers_the_truth_about_as_often_as_it_says():
    box = sdifp.Box.cube(4)
    rule = sdifp.quadrature.sobol(box, 16, key=KEY)
    u = sdifp.conserve(lambda x: jnp.exp(jnp.sum(x) / 2), rule, 1.0, 2.0)
    now = u.at()
    fine = sdifp.quadrature.gauss_legendre(box, 8)
    truth = float(fine.integrate(lambda x: now(x) ** 2)) / 2.0 - 1.0
    hits = 0
    for k in jax.random.split(KEY, 20):
        row = u.certificate(key=k, replicates=4).rows[1]
        hits += abs(row.continuum - truth) <= row.continuum_margin
    # 95 % of 20; fewer than 15 happens once in four thousand tests.
    assert hits >= 15


def test_table_json_and_verdict(tmp_path):
    got = field(32).certificate([0.0, 0.5], key=KEY)
    text = str(got)
    assert text.splitlines()[0].split()[:3] == ["t", "invariant", "target"]
    assert "exact on the rule (worst error" in got.verdict
    assert "\n" not in got.verdict
    data = json.loads(got.to_json(tmp_path / "certificate.json"))
    assert json.loads((tmp_path / "certificate.json").read_text()) == data
    assert data["holds"] is True
    assert data["rows"][1]["status"] == "REGULAR"


def test_floor_and_infeasible_targets_are_told():
    floored = sdifp.conserve(
        lambda x, t: 1e-6 * net(x, t),
        sdifp.quadrature.trapezoid(BOX, 16),
        1.0,
        2.0,
        floor=sdifp.correction.AbsoluteFloor(1e-8),
    ).certificate([0.1], key=KEY)
    assert not floored.holds
    assert floored.rows[0].floored
    assert "NOT exact" in floored.verdict
    infeasible = sdifp.conserve(
        net, sdifp.quadrature.trapezoid(BOX, 16), 2.0, lambda t: 1.0 + 0.0 * t
    )
    got = infeasible.certificate([0.1], key=KEY)
    assert not got.holds
    assert "INFEASIBLE" in got.verdict


def test_verdict_names_the_integral_that_is_worst():
    """The mass holds, the squared norm is twice what it should be: 2 in place of 1."""
    u = sdifp.conserve(
        net, sdifp.quadrature.trapezoid(BOX, 16), 2.0, lambda t: 1.0 + 0.0 * t
    )
    got = u.certificate([0.1], key=KEY)
    assert got.rows[0].on_rule < 1e-15
    assert "the squared norm at t = 0.1 is off by 1.0e+00" in got.verdict


def test_continuum_at_rounding_is_called_rounding():
    got = field(64).certificate([0.0], key=KEY)
    assert max(abs(row.continuum) for row in got.rows) < 1e-14
    assert "+-" not in str(got)
    assert got.verdict.endswith("in the continuum exact to rounding")
    assert not got.advice


@pytest.mark.parametrize("size", [8, 12])
def test_where_the_rule_is_the_limit_the_verdict_says_what_to_do(size):
    got = field(size).certificate([0.0], key=KEY)
    found = re.search(
        r"the rule is the limit: raise nodes to (\d+) \(trapezoid: estimated error "
        r"(\S+)\)",
        got.verdict,
    )
    assert found
    better = field(int(found[1])).certificate([0.0], key=KEY)
    now, then = (max(abs(row.continuum) for row in c.rows) for c in (got, better))
    assert then < now / 10
    # The estimate has one digit, and is not below the rounding of what it compares.
    assert then <= 2 * float(found[2])
    assert float(found[2]) <= 2 * max(then, got.tolerance)


def test_no_advice_where_more_nodes_do_not_help():
    jump = lambda x, t: jnp.where(x[0] < 1.0 / jnp.sqrt(2.0), 1.0, 0.0) + 0.1 * x[0]
    box = sdifp.Box([0.0], [2.0])
    u = sdifp.conserve(jump, sdifp.quadrature.gauss_legendre(box, 4000), 1.0, 2.0)
    got = u.certificate([0.0], key=KEY)
    assert "the rule is the limit" in got.verdict


def test_advice_in_many_dimensions():
    box = sdifp.Box.cube(5)
    rule = sdifp.quadrature.lattice(box, 32, key=KEY)
    u = sdifp.conserve(lambda x: jnp.exp(jnp.sum(x)), rule, 1.0, 4.0)
    assert re.search(r"raise nodes to \d+ \(lattice", u.certificate(key=KEY).verdict)


def test_moments_of_a_mini_batch_are_found_out():
    u = field(32, gradient=sdifp.field.MiniBatch(8)).resample(KEY)
    got = u.certificate([0.5], key=KEY)
    assert not got.holds
    assert "NOT exact" in got.verdict


def test_single_precision_network_is_judged_by_its_own_rounding():
    single = lambda x, t: net(x, t).astype(jnp.float32)
    u = sdifp.conserve(single, sdifp.quadrature.trapezoid(BOX, 32), 1.0, 2.0)
    got = u.certificate([0.5], key=KEY)
    assert got.holds
    assert 1e-6 < got.tolerance < 1e-4


def test_nan_is_no_success_and_no_json():
    u = sdifp.conserve(
        lambda x, t: jnp.nan * x[0], sdifp.quadrature.trapezoid(BOX, 8), 1.0
    )
    got = u.certificate([0.0], key=KEY)
    assert not got.holds
    assert "NOT exact" in got.verdict
    assert json.loads(got.to_json())["rows"][0]["on_rule"] is None


def test_components_and_other_rule():
    def two(x, t):
        return jnp.stack([net(x, t), jnp.cos(jnp.pi * x[0])])

    u = sdifp.conserve(
        two, sdifp.quadrature.trapezoid(BOX, 16), [1.0, 0.0], [None, 0.7]
    )
    got = u.certificate([0.2], key=KEY, other_rule=sdifp.quadrature.trapezoid(BOX, 33))
    names = [row.invariant for row in got.rows]
    assert names == ["mass[0]", "mass[1]", "squared_norm[1]"]
    assert got.holds
    assert "trapezoid(33" in got.other_rule
    assert "squared_norm[1]" in got.table()


@pytest.mark.usefixtures("as_user")
def test_bad_input():
    other = sdifp.quadrature.trapezoid(sdifp.Box([0.0], [1.0], periodic=True), 8)
    with pytest.raises(ValueError, match="must live on the box of the field"):
        field(8).certificate([0.0], key=KEY, other_rule=other)
    with pytest.raises(ValueError, match="at least one time"):
        field(8).certificate([], key=KEY)
    with pytest.raises(ValueError, match="replicates must be at least 2, got 1"):
        field(8).certificate([0.0], key=KEY, replicates=1)
