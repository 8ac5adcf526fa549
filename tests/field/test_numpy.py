"""The NumPy reader: the same numbers, without JAX."""

import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdifp
import sdifp_numpy

KEY = jax.random.key(6)
BOX = sdifp.Box([0.0, 0.0], [2.0, 1.0])
RULE = sdifp.gauss_legendre(BOX, 8)
POINTS = np.asarray(BOX.sample(KEY, 300))


def mlp(activation, out="scalar"):
    net = eqx.nn.MLP(3, out, 8, 2, activation, key=KEY)
    return lambda x, t: net(jnp.append(x, t))


def rich(x, t):
    scaled = jnp.where(x > 0.5, x**3, jnp.clip(x, 0.1, 0.4)) * jnp.arange(1.0, 3.0)
    wave = jax.nn.sigmoid(scaled) @ jnp.ones((2, 3)) + jnp.exp(-t)
    return jnp.sum(jnp.maximum(wave, 0.2)) / jnp.sqrt(1 + x[0] ** 2) + jnp.prod(x)


NETS = {
    "tanh": mlp(jnp.tanh),
    "sine": mlp(jnp.sin),
    "gelu": mlp(jax.nn.gelu),
    "softplus": mlp(jax.nn.softplus),
    "relu": mlp(jax.nn.relu),
    "silu": mlp(jax.nn.silu),
    "two components": mlp(jnp.tanh, 2),
    "many operations": rich,
}


@pytest.mark.parametrize("name", NETS)
def test_numbers_agree_with_jax(name, tmp_path):
    net = NETS[name]
    several = name == "two components"
    mass, energy = ([1.0, None], [3.0, 2.0]) if several else (1.0, 3.0)
    # A kink in time is not smooth, and its interpolation says so.
    tolerance = 1e-2 if name == "relu" else 1e-6
    frozen = sdifp.conserve(net, RULE, mass, energy).freeze((0, 1), tolerance=tolerance)
    frozen.save(tmp_path / "f.npz")
    read = sdifp_numpy.load(tmp_path / "f.npz")
    for t in (0.3, float(frozen.times[2])):
        want = jax.vmap(lambda x, t=t: frozen(x, t))(jnp.asarray(POINTS))
        assert np.allclose(read(POINTS, t), want, rtol=1e-11, atol=1e-12)
    assert read.accuracy == frozen.accuracy
    assert read(POINTS[:0], 0.3).shape[0] == 0


def test_profile_and_no_time(tmp_path):
    def bump(x):
        return x[0] * (2 - x[0]) * x[1] * (1 - x[1])

    net = lambda x: bump(x) * jnp.exp(x[0])
    frozen = sdifp.conserve(net, RULE, 0.3, 0.2, profile=bump).freeze()
    frozen.save(tmp_path / "f.npz")
    want = jax.vmap(frozen)(jnp.asarray(POINTS))
    got = sdifp_numpy.load(tmp_path / "f.npz")(POINTS)
    assert np.allclose(got, want, rtol=1e-12)


def test_unknown_operation_is_named_and_values_can_still_be_corrected(tmp_path):
    net = lambda x, t: jnp.sum(jnp.sort(x)) + jnp.cumsum(x)[0] * t
    frozen = sdifp.conserve(net, RULE, 1.0).freeze((0.0, 1.0), tolerance=1e-6)
    frozen.save(tmp_path / "f.npz")
    read = sdifp_numpy.load(tmp_path / "f.npz")
    with pytest.raises(
        ValueError, match=r"uses the primitive sort.*correct\(values, t\)"
    ):
        read(POINTS, 0.3)
    raw = np.asarray(jax.vmap(lambda x: net(x, 0.3))(jnp.asarray(POINTS)))
    want = jax.vmap(lambda x: frozen(x, 0.3))(jnp.asarray(POINTS))
    assert np.allclose(read.correct(raw, 0.3), want, rtol=1e-13)


def test_reader_imports_neither_jax_nor_sdifp(tmp_path):
    frozen = sdifp.conserve(NETS["tanh"], RULE, 1.0, 3.0).freeze(
        (0.0, 1.0), tolerance=1e-6
    )
    frozen.save(tmp_path / "f.npz")
    source = Path(sdifp_numpy.__file__).read_text()
    (tmp_path / "reader.py").write_text(source)
    code = (
        "import sys, numpy as np; sys.path.insert(0, sys.argv[1]); import reader; "
        "field = reader.load(sys.argv[1] + '/f.npz'); "
        "print(field(np.array([[0.3, 0.4]]), 0.25)[0]); "
        "assert 'jax' not in sys.modules and 'sdifp' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    want = float(frozen(jnp.array([0.3, 0.4]), 0.25))
    assert float(done.stdout) == pytest.approx(want, rel=1e-11)


def test_bad_input(tmp_path):
    frozen = sdifp.conserve(NETS["tanh"], RULE, 1.0, 3.0).freeze(
        (0.0, 1.0), tolerance=1e-6
    )
    frozen.save(tmp_path / "f.npz")
    read = sdifp_numpy.load(tmp_path / "f.npz")
    with pytest.raises(ValueError, match=r"shape \(n, 2\), got \(2,\)"):
        read(POINTS[0], 0.3)
    with pytest.raises(ValueError, match=r"frozen range, 0 to 1, got 1\.5"):
        read(POINTS, 1.5)
    with pytest.raises(ValueError, match="t must be given"):
        read(POINTS)
    (tmp_path / "x.npz").write_text("no")
    with pytest.raises(ValueError, match="is not a frozen field"):
        sdifp_numpy.load(tmp_path / "x.npz")
