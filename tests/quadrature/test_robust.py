"""Rules and boxes that are copied, kept and misused."""

import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdifp

KEY = jax.random.key(4)
BOX = sdifp.Box([0.0], [1.0])


@pytest.mark.validate
def test_pickled_boxes_and_rules_are_equal_in_another_process(tmp_path):
    rule = sdifp.from_points(BOX, np.array([[0.2], [0.7]]))
    assert hash(rule.domain) is not None
    (tmp_path / "x").write_bytes(pickle.dumps((BOX, rule)))
    code = (
        "import pickle, sys, numpy as np, equinox as eqx, sdifp; "
        "box, old = pickle.load(open(sys.argv[1], 'rb')); "
        "new = sdifp.Box([0.0], [1.0]); "
        "rule = sdifp.from_points(new, np.array([[0.2], [0.7]])); "
        "assert {box: 1}[new] and eqx.tree_equal(old, rule) is True; "
        "assert not box.lower.flags.writeable"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "x"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_stored_numbers_cannot_be_changed_by_accident():
    rule = sdifp.from_points(BOX, np.array([[0.2], [0.7]]))
    for array in (
        rule.nodes,
        rule.weights,
        *sdifp.quadrature.GaussLegendre(7).on_unit_interval(),
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0.0


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: sdifp.quadrature.gauss_legendre(BOX, 4).block(3, 3),
            "within the 4 nodes",
        ),
        (
            lambda: sdifp.quadrature.gauss_legendre(BOX, 4).block(-1, 1),
            "got start = -1",
        ),
        (
            lambda: sdifp.quadrature.sobol(BOX, 16, key=0),
            "key must be one random key.*got 0",
        ),
        (
            lambda: sdifp.quadrature.monte_carlo(BOX, 16, key=0),
            "key must be one random key",
        ),
        (
            lambda: sdifp.quadrature.lattice(BOX, 16, key=jax.random.split(KEY)),
            "one random key",
        ),
        (
            lambda: sdifp.quadrature.tensor(BOX, [5]),
            "axes must be rules such as.*got 5",
        ),
        (lambda: sdifp.Box.cube(2.5), "dimension must be a positive integer, got 2.5"),
        (lambda: sdifp.Box(["a"], [1.0]), "lower must be a list of numbers"),
        (
            lambda: sdifp.quadrature.midpoint(BOX, 4).mean(lambda x: (x[0], x[0])),
            "function must return one array, got tuple",
        ),
        (lambda: sdifp.rule_for(BOX, 10, integrand=jnp.sum), "integrand has no effect"),
        (
            lambda: sdifp.quadrature.importance(
                BOX,
                50,
                lambda k: jax.random.uniform(k, (1,)),
                lambda x: jnp.exp(1400 * (x[0] - 0.5)),
                key=KEY,
            ),
            "so much that weights vanish|positive and finite",
        ),
    ],
)
def test_message(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_older_keys_and_counts_of_numpy_work():
    old = jax.random.PRNGKey(0)
    assert sdifp.quadrature.sobol(BOX, 16, key=old).size == 16
    assert sdifp.quadrature.monte_carlo(BOX, 16, key=old).nodes.shape == (16, 1)
    rule = sdifp.quadrature.midpoint(sdifp.Box.cube(2), np.array([4, 5]))
    assert isinstance(rule.axes[0].n, int)
