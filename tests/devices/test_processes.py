"""Two real processes: the same numbers as one, and what happens if one is lost."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import click
import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES, coefficients

from sdifp._cli._processes import _bind_address, processes_from
from sdifp._folder import checkpoint_files, step_of
from sdifp.runs import _processes, check_same_on_all

HERE = Path(__file__).parent
SETTINGS = [
    *("--optimiser", "Adam(0.01)", "--network", "MLP(4, 1)"),
    *("--points", "RandomPoints(2, 8)", "--nodes", "8192", "--no-check"),
    *("--precision", "float64", "--no-report"),
]
FAST = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"


def environment(**changes):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    return {**kept, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": FAST, **changes}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(*arguments, env=None):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env or environment(),
    )


def start_pair(*arguments, own=((), ())):
    """Two processes with the same arguments, and some of their own."""
    where = f"127.0.0.1:{free_port()}"
    return [
        start(
            *("-m", "sdifp", *arguments, *own[number], "--coordinator", where),
            *("--process-id", number, "--num-processes", 2),
        )
        for number in (0, 1)
    ]


def ended(processes, seconds=240):
    """Exit codes, standard outputs and standard errors."""
    try:
        texts = [p.communicate(timeout=seconds) for p in processes]
    finally:
        for process in processes:
            process.kill()
    codes = [p.returncode for p in processes]
    return codes, [t[0] for t in texts], [t[1] for t in texts]


def eventually(condition, seconds=240):
    """Wait until a condition holds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.2)
    return False


def newest_step(folder):
    return max(map(step_of, checkpoint_files(folder / "checkpoints")), default=0)


@pytest.mark.validate
def test_two_processes_find_the_bits_of_one(tmp_path):
    port, out = free_port(), tmp_path / "found.npz"
    env = environment(PYTHONPATH=str(HERE), XLA_FLAGS="")
    pair = [start(HERE / "two_processes.py", n, port, out, env=env) for n in (0, 1)]
    codes, _, said = ended(pair)
    assert codes == [0, 0], said
    with np.load(out) as archive:
        assert archive["devices"] == 2
        for name in ("padded", "subsampled"):
            here = eqx.filter_jit(coefficients)(
                CASES[name](), jnp.linspace(0.1, 0.9, 3)
            )
            assert archive[name].tobytes() == np.asarray(here).tobytes()


@pytest.mark.validate
def test_a_run_of_two_processes_is_that_of_one(tmp_path):
    train = ["train", "advection", *SETTINGS, "--steps", 12, "--every", 4, "--json"]
    # Each process has a folder of its own here, to see which of them writes.
    folders = [tmp_path / "primary", tmp_path / "other"]
    pair = start_pair(*train, own=[("--out", folder) for folder in folders])
    codes, out, said = ended(pair)
    assert codes == [0, 0], said
    # Only the first process prints, and nothing else gets into its output.
    assert json.loads(out[0])["finished"]
    assert "2 processes" in json.loads(out[0])["machine"]
    assert out[1] == ""
    assert not folders[1].exists()
    how = (folders[0] / "RESUME.txt").read_text()
    assert f"sdifp resume {folders[0]} --coordinator 127.0.0.1:" in how
    assert how in said[0]
    assert "sdifp resume" not in said[1]
    one = start("-m", "sdifp", *train, "--out", tmp_path / "one")
    codes, _, said = ended([one])
    assert codes == [0], said
    texts = [(tmp_path / k / "metrics.jsonl").read_text() for k in ("one", "primary")]
    rows = [[json.loads(line) for line in text.splitlines()] for text in texts]
    for mine, theirs in zip(*rows, strict=True):
        assert mine["step"] == theirs["step"]
        assert theirs["loss"] == pytest.approx(mine["loss"], rel=1e-12)
        # The loss hardly depends on the scale of the raw network, and Adam makes steps
        # of rounding errors where a gradient is nearly zero.
        assert theirs["scale"] == pytest.approx(mine["scale"], rel=1e-6)


@pytest.mark.validate
def test_a_killed_process_ends_the_other_and_the_run_resumes(tmp_path):
    folder = tmp_path / "run"
    many = ["--steps", 100_000, "--every", 50_000, "--checkpoint-seconds", 0.5]
    train = ["train", "advection", *SETTINGS, *many, "--timeout", 10]
    pair = start_pair(*train, "--out", folder)
    assert eventually(lambda: newest_step(folder) > 1)
    pair[1].kill()
    codes, _, said = ended(pair)
    assert codes[0] != 0, said
    kept = newest_step(folder)
    # The command in the folder, and a signal that only one of them receives.
    lines = (folder / "RESUME.txt").read_text().splitlines()
    command = next(line for line in lines if line.startswith("    sdifp resume"))
    words = shlex.split(command)[1:]
    number = words.index("--process-id") + 1
    assert words[number] == "0"
    pair = [start("-m", "sdifp", *words)]
    words[number] = "1"
    pair.append(start("-m", "sdifp", *words))
    assert eventually(lambda: newest_step(folder) > kept)
    pair[1].send_signal(signal.SIGTERM)
    codes, _, said = ended(pair)
    assert codes == [143, 143], said
    assert f"sdifp resume {folder}" in said[0]


PROBLEM = """
import jax.numpy as jnp, sdifp
from beside import AMPLITUDE

problem = sdifp.Problem(
    sdifp.Box([0.0], [2.0], periodic=True),
    sdifp.Residual(sdifp.time_derivative() - 0.1 * sdifp.laplacian()),
    [sdifp.problems.Initial(lambda x: AMPLITUDE * jnp.sin(jnp.pi * x[0]))],
    (0.0, 1.0),
    mass=0.0,
)
"""


@pytest.mark.validate
def test_processes_that_slurm_starts_with_different_problems_are_refused(tmp_path):
    pair = []
    for number in (0, 1):
        # The same file, which imports another module on each.
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "mine.py").write_text(PROBLEM)
        (folder / "beside.py").write_text(f"AMPLITUDE = {0.1 + number}\n")
        slurm = {
            "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": str(number),
            "SLURM_LOCALID": str(number),
            "SLURM_STEP_NUM_NODES": "1",
        }
        arguments = [*SETTINGS, "--seed", number, "--out", tmp_path / "run"]
        train = ["-m", "sdifp", "train", folder / "mine.py", *arguments]
        env = environment(**slurm)
        pair.append(start(*train, "--coordinator", "auto", env=env))
    codes, _, said = ended(pair)
    assert codes == [2, 2], said
    for text in said:
        assert "seed is 0 on process 0 and 1 on process 1" in text
        assert "; initial is '" in text
        assert "residual is" not in text
    assert not (tmp_path / "run").exists()


def test_different_versions_are_refused(monkeypatch):
    mine, theirs = {"jax": "0.10.2", "seed": 1}, {"jax": "0.9.0", "seed": 1}
    monkeypatch.setattr(_processes, "allgather_json", lambda value: [mine, value])
    check_same_on_all(mine)
    words = "jax is '0.10.2' on process 0 and '0.9.0' on process 1$"
    with pytest.raises(ValueError, match=words):
        check_same_on_all(theirs)


def answers(host, port):
    """Whether a process listens there."""
    with socket.socket() as found:
        found.settimeout(5)
        return found.connect_ex((host, port)) == 0


def test_the_coordinator_listens_on_the_given_address_only(tmp_path):
    port = free_port()
    first = start(
        *("-m", "sdifp", "train", "advection", *SETTINGS, "--out", tmp_path / "run"),
        *("--coordinator", f"127.0.0.1:{port}", "--process-id", 0),
        *("--num-processes", 2),
    )
    try:
        assert eventually(lambda: answers("127.0.0.1", port))
        assert not answers("127.0.0.2", port)
    finally:
        # Ctrl-C ends the wait for the other process.
        first.send_signal(signal.SIGINT)
    assert ended([first])[0] == [-signal.SIGINT]
    assert not (tmp_path / "run").exists()


def test_addresses_on_which_a_coordinator_can_listen(monkeypatch):
    port = free_port()
    for host in ("127.0.0.1", "localhost"):
        assert _bind_address(f"{host}:{port}") == f"{host}:{port}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match=rf"{where} \(Address already in use"):
            _bind_address(where)
    # 203.0.113.0/24 is reserved for documentation: no machine has these addresses.
    with pytest.raises(ValueError, match=r"203\.0\.113\.7"):
        _bind_address(f"203.0.113.7:{port}")
    known = socket.getaddrinfo
    lookup = lambda host, *rest, **more: known(
        {"node1": "127.0.1.1"}.get(host, host), *rest, **more
    )
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(ValueError, match=r"host node1 is 127\.0\.1\.1"):
        _bind_address(f"node1:{port}")
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", f"0.0.0.0:{port}")
    assert _bind_address("203.0.113.7:99") == f"0.0.0.0:{port}"
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "everywhere")
    with pytest.raises(ValueError, match="everywhere"):
        _bind_address("203.0.113.7:99")


def test_auto_needs_a_launcher(tmp_path):
    arguments = ["--coordinator", "auto", "--out", tmp_path / "run"]
    codes, _, said = ended([start("-m", "sdifp", "train", "advection", *arguments)])
    assert codes == [2]
    assert "coordinator is auto" in said[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--process-id", 1], "got --coordinator None, --process-id 1"),
        (["--num-processes", 2], "None, --num-processes 2"),
        (["--coordinator", "here"], "got --coordinator here,"),
        (["--coordinator", "here:0"], "got --coordinator here:0"),
        (["--coordinator", "a:1"], "got --coordinator a:1, --process-id None"),
        (
            ["--coordinator", "a:1", "--process-id", 2, "--num-processes", 2],
            "--process-id 2, --num-processes 2",
        ),
        (["--devices", 9], "devices must be between 1 and the 8 that JAX sees"),
        (["--devices", 0], "devices must be between 1 and the 8 that JAX sees"),
        (
            ["--devices", 3, "--points", "RandomPoints(2, 8)"],
            "the 8 points of each time cannot be divided among 3 devices",
        ),
        (["--timeout", 0], "0 is not in the range x>=1"),
        (["--num-processes", 0], "0 is not in the range x>=1"),
        (
            ["--coordinator", "auto", "--process-id", 0],
            "got --coordinator auto, --process-id 0",
        ),
    ],
)
def test_wrong_options_are_one_sentence(arguments, words, call, tmp_path):
    code, _, said = call("train", "advection", "--out", tmp_path / "run", *arguments)
    assert code == 2
    assert words in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_variables_of_others_do_not_make_processes(monkeypatch):
    monkeypatch.setenv("JAX_PROCESS_ID", "1")
    assert processes_from(None, None, None, 60) is None
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "here:1234")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    found = processes_from(None, None, None, 60)
    assert found == ("here:1234", 1, 2, 60)
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    with pytest.raises(click.UsageError, match="must be whole numbers, got '1' and"):
        processes_from(None, None, None, 60)
