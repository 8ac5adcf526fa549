"""The audit of estimators: what it finds, prints and draws."""

import itertools
import json
import re

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest
from quick import once

import sdifp
from sdifp.estimators._variance import variance_of

D = 6
KEY = jax.random.key(5)
X = jax.random.uniform(KEY, (4, D))


class Net(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self):
        self.mlp = eqx.nn.MLP(D, "scalar", 6, 1, jnp.tanh, key=KEY)

    def __call__(self, x):
        return self.mlp(jnp.sin(x))


RESIDUAL = sdifp.Residual(
    sdifp.operators.reaction(1.0) - sdifp.laplacian(jnp.arange(1.0, D + 1))
)


@pytest.mark.validate
def test_audit_finds_what_is_biased_and_agrees_with_the_formula(tmp_path):
    result = sdifp.estimators.audit(
        RESIDUAL,
        Net(),
        X,
        key=KEY,
        estimators={
            "full": sdifp.estimators.Full(),
            "independent": sdifp.estimators.Independent(2),
            "shared": sdifp.estimators.Shared(2),
            "shared Gaussian": sdifp.estimators.Shared(1, sdifp.operators.Gaussian()),
        },
        repeats=1200,
    )
    full, independent, shared, gaussian = result.rows
    assert [r.biased for r in result.rows] == [False, False, True, True]
    assert full.noise < 1e-10
    assert full.mean_square == pytest.approx(1.0, rel=1e-10)
    assert abs(independent.bias) < independent.margin
    assert shared.predicted == pytest.approx(
        result.covariance * D * (D - 2) / (2 * (D - 1))
    )
    assert abs(shared.bias - shared.predicted) < shared.margin
    assert full.predicted_noise == 0.0
    assert independent.noise == pytest.approx(independent.predicted_noise, rel=0.1)
    assert shared.predicted_noise is gaussian.predicted_noise is None
    budget, i, j, least = result.split
    assert (budget, i + j) == (4, 4)
    assert least <= independent.predicted_noise
    assert f"|I| = {i} and |J| = {j}" in str(result)
    assert (shared.mean_square, gaussian.mean_square) == (None, None)
    assert (gaussian.predicted, independent.predicted) == (None, 0.0)
    for row in result.rows:
        assert row.milliseconds > 0.0
        assert row.memory > 0

    text = str(result)
    assert text.count("BIASED") == 2
    assert "1200 draws" in text
    rows = json.loads(json.dumps(result.as_rows()))
    assert [r["name"] for r in rows] == [r.name for r in result.rows]
    assert [r["biased"] for r in rows] == [False, False, True, True]
    picture = result.draw(tmp_path / "audit.png")
    assert matplotlib.image.imread(picture).std() > 0.05


@pytest.mark.parametrize("points", [1, 4])
def test_the_predicted_noise_is_that_of_all_samples(points):
    """All pairs of two of six and three of six terms, each as often as the other."""
    params, static = eqx.partition(Net(), eqx.is_inexact_array)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    x = X[:points]

    @once
    @jax.vmap
    def of_sample(weights):
        def residual(flat):
            u = eqx.combine(unravel(flat), static)
            second = lambda x: jnp.diagonal(jax.hessian(u)(x)) * jnp.arange(1.0, D + 1)
            return jax.vmap(lambda x: u(x) - weights @ second(x))(x)

        return residual(flat), jax.jacrev(residual)(flat)

    def of_all(n):
        chosen = list(itertools.combinations(range(D), n))
        weights = np.zeros((len(chosen), D))
        np.put_along_axis(weights, np.asarray(chosen), D / n, 1)
        return of_sample(jnp.asarray(weights))

    (_, slopes), (values, _) = of_all(2), of_all(3)
    found = np.einsum("jx,ixp->ijp", np.asarray(values), np.asarray(slopes)) / points
    found = found.reshape(-1, flat.size)
    mean = found.mean(0)
    size = float(np.linalg.norm(mean))
    noise = np.sqrt(np.mean(np.sum((found - mean) ** 2, 1))) / size
    variance = variance_of(RESIDUAL, Net(), x, None, D, size)
    assert variance.noise(2, 3) == pytest.approx(noise, rel=1e-9)
    assert variance.noise(D, D) == 0.0
    # The best division of five terms, against all of them.
    split = min(((i, 5 - i) for i in range(1, 5)), key=lambda s: variance.noise(*s))
    assert variance.best_split(5) == split
    # A budget that is more than there is takes all terms.
    assert variance.noise(*variance.best_split(2 * D + 3)) == 0.0
    with pytest.raises(ValueError, match=r"budget must be .* at least 2, got 1"):
        variance.best_split(1)


def test_the_noise_of_a_field_with_sampled_nodes_is_not_predicted():
    for gradient, known in (
        (sdifp.field.Exact(), True),
        (sdifp.field.Subsampled(8), False),
    ):
        row = audit_full(gradient).rows[0]
        assert (row.predicted_noise is not None) == known


def test_bad_input(as_user):
    for options, message in (
        ({"repeats": 4}, "repeats must be an integer of at least 8, got 4"),
        ({"confidence": 1.0}, "confidence must be between 0 and 1, got 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            sdifp.estimators.audit(RESIDUAL, Net(), X, key=KEY, **options)
    with pytest.raises(TypeError, match="estimators must be a dictionary"):
        sdifp.estimators.audit(RESIDUAL, Net(), X, key=KEY, estimators={})
    with pytest.raises(ValueError, match="u has no parameters"):
        sdifp.estimators.audit(RESIDUAL, lambda x: jnp.sum(x**4), X, key=KEY)


class Conserving(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return jnp.sum(jnp.sin(x * self.weight))


def audit_full(gradient):
    rule = sdifp.quadrature.sobol(sdifp.Box([0.0] * D, [1.0] * D), 64, key=KEY)
    net = Conserving(jnp.linspace(1.0, 2.0, D))
    u = sdifp.conserve(net, rule, 1.0, 3.0, gradient=gradient)
    estimators = {"full": sdifp.estimators.Full()}
    return sdifp.estimators.audit(
        RESIDUAL, u, X, key=KEY, estimators=estimators, repeats=16
    )


@pytest.mark.parametrize(
    ("gradient", "words"),
    [
        (
            sdifp.field.Subsampled(8),
            r"the noise of .* Subsampled\(8\), which draws 8 nodes",
        ),
        (
            sdifp.field.MiniBatch(8),
            r"noise and bias of .* MiniBatch\(8\), which draws 8 nodes",
        ),
        (sdifp.field.Detached(), r"the bias of .* Detached\(\), which leaves out"),
    ],
)
def test_audit_says_what_the_gradient_mode_adds(gradient, words, tmp_path):
    found = audit_full(gradient)
    (full,) = found.rows
    assert full.noise > 1e-3 or full.biased
    (line,) = [line for line in str(found).splitlines() if "every row" in line]
    assert re.search(words, line)
    assert "Exact() has none" in line
    assert matplotlib.image.imread(found.draw(tmp_path / "a.png")).std() > 0.05


def test_an_exact_gradient_needs_no_explanation():
    found = audit_full(sdifp.field.Exact())
    assert found.rows[0].noise < 1e-10
    assert found.note is None
    assert "every row" not in str(found)
