"""Continuum errors against quadrature with a hundred times the nodes."""

import numpy as np
import pytest
from scipy.integrate import quad

import sdifp


def raw(x):
    return np.exp(np.sin(3 * x)) + 0.5 * x


@pytest.mark.parametrize("size", [3, 7, 20])
def test_errors_equal_those_of_a_much_finer_rule(size):
    box = sdifp.Box([0.0], [2.0])
    mean, variance = 0.7, 1.3
    coarse = sdifp.quadrature.midpoint(box, size)
    fine = sdifp.quadrature.gauss_legendre(box, 100 * size)
    on_rule = sdifp.correction.moments(
        raw(np.asarray(coarse.nodes)[:, 0]), coarse.weights
    )
    values = raw(np.asarray(fine.nodes)[:, 0])
    truth = sdifp.correction.moments(values, fine.weights)
    correction = sdifp.correction.correct(on_rule, mean=mean, variance=variance)
    corrected = float(correction.scale) * values + float(correction.shift)
    e1, e2 = sdifp.correction.continuum_errors(
        mean=mean,
        variance=variance,
        rule_mean=on_rule.mean,
        rule_variance=on_rule.variance,
        true_mean=truth.mean,
        true_variance=truth.variance,
    )
    w = np.asarray(fine.weights)
    assert float(e1) == pytest.approx(w @ corrected - mean, abs=1e-12)
    want = w @ corrected**2 - variance - mean**2
    assert float(e2) == pytest.approx(want, abs=1e-12)
    if size == 3:
        assert abs(want) > 1e-3


def test_finer_rule_is_the_continuum():
    truth = quad(raw, 0, 2, epsabs=1e-13)[0] / 2
    rule = sdifp.quadrature.gauss_legendre(sdifp.Box([0.0], [2.0]), 300)
    got = sdifp.correction.moments(raw(np.asarray(rule.nodes)[:, 0]), rule.weights).mean
    assert float(got) == pytest.approx(truth, rel=1e-13)
