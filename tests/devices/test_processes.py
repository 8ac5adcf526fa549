"""Two real processes here: the same bits, and what happens if one is lost."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import click
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES, coefficients

from sdifp._cli._processes import processes_from
from sdifp._cli._watched import Lost, losses
from sdifp._folder import checkpoint_files, step_of
from sdifp._run import _processes, check_alike

pytestmark = pytest.mark.program
HERE = Path(__file__).parent
SETTINGS = [
    *("--optimiser", "Adam(0.01)", "--network", "Architecture(4, 1)"),
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


def start(*arguments, env=None, **options):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env or environment(),
        **options,
    )


def sdifp_pair(*arguments, own=((), ()), **options):
    """Two processes with the same arguments, and some of their own."""
    port = free_port()
    return [
        start(
            *("-m", "sdifp", *arguments, *own[number]),
            *("--coordinator", f"127.0.0.1:{port}"),
            *("--process-id", number, "--num-processes", 2),
            **options,
        )
        for number in (0, 1)
    ]


def ended(processes, seconds=120):
    """Exit codes, outputs, and what was said beside."""
    try:
        texts = [p.communicate(timeout=seconds) for p in processes]
    finally:
        for process in processes:
            process.kill()
    codes = [p.returncode for p in processes]
    return codes, [t[0] for t in texts], [t[1] for t in texts]


def eventually(condition, seconds=90):
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.2)
    return False


def has_checkpoint(folder, after=0):
    """Wait until there is one."""
    newest = lambda: max(
        map(step_of, checkpoint_files(folder / "checkpoints")), default=0
    )
    return eventually(lambda: newest() > after)


def children_of(process):
    """Those that compute."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True
    )
    return [int(pid) for pid in found.stdout.split()]


def test_two_processes_find_the_bits_of_one(tmp_path):
    port, out = free_port(), tmp_path / "found.npz"
    env = environment(PYTHONPATH=str(HERE), XLA_FLAGS="")
    pair = [start(HERE / "two_processes.py", n, port, out, env=env) for n in (0, 1)]
    codes, _, said = ended(pair, 200)
    assert codes == [0, 0], said
    with np.load(out) as archive:
        assert archive["devices"] == 2
        for name in ("padded", "subsampled"):
            here = eqx.filter_jit(coefficients)(
                CASES[name](), jnp.linspace(0.1, 0.9, 3)
            )
            assert archive[name].tobytes() == np.asarray(here).tobytes()


def test_a_run_of_two_processes_is_that_of_one(tmp_path):
    train = ["train", "advection", *SETTINGS, "--steps", 12, "--every", 4, "--json"]
    pair = sdifp_pair(*train, "--out", tmp_path / "two")
    codes, out, said = ended(pair)
    assert codes == [0, 0], said
    # The first one alone speaks, and nothing else is between.
    assert json.loads(out[0])["finished"]
    assert "2 processes" in json.loads(out[0])["machine"]
    assert out[1] == said[1] == ""
    assert "[Gloo]" not in said[0]
    one = start("-m", "sdifp", *train, "--out", tmp_path / "one")
    codes, _, said = ended([one])
    assert codes == [0], said
    texts = [(tmp_path / k / "metrics.jsonl").read_text() for k in ("one", "two")]
    rows = [[json.loads(line) for line in text.splitlines()] for text in texts]
    for mine, theirs in zip(*rows, strict=True):
        assert mine["step"] == theirs["step"]
        assert theirs["loss"] == pytest.approx(mine["loss"], rel=1e-12)
        # The loss hardly depends on the scale of the raw network, and Adam makes steps
        # of rounding errors where a gradient is nearly zero.
        assert theirs["scale"] == pytest.approx(mine["scale"], rel=1e-6)


def test_a_killed_process_ends_the_other_with_the_way_on(tmp_path):
    folder = tmp_path / "run"
    many = ["--steps", 100_000, "--every", 50_000, "--checkpoint-seconds", 0.5]
    pair = sdifp_pair("train", "advection", *SETTINGS, *many, "--out", folder)
    assert has_checkpoint(folder, after=1)
    pair[1].kill()
    began = time.monotonic()
    out = pair[0].communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert pair[0].returncode == 1
    pair[1].communicate(timeout=30)
    kept = step_of(checkpoint_files(folder / "checkpoints")[-1])
    last = out[1].splitlines()[-1]
    assert last.startswith("sdifp: another process of the run was lost (")
    assert f"the last checkpoint is of step {kept}; go on with: sdifp resume" in last
    # The command that it says, and the stop that only one of them hears of, twice: as
    # a member of a group, and through its parent.
    pair = sdifp_pair("resume", folder, "--no-report", start_new_session=True)
    assert has_checkpoint(folder, after=kept)
    os.killpg(pair[1].pid, signal.SIGTERM)
    codes, _, said = ended(pair)
    assert codes == [143, 143], said
    assert "go on with: sdifp resume" in said[0]
    assert step_of(checkpoint_files(folder / "checkpoints")[-1]) > kept


def test_a_silent_process_ends_the_other_in_time(tmp_path):
    folder = tmp_path / "run"
    many = ["--steps", 100_000, "--every", 50_000, "--checkpoint-seconds", 0.5]
    limit = ["--timeout", 5]
    pair = sdifp_pair("train", "advection", *SETTINGS, *many, *limit, "--out", folder)
    assert has_checkpoint(folder, after=1)
    children = children_of(pair[1])
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    text = pair[0].communicate(timeout=60)[1]
    assert pair[0].returncode == 1
    last = text.splitlines()[-1]
    assert "another process of the run was lost (UNAVAILABLE: " in last
    assert "go on with: sdifp resume" in last
    assert "Check failure" not in text
    # The worker of a process that is killed goes with it.
    pair[1].kill()
    for pid in children:
        os.kill(pid, signal.SIGCONT)
    pair[1].communicate(timeout=30)


def test_processes_that_differ_say_in_what(tmp_path):
    own = (
        ("--seed", 1, "--steps", 5, "--precision", "float32", "--devices", 2),
        ("--seed", 2, "--steps", 7),
    )
    out = ["--out", tmp_path / "run"]
    codes, _, said = ended(sdifp_pair("train", "advection", *SETTINGS, *out, own=own))
    assert codes == [2, 2], said
    for text in said:
        assert "seed is 1 on process 0 and 2 on process 1" in text
        assert "steps is 5 on process 0 and 7 on process 1" in text
        assert "precision is 'float32' on process 0 and 'float64'" in text
        assert "devices is 2 on process 0 and None on process 1" in text
        assert len(text.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_an_error_of_one_process_is_told_by_all(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    (tmp_path / "mine.py").write_text("problem = nothing\n")
    out = ["--out", tmp_path / "taken"]
    codes, _, said = ended(sdifp_pair("train", "advection", *SETTINGS, *out))
    assert codes == [2, 2], said
    words = "taken exists and is not an empty folder"
    assert said[0].startswith("sdifp: /")
    assert said[1].startswith("sdifp: process 0: ")
    assert all(words in text for text in said)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "sdifp: no coordinator answered at 127.0.0.1:{} within 2 seconds"),
        (0, "sdifp: not all of the 2 processes came to 127.0.0.1:{} within 2 seconds"),
    ],
)
def test_a_process_that_is_alone_gives_up_in_time(number, words, tmp_path):
    port = free_port()
    alone = start(
        *("-m", "sdifp", "train", "advection", *SETTINGS, "--out", tmp_path / "run"),
        *("--coordinator", f"127.0.0.1:{port}", "--timeout", 2),
        *("--process-id", number, "--num-processes", 2),
    )
    codes, _, said = ended([alone], 60)
    assert codes == [1]
    assert said[0].startswith(words.format(port))
    assert len(said[0].splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_wait_for_the_others_can_be_interrupted(tmp_path, number):
    alone = start(
        *("-m", "sdifp", "train", "advection", *SETTINGS, "--out", tmp_path / "run"),
        *("--coordinator", f"127.0.0.1:{free_port()}"),
        *("--process-id", 1, "--num-processes", 2),
    )
    assert eventually(lambda: children_of(alone))
    alone.send_signal(number)
    codes, _, said = ended([alone], 60)
    assert codes == [128 + number]
    assert said == ["sdifp: interrupted while it waited for the others\n"]


def coordinated(where, *arguments, process=0, of=2):
    """One process that looks for the others somewhere."""
    return start(
        *("-m", "sdifp", "train", "advection", *SETTINGS, *arguments),
        *("--coordinator", where, "--process-id", process, "--num-processes", of),
    )


def test_a_port_that_is_taken_and_a_host_that_is_not_known(tmp_path):
    out = ["--out", tmp_path / "run", "--timeout", 2]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        first = coordinated(f"127.0.0.1:{port}", *out)
        second = coordinated("nowhere.invalid:1234", *out, process=1)
        codes, _, said = ended([first, second], 60)
    assert codes == [2, 2], said
    words = f"sdifp: the coordinator cannot listen on port {port}: Address already in"
    assert said[0].startswith(words)
    words = "sdifp: the coordinator's host nowhere.invalid was not known within 2 sec"
    assert said[1].startswith(words)
    assert [len(text.splitlines()) for text in said] == [1, 1]


def answers(host, port):
    """Whether somebody listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as found:
        found.settimeout(5)
        return found.connect_ex((host, port)) == 0


@pytest.mark.parametrize(
    ("host", "here", "elsewhere"),
    [
        ("127.0.0.1", "127.0.0.1", ["127.0.0.2", "::1"]),
        ("localhost", "127.0.0.1", ["127.0.0.2"]),
        ("[::1]", "::1", ["127.0.0.1"]),
    ],
)
def test_the_coordinator_listens_where_it_is_told_to(tmp_path, host, here, elsewhere):
    if here == "::1":
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("no IPv6 here")
    port = free_port()
    first = coordinated(f"{host}:{port}", "--out", tmp_path / "run", "--timeout", 60)
    try:
        # A name may stand for either.
        both = [here, "::1"] if host == "localhost" else [here]
        assert eventually(lambda: any(answers(k, port) for k in both))
        assert [k for k in elsewhere if answers(k, port)] == []
    finally:
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=60)


def coordinator(where):
    return processes_from(where, 0, 2, 5, None)


def test_where_a_coordinator_cannot_listen(monkeypatch):
    port = free_port()
    assert coordinator(f"127.0.0.1:{port}")._listens_at() == f"127.0.0.1:{port}"
    # An address of a documentation's network, which is nobody's.
    with pytest.raises(ValueError, match=r"203\.0\.113\.7, which is not an address of"):
        coordinator(f"203.0.113.7:{port}")._listens_at()
    if socket.has_dualstack_ipv6():
        same = coordinator(f"[0:0:0:0:0:0:0:1]:{port}")
        assert same._listens_at() == f"[::1]:{port}"
    names = {"node1": "127.0.1.1", "node2": "127.0.0.1", "localhost": "127.0.0.1"}
    known = socket.getaddrinfo
    lookup = lambda host, *rest, **more: known(names.get(host, host), *rest, **more)
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    for name in ("node1", "node2"):
        with pytest.raises(ValueError, match=f"host {name} is 127.0.* give its"):
            coordinator(f"{name}:{port}")._listens_at()
    assert coordinator(f"localhost:{port}")._listens_at() == f"127.0.0.1:{port}"
    # As JAX has it, where addresses are translated on the way.
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", f"0.0.0.0:{port}")
    assert coordinator("203.0.113.7:99")._listens_at() == f"0.0.0.0:{port}"
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", f"nowhere.invalid:{port}")
    with pytest.raises(ValueError, match=r"cannot listen at nowhere\.invalid: "):
        coordinator("203.0.113.7:99")._listens_at()
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "everywhere")
    with pytest.raises(ValueError, match="must be address:port, got 'everywhere'"):
        coordinator("203.0.113.7:99")._listens_at()


def test_a_number_that_two_processes_have(tmp_path):
    where = f"127.0.0.1:{free_port()}"
    out = ["--out", tmp_path / "run", "--timeout", 15]
    three = [coordinated(where, *out, process=n, of=3) for n in (0, 1, 1)]
    codes, _, said = ended(three, 90)
    assert codes == [1, 1, 1], said
    assert any("each needs a process-id of its own" in text for text in said), said


PROBLEM = """
import os, jax.numpy as jnp, sdifp
from beside import AMPLITUDE

calls = []

def initial(x):
    calls.append(0)
    if len(calls) == int(os.environ.get("FAILS", 0)):
        raise RuntimeError("only here")
    return AMPLITUDE * jnp.sin(jnp.pi * x[0])

problem = sdifp.Problem(
    sdifp.Box([0.0], [2.0], periodic=True),
    1.0,
    sdifp.Residual(sdifp.time_derivative() - 0.1 * sdifp.laplacian()),
    initial,
    mass=0.0,
)
"""


def pair_with_file(tmp_path, amplitudes=(1.0, 1.0), environments=({}, {}), timeout=60):
    """Two processes with a problem file each, and what it imports beside it."""
    port, pair = free_port(), []
    for number in (0, 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "mine.py").write_text(PROBLEM)
        text = f"AMPLITUDE = {amplitudes[number]}\n"
        (folder / "beside.py").write_text(text)
        pair.append(
            start(
                *("-m", "sdifp", "train", folder / "mine.py", *SETTINGS, "--steps", 2),
                *("--out", tmp_path / "run", "--coordinator", f"127.0.0.1:{port}"),
                *("--process-id", number, "--num-processes", 2, "--timeout", timeout),
                env=environment(**environments[number]),
            )
        )
    return pair


def test_problems_that_differ_in_what_stands_beside_them(tmp_path):
    codes, _, said = ended(pair_with_file(tmp_path, amplitudes=(0.1, 0.3)))
    assert codes == [2, 2], said
    for text in said:
        assert "the processes do not agree: initial is '" in text
        assert len(text.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_an_error_in_the_problem_of_one_process_is_told_by_both(tmp_path):
    # When the problem is made, at the latest when it is looked at.
    pair = pair_with_file(tmp_path, environments=({}, {"FAILS": "1"}))
    codes, _, said = ended(pair)
    assert codes == [2, 2], said
    assert said[0].startswith("sdifp: process 1: problem: ")
    assert all("RuntimeError: only here" in text for text in said)
    assert not (tmp_path / "run").exists()


def test_a_later_error_of_one_process_ends_the_other_before_the_time_is_over(tmp_path):
    pair = pair_with_file(tmp_path, environments=({}, {"FAILS": "6"}), timeout=10 * 60)
    codes, _, said = ended(pair, 120)
    assert codes[0] == 1
    assert "another process of the run was lost (" in said[0]
    assert codes[1] == 2
    assert "RuntimeError: only here" in said[1]


def test_outputs_that_are_closed_are_no_matter(tmp_path):
    port = free_port()
    shell = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", sys.executable, "-m", "sdifp"]
    train = ["train", "advection", *SETTINGS, "--steps", "2"]
    pair = [
        subprocess.Popen(
            [
                *(*shell, *train, "--out", str(tmp_path / "run")),
                *("--coordinator", f"127.0.0.1:{port}", "--process-id", str(number)),
                *("--num-processes", "2"),
            ],
            env=environment(),
        )
        for number in (0, 1)
    ]
    assert [p.wait(120) for p in pair] == [0, 0]
    assert (tmp_path / "run" / "result.json").is_file()


def test_slurm_tells_processes_where_the_others_are(tmp_path):
    def task(number):
        slurm = {
            "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": str(number),
            "SLURM_LOCALID": str(number),
            "SLURM_STEP_NUM_NODES": "1",
        }
        arguments = ["--steps", 3, "--coordinator", "auto", "--out", tmp_path / "run"]
        return start(
            *("-m", "sdifp", "train", "advection", *SETTINGS, *arguments),
            env=environment(**slurm),
        )

    codes, out, said = ended([task(0), task(1)])
    assert codes == [0, 0], said
    assert "Look at" in out[0]


def test_auto_needs_someone_who_knows(tmp_path):
    arguments = ["--coordinator", "auto", "--out", tmp_path / "run"]
    alone = start("-m", "sdifp", "train", "advection", *SETTINGS, *arguments)
    codes, _, said = ended([alone], 60)
    assert codes == [2]
    assert "coordinator is auto, and nothing here tells of other processes" in said[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--process-id", 1], "--process-id 1 needs --coordinator host:port"),
        (["--num-processes", 2], "--num-processes 2 needs --coordinator"),
        (["--coordinator", "here"], "must be host:port or auto, got 'here'"),
        (["--coordinator", "here:0"], "must be host:port or auto, got 'here:0'"),
        (["--coordinator", "a:1"], "needs --process-id and --num-processes"),
        (
            ["--coordinator", "a:1", "--process-id", 2, "--num-processes", 2],
            "--process-id must be from 0 to 1 for --num-processes 2, got 2",
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
            "--process-id 0 cannot be given with --coordinator auto",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(arguments, words, call, tmp_path):
    code, _, said = call("train", "advection", "--out", tmp_path / "run", *arguments)
    assert code == 2
    assert words in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_variables_of_others_do_not_make_processes(monkeypatch):
    monkeypatch.setenv("JAX_PROCESS_ID", "1")
    assert processes_from(None, None, None, 60, None) is None
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "here:1234")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    found = processes_from(None, None, None, 60, None)
    assert found == ("here:1234", 1, 2, 60, None)
    assert found.options == (
        "--coordinator here:1234 --process-id 1 --num-processes 2 --timeout 60"
    )
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    with pytest.raises(click.UsageError, match="must be whole numbers, got '1' and"):
        processes_from(None, None, None, 60, None)


def test_errors_that_are_of_this_process_are_no_loss(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    full = "RESOURCE_EXHAUSTED: Out of memory"
    with pytest.raises(jax.errors.JaxRuntimeError, match=full), losses():
        raise jax.errors.JaxRuntimeError(full)
    with pytest.raises(ValueError, match="were CANCELLED"), losses():
        raise ValueError("flights were CANCELLED: all")
    # Small messages fail with the second kind.
    for kind in (jax.errors.JaxRuntimeError, ValueError):
        with pytest.raises(Lost, match=r"Gloo AllGather failed$"), losses():
            raise kind("UNKNOWN: Gloo AllGather failed\nmore")


def test_versions_that_differ_are_named(monkeypatch):
    mine, theirs = {"jax": "0.10.2", "seed": 1}, {"jax": "0.9.0", "seed": 1}
    rows = [{"error": None, "is": mine}, {"error": None, "is": theirs}]
    monkeypatch.setattr(_processes, "told", lambda value: rows)
    words = "do not agree: jax is '0.10.2' on process 0 and '0.9.0' on process 1$"
    with pytest.raises(ValueError, match=words):
        check_alike(lambda: mine)
    rows[1] = {"error": "there is no file", "is": {}}
    with pytest.raises(ValueError, match=r"^process 1: there is no file"):
        check_alike(lambda: mine)
