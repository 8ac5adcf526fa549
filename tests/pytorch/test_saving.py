"""state_dict, freezing, torch.compile and torch.export."""

import math
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest
import torch
from nets import by_torch, torch_net
from pages import code_under

import sdifp
import sdifp.torch as sdt

RULE = sdifp.quadrature.trapezoid(sdifp.Box([0.0], [2.0], periodic=True), 32)
ROOT = Path(__file__).parents[2]


def field(seed=0, **options):
    return sdt.conserve(
        torch_net(seed), RULE, lambda t: 1 + t, lambda t: 3 + torch.sin(t), **options
    )


def points(n=7):
    torch.manual_seed(1)
    return torch.rand(n, 1, dtype=torch.float64), torch.rand(n, 1, dtype=torch.float64)


def test_state_dict_is_that_of_the_network(tmp_path):
    u = field(gradient=sdt.Subsampled(4))
    u.resample()
    assert set(u.state_dict()) == {f"net.{k}" for k in u.net.state_dict()}
    torch.save(u.state_dict(), tmp_path / "u.pt")
    other = field(seed=1)
    other.load_state_dict(torch.load(tmp_path / "u.pt", weights_only=True))
    assert torch.equal(other(*points()), u(*points()))


def test_frozen_is_the_field():
    u = field()
    frozen = u.freeze([0.0, 1.0])
    assert frozen.accuracy < 1e-9
    x, t = points()
    assert torch.allclose(frozen(x, t), u(x, t), rtol=1e-8)
    assert torch.allclose(frozen(torch.cat([x, t], -1)), u(x, t), rtol=1e-8)
    assert torch.allclose(frozen(x, 0.25), u(x, 0.25), rtol=1e-8)


def test_frozen_is_a_copy_of_the_network():
    u = field()
    frozen = u.freeze([0.0, 1.0])
    before = frozen(*points())
    with torch.no_grad():
        next(u.parameters()).add_(1.0)
    assert torch.equal(frozen(*points()), before)


@pytest.mark.parametrize("grid", [[0.0, 1.0], [0.01 * k for k in range(101)]])
def test_frozen_derivatives_on_and_between_the_nodes(grid):
    u = field()
    frozen = u.freeze(grid, tolerance=1e-6)
    ends_and_middle = [0.0, 0.25, 0.5, 1.0, 0.123]
    t = torch.tensor(ends_and_middle, dtype=torch.float64, requires_grad=True)
    x = torch.rand(5, 1, dtype=torch.float64)
    for order, tolerance in ((1, 1e-4), (2, 1e-2)):
        wanted, found = (by_torch(f(x, t), t, order).detach() for f in (u, frozen))
        assert float((wanted - found).abs().max() / wanted.abs().max()) < tolerance


def test_frozen_derivatives_through_torch_func():
    frozen = field().freeze([0.0, 1.0])
    x = torch.rand(4, 1, dtype=torch.float64)
    # Nodes and others.
    t = torch.tensor([0.0, 0.5, 1.0, 0.3], dtype=torch.float64)
    ts = t.clone().requires_grad_()
    first, second = (by_torch(frozen(x, ts), ts, order).detach() for order in (1, 2))
    one, func = lambda x, t: frozen(x[None], t)[0, 0], torch.func
    forward, reverse = func.jacfwd(one, 1), func.grad(one, 1)
    for derivative in (forward, reverse):
        assert torch.allclose(func.vmap(derivative)(x, t), first, rtol=1e-10)
    for twice in (func.jacfwd(forward, 1), func.grad(reverse, 1)):
        assert torch.allclose(func.vmap(twice)(x, t), second, rtol=1e-9)


def test_single_precision_networks_freeze_to_their_rounding():
    u = sdt.conserve(torch_net(dtype=torch.float32), RULE, 1.0, lambda t: 3 + t)
    frozen = u.freeze([0.0, 1.0])
    x, t = (a.float() for a in points())
    assert torch.allclose(frozen(x, t), u(x, t), atol=1e-4)

    class Late(torch.nn.Module):
        def forward(self, x, t):
            return torch.sin(math.pi * x) * (t - 999.0) + x

    late = sdt.conserve(Late(), RULE, 1.0, 3.0).freeze([1000.0, 1000.7])
    end = torch.full((3,), 1000.7)
    assert bool(torch.isfinite(late(torch.rand(3, 1), end)).all())


def test_frozen_says_what_it_needs():
    frozen = field().freeze([0.0, 1.0])
    x = torch.rand(4, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="t must be given"):
        frozen(x)
    with pytest.raises(ValueError, match="x must have 1 coordinates"):
        frozen(torch.rand(4, 3, dtype=torch.float64), 0.5)
    still = sdt.conserve(torch_net(inputs=1), RULE, 1.0, 3.0).freeze()
    with pytest.raises(ValueError, match="x must have 1 coordinates"):
        still(torch.rand(4, 2, dtype=torch.float64))


def test_times_outside_the_range_are_not_extrapolated():
    frozen = field().freeze([0.0, 1.0])
    x = torch.rand(3, 1, dtype=torch.float64)
    out = frozen(x, torch.tensor([0.5, 1.2, -0.1], dtype=torch.float64))
    assert torch.isnan(out[:, 0]).tolist() == [False, True, True]
    assert bool(torch.isfinite(frozen(x, 1.0 + 1e-9)).all())


def test_frozen_saves_and_loads_without_pickled_code(tmp_path):
    profile = lambda x: x[:, 0] * (2 - x[:, 0])
    u = sdt.conserve(torch_net(), RULE, 1.0, 4.0, profile=profile)
    frozen = u.freeze([0.0, 1.0])
    frozen.save(tmp_path / "f.pt")
    again = sdt.FrozenField.load(tmp_path / "f.pt", torch_net(5), profile)
    assert torch.equal(again(*points()), frozen(*points()))
    assert again.accuracy == frozen.accuracy
    with pytest.raises(ValueError, match="give it as profile"):
        sdt.FrozenField.load(tmp_path / "f.pt", torch_net())
    torch.save(torch_net().state_dict(), tmp_path / "net.pt")
    with pytest.raises(ValueError, match=r"net.pt is not a frozen field"):
        sdt.FrozenField.load(tmp_path / "net.pt", torch_net())
    with pytest.raises(ValueError, match=r"net must have the structure of the saved"):
        sdt.FrozenField.load(tmp_path / "f.pt", torch_net(inputs=1), profile)


class Mixed(torch.nn.Module):
    """Parameters of formats that NumPy has and lacks, and counters."""

    def __init__(self, value):
        super().__init__()
        self.full = torch.nn.Parameter(torch.tensor(value, dtype=torch.float64))
        self.short = torch.nn.Parameter(torch.full((2, 1), value, dtype=torch.bfloat16))
        self.register_buffer("steps", torch.tensor([int(4 * value)]))

    def forward(self, x):
        wave = torch.sin(math.pi * x + self.full) * self.steps
        return torch.cat([wave, wave**2 + self.short.double().sum()], -1)


def test_frozen_comes_back_without_time_in_any_format(tmp_path):
    u = sdt.conserve(Mixed(0.75), RULE, [1.0, 2.0], [3.0, 4.0], has_time=False)
    frozen = u.freeze()
    frozen.save(tmp_path / "f.npz")
    again = sdt.FrozenField.load(tmp_path / "f.npz", Mixed(0.0))
    state, wanted = again.state_dict(), frozen.state_dict()
    assert list(state) == list(wanted)
    for name, tensor in wanted.items():
        assert state[name].dtype == tensor.dtype
        assert torch.equal(state[name], tensor), name
    x, _ = points()
    assert torch.equal(again(x), frozen(x))


def test_a_frozen_file_that_is_damaged(tmp_path):
    file = tmp_path / "f.npz"
    frozen = field().freeze([0.0, 1.0])
    frozen.save(file)
    good, wanted = file.read_bytes(), frozen.state_dict()
    random = torch.Generator().manual_seed(0)
    said = 0
    for place in torch.randint(8 * len(good), (200,), generator=random).tolist():
        data = bytearray(good)
        data[place // 8] ^= 1 << (place % 8)
        file.write_bytes(data)
        try:
            state = sdt.FrozenField.load(file, torch_net(5)).state_dict()
        except ValueError:
            said += 1
            continue
        assert all(torch.equal(state[k], v) for k, v in wanted.items())
    assert said > 100
    file.write_bytes(good[:1000])
    with pytest.raises(ValueError, match=r"f.npz is not a frozen field: File is not"):
        sdt.FrozenField.load(file, torch_net(5))


def test_a_frozen_file_of_jax_is_told_from_one_of_torch(tmp_path):
    net = lambda x, t: jnp.sin(math.pi * x[0]) + t
    sdifp.conserve(net, RULE, 1.0, 3.0).freeze((0.0, 1.0)).save(tmp_path / "f.npz")
    with pytest.raises(ValueError, match=r"not a frozen field of sdifp\.torch"):
        sdt.FrozenField.load(tmp_path / "f.npz", torch_net())


def test_the_numpy_code_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frozen = field().freeze([0.0, 1.0])
    frozen.save("field.npz")
    names = {}
    exec(code_under("frozen.md", "NumPy"), names)
    x, _ = points()
    with torch.no_grad():
        raw = frozen.net(torch.cat([x, torch.full_like(x, 0.3)], -1)).numpy()
        want = frozen(x, 0.3).numpy()
    assert names["correct"](raw, 0.3) == pytest.approx(want, rel=1e-13)


def test_a_field_that_is_too_rough_in_time_is_not_frozen():
    class Kink(torch.nn.Module):
        def forward(self, x, t):
            return torch.sin(math.pi * x) * (1 + 20 * (t - 0.4321).abs()) + x

    u = sdt.conserve(Kink(), RULE, 1.0, 3.0)
    with pytest.raises(ValueError, match=r"tolerance = 1e-09 was not reached"):
        u.freeze([0.0, 1.0])
    with pytest.raises(ValueError, match="times must be given"):
        u.freeze()


PROGRAM = """
import torch, sdifp, sdifp.torch
torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
).double()
rule = sdifp.quadrature.trapezoid(sdifp.Box([0.0], [2.0], periodic=True), 32)
u = sdifp.torch.conserve(net, rule, 1.0, lambda t: 3 + t)
frozen = u.freeze([0.0, 1.0])
x, t = torch.rand(7, 1).double(), torch.rand(7, 1).double()
wanted = frozen(x, t)
"""


def run(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program, *map(str, arguments)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.validate
def test_export_of_the_frozen_field(tmp_path):
    run(
        """
import sys
rows = torch.export.Dim("rows", min=2)
program = torch.export.export(
    frozen.eval(), (x, t), dynamic_shapes=({0: rows}, {0: rows})
)
torch.export.save(program, sys.argv[1])
again = torch.export.load(sys.argv[1]).module()
assert torch.allclose(again(x, t), wanted, rtol=1e-14)
x, t = torch.rand(20, 1).double(), torch.rand(20, 1).double()
assert torch.allclose(again(x, t), frozen(x, t), rtol=1e-14)
""",
        tmp_path / "frozen.pt2",
    )


@pytest.mark.validate
def test_compile_of_the_frozen_field():
    run(
        """
fast = torch.compile(frozen, fullgraph=True, backend="aot_eager")
assert torch.allclose(fast(x, t), wanted, rtol=1e-14)
fast(x, t).sum().backward()
"""
    )


@pytest.mark.validate
def test_training_never_imports_jax_and_sdifp_never_imports_torch():
    code = """
import sys, torch
import sdifp.torch as sdt
torch.manual_seed(0)
nodes = (torch.arange(32, dtype=torch.float64) / 16)[:, None]
rule = sdt.Rule([0.0], [2.0], nodes, periodic=True)
net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
u = sdt.conserve(net, rule, 1.0, lambda t: 3 + t, gradient=sdt.Subsampled(8))
u.resample()
t = torch.rand(5, 1).requires_grad_()
u_t, = torch.autograd.grad(u(torch.rand(5, 1), t).sum(), t, create_graph=True)
u_t.sum().backward()
u.freeze([0.0, 1.0], tolerance=1e-5)
assert "jax" not in sys.modules
"""
    other = "import sys, sdifp; sdifp.conserve; assert 'torch' not in sys.modules"
    for program in (code, other):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stderr == ""


@pytest.mark.validate
def test_two_processes_have_the_same_coefficients(tmp_path):
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                ROOT / "tests/pytorch/two_torch_processes.py",
                str(r),
                tmp_path,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    for process in processes:
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error[-2000:]
    first, second, alone = (
        torch.load(tmp_path / f"{name}.pt", weights_only=True)
        for name in ("0", "1", "alone")
    )
    for name in ("scale", "shift", "nodes"):
        assert torch.equal(first[name], second[name]), name
    for name, gradient in first["gradient"].items():
        assert torch.equal(gradient, second["gradient"][name])
        assert torch.allclose(gradient, alone[name], rtol=1e-10, atol=1e-13)
