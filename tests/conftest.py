"""Strict settings for all tests: x64, no silent rank promotion, checked annotations."""

import gc
import os
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import settings
from jaxtyping import config as jaxtyping_config
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

sys.path.insert(0, str(Path(__file__).parent))
install_import_hook("sdifp", "typechecker.check")


def pytest_configure(config):
    """Start the backend, with eight devices of one CPU, for tests of several.

    Programs are compiled quickly, but as users compile them in `make validate`.
    Processes that tests start have one device, and flags of their own.
    """
    from quick import FLAGS

    flags = "" if config.option.markexpr == "validate" else FLAGS
    with pytest.MonkeyPatch.context() as patch:
        flags = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
        patch.setenv("XLA_FLAGS", f"{flags} --xla_force_host_platform_device_count=8")
        assert jax.device_count() == 8


def _resident():
    """Bytes of memory that this process has, or 0 where that is not known."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module", autouse=True)
def bounded_memory():
    """Forget compiled programs between modules, once they take much memory."""
    yield
    if _resident() > 2**30:
        jax.clear_caches()
        gc.collect()


# Compilation makes the first example of any test slow, so times are not judged; a
# fixed seed keeps a red run red.
settings.register_profile("sdifp", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("sdifp")


@pytest.fixture
def getkey(request):
    """Fresh keys, the same ones in every run of the same test."""
    seed = sum(map(ord, request.node.nodeid)) % 2**31
    state = [jax.random.key(seed)]

    def next_key():
        state[0], key = jax.random.split(state[0])
        return key

    return next_key


@pytest.fixture
def rng(request):
    """A NumPy generator, the same in every run of the same test."""
    return np.random.default_rng(sum(map(ord, request.node.nodeid)))


@pytest.fixture
def as_user():
    """Without the annotation checks, so that the package's own messages are seen."""
    jaxtyping_config.update("jaxtyping_disable", True)
    yield
    jaxtyping_config.update("jaxtyping_disable", False)


def pytest_terminal_summary(terminalreporter):
    """Print what tests recorded with `record_property`, such as worst cases found."""
    reports = terminalreporter.stats.get("passed", [])
    rows = [p for r in reports if r.when == "call" for p in r.user_properties]
    if rows:
        terminalreporter.section("measured")
        for name, value in sorted(rows):
            terminalreporter.write_line(f"{name}: {value}")


os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture
def call(capsys):
    """Call the program; returns exit code, output and what it said beside."""
    from sdifp._cli import main

    def inner(*arguments):
        try:
            with pytest.raises(SystemExit) as stopped:
                main([str(a) for a in arguments])
        finally:
            # The program sets the precision.
            jax.config.update("jax_enable_x64", True)
        found = capsys.readouterr()
        return stopped.value.code, found.out, found.err

    return inner
