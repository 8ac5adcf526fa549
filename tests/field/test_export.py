"""Exported fields: the same numbers in a process without sdifp, for any batch."""

import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pages import code_under

import sdifp

KEY = jax.random.key(6)
BOX = sdifp.Box([0.0, 0.0], [2.0, 1.0])
RULE = sdifp.quadrature.gauss_legendre(BOX, 6)
POINTS = BOX.sample(KEY, 30)


class Net(eqx.Module):
    mlp: eqx.nn.MLP

    def __call__(self, x, t):
        return self.mlp(jnp.append(x, t))


def mlp(out="scalar"):
    return Net(eqx.nn.MLP(3, out, 8, 2, jax.nn.softplus, key=KEY))


def looped(x, t):
    """Loops and integers, branches and sorting."""
    step = lambda h, k: (jnp.sin(h + k // 2 * t), h[0])
    last, firsts = jax.lax.scan(step, x, jnp.arange(5))
    count = jax.lax.while_loop(lambda k: k < 7, lambda k: k + 3, 0)
    odd = jax.lax.cond(x[0] > 1.0, lambda: x[1] ** 2, lambda: jnp.cos(x[0]))
    return jnp.sum(jnp.sort(last)) + jnp.sum(firsts) * (count % 4) + odd


def bump(x):
    return x[0] * (2 - x[0]) * x[1] * (1 - x[1])


def exported(field, file, **options):
    field.export(file, **options)
    return jax.export.deserialize(bytearray(file.read_bytes()))


@pytest.mark.parametrize("name", ["mlp", "components", "loops"])
def test_numbers_are_those_of_the_field(name, tmp_path):
    net = {"mlp": mlp(), "components": mlp(2), "loops": looped}[name]
    several = name == "components"
    mass, squared_norm = ([1.0, None], [30.0, 2.0]) if several else (1.0, 30.0)
    frozen = sdifp.conserve(net, RULE, mass, squared_norm).freeze(
        (0, 1), tolerance=1e-4
    )
    program = exported(frozen, tmp_path / "f")
    for n, t in ((1, 0.0), (30, 0.3), (7, float(frozen.times[2])), (2, 1.0)):
        want = jax.vmap(lambda x, t=t: frozen(x, t))(POINTS[:n])
        np.testing.assert_allclose(program.call(POINTS[:n], t), want, rtol=1e-12)
    assert np.isnan(program.call(POINTS, 1.01)).all()


def test_no_time_and_a_profile(tmp_path):
    net = lambda x: bump(x) * jnp.exp(x[0])
    frozen = sdifp.conserve(net, RULE, 0.3, 0.2, profile=bump).freeze()
    program = exported(frozen, tmp_path / "f", platforms="cpu")
    assert program.platforms == ("cpu",)
    want = jax.vmap(frozen)(POINTS)
    np.testing.assert_allclose(program.call(POINTS), want, rtol=1e-12)


def test_single_precision(tmp_path):
    with jax.enable_x64(False):
        rule = sdifp.quadrature.gauss_legendre(BOX, 6)
        net = lambda x, t: jnp.exp(jnp.sin(x[0] - t)) * x[1]
        frozen = sdifp.conserve(net, rule, 1.0, 3.0).freeze((0.0, 1.0))
        program = exported(frozen, tmp_path / "f")
        points = jnp.asarray(POINTS, jnp.float32)
        got = program.call(points, 0.3)
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(
            got, jax.vmap(lambda x: frozen(x, 0.3))(points), rtol=1e-5
        )


def test_the_code_of_the_page_without_sdifp(tmp_path):
    box = sdifp.Box([0.0], [1.0], periodic=True)
    net = lambda x, t: jnp.exp(jnp.sin(2.0 * jnp.pi * (x[0] - t)))
    frozen = sdifp.conserve(net, sdifp.quadrature.trapezoid(box, 16), 1.0, 3.0).freeze(
        (0.0, 1.0)
    )
    frozen.export(tmp_path / "field.jax")
    code = code_under("frozen.md", "Export") + (
        "import sys\n"
        "assert not {'sdifp', 'equinox'} & set(sys.modules)\n"
        "print(*map(float, values))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    want = [float(frozen(jnp.array([x]), 0.3)) for x in (0.25, 0.5)]
    assert [float(v) for v in done.stdout.split()] == pytest.approx(want, rel=1e-13)


def test_there_is_no_pickle_in_it(tmp_path):
    import pickle

    frozen = sdifp.conserve(looped, RULE, 1.0, 30.0).freeze((0, 1), tolerance=1e-4)
    frozen.export(tmp_path / "f")
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        pickle.loads((tmp_path / "f").read_bytes())


@pytest.mark.usefixtures("as_user")
def test_bad_input(tmp_path):
    frozen = sdifp.conserve(mlp(), RULE, 1.0, 3.0).freeze((0, 1), tolerance=1e-4)
    for platforms in ([], ["cpu", "abacus"], "gpu"):
        with pytest.raises(ValueError, match="platforms must be some of"):
            frozen.export(tmp_path / "f", platforms)
    host = lambda x: np.sin(x)
    shape = jax.ShapeDtypeStruct((2,), float)
    call = lambda x, t: (
        jnp.sum(jax.pure_callback(host, shape, x, vmap_method="expand_dims")) + t
    )
    frozen = sdifp.conserve(call, RULE, 1.0, 3.0).freeze((0, 1), tolerance=1e-4)
    with pytest.raises(ValueError, match="the network cannot be exported for cpu"):
        frozen.export(tmp_path / "f")
    assert not list(Path(tmp_path).iterdir())
